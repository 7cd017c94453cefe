"""The commands of the pages build the images, which start, answer and stop, also in pods; what the images contain.

One file, because one process builds all images, in ten minutes.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
import requests
import tomllib
import trustme
from container_images import BASES, LOOPBACK, Images, Running, image_commands
from kubernetes_manifests import build, pod_templates
from pod_containers import Pod
from rabbitmq import RabbitMQ
from server_process import ServerProcess, free_port

from savedmodel_bakery import AmqpClient, Client, ConnectionFailedError, RequestRefusedError, Tls

SERVERS = ["classifier", "classifier-gpu", "flowers"]
PYTHON = ["bakery-client", "bakery-server", "classifier", "efficientnet-lite0", "efficientnet-lite0-kserve"]
KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
MODEL = "efficientnet_lite0"
REGISTRY = "registry.example/"
LOCAL_IMAGES = {
    f"{REGISTRY}bakery-server:0.2.0": "bakery-server",
    f"{REGISTRY}bakery-client:0.2.0": "bakery-client",
    f"{REGISTRY}efficientnet-lite0:1": "efficientnet-lite0",
    f"{REGISTRY}efficientnet-lite0-tensorflow-serving:1": "flowers",
    f"{REGISTRY}efficientnet-lite0-tensorflow-serving-gpu:1": "classifier-gpu",
}


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
        assert 0 == running.stop(), log.read_text()
        assert 0 != running.execute("healthcheck.sh")


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
    assert (0, "") == images.execute("classifier", {}, "shopt -s nullglob; echo -n /src/* ~root/.cache/* /tmp/*")
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
    images = Images(tmp_path / "images", tmp_path)
    images.folder.mkdir()
    try:
        images.build("docker build --tag context .", context=tmp_path / "context", bases={})
        copied = images.root("context") / "context"
        paths = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    finally:
        images.clean()
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
@pytest.mark.slow
@pytest.mark.parametrize("target", ["client", "server"])
def test_an_image_is_reproducible(target: str, context: Path, base_images: Images) -> None:
    """Built twice from its beginning, it has the same digest."""
    tags = (f"{target}-once", f"{target}-again")
    for tag in tags:
        command = f"docker build --target {target} --tag {tag} ."
        base_images.build(command, context=context, bases=BASES, reproducible=True)
    assert base_images.digest(tags[0]) == base_images.digest(tags[1])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("image", "megabytes"),
    [
        ("classifier", 940),
        ("bakery-server", 920),
        ("bakery-client", 110),
        ("efficientnet-lite0", 135),
        ("efficientnet-lite0-kserve", 135),
    ],
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
    assert ("savedmodel-bakery", "0.2.0") in listed
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


def make_pod(
    name: str, kind: str, images: Images, folder: Path, *, secrets: Mapping[str, Mapping[str, str]] | None = None
) -> tuple[Pod, dict[str, int]]:
    """Return the pod of a kustomization, and the ports to use instead of those of the manifests."""
    manifests = build(KUBERNETES / name)
    [manifest] = [manifest for manifest in manifests if manifest["kind"] == kind]
    [template] = pod_templates(manifest)
    ports = {"grpc": free_port(), "rest": free_port()}
    ports["8080"] = ports["rest"]
    pod = Pod(
        template, manifests=manifests, secrets=secrets or {}, images=images, local_images=LOCAL_IMAGES, ports=ports,
        folder=folder,
    )  # fmt: skip
    return pod, ports


def server_certificate(folder: Path) -> tuple[Path, str]:
    """Return the file of an authority, and the server's SSLConfig with a certificate for localhost."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued = authority.issue_cert("localhost")
    key, certificate = (pem.bytes().decode() for pem in (issued.private_key_pem, issued.cert_chain_pems[0]))
    return folder / "ca.pem", f"server_key: {json.dumps(key)}\nserver_cert: {json.dumps(certificate)}\n"


