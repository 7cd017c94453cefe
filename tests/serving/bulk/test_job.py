"""A job on Ray learns the task of a version without loading it, and finds its cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import model_makers
import pytest
import ray
import task_models
from server_process import free_port

from savedmodel_bakery.serving.bulk.job import read_task, start_ray


@pytest.mark.parametrize(
    ("make", "task"),
    [(task_models.detector, "detect"), (task_models.segmenter, "segment"), (model_makers.sizing, "classify")],
    ids=["detector", "segmenter", "classifier"],
)
def test_the_task_is_that_of_the_signatures(tmp_path: Path, make: Callable[[Path], Path], task: str) -> None:
    assert task == read_task(("m", 7, str(make(tmp_path))))


def test_a_version_without_a_task_is_an_error(tmp_path: Path) -> None:
    folder = model_makers.half_plus(tmp_path, 1)
    with pytest.raises(ValueError, match='model "m" version 1 does not take photos: none of its signatures'):
        read_task(("m", 1, str(folder)))


@pytest.mark.parametrize(("content", "error"), [(b"\xff", "is damaged"), (b"", "is damaged"), (None, "cannot read")])
def test_a_version_without_signatures_is_an_error(tmp_path: Path, content: bytes | None, error: str) -> None:
    if content is not None:
        (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(ValueError, match=error):
        read_task(("m", 1, str(tmp_path)))


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "head:port"])
def test_an_invalid_address_of_a_cluster_is_rejected(address: str) -> None:
    with pytest.raises(ValueError, match=f'invalid --ray-address "{address}": must be HOST:PORT, or auto'):
        start_ray(address, actors=1)


def test_a_cluster_that_does_not_listen_is_a_connection_error() -> None:
    for port in (free_port(), 65_536):
        with pytest.raises(ConnectionError, match=f"cannot connect to 127.0.0.1:{port}: is it the head"):
            start_ray(f"127.0.0.1:{port}", actors=1)


def test_ray_finds_the_cluster_of_its_own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the job in deploy/kubernetes/ray does."""
    addresses: list[str] = []
    monkeypatch.setattr(ray, "init", lambda *, address, **_: addresses.append(address))
    start_ray("auto", actors=1)
    assert ["auto"] == addresses
