"""A job on Ray finds its cluster."""

from __future__ import annotations

import pytest
import ray
from server_process import free_port

from savedmodel_bakery.serving.bulk.job import start_ray


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
