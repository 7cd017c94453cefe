"""Properties and headers of AMQP messages."""

from __future__ import annotations

from typing import Any

import pytest

from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import Code, StatusError

TABLE: list[Any] = [
    pytest.param(None, {"grpc-status": 0}, id="success"),
    pytest.param(StatusError(Code.NOT_FOUND, "größer"), {"grpc-status": 5, "grpc-message": "größer"}, id="error"),
    pytest.param(StatusError(Code.UNKNOWN, ""), {"grpc-status": 2, "grpc-message": ""}, id="empty message"),
]


@pytest.mark.parametrize(("error", "headers"), TABLE)
def test_status_headers_both_ways(error: StatusError | None, headers: dict[str, Any]) -> None:
    assert headers == amqp.encode_status(error)
    assert str(error) == str(amqp.decode_status(headers))


def test_a_status_may_be_text_and_a_message_bytes() -> None:
    error = amqp.decode_status({"grpc-status": "3", "grpc-message": b"\xff!"})
    assert "INVALID_ARGUMENT: \ufffd!" == str(error)


@pytest.mark.parametrize("headers", [{}, {"grpc-status": 17}, {"grpc-status": "ok"}], ids=["missing", "17", "text"])
def test_headers_without_a_valid_status_are_a_value_error(headers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"-1|17|ok"):
        amqp.decode_status(headers)


@pytest.mark.parametrize(
    ("expected", "content_type"),
    [("application/json", "application/json"), ("image/png", " Image/PNG ; charset=utf-8"), ("", "")],
)
def test_a_media_type_has_no_parameters_and_is_in_lower_case(expected: str, content_type: str) -> None:
    assert expected == amqp.media_type(content_type)
