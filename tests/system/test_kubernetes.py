"""The manifests of deploy/kubernetes are built by kustomize, valid, restricted, and refer to things that exist."""

from __future__ import annotations

import copy
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from kubernetes_manifests import Manifest, build, client_side, pod_templates, validate
from pages import blocks, commands

from savedmodel_bakery.commands.bulk import bulk
from savedmodel_bakery.exits import FAILED, PHOTOS_FAILED
from savedmodel_bakery.serving.amqp.consumer import GRACE_S as WORKER_GRACE_S
from savedmodel_bakery.serving.commands.amqp import work
from savedmodel_bakery.serving.grpc.server import channel_arguments
from savedmodel_bakery.serving.server import GRACE_S
from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = [f"overlays/{path.name}" for path in sorted(FOLDER.glob("overlays/*"))]
KUSTOMIZATIONS = ["amqp", "kserve", "ray", *OVERLAYS]


@cache
def built(name: str) -> list[Manifest]:
    return build(FOLDER / name)


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def pods(manifests: list[Manifest]) -> list[Manifest]:
    return [template for manifest in manifests for template in pod_templates(manifest)]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def images(manifests: list[Manifest]) -> list[str]:
    """Return the images of volumes and of containers."""
    templates = pods(manifests)
    references = [volume["image"]["reference"] for pod in templates for volume in pod["spec"].get("volumes", [])
                  if "image" in volume]  # fmt: skip
    return [*references, *(container["image"] for pod in templates for container in containers(pod))]


def page_commands(page: str, start: str) -> list[str]:
    """Return the commands of a page that start with `start`."""
    shown = [command for block in blocks(page) if block.language == "console" for command, _ in commands(block)]
    return [command for command in shown if command.startswith(start)]


def test_there_are_the_four_overlays() -> None:
    assert {"overlays/cpu", "overlays/embedded", "overlays/gpu", "overlays/tensorflow-serving"} <= set(KUSTOMIZATIONS)


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_manifests_are_valid(name: str) -> None:
    assert [] == validate(built(name))


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_images_are_in_a_registry_that_does_not_exist(name: str) -> None:
    """Until an overlay replaces their addresses; a name without a registry would be pulled from Docker Hub."""
    assert [] == [
        image for image in images(built(name)) if not re.fullmatch(r"registry\.example/[\w-]+:[\w.-]+", image)
    ]


@pytest.mark.parametrize("name", ["amqp", *OVERLAYS])
def test_the_model_can_be_copied_by_an_init_container(name: str, tmp_path: Path) -> None:
    """Instead of an image volume; an overlay adds the component."""
    (tmp_path / "kubernetes").symlink_to(FOLDER)
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(
        f"resources: [../kubernetes/{name}]\ncomponents: [../kubernetes/components/init-container]\n"
        "images: [{name: registry.example/efficientnet-lite0, newName: registry.example/flowers}]\n"
    )
    manifests = build(overlay)
    assert [] == validate(manifests)
    assert [] == sorted(dangling(manifests))
    [pod] = pods(manifests)
    assert ["registry.example/flowers:1"] == [container["image"] for container in pod["spec"]["initContainers"]]
    assert [] == [volume for volume in pod["spec"]["volumes"] if "image" in volume]


@pytest.fixture
def page(clone: Path) -> str:
    """The text of the page on Kubernetes."""
    return (clone / "docs" / "how-to" / "kubernetes.md").read_text()


def kserve_page(clone: Path) -> str:
    """Return the text of the page on KServe."""
    return (clone / "docs" / "how-to" / "kserve.md").read_text()


def page_overlay(clone: Path, page: str, title: str, tmp_path: Path) -> list[Manifest]:
    """Build an overlay of the page in a folder beside the clone."""
    [overlay] = [block for block in blocks(page) if block.title == title]
    (tmp_path / "savedmodel-bakery").symlink_to(clone)
    path = tmp_path / "shop" / title
    path.parent.mkdir(parents=True)
    path.write_text(overlay.content)
    manifests = build(path.parent)
    assert [] == validate(manifests)
    assert [] == sorted(dangling(manifests))
    assert {"models"} == {manifest["metadata"]["namespace"] for manifest in manifests}
    return manifests


