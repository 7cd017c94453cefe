"""gRPC's status codes and messages of errors."""

from __future__ import annotations

import grpc
import pytest

from savedmodel_bakery.serving.grpc.errors import STATUS_CODES
from savedmodel_bakery.wire.status import Code, truncate_message


@pytest.mark.parametrize("code", Code)
def test_every_code_has_the_grpc_code_of_its_name_and_number(code: Code) -> None:
    assert (code.name, code.value) == (STATUS_CODES[code].name, STATUS_CODES[code].value[0])


def test_the_table_has_all_grpc_codes() -> None:
    assert set(grpc.StatusCode) == set(STATUS_CODES.values())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1024 + "...TRUNCATED"),
        ("x" * 1023 + "ü", "x" * 1023 + "...TRUNCATED"),
    ],
    ids=["1024 bytes", "1025 bytes", "a character across the limit"],
)
def test_messages_are_truncated_to_1024_bytes(message: str, expected: str) -> None:
    assert expected == truncate_message(message)
