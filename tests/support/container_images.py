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
from waiting import wait_until

BUILD_TIMEOUT_S = 900
ENVIRONMENT = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
USER_ID = 65532


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


@dataclass
class Images:
    """Images and containers, stored in one folder.

    Args:
        folder: grows to 15 GB while an image is built.
    """

    folder: Path
    _containers: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of buildah with these arguments."""
        storage = ("--root", str(self.folder / "root"), "--runroot", str(self.folder / "runroot"))
        return ["buildah", *storage, "--storage-driver", "vfs", *arguments]

    def buildah(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run buildah and return its stdout; a failure raises an error with its output."""
        ended = subprocess.run(
            self.command(*arguments), env=ENVIRONMENT, cwd=cwd, capture_output=True, text=True,
            timeout=BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert 0 == ended.returncode, f"buildah {shlex.join(arguments)}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout.strip()

    def make_base(self, name: str, *packages: str, files: Path | None = None) -> None:
        """Make an image with this machine's Debian release, `packages` and the files of a folder."""
        root = self.folder / f"{name}.debootstrap"
        included = [f"--include={','.join(packages)}"] if packages else []
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        command = ["debootstrap", "--variant=minbase", *included, release, str(root)]
        subprocess.run(command, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S)
        container = self.buildah("from", "scratch")
        for tree in [root, *([files] if files else [])]:
            self.buildah("add", "--quiet", container, str(tree), "/")
        self.buildah("commit", "--quiet", "--format=docker", "--rm", container, f"localhost/{name}")
        subprocess.run(["rm", "--recursive", "--force", "--one-file-system", str(root)], check=True)

    def build(self, docker_build: str, *, context: Path, bases: dict[str, str]) -> None:
        """Run a `docker build …` command line, with other base images and this machine's pip configuration."""
        arguments = shlex.split(docker_build)
        assert ["docker", "build", "."] == [*arguments[:2], arguments[-1]]
        configuration, paths = pip_configuration()
        secret = self.folder / "pip.conf"
        secret.write_text(configuration)
        mounts = [f"--volume={path}:{path}:ro" for path in paths] + [f"--secret=id=pip.conf,src={secret}"]
        base_images = [f"--build-arg={name}=localhost/{image}" for name, image in bases.items()]
        self.buildah("build", "--quiet", "--format=docker", *mounts, *base_images, *arguments[2:], cwd=context)

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

    def execute(self, image: str, ports: dict[str, int], command: str) -> tuple[int, str]:
        """Run a bash command in a container of `image`; return its exit status and stdout."""
        line = self.command("run", *_settings(ports), self._container(image), "--", "bash", "-c", command)
        ended = subprocess.run(line, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        return ended.returncode, ended.stdout

    def _container(self, image: str) -> str:
        if image not in self._containers:
            self._containers[image] = self.buildah("from", "--pull-never", f"localhost/{image}")
        return self._containers[image]

    def remove(self) -> None:
        """Remove all images and containers."""
        if self._containers:
            self.buildah("rm", *self._containers.values())
        subprocess.run(["rm", "--recursive", "--force", "--one-file-system", str(self.folder)], check=True)


def _settings(values: dict[str, int]) -> list[str]:
    return [f"--env={name}={value}" for name, value in values.items()]


class Running:
    """A running container; a context manager that stops it."""

    def __init__(self, run: list[str], command: list[str], log: Path) -> None:
        self.log = log
        self._run = run
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [*self._run, *command], env=ENVIRONMENT, stdout=output, stderr=subprocess.STDOUT
            )

    def wait_until_healthy(self) -> None:
        """Return when the image's own health check succeeds."""
        self._wait(lambda: 0 == self.execute("healthcheck.sh"))

    def wait_for_log(self, text: str) -> None:
        """Return when the log has `text`."""
        self._wait(lambda: text in self.log.read_text())

    def execute(self, *command: str) -> int:
        """Run a command in the container, as `docker exec` does, and return the exit status."""
        return subprocess.run([*self._run, *command], env=ENVIRONMENT, timeout=60, check=False).returncode

    def _wait(self, condition: Callable[[], bool]) -> None:
        wait_until(lambda: self._process.poll() is not None or condition(), timeout_s=300, interval_s=0.2)
        assert self._process.poll() is None, self.log.read_text()

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