def test_the_overlay_of_the_page(clone: Path, page: str, tmp_path: Path) -> None:
    """It replaces the images, also that of the volume, and the settings of the model."""
    manifests = page_overlay(clone, page, "kustomization.yaml", tmp_path)
    assert [
        "registry.shop.example/flowers:3", "registry.shop.example/bakery-server:0.2.0",
        "registry.shop.example/bakery-client:0.2.0",
    ] == images(manifests)  # fmt: skip
    settings = [manifest["data"] for manifest in of_kind(manifests, "ConfigMap")]
    assert {"MODEL_NAME": "flowers", "MODEL_VERSION": "3"} in settings


def test_the_overlay_of_the_page_for_workers(clone: Path, page: str, tmp_path: Path) -> None:
    manifests = page_overlay(clone, page, "workers/kustomization.yaml", tmp_path)
    assert ["registry.shop.example/flowers:3", "registry.shop.example/bakery-server:0.2.0"] == images(manifests)
    [pod] = pods(manifests)
    assert "/models/flowers" == containers(pod)[0]["args"][1]


def test_the_overlay_of_the_page_on_kserve(clone: Path, tmp_path: Path) -> None:
    manifests = page_overlay(clone, kserve_page(clone), "kustomization.yaml", tmp_path)
    assert ["registry.shop.example/bakery-server:0.2.0"] == images(manifests)
    models = of_kind(manifests, "InferenceService")
    uris = [model["spec"]["predictor"]["model"]["storageUri"] for model in models]
    assert ["oci://registry.shop.example/flowers-kserve:3", "pvc://models/efficientnet_lite0"] == uris


def test_the_page_on_kserve_builds_the_image_of_the_model(clone: Path) -> None:
    [service, _] = of_kind(built("kserve"), "InferenceService")
    image = service["spec"]["predictor"]["model"]["storageUri"].removeprefix("oci://")
    for command in ("build --target kserve-model --tag", "push"):
        assert f"docker {command} {image}" in kserve_page(clone)


def test_the_page_builds_every_image(page: str) -> None:
    """The image for Ray by a Dockerfile of its own, and the model of the overlay on the page."""
    shown = [shlex.split(command) for command in page_commands(page, "docker")]
    tags = {command[command.index("--tag") + 1] for command in shown if command[1] == "build"}
    named = {image for name in KUSTOMIZATIONS for image in images(built(name))}
    assert {*named, "registry.shop.example/flowers:3"} == tags
    assert tags == {command[2] for command in shown if command[1] == "push"}


