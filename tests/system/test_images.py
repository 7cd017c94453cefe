"""The commands of docs/how-to/docker.md build and run both images, which start, answer and stop."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from container_images import Images
from pages import Block, blocks, commands
from server_process import ServerProcess, free_port

from savedmodel_bakery.client import Client

# Containers share the machine's network: the tests listen on the loopback address only.
LOOPBACK = "--bind_address=127.0.0.1"


def page_blocks(clone: Path, language: str) -> list[Block]:
    page = (clone / "docs" / "how-to" / "docker.md").read_text()
    return [block for block in blocks(page) if block.language == language]


def page_commands(clone: Path, start: str) -> list[str]:
    shown = [command for block in page_blocks(clone, "console") for command, _ in commands(block)]
    return [command for command in shown if command.startswith(start)]


@pytest.fixture(scope="module")
def context(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed files, a model, its labels and the page's recipe."""
    context = tmp_path_factory.mktemp("context")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=clone, check=True, capture_output=True, text=True).stdout
    for name in listed.strip("\0").split("\0"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(clone / name, context / name, follow_symlinks=False)  # the package links to its four folders
    subprocess.run([sys.executable, "examples/train/flowers.py"], cwd=context, check=True, capture_output=True)
    (recipe,) = page_blocks(clone, "toml")
    (context / str(recipe.title)).write_text(recipe.content)
    return context


@pytest.fixture(scope="module")
def images(clone: Path, context: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """Both images; only one of the base images has Python."""
    images = Images(tmp_path_factory.mktemp("images"))
    stub = tmp_path_factory.mktemp("stub") / "usr" / "bin" / "tensorflow_model_server"
    stub.parent.mkdir(parents=True)
    shutil.copy(clone / "tests" / "support" / "stub_model_server", stub)
    images.make_base("python", "python3", "python3-venv")
    images.make_base("model-server", files=stub.parents[2])
    bases = {"PYTHON_BASE": "python", "TENSORFLOW_SERVING_BASE": "model-server"}
    for command in page_commands(clone, "docker build"):
        images.build(command, context=context, bases=bases)
    yield images
    images.remove()


@pytest.mark.timeout(1800)
def test_embedded_answers_and_stops(clone: Path, images: Images, tmp_path: Path) -> None:
    ports = {"PORT": free_port(), "REST_API_PORT": free_port()}
    command, _ = page_commands(clone, "docker run")
    log = tmp_path / "log"
    with images.start(command, ports=ports, arguments=(LOOPBACK,), log=log) as running:
        running.wait_until_healthy()
        for transport in ("grpc", "rest"):
            with Client(transport=transport, port=ports["PORT"], rest_api_port=ports["REST_API_PORT"]) as client:
                classification = client.classify(clone / "examples" / "coffee.png")
            assert "espresso" == classification.label
        url = f"http://127.0.0.1:{ports['REST_API_PORT']}/v1/models/efficientnet_lite0"
        (version,) = requests.get(url, timeout=30).json()["model_version_status"]
        assert ("1", "AVAILABLE") == (version["version"], version["state"])
        assert 0 == running.stop(), log.read_text()
        assert 0 != running.execute("healthcheck.sh")


@pytest.mark.timeout(1800)
def test_tensorflow_model_server_gets_its_model_its_ports_and_further_arguments(
    clone: Path, images: Images, tmp_path: Path
) -> None:
    _, command = page_commands(clone, "docker run")
    log = tmp_path / "log"
    with images.start(command, ports={}, arguments=("--enable_batching=true",), log=log) as running:
        running.wait_for_log("as user")
        assert 0 == running.stop()
    assert [
        "--grpc_max_threads=256", "--port=8500", "--rest_api_port=8501", "--model_name=flowers",
        "--model_base_path=/models/flowers", "--enable_batching=true",
        "serving /models/flowers/1/saved_model.pb as user 65532 with glibc.malloc.hugetlb=1",
    ] == log.read_text().splitlines()  # fmt: skip


@pytest.mark.timeout(1800)
def test_health_is_checked_without_python_and_curl(lite0: Path, images: Images, tmp_path: Path) -> None:
    """In the image of tensorflow_model_server; it checks a server outside the container."""
    flags = ("--model_name=lite0", f"--model_base_path={lite0}")
    with ServerProcess(*flags, log=tmp_path / "server.log") as server:
        ports = {"PORT": server.port, "REST_API_PORT": server.rest_api_port}
        check = {"MODEL_NAME=lite0": 0, "MODEL_NAME=cats": 1, "REST_API_PORT=0": 0, "REST_API_PORT=1": 1}
        statuses = {setting: images.execute("flowers", ports, f"{setting} healthcheck.sh")[0] for setting in check}
        assert check == statuses
    assert (1, "") == images.execute("flowers", {}, "command -v python3 curl")


@pytest.mark.timeout(1800)
def test_nothing_from_the_build_remains(images: Images) -> None:
    assert (1, "") == images.execute("classifier", {}, "command -v gcc cc make")
    assert (0, "") == images.execute("classifier", {}, "shopt -s nullglob; echo -n /src/* /root/.cache/* /tmp/*")
    assert (0, "") == images.execute("classifier", {}, "python3 -c 'import savedmodel_bakery.serving.server'")
    assert (1, "") == images.execute("classifier", {}, "python3 -c 'import tensorflow_hub'")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("image", ["classifier", "flowers"])
def test_the_configuration_of_an_image(images: Images, image: str) -> None:
    configuration = images.configuration(image)
    assert "65532:65532" == configuration["User"]
    assert {"8500/tcp": {}, "8501/tcp": {}} == configuration["ExposedPorts"]
    assert ["CMD", "healthcheck.sh"] == configuration["Healthcheck"]["Test"]
    assert ["entrypoint.sh"] == configuration["Entrypoint"]
    assert not configuration["Cmd"]
