"""The commands of the pages build the images, which start, answer and stop; what the images contain."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import requests
import tomllib
from container_images import BASES, LOOPBACK, Images, image_commands
from server_process import ServerProcess, free_port

from savedmodel_bakery.client import Client

SERVERS = ["classifier", "classifier-gpu", "flowers"]
PYTHON = ["bakery-client", "bakery-server", "classifier", "efficientnet-lite0"]


@pytest.mark.timeout(1800)
def test_embedded_answers_and_stops(clone: Path, images: Images, tmp_path: Path) -> None:
    ports = {"PORT": free_port(), "REST_API_PORT": free_port()}
    command = image_commands(clone, "docker run")[0]
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
        uses_mimalloc = "cat /proc/[0-9]*/maps 2>/dev/null | grep --quiet /opt/bakery/lib/libmimalloc"
        assert 0 == running.execute("bash", "-c", uses_mimalloc)
        assert 0 == running.stop(), log.read_text()
        assert 0 != running.execute("healthcheck.sh")


@pytest.mark.timeout(1800)
def test_an_operator_may_choose_how_the_embedded_server_allocates_memory(images: Images) -> None:
    """A stub server prints what entrypoint.sh sets."""
    stub = r"printf '#!/bin/bash\necho preloads [$LD_PRELOAD]\n' >stub/bakery"
    folder = "cd $(mktemp --directory --tmpdir=/var/tmp); mkdir stub"
    prepare = f"{folder}; {stub}; chmod +x stub/bakery; PATH=$PWD/stub:$PATH"
    status, printed = images.execute("classifier", {}, f"{prepare}; entrypoint.sh; LD_PRELOAD= entrypoint.sh")
    assert 0 == status
    assert ["preloads [/opt/bakery/lib/libmimalloc.so.2]", "preloads []"] == printed.splitlines()


@pytest.mark.timeout(1800)
def test_tensorflow_model_server_gets_its_model_its_ports_and_further_arguments(
    clone: Path, images: Images, tmp_path: Path
) -> None:
    command = image_commands(clone, "docker run")[1]
    log = tmp_path / "log"
    with images.start(command, ports={}, arguments=("--enable_batching=true",), log=log) as running:
        running.wait_for_log("as user")
        assert 0 == running.stop()
    assert [
        "--grpc_max_threads=256", "--port=8500", "--rest_api_port=8501", "--model_name=flowers",
        "--model_base_path=/models/flowers", "--enable_batching=true",
        "serving /models/flowers/3/saved_model.pb as user 65532 with glibc.malloc.hugetlb=1",
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


@pytest.mark.timeout(300)
def test_secrets_in_the_clone_get_into_no_image(clone: Path, tmp_path: Path) -> None:
    """An image with the whole build context, as those of the builder and of Ray, has none of their files."""
    secrets = {"tokens.toml", "tls.config", "shop.token", "server.key", "ca.pem", ".env"}
    for folder in (tmp_path / "context", tmp_path / "context" / "folder"):
        folder.mkdir()
        for name in (*secrets, "flowers.toml"):
            (folder / name).touch()
    shutil.copy(clone / ".dockerignore", tmp_path / "context")
    (tmp_path / "context" / "Dockerfile").write_text("FROM scratch\nCOPY . /context\n")
    images = Images(tmp_path / "images")
    images.folder.mkdir()
    try:
        images.build("docker build --tag context .", context=tmp_path / "context", bases={})
        copied = images.root("context") / "context"
        paths = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    finally:
        images.remove()
    assert {"Dockerfile", "flowers.toml", "folder/flowers.toml"} == paths


@pytest.mark.timeout(1800)
def test_gpu_settings(images: Images, tmp_path: Path) -> None:
    """Memory grows, and only one GPU is used, however many the container has."""
    environment = images.configuration("classifier-gpu")["Env"]
    assert {"TF_FORCE_GPU_ALLOW_GROWTH=true", "CUDA_VISIBLE_DEVICES=0"} <= set(environment)
    command = "docker run --rm classifier-gpu --per_process_gpu_memory_fraction=0.5"
    with images.start(command, ports={}, arguments=(), log=tmp_path / "log") as running:
        running.wait_for_log("serving /models/efficientnet_lite0/1/saved_model.pb")
        assert "--per_process_gpu_memory_fraction=0.5" in running.log.read_text().splitlines()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", ["client", "server"])
def test_an_image_is_reproducible(target: str, context: Path, images: Images) -> None:
    """Built twice from its beginning, it has the same digest."""
    tags = (f"{target}-once", f"{target}-again")
    for tag in tags:
        images.build(f"docker build --target {target} --tag {tag} .", context=context, bases=BASES, reproducible=True)
    assert images.digest(tags[0]) == images.digest(tags[1])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("image", "megabytes"),
    [("classifier", 940), ("bakery-server", 920), ("bakery-client", 110), ("efficientnet-lite0", 135)],
)
def test_images_are_small(images: Images, image: str, megabytes: int) -> None:
    """Beside their base image, which is their first layer."""
    assert sum(images.layer_sizes(image)[1:]) < megabytes * 1e6


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("image", PYTHON)
def test_an_image_lists_its_packages(clone: Path, images: Images, image: str) -> None:
    document = json.loads((images.root(image) / "opt" / "bakery" / "sbom.cdx.json").read_text())
    assert "CycloneDX" == document["bomFormat"]
    listed = {(one["name"].lower().replace("_", "-"), one["version"]) for one in document["components"]}
    lock = "embedded" if image in ("bakery-server", "classifier") else "client"
    lines = (clone / "requirements" / f"{lock}.lock").read_text().splitlines()
    locked = {match.groups() for line in lines if (match := re.match(r"(\S+)==(\S+) \\$", line))}
    assert len(locked) >= 10
    assert set() == locked - listed
    assert ("savedmodel-bakery", "0.1.0") in listed
    assert not {"keras", "libclang", "pip", "cyclonedx-bom"} & {name for name, _ in listed}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("image", [*SERVERS, *PYTHON])
def test_images_are_labelled(clone: Path, images: Images, image: str) -> None:
    project = tomllib.loads((clone / "pyproject.toml").read_text())["project"]
    labels = images.configuration(image)["Labels"]
    assert project["version"] == labels["org.opencontainers.image.version"]
    assert project["license"] == labels["org.opencontainers.image.licenses"]
    assert labels["org.opencontainers.image.title"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("image", SERVERS)
def test_the_configuration_of_an_image(images: Images, image: str) -> None:
    configuration = images.configuration(image)
    assert "65532:65532" == configuration["User"]
    assert {"8500/tcp": {}, "8501/tcp": {}} == configuration["ExposedPorts"]
    assert ["CMD", "healthcheck.sh"] == configuration["Healthcheck"]["Test"]
    assert ["entrypoint.sh"] == configuration["Entrypoint"]
    assert not configuration["Cmd"]
