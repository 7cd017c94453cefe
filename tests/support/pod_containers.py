"""Starts the containers of a pod with buildah: their images, variables, arguments, volumes, probes, limits of memory.

Containers share the machine's network, so they get other ports by variables. buildah's chroot isolation can't limit
memory; the limit of a container becomes the limit of its processes' data (RLIMIT_DATA).
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from container_images import ENVIRONMENT, USER_ID, Images, Running

_UNITS = {"Mi": 2**20, "Gi": 2**30}


class Pod:
    """The volumes and containers of a pod.

    Args:
        template: of the pod, rendered.
        manifests: rendered manifests with the ConfigMaps.
        secrets: name of a Secret to its keys and their text.
        images: where the containers are made.
        local_images: an image in the manifests to the name of one in `images`.
        ports: name of a port of the manifests to the port to use.
        folder: for volumes and logs.
    """

    def __init__(
        self,
        template: Mapping[str, Any],
        *,
        manifests: list[dict[str, Any]],
        secrets: Mapping[str, Mapping[str, str]],
        images: Images,
        local_images: Mapping[str, str],
        ports: Mapping[str, int],
        folder: Path,
    ) -> None:
        self._spec = template["spec"]
        self._config_maps = {one["metadata"]["name"]: one["data"] for one in manifests if one["kind"] == "ConfigMap"}
        self._secrets = secrets
        self._images = images
        self._local_images = local_images
        self._ports = ports
        self._folder = folder
        self._volumes = {volume["name"]: self._make_volume(volume) for volume in self._spec.get("volumes", [])}

    def _make_volume(self, volume: Mapping[str, Any]) -> Path:
        if "image" in volume:
            return self._images.root(self._local_images[volume["image"]["reference"]])
        folder = self._folder / volume["name"]
        folder.mkdir()
        files: Mapping[str, str] = {}
        if "configMap" in volume:
            files = self._config_maps[volume["configMap"]["name"]]
        elif "secret" in volume:
            files = self._secrets[volume["secret"]["secretName"]]
        for name, text in files.items():
            (folder / name).write_text(text)
            os.chown(folder / name, 0, self._spec["securityContext"]["fsGroup"])
            (folder / name).chmod(volume.get("secret", {}).get("defaultMode", 0o644))
        folder.chmod(0o777 if "emptyDir" in volume else 0o755)
        return folder

    def add_volume(self, name: str, folder: Path) -> None:
        """Add a volume with the files of a folder, as a controller does."""
        self._volumes[name] = folder

    def container(self, name: str) -> dict[str, Any]:
        """Return the description of a container."""
        return next(
            one for one in [*self._spec.get("initContainers", []), *self._spec["containers"]] if one["name"] == name
        )

    def _run_line(self, name: str, variables: Mapping[str, object]) -> list[str]:
        container = self.container(name)
        environment: dict[str, object] = {}
        for source in container.get("envFrom", []):
            environment |= self._config_maps[source["configMapRef"]["name"]]
        for variable in container.get("env", []):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            environment[variable["name"]] = (
                self._secrets[reference["name"]][reference["key"]] if reference else variable["value"]
            )
        mounts = [
            f"--volume={self._volumes[mount['name']] / mount.get('subPath', '')}:{mount['mountPath']}"
            + (":ro" if mount.get("readOnly") else "")
            for mount in container.get("volumeMounts", [])
        ]
        capabilities = [f"--cap-drop={one}" for one in container["securityContext"]["capabilities"]["drop"]]
        settings = [f"--env={key}={value}" for key, value in (environment | dict(variables)).items()]
        user = [f"--user={USER_ID}:{USER_ID}"]
        return self._images.run_line(self._local_images[container["image"]], *settings, *mounts, *capabilities, *user)

    def start(self, name: str, *arguments: str, variables: Mapping[str, object] | None = None) -> Running:
        """Start a container with further arguments and variables."""
        container = self.container(name)
        configuration = self._images.configuration(self._local_images[container["image"]])
        command = container.get("command", configuration["Entrypoint"])
        line = self._run_line(name, variables or {})
        size, unit = re.fullmatch(r"(\d+)([MG]i)", container["resources"]["limits"]["memory"]).groups()
        limited = [*line, "prlimit", f"--data={int(size) * _UNITS[unit]}"]
        log = self._folder / f"{name}.log"
        return Running(limited, [*command, *container.get("args", []), *arguments], log, run=line)

    def probe(self, name: str, kind: str, variables: Mapping[str, object] | None = None) -> bool:
        """Return whether a probe of a container succeeds: `startupProbe`, `readinessProbe` or `livenessProbe`."""
        probe = self.container(name)[kind]
        if "exec" in probe:
            line = [*self._run_line(name, variables or {}), *probe["exec"]["command"]]
            return 0 == subprocess.run(line, env=ENVIRONMENT, capture_output=True, timeout=60, check=False).returncode
        if "httpGet" in probe:
            url = f"http://127.0.0.1:{self._ports[str(probe['httpGet']['port'])]}{probe['httpGet']['path']}"
            try:
                with urllib.request.urlopen(url, timeout=5) as response:
                    return 200 <= response.status < 400
            except urllib.error.URLError:
                return False
        with socket.socket() as connection:
            connection.settimeout(5)
            return 0 == connection.connect_ex(("127.0.0.1", self._ports[probe["tcpSocket"]["port"]]))
