"""Servers shared by the tests of the serving package."""

from __future__ import annotations

from collections.abc import Iterator

import model_makers
import pytest
import requests
from server_process import ServerProcess
from waiting import wait_until

CONFIG = """
model_config_list {{
  config {{ name: "half_plus_two" base_path: "{root}/half_plus_two" model_platform: "tensorflow"
            model_version_policy {{ all {{}} }}
            version_labels {{ key: "stable" value: 1 }} version_labels {{ key: "gone" value: 9 }} }}
  config {{ name: "tf2" base_path: "{root}/tf2" model_platform: "tensorflow" }}
}}
"""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with half_plus_two in versions 1 (adds 2) and 3 (adds 3), version labels, and a TensorFlow 2 model.

    It has the routes of SageMaker too.
    """
    root = tmp_path_factory.mktemp("models")
    model_makers.half_plus(root / "half_plus_two", 1)
    model_makers.half_plus(root / "half_plus_two", "00003", plus=3.0)
    model_makers.half_plus_two_tf2(root / "tf2")
    config = root / "models.config"
    config.write_text(CONFIG.format(root=root))
    routes = ("--health_route=/ping", "--predict_route=/invocations")
    flags = (f"--model_config_file={config}", "--allow_version_labels_for_unavailable_models", *routes)
    with ServerProcess(*flags, log=root / "log") as running:

        def states() -> list[str]:
            response = requests.get(f"{running.url}/v1/models/half_plus_two", timeout=30).json()
            return [version["state"] for version in response["model_version_status"]]

        wait_until(lambda: states() == ["AVAILABLE"] * 2)  # it starts with one
        yield running
