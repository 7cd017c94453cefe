"""What a model server says about its models."""

from __future__ import annotations

import requests
from server_process import ServerProcess


def version_states(server: ServerProcess, model: str) -> dict[int, tuple[str, str]]:
    """Return the state and the error code of each version of a model."""
    response = requests.get(f"{server.url}/v1/models/{model}", timeout=10)
    response.raise_for_status()
    statuses = response.json()["model_version_status"]
    return {int(status["version"]): (status["state"], status["status"]["error_code"]) for status in statuses}
