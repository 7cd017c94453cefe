"""Vertex AI's variables as flags, and copies of the models that they name."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from stored_versions import contents, memory_store, write_version

from savedmodel_bakery.serving.clouds.vertex import copy_model, make_flags
from savedmodel_bakery.storage.publish import publish
from savedmodel_bakery.wire.status import StatusError


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytest remove the copies."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_variables_are_flags() -> None:
    environment = {
        "AIP_HTTP_PORT": "8080",
        "AIP_HEALTH_ROUTE": "/health",
        "AIP_PREDICT_ROUTE": "/predict",
        "AIP_STORAGE_URI": "",
        "AIP_MODE": "PREDICTION",
    }
    assert ["--rest_api_port=8080", "--health_route=/health", "--predict_route=/predict"] == make_flags(environment)
    assert ["--model_base_path=gs://bucket/model"] == make_flags({"AIP_STORAGE_URI": "gs://bucket/model"})


@pytest.mark.parametrize("port", ["abc", "0", "65536", "8080 "])
def test_a_wrong_port(port: str) -> None:
    with pytest.raises(StatusError, match=f"invalid AIP_HTTP_PORT {port}: must be a number between 1 and 65535$"):
        make_flags({"AIP_HTTP_PORT": port})


def test_the_newest_version_of_a_model_keeps_its_number(tmp_path: Path) -> None:
    base = memory_store().below("5")  # the name of the folder does not matter
    for number in (9, 10):
        publish(write_version(tmp_path / "source", str(number)), base, number)
    copy = Path(copy_model(base.url))
    assert ["10"] == [path.name for path in copy.iterdir()]
    assert b"graph of 10" == contents(copy)["10/saved_model.pb"]


def test_the_folder_of_a_version_becomes_version_1(tmp_path: Path) -> None:
    base = memory_store()
    publish(write_version(tmp_path / "source"), base, 7)
    copy = Path(copy_model(f"{base}/7/"))
    assert ["1"] == [path.name for path in copy.iterdir()]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://nothing/here", "AIP_STORAGE_URI: no complete version in memory://nothing/here: must be"),
        ("gs://", "AIP_STORAGE_URI: invalid URL 'gs://': must be the URL of a folder"),
        ("/models", "AIP_STORAGE_URI: invalid URL '/models': must be the URL of a folder"),
    ],
)
def test_a_wrong_url(url: str, message: str) -> None:
    with pytest.raises(StatusError, match=message):
        copy_model(url)