def written_files(images: Images, image: str, before: Path) -> list[str]:
    """Return the files in the containers of an image that are newer than `before`, its volumes excepted."""
    found = subprocess.run(
        ["find", images.root(image), "-xdev", "-newer", before, "-type", "f"],
        check=True,
        capture_output=True,
        text=True,
    )
    # buildah itself writes these two, as container engines do.
    return [line for line in found.stdout.splitlines() if not line.endswith(("/etc/hosts", "/etc/resolv.conf"))]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("overlay", ["embedded", "cpu"])
def test_a_pod_of_the_embedded_server(overlay: str, clone: Path, images: Images, tmp_path: Path) -> None:
    """It is ready once the goldens agree; it requires TLS and tokens, finishes, and writes to its volumes only."""
    folder = tmp_path / "pod"
    folder.mkdir()
    authority, config = server_certificate(tmp_path)
    tokens = {}
    for caller in ("readiness", "shop"):
        command = ["token", "new", caller, "--file", str(tmp_path / "tokens.toml")]
        made = subprocess.run(
            [sys.executable, "-m", "savedmodel_bakery", *command], check=True, capture_output=True, text=True
        )
        tokens[caller] = made.stdout.strip()
    secrets = {
        "model-server-access": {"tokens.toml": (tmp_path / "tokens.toml").read_text(), "tls.config": config},
        "readiness-access": {"token": tokens["readiness"], "ca.pem": authority.read_text()},
    }
    pod, ports = make_pod(f"overlays/{overlay}", "Deployment", images, folder, secrets=secrets)
    of_server = {"PORT": ports["grpc"], "REST_API_PORT": ports["rest"]}
    of_client = {"BAKERY_CLIENT_PORT": ports["grpc"], "BAKERY_CLIENT_REST_API_PORT": ports["rest"]}
    (before := tmp_path / "before").touch()
    with pod.start("readiness", variables=of_client) as readiness:
        readiness.wait_for_log("cannot connect")
        assert not pod.probe("readiness", "readinessProbe")
        assert not pod.probe("server", "livenessProbe")
        with pod.start("server", LOOPBACK, variables=of_server) as server:
            server.wait_until(lambda: pod.probe("server", "startupProbe", of_server))
            server.wait_until(lambda: pod.probe("server", "readinessProbe", of_server))
            assert pod.probe("server", "livenessProbe")
            readiness.wait_until(lambda: pod.probe("readiness", "readinessProbe"))
            assert "18 of 18 responses agree" in readiness.log.read_text()
            address = {"target": "grpcs://localhost", "port": ports["grpc"], "model": MODEL}
            with Client(**address, tls=Tls(ca=authority), token=tokens["shop"]) as client:
                assert "espresso" == client.classify(clone / "examples" / "coffee.png").label
            with Client(**address, tls=Tls(ca=authority)) as client, pytest.raises(RequestRefusedError, match="token"):
                client.status()
            insecure = Client(**address | {"target": "localhost"})
            with insecure, pytest.raises(ConnectionFailedError):
                insecure.status()
            assert 0 == server.execute(*pod.container("server")["lifecycle"]["preStop"]["exec"]["command"][:1], "0")
            assert 0 == server.stop(), server.log.read_text()
        # A server that is started again is checked again.
        readiness.wait_until(lambda: not pod.probe("readiness", "readinessProbe"))
        with pod.start("server", LOOPBACK, variables=of_server) as server:
            readiness.wait_until(lambda: pod.probe("readiness", "readinessProbe"))
            assert 2 == readiness.log.read_text().count("18 of 18 responses agree")
            assert 0 == server.stop(), server.log.read_text()
        assert 0 == readiness.stop()
    assert [] == written_files(images, "bakery-server", before) + written_files(images, "bakery-client", before)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("overlay", ["tensorflow-serving", "gpu"])