def test_the_secrets_of_the_page(page: str, tmp_path: Path) -> None:
    """The page makes the Secrets, with the keys that the pods use, in their namespace."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in page_commands(page, "bakery token"):
        subprocess.run(command, shell=True, cwd=tmp_path, env=environment, check=True, capture_output=True)
    for name in ("tls.config", "ca.pem"):
        (tmp_path / name).touch()
    made = [client_side(command, tmp_path) for command in page_commands(page, "kubectl create")]
    secrets = {one["metadata"]["name"]: one for one in of_kind(made, "Secret")}
    assert ["models"] == [one["metadata"]["name"] for one in of_kind(made, "Namespace")]
    of_prometheus = secrets.pop("bakery-access")
    assert ("monitoring", {"prometheus.token", "ca.pem"}) == (
        of_prometheus["metadata"]["namespace"], set(of_prometheus["data"]),
    )  # fmt: skip
    assert {"models"} == {one["metadata"]["namespace"] for one in secrets.values()}
    keys = {
        "model-server-access": {"tokens.toml", "tls.config"}, "readiness-access": {"token", "ca.pem"},
        "amqp-broker": {"url"},
    }  # fmt: skip
    assert keys == {name: set(secret["data"]) for name, secret in secrets.items()}
    used = set()
    for name in ("overlays/embedded", "amqp"):
        [pod] = pods(built(name))
        used |= {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume}
        for container in containers(pod):
            sources = [variable.get("valueFrom", {}) for variable in container.get("env", [])]
            used |= {source["secretKeyRef"]["name"] for source in sources if "secretKeyRef" in source}
    assert keys.keys() == used
    assert all("--namespace models" in line for line in page_commands(page, "kubectl rollout"))


def test_the_rules_of_the_adapter_have_the_metrics_of_the_autoscalers() -> None:
    rules = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())["rules"]
    scaled = {
        metric["pods"]["metric"]["name"]
        for name in KUSTOMIZATIONS
        for scaler in of_kind(built(name), "HorizontalPodAutoscaler")
        for metric in scaler["spec"]["metrics"]
    }
    assert scaled == {rule["name"]["as"] for rule in rules}


BROKEN = {
    "a number as text": ("overlays/cpu", "HorizontalPodAutoscaler", "spec.minReplicas", "two", "spec.minReplicas"),
    "an unknown field": ("overlays/embedded", "Deployment", "spec.template.spec.replica", 2, "replica"),
    "an unknown probe": (
        "overlays/gpu", "Deployment", "spec.template.spec.containers.0.readinessProbe.http", {}, "http",
    ),
    "no selector": ("overlays/embedded", "Deployment", "spec.selector", None, "selector"),
    "an unknown kind": ("overlays/embedded", "Deployment", "kind", "Deploymint", "Couldn't find schema"),
    "an unknown protocol": ("kserve", "InferenceService", "spec.predictor.model.protocolVersion", "v3", "v3"),
    "a runtime without containers": ("kserve", "ServingRuntime", "spec.containers", [], "spec.containers"),
    "a container without a name": ("kserve", "ServingRuntime", "spec.containers.0.name", None, "name"),
    "a trigger without a queue": ("amqp", "ScaledObject", "spec.triggers.0.metadata.queueName", None, "queueName"),
    "a number where KEDA takes text": ("amqp", "ScaledObject", "spec.triggers.0.metadata.value", 32, "not of type"),
    "a secret without a key": ("amqp", "TriggerAuthentication", "spec.secretTargetRef.0.key", None, "key"),
    "a Ray cluster without a head": ("ray", "RayJob", "spec.rayClusterSpec.headGroupSpec", None, "headGroupSpec"),
    "a wrong pod in a Ray cluster": (
        "ray", "RayJob", "spec.rayClusterSpec.workerGroupSpecs.0.template.spec.containers.0.cpus", 1, "cpus",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_manifest_is_rejected(case: str) -> None:
    name, kind, path, value, expected = BROKEN[case]
    manifest = copy.deepcopy(of_kind(built(name), kind)[0])
    *parents, key = path.split(".")
    owner: Any = manifest
    for part in parents:
        owner = owner[int(part) if part.isdecimal() else part]
    if value is None:
        del owner[key]
    else:
        owner[key] = value
    errors = validate([manifest])
    assert any(expected in error for error in errors), errors


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_containers_are_restricted(name: str) -> None:
    """As the level "restricted" of the Pod Security Standards demands, and with a read-only file system."""
    templates = pods(built(name))
    assert templates
    for template in templates:
        of_pod = template["spec"].get("securityContext", {})
        for container in containers(template):
            context = of_pod | container["securityContext"]
            assert context["runAsNonRoot"]
            assert context["runAsUser"]
            assert {"type": "RuntimeDefault"} == context["seccompProfile"]
            assert {"drop": ["ALL"]} == context["capabilities"]
            assert not context["allowPrivilegeEscalation"]
            assert name == "ray" or context["readOnlyRootFilesystem"]  # Ray writes to many places
            assert "memory" in container["resources"]["limits"]
            assert "cpu" in container["resources"]["requests"]
        assert name == "kserve" or template["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", OVERLAYS)
def test_running_calls_can_end_before_a_server_is_killed(name: str) -> None:
    """tensorflow_model_server drops running calls at SIGTERM, so they must end while preStop waits."""
    [pod] = pods(built(name))
    command, waits_s = containers(pod)[0]["lifecycle"]["preStop"]["exec"]["command"]
    assert "sleep" == command
    left_s = pod["spec"]["terminationGracePeriodSeconds"] - int(waits_s)
    if name in ("overlays/embedded", "overlays/cpu"):
        assert left_s > GRACE_S
    else:
        assert int(waits_s) > GRACE_S
        assert left_s > 0


def test_workers_scale_on_their_queue_and_finish_messages() -> None:
    [pod] = pods(built("amqp"))
    assert pod["spec"]["terminationGracePeriodSeconds"] > WORKER_GRACE_S
    [scaled] = of_kind(built("amqp"), "ScaledObject")
    assert [DEFAULT_QUEUE] == [trigger["metadata"]["queueName"] for trigger in scaled["spec"]["triggers"]]


def test_the_command_of_the_ray_job_is_valid() -> None:
    program, command, *arguments = shlex.split(ray_script().partition("\nstatus=")[0], comments=True)
    assert ("bakery", "bulk") == (program, command)
    options = bulk.make_context("bulk", arguments).params
    assert ("ray", "auto") == (options["engine"], options["ray_address"])
    with pytest.raises(click.NoSuchOption):
        bulk.make_context("bulk", [*arguments, "--workers=4"])


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (PHOTOS_FAILED, 0), (FAILED, FAILED), (130, 130)])
def test_the_ray_job_succeeds_if_every_photo_has_a_row(status: int, expected: int, tmp_path: Path) -> None:
    """With errors in some rows too: starting it again would not change them."""
    program = tmp_path / "bakery"
    program.write_text(f"#!/bin/sh\nexit {status}\n")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert expected == subprocess.run(["bash", "-c", ray_script()], env=environment, check=False).returncode


def ray_script() -> str:
    """Return the script that the Ray job runs."""
    [job] = of_kind(built("ray"), "RayJob")
    shell, path = job["spec"]["entrypoint"].split()
    assert "bash" == shell
    [config] = of_kind(built("ray"), "ConfigMap")
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    [volume] = [one["name"] for one in head["volumes"] if one.get("configMap") == {"name": config["metadata"]["name"]}]
    [mount] = [one["mountPath"] for one in head["containers"][0]["volumeMounts"] if one["name"] == volume]
    return str(config["data"][str(Path(path).relative_to(mount))])


@pytest.mark.parametrize("name", OVERLAYS)
def test_connections_do_not_outlive_a_scale_up(name: str) -> None:
    """Only then do the clients of gRPC look for new pods."""
    [pod] = pods(built(name))
    age_ms, grace_ms = connection_age_ms(pod)
    assert age_ms <= 60_000 < grace_ms


@pytest.mark.parametrize("name", OVERLAYS)
def test_connections_end_before_a_server_is_told_to_stop(name: str) -> None:
    """A call that arrives while a server stops may be lost. gRPC varies the age by 10 %."""
    [pod] = pods(built(name))
    age_ms, _ = connection_age_ms(pod)
    assert int(containers(pod)[0]["lifecycle"]["preStop"]["exec"]["command"][1]) > 1.1 * age_ms / 1000


def connection_age_ms(pod: Manifest) -> tuple[int, int]:
    """Return after how long a server ends a connection, and how long it then waits for the running calls."""
    [value] = [one for one in containers(pod)[0]["args"] if one.startswith("--grpc_channel_arguments=")]
    arguments = channel_arguments(value.partition("=")[2])
    age_ms, grace_ms = (arguments[f"grpc.max_connection_age{part}_ms"] for part in ("", "_grace"))
    assert isinstance(age_ms, int)
    assert isinstance(grace_ms, int)
    return age_ms, grace_ms


def test_prometheus_may_read_the_metrics_of_workers(tmp_path: Path) -> None:
    [pod] = pods(built("amqp"))
    [container] = containers(pod)
    arguments = [argument.replace("/models/efficientnet_lite0", str(tmp_path)) for argument in container["args"]]
    options = work.make_context("work", [*arguments, "--url", "amqp://broker"]).params
    [port] = container["ports"]
    assert (port["containerPort"], "0.0.0.0") == (options["metrics_port"], options["metrics_address"])
    [policy] = of_kind(built("amqp"), "NetworkPolicy")
    [rule] = policy["spec"]["ingress"]
    assert [{"port": port["name"]}] == rule["ports"]


def test_kserve_serves_both_protocols_with_the_runtime() -> None:
    manifests = built("kserve")
    [runtime] = of_kind(manifests, "ServingRuntime")
    models = [service["spec"]["predictor"]["model"] for service in of_kind(manifests, "InferenceService")]
    assert {runtime["metadata"]["name"]} == {model["runtime"] for model in models}
    assert {"v1", "v2"} == {model["protocolVersion"] for model in models} == set(runtime["spec"]["protocolVersions"])
    formats = [{"name": one["name"], "version": one["version"]} for one in runtime["spec"]["supportedModelFormats"]]
    assert all(model["modelFormat"] in formats for model in models)


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_references_resolve(name: str) -> None:
    manifests = built(name)
    assert [] == sorted(dangling(manifests))


def test_dangling_references_are_found() -> None:
    manifests = copy.deepcopy(built("overlays/embedded"))
    for manifest in manifests:
        if manifest["kind"] in ("ConfigMap", "Deployment"):
            manifest["metadata"]["name"] = "other"
        if manifest["kind"] == "Deployment":
            manifest["spec"]["template"]["metadata"]["labels"] = {}
            manifest["spec"]["template"]["spec"]["volumes"] = []
            manifest["spec"]["template"]["spec"]["containers"][0]["ports"] = []
    kinds = {line.partition(":")[0] for line in dangling(manifests)}
    expected = {
        "ConfigMap",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "port",
        "volume",
    }
    assert expected == kinds


def dangling(manifests: list[Manifest]) -> Iterator[str]:
    """Yield what manifests refer to and do not contain, Secrets excepted."""
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    templates = pods(manifests)
    labels = [template.get("metadata", {}).get("labels", {}).items() for template in templates]
    ports = {
        port.get("name") for template in templates for one in containers(template) for port in one.get("ports", [])
    }
    for template in templates:
        volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", [])}
        config_maps = {volume["configMap"]["name"] for volume in volumes.values() if "configMap" in volume}
        for container in containers(template):
            config_maps |= {source["configMapRef"]["name"] for source in container.get("envFrom", [])}
            mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
            yield from (f"volume: {volume}" for volume in mounted - volumes.keys())
        yield from (f"ConfigMap: {one}" for one in config_maps if ("ConfigMap", one) not in names)
    for manifest in manifests:
        kind, spec = manifest["kind"], manifest.get("spec", {})
        selector = {"Service": "selector", "PodDisruptionBudget": "selector", "NetworkPolicy": "podSelector"}.get(kind)
        if selector:
            selected = spec[selector].get("matchLabels", spec[selector])
            if not selected or not any(selected.items() <= pod for pod in labels):
                yield f"{kind}: selects no pod"
        if kind in ("HorizontalPodAutoscaler", "ScaledObject"):
            target = spec["scaleTargetRef"]
            if (target.get("kind", "Deployment"), target["name"]) not in names:
                yield f"{kind}: {target['name']}"
        used = [port["targetPort"] for port in spec.get("ports", [])] if kind == "Service" else []
        if kind == "NetworkPolicy":
            used = [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
        yield from (f"port: {port}" for port in used if isinstance(port, str) and port not in ports)
