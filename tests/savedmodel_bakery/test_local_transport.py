"""A client without a server has the results and errors of a server."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import model_makers
import numpy as np
import pytest

from savedmodel_bakery import Client, LocalTransport, RequestRefusedError, VersionStatus
from savedmodel_bakery.extras import install_command
from savedmodel_bakery.wire.status import Code


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a model that computes x / 2 + 2."""
    return model_makers.half_plus(tmp_path_factory.mktemp("models") / "half", 7).parent


def test_every_call_is_answered_as_by_a_server(base_path: Path) -> None:
    with Client(transport=LocalTransport(base_path)) as client:
        prediction = client.predict({"x": [1.0, 2.0]})
        assert [2.5, 3.0] == prediction.outputs["y"].tolist()
        assert ("half", 7, "serving_default") == (prediction.model, prediction.version, prediction.signature)
        assert {"sum": [3.0]} == {
            "sum": client.predict({"a": np.float32([1]), "b": np.float32([2])}, signature="two", output_filter=["sum"])
            .outputs["sum"]
            .tolist()
        }
        assert [[("half", 2.5)]] == client.classify_examples([{"x": 1.0}])
        assert [2.5] == client.regress_examples([{"x": 1.0}])
        assert [VersionStatus(7, "AVAILABLE", Code.OK, "")] == client.status()
        assert "two" in client.metadata()["metadata"]["signature_def"]["signature_def"]


def test_a_refusal_has_the_servers_code_and_message(base_path: Path) -> None:
    with Client(transport=LocalTransport(base_path), version=8) as client:
        with pytest.raises(RequestRefusedError, match=r"Servable not found for request: Specific\(half, 8\)") as caught:
            client.predict({"x": [1.0]})
        assert Code.NOT_FOUND is caught.value.code


def test_calls_of_a_closed_client_are_runtime_errors(base_path: Path) -> None:
    with Client(transport=LocalTransport(str(base_path))) as client:
        client.status()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.status()


def test_the_folder_of_a_version_is_loaded_alone(base_path: Path, tmp_path: Path) -> None:
    for number in ("1", "2"):
        shutil.copytree(base_path / "7", tmp_path / "half" / number)
    with Client(transport=LocalTransport(tmp_path / "half" / "1"), model="half") as client:
        assert [VersionStatus(1, "AVAILABLE", Code.OK, "")] == client.status()


def test_a_folder_without_versions_is_a_value_error(base_path: Path, tmp_path: Path) -> None:
    named = tmp_path / "exported"
    shutil.copytree(base_path / "7", named)
    for folder, message in (
        (tmp_path / "none", "folder not found: "),
        (tmp_path, "contains no version; versions are folders named 1, 2, 3, …"),
        (named, "exported has a SavedModel, but is not named as a version: rename it to "),
    ):
        with pytest.raises(ValueError, match=message):
            LocalTransport(folder)


def test_a_model_that_cannot_be_loaded_is_a_client_error(tmp_path: Path) -> None:
    model_makers.broken(tmp_path / "broken", 1)
    with pytest.raises(RequestRefusedError, match="servable"):
        LocalTransport(tmp_path / "broken")


def test_without_the_extra_the_error_names_it(base_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        LocalTransport(base_path)
    expected = f"LocalTransport needs tensorflow, which is not installed; try: {install_command('serve')}"
    assert expected == str(caught.value)