def test_a_pod_of_tensorflow_model_server(overlay: str, images: Images, tmp_path: Path) -> None:
    """The server gets its model from the volume, its ports, and the settings of the metrics."""
    pod, _ = make_pod(f"overlays/{overlay}", "Deployment", images, tmp_path)
    with pod.start("server") as server:
        server.wait_for_log("as user 65532")
        assert 0 == server.stop()
    assert [
        "--port=8500", "--rest_api_port=8501", f"--model_name={MODEL}", f"--model_base_path=/models/{MODEL}",
        "--monitoring_config_file=/etc/model-server/monitoring.config",
        "--grpc_channel_arguments=grpc.max_connection_age_ms=60000,grpc.max_connection_age_grace_ms=300000",
    ] == server.log.read_text().splitlines()[1:7]  # fmt: skip


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["overlays/cpu", "amqp"])
def test_the_init_container_copies_the_model(name: str, images: Images, tmp_path: Path) -> None:
    (tmp_path / "kubernetes").symlink_to(KUBERNETES)
    overlay, folder = tmp_path / "overlay", tmp_path / "pod"
    overlay.mkdir()
    folder.mkdir()
    (overlay / "kustomization.yaml").write_text(
        f"resources: [../kubernetes/{name}]\ncomponents: [../kubernetes/components/init-container]\n"
    )
    manifests = build(overlay)
    [template] = [template for manifest in manifests for template in pod_templates(manifest)]
    template["spec"]["volumes"] = [volume for volume in template["spec"]["volumes"] if volume["name"] == "model"]
    pod = Pod(
        template, manifests=manifests, secrets={}, images=images, local_images=LOCAL_IMAGES, ports={}, folder=folder
    )
    copying = pod.start("copy-model")
    assert 0 == copying.wait(), copying.log.read_text()
    mounts = template["spec"]["containers"][0]["volumeMounts"]
    [sub_path] = [mount["subPath"] for mount in mounts if mount["name"] == "model"]
    assert (folder / "model" / sub_path / MODEL / "1" / "saved_model.pb").is_file()


@pytest.mark.timeout(1800)
def test_a_worker(clone: Path, broker: RabbitMQ, images: Images, tmp_path: Path) -> None:
    pod, _ = make_pod("amqp", "Deployment", images, tmp_path, secrets={"amqp-broker": {"url": broker.url()}})
    arguments = ("--metrics-port", str(port := free_port()), "--metrics-address", "127.0.0.1")
    with pod.start("worker", *arguments) as worker, AmqpClient(broker.url(), model=MODEL, timeout_s=120) as client:
        worker.wait_for_log("Consuming queue")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            assert b"bakery_" in page.read()
        assert "espresso" == client.classify(clone / "examples" / "coffee.png").label
        assert 0 == worker.stop(), worker.log.read_text()


@pytest.mark.timeout(1800)
def test_the_runtime_of_kserve_answers_v1_and_v2(clone: Path, images: Images, tmp_path: Path) -> None:
    """KServe replaces {{.Name}}. For oci:// it runs the model's image too, as the same user, and links its /models.

    Its page "Serving Models with OCI Images" has the command. The containers share a volume and their process ids.
    """
    pod, ports = make_pod("kserve", "ServingRuntime", images, tmp_path)
    container = pod.container("kserve-container")
    container["args"] = [
        argument.replace("{{.Name}}", "lite0").replace("8080", str(ports["rest"])).replace("8500", str(ports["grpc"]))
        for argument in container["args"]
    ]
    (shared := tmp_path / "mnt").mkdir()
    shared.chmod(0o777)
    pod.add_volume("mnt", shared)
    container["volumeMounts"] = [{"name": "mnt", "mountPath": "/mnt"}]
    model = images.run_line("efficientnet-lite0-kserve", f"--volume={shared}:/mnt", "--cap-drop=ALL")
    link = ["sh", "-c", "ln -sf /proc/$$/root/models /mnt/ && exec sleep infinity"]
    (before := tmp_path / "before").touch()
    with (
        Running(model, link, tmp_path / "model.log") as modelcar,
        pod.start("kserve-container", LOOPBACK) as server,
    ):
        modelcar.wait_until((shared / "models").is_symlink)
        server.wait_until(lambda: pod.probe("kserve-container", "readinessProbe"))
        for transport in ("rest", "v2"):
            with Client(transport=transport, rest_api_port=ports["rest"], model="lite0") as client:
                assert "espresso" == client.classify(clone / "examples" / "coffee.png").label
        assert 0 == server.stop(), server.log.read_text()
    assert [] == written_files(images, "bakery-server", before)


def called(url: str) -> bool:
    """Return whether a health check of a cloud, which may take two seconds, succeeds."""
    try:
        return 200 == requests.get(url, timeout=2).status_code
    except requests.ConnectionError:
        return False


