"""Builds and validates Kubernetes manifests offline, with programs that `make test-system` puts in .cache/kubernetes.

Kinds of Kubernetes itself are validated with its own schemas, custom resources with those in custom_resources.yaml, and
the pods inside custom resources with Kubernetes' schemas again.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

PROGRAMS = Path(__file__).parents[2] / ".cache" / "kubernetes" / "bin"

VERSIONS = ("1.33", "1.37")
"""The oldest release whose image volumes have a subPath, and the release of the tools."""

Manifest = dict[str, Any]

_CUSTOM = {
    (resource["apiVersion"], resource["kind"]): resource["schema"]
    for resource in yaml.safe_load((Path(__file__).parent / "custom_resources.yaml").read_text())
}


def _program(name: str) -> str:
    path = PROGRAMS / name
    assert path.exists(), f"{path} does not exist: run `make .cache/kubernetes/.installed`"
    return str(path)


def build(folder: Path) -> list[Manifest]:
    """Build a kustomization and return its manifests."""
    command = [_program("kubectl"), "kustomize", str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == built.returncode, built.stderr[:2000]
    return list(yaml.safe_load_all(built.stdout))


def client_side(command: str, folder: Path) -> Manifest:
    """Run a `kubectl create …` command in a folder without a cluster, and return what it would create."""
    arguments = [_program("kubectl"), *shlex.split(command)[1:], "--dry-run=client", "--output=yaml"]
    made = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == made.returncode, made.stderr
    return dict(yaml.safe_load(made.stdout))


def pod_templates(manifest: Manifest) -> Iterator[Manifest]:
    """Yield the templates of all pods that come from a manifest."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "Deployment":
        yield spec["template"]
    elif manifest["kind"] == "RayJob":
        cluster = spec["rayClusterSpec"]
        yield from (group["template"] for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]])
    elif manifest["kind"] == "ServingRuntime":
        yield {"metadata": {}, "spec": {"containers": spec["containers"]}}


def validate(manifests: list[Manifest]) -> list[str]:
    """Return what is wrong with manifests, one line per error; unknown kinds and unknown fields are errors."""
    errors = []
    builtin = []
    for manifest in manifests:
        kind = manifest["apiVersion"], manifest["kind"]
        if kind not in _CUSTOM:
            builtin.append(manifest)
            continue
        invalid = [
            f"{manifest['kind']}: {'.'.join(map(str, error.path))}: {error.message}"
            for error in Draft202012Validator(_CUSTOM[kind]).iter_errors(manifest)
        ]
        errors += invalid
        if not invalid:
            builtin += [
                {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}
                for template in pod_templates(manifest)
            ]
    for version in VERSIONS:
        command = [_program("kubernetes-validate"), "--strict", "--kubernetes-version", version, "-"]
        validated = subprocess.run(
            command, input=yaml.safe_dump_all(builtin), capture_output=True, text=True, timeout=60, check=False
        )
        lines = (validated.stdout + validated.stderr).splitlines()
        errors += [line for line in lines if not line.startswith("INFO ")]
        assert validated.returncode == 0 or errors, lines
    return errors
