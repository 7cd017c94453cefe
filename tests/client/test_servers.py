"""Addresses of servers."""

from __future__ import annotations

import pytest

from savedmodel_bakery.client.servers import Endpoint


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("models.example", "models.example:8500"),
        ("models.example:80", "models.example:80"),
        ("10.0.0.1:1", "10.0.0.1:1"),
        ("::1", "[::1]:8500"),
        ("[::1]", "[::1]:8500"),
        ("[::1]:80", "[::1]:80"),
    ],
)
def test_the_port_in_a_target_overrides_the_default(target: str, address: str) -> None:
    assert address == Endpoint.parse(target, 8500, "gRPC").address


@pytest.mark.parametrize(
    "target",
    [
        "",
        "a b",
        "http://a",
        "a/b",
        "a:",
        "a:b",
        ":80",
        "[::1",
        "[::1]x",
        "u@a",
        "a:1:2",
        "[a]",
        "a:0",
        "a..b",
        "a" * 64,
        "\udc80",
    ],
    ids=ascii,
)
def test_a_target_that_is_not_an_address_is_a_value_error(target: str) -> None:
    with pytest.raises(ValueError, match=r"invalid target|invalid port"):
        Endpoint.parse(target, 8500, "gRPC")