def send_json(url: str, photo: bytes, **headers: str) -> dict[str, object]:
    """Send a photo as TensorFlow Serving's JSON."""
    body = {"instances": [{"b64": base64.b64encode(photo).decode()}]}
    document: dict[str, object] = requests.post(url, json=body, headers=headers, timeout=60).json()
    return document


def send_photo(url: str, photo: bytes, content_type: str) -> str:
    """Send a photo as it is, and return its label."""
    response = requests.post(url, data=photo, headers={"Content-Type": content_type}, timeout=60)
    label: str = response.json()["results"][0]["label"]
    return label


@pytest.mark.timeout(1800)
def test_sagemaker_runs_the_server_with_an_archive(clone: Path, images: Images, tmp_path: Path) -> None:
    """SageMaker unpacks the archive of `bakery package` to /opt/ml/model."""
    archive = tmp_path / "model.tar.gz"
    version = images.root("efficientnet-lite0") / "models" / MODEL / "1"
    command = ["package", str(version), "--for", "sagemaker", "--out", str(archive)]
    subprocess.run([sys.executable, "-m", "savedmodel_bakery", *command], check=True, capture_output=True)
    shutil.unpack_archive(archive, tmp_path / "model", filter="data")
    port, grpc_port = free_port(), free_port()
    variables = {"SAGEMAKER_BIND_TO_PORT": port, "SAGEMAKER_SAFE_PORT_RANGE": f"{grpc_port}-{grpc_port + 1}"}
    settings = [f"--env={name}={value}" for name, value in variables.items()]
    line = images.run_line("bakery-server", f"--volume={tmp_path}/model:/opt/ml/model:ro", *settings)
    url, photo = f"http://127.0.0.1:{port}", (clone / "examples" / "coffee.png").read_bytes()
    with Running(line, ["entrypoint.sh", "serve", LOOPBACK], tmp_path / "log") as server:
        server.wait_until(lambda: called(f"{url}/ping"))
        attributes = {"X-Amzn-SageMaker-Custom-Attributes": f"tfs-model-name={MODEL},tfs-model-version=1"}
        for headers in ({}, attributes):
            assert {"predictions": ["espresso"]} == send_json(f"{url}/invocations", photo, **headers)
        for content_type in ("application/x-image", "image/png"):
            assert "espresso" == send_photo(f"{url}/invocations", photo, content_type)
        assert 0 == server.stop(), server.log.read_text()


@pytest.mark.timeout(1800)
def test_vertex_ai_runs_the_image_with_its_model(clone: Path, images: Images, tmp_path: Path) -> None:
    """Without routes of its own, a model has those of its endpoint; AIP_STORAGE_URI is empty without an artifact."""
    route = "/v1/endpoints/1/deployedModels/2"
    port = free_port()
    variables = {
        "PORT": free_port(),
        "AIP_HTTP_PORT": port,
        "AIP_HEALTH_ROUTE": route,
        "AIP_PREDICT_ROUTE": f"{route}:predict",
        "AIP_STORAGE_URI": "",
    }
    line = images.run_line("classifier", *(f"--env={name}={value}" for name, value in variables.items()))
    url, photo = f"http://127.0.0.1:{port}{route}", (clone / "examples" / "coffee.png").read_bytes()
    with Running(line, ["entrypoint.sh", LOOPBACK], tmp_path / "log") as server:
        server.wait_until(lambda: called(url))
        assert {"predictions": ["espresso"]} == send_json(f"{url}:predict", photo)
        assert "espresso" == send_photo(f"{url}:predict", photo, "image/png")
        assert 0 == server.stop(), server.log.read_text()


@pytest.mark.timeout(1800)
def test_tensorflow_model_server_has_no_routes_of_clouds(images: Images) -> None:
    for command in ("entrypoint.sh serve", "AIP_HTTP_PORT=8080 entrypoint.sh"):
        status, printed = images.execute("flowers", {}, f"{command} 2>&1")
        assert 1 == status
        assert printed.startswith("error: this image runs tensorflow_model_server, which lacks the routes of SageMaker")
