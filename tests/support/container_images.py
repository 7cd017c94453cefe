"""Builds and runs container images with buildah, without an engine; debootstrap makes the base images.

Containers share the machine's network, so ports are passed as variables instead of being published.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from pages import Block, blocks, commands
from waiting import wait_until

BUILD_TIMEOUT_S = 900
MAX_KEPT_BYTES = 12_000_000_000  # of the layers of all builds; one build of all images takes a third of it
BUILD_TIME_S = 1_700_000_000
"""The time of all files in the images, and of their creation."""
ENVIRONMENT = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
USER_ID = 65532

LOOPBACK = "--bind_address=127.0.0.1"
"""Containers share the machine's network: the tests listen on the loopback address only."""

BASES = {
    "PYTHON_BASE": "python",
    "TENSORFLOW_SERVING_BASE": "model-server",
    "TENSORFLOW_SERVING_GPU_BASE": "model-server",
}
"""The base images, by their build argument: only the first has Python."""


def image_blocks(clone: Path, language: str) -> list[Block]:
    """Return the blocks of the pages on images."""
    pages = [(clone / "docs" / "how-to" / name).read_text() for name in ("docker.md", "gpu.md")]
    return [block for page in pages for block in blocks(page) if block.language == language]


def image_commands(clone: Path, start: str) -> list[str]:
    """Return the commands of the pages on images that start with `start`."""
    shown = [command for block in image_blocks(clone, "console") for command, _ in commands(block)]
    return [command for command in shown if command.startswith(start)]


def pip_configuration() -> tuple[str, list[Path]]:
    """Return this machine's pip configuration as a file for a build, and the local paths that it names."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    settings = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = shlex.split(value)[0]
    words = {word for value in settings.values() for word in value.split()}
    # The pages of an index link to files next to it.
    paths = {Path(word.removeprefix("file://")).parent if word.startswith("file://") else Path(word) for word in words}
    lines = [f"{name} = {value}" for name, value in settings.items()]
    return "\n".join(["[global]", *lines, ""]), [path for path in paths if path.is_absolute() and path.exists()]


def kept_bytes(folder: Path) -> int:
    """Return how much a folder of images takes."""
    command = ["du", "--summarize", "--block-size=1", "--one-file-system", str(folder)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0])


@dataclass
class Images:
    """Images and containers. Builds share the layers of common stages, also with builds of earlier runs.

    Args:
        folder: keeps the images, and the layers of all builds.
        state: folder for what is mounted, which ends with the run.
    """

    folder: Path
    state: Path
    _containers: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of buildah with these arguments."""
        storage = ("--root", str(self.folder), "--runroot", str(self.state / "runroot"))
        # Before other processes, because all other tests end before those of the images do.
        return ["nice", "--adjustment=-5", "buildah", *storage, "--storage-driver", "overlay", *arguments]

    def buildah(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run buildah and return its stdout; a failure raises an error with its output."""
        ended = subprocess.run(
            self.command(*arguments), env=ENVIRONMENT, cwd=cwd, capture_output=True, text=True,
            timeout=BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert 0 == ended.returncode, f"buildah {shlex.join(arguments)}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout.strip()

    def names(self) -> set[str]:
        """Return the names of the images."""
        return set(self.buildah("images", "--format={{.Name}}").split())

    def make_debian(self) -> None:
        """Make the image `debian` with this machine's Debian release."""
        root = self.state / "debootstrap"
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        command = ["debootstrap", "--variant=minbase", release, str(root)]
        subprocess.run(command, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S)
        self._make_base(
            "scratch", "debian", lambda container: self.buildah("add", "--quiet", container, str(root), "/")
        )
        subprocess.run(["rm", "--recursive", "--force", "--one-file-system", str(root)], check=True)

    def make_base(self, name: str, *packages: str, files: Path | None = None) -> None:
        """Make an image of one layer from `debian`, `packages` and the files of a folder."""

        def fill(container: str) -> None:
            if packages:
                install = f"apt-get update && apt-get install --yes --no-install-recommends {' '.join(packages)}"
                self.buildah("run", "--env=DEBIAN_FRONTEND=noninteractive", container, "--", "sh", "-c", install)
            if files:
                self.buildah("add", "--quiet", container, str(files), "/")

        self._make_base("localhost/debian", name, fill)

    def _make_base(self, start: str, name: str, fill: Callable[[str], object]) -> None:
        container = self.buildah("from", start)
        fill(container)
        self.buildah("commit", "--quiet", "--format=docker", "--squash", "--rm", container, f"localhost/{name}")

    def build(self, docker_build: str, *, context: Path, bases: dict[str, str], reproducible: bool = False) -> None:
        """Run a `docker build …` command line, with other base images and this machine's pip configuration.

        A `reproducible` image is built from its beginning, in OCI's format, whose configuration has no random names as
        Docker's, and without a history, which names the intermediate images.
        """
        arguments = shlex.split(docker_build)
        assert ["docker", "build", "."] == [*arguments[:2], arguments[-1]]
        configuration, paths = pip_configuration()
        secret = self.state / "pip.conf"
        secret.write_text(configuration)
        mounts = [f"--volume={path}:{path}:ro" for path in paths] + [f"--secret=id=pip.conf,src={secret}"]
        base_images = [f"--build-arg={name}=localhost/{image}" for name, image in bases.items()]
        kind = ["--format=oci", "--no-cache", "--omit-history"] if reproducible else ["--format=docker", "--layers"]
        options = ["--quiet", f"--timestamp={BUILD_TIME_S}", *kind]
        self.buildah("build", *options, *mounts, *base_images, *arguments[2:], cwd=context)

    def digest(self, image: str) -> str:
        """Return the digest of an image: of its manifest, which has those of its layers and of its configuration."""
        return str(json.loads(self.buildah("inspect", "--type=image", image))["FromImageDigest"])

    def layer_sizes(self, image: str) -> list[int]:
        """Return the bytes of an image's layers, uncompressed."""
        manifest = json.loads(json.loads(self.buildah("inspect", "--type=image", image))["Manifest"])
        return [layer["size"] for layer in manifest["layers"]]

    def root(self, image: str) -> Path:
        """Return the folder with the files of an image's container."""
        return Path(self.buildah("mount", self._container(image)))

    def configuration(self, image: str) -> dict[str, Any]:
        """Return the image's configuration: User, Env, ExposedPorts, Healthcheck and so on."""
        configuration: dict[str, Any] = json.loads(self.buildah("inspect", "--type=image", image))["Docker"]["config"]
        return configuration

    def start(self, docker_run: str, *, ports: dict[str, int], arguments: tuple[str, ...], log: Path) -> Running:
        """Run a `docker run …` command line; `ports`, by variable name, are used instead of the published ports."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--rm", action="store_true")
        parser.add_argument("--detach", action="store_true")
        parser.add_argument("--name")
        parser.add_argument("--publish", action="append", default=[])
        parser.add_argument("--env", action="append", default=[])
        parser.add_argument("image")
        parser.add_argument("arguments", nargs=argparse.REMAINDER)
        docker, run, *words = shlex.split(docker_run)
        assert ("docker", "run") == (docker, run)
        options = parser.parse_args(words)
        container = self._container(options.image)
        variables = [f"--env={setting}" for setting in options.env] + _settings(ports)
        entry = self.configuration(options.image)["Entrypoint"]
        return Running(self.command("run", *variables, container, "--"), [*entry, *options.arguments, *arguments], log)

    def run_line(self, image: str, *options: str) -> list[str]:
        """Return the command line that runs a command, which must follow, in the container of an image."""
        return self.command("run", *options, self._container(image), "--")

    def execute(self, image: str, ports: dict[str, int], command: str) -> tuple[int, str]:
        """Run a bash command in a container of `image`; return its exit status and stdout."""
        line = self.command("run", *_settings(ports), self._container(image), "--", "bash", "-c", command)
        ended = subprocess.run(line, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        return ended.returncode, ended.stdout

    def _container(self, image: str) -> str:
        if image not in self._containers:
            self._containers[image] = self.buildah("from", "--pull-never", f"localhost/{image}")
        return self._containers[image]

    def clean(self) -> None:
        """Remove all containers, also those of runs that were killed."""
        self._containers.clear()
        self.buildah("rm", "--all")


def _settings(values: dict[str, int]) -> list[str]:
    return [f"--env={name}={value}" for name, value in values.items()]


class Running:
    """A running container; a context manager that stops it.

    Args:
        start: command line that starts `command` in the container.
        run: command line that runs other commands in it, if it differs.
    """

    def __init__(self, start: list[str], command: list[str], log: Path, *, run: list[str] | None = None) -> None:
        self.log = log
        self._run = run or start
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [*start, *command], env=ENVIRONMENT, stdout=output, stderr=subprocess.STDOUT
            )

    def wait_until_healthy(self) -> None:
        """Return when the image's own health check succeeds."""
        self.wait_until(lambda: 0 == self.execute("healthcheck.sh"))

    def wait_for_log(self, text: str) -> None:
        """Return when the log has `text`."""
        self.wait_until(lambda: text in self.log.read_text())

    def execute(self, *command: str) -> int:
        """Run a command in the container, as `docker exec` does, and return the exit status."""
        return subprocess.run([*self._run, *command], env=ENVIRONMENT, timeout=60, check=False).returncode

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when the condition is true; fail if the container ends before."""
        wait_until(lambda: self._process.poll() is not None or condition(), timeout_s=300, interval_s=0.2)
        assert self._process.poll() is None, self.log.read_text()

    def wait(self) -> int:
        """Return the exit status when the container ends."""
        return self._process.wait(300)

    def stop(self) -> int:
        """Send SIGTERM to the container's first process and return the exit status."""
        descendants = psutil.Process(self._process.pid).children(recursive=True)
        in_container = [process for process in descendants if not process.cmdline()[0].startswith("buildah")]
        assert USER_ID == in_container[0].uids().effective
        in_container[0].terminate()
        return self._process.wait(60)

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.stop()
