"""Parsing a message takes no more memory than estimated before."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from savedmodel_bakery.wire import attachments, schema
from savedmodel_bakery.wire.parsed_size import MAX_FIELDS, parsed_size
from savedmodel_bakery.wire.tensors import varint

SIZE = 9 * 2**20  # a little more than a power of two, beyond which lists have the most room
PREDICT, MULTI = "Predict", "MultiInference"


def delimited(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def filled(field: bytes) -> bytes:
    return field * (SIZE // len(field))


def tensor(fields: bytes) -> bytes:
    return delimited(2, delimited(1, b"x") + delimited(2, fields))


def example(fields: bytes) -> bytes:
    """An input with one example; `fields` are entries of its map of features."""
    return delimited(2, delimited(1, delimited(1, delimited(1, fields))))


ROW = delimited(1, delimited(1, b"".join(delimited(1, delimited(1, b"column %d" % i)) for i in range(20))))
MESSAGES = {
    "tasks": (MULTI, filled(delimited(1, b""))),
    "inputs": (PREDICT, filled(delimited(2, b""))),
    "names of outputs": (PREDICT, filled(delimited(3, b""))),
    "texts": (PREDICT, tensor(filled(delimited(8, b"")))),
    "integers": (PREDICT, tensor(delimited(10, b"\1" * SIZE))),
    "small integers": (PREDICT, tensor(delimited(7, b"\1" * SIZE))),
    "flags": (PREDICT, tensor(delimited(11, b"\1" * SIZE))),
    "integers in fields of their own": (PREDICT, tensor(filled(b"\x50\1"))),
    "floats": (PREDICT, tensor(delimited(5, b"\1" * SIZE))),
    "sizes": (PREDICT, tensor(delimited(2, filled(delimited(2, b""))))),
    "handles": (PREDICT, tensor(filled(delimited(14, b"")))),
    "variants": (PREDICT, tensor(filled(delimited(15, b"")))),
    "examples": ("Classify", delimited(2, delimited(1, filled(delimited(1, b""))))),
    "features": ("Classify", example(filled(delimited(1, b"")))),
    "rows of a table": ("Regress", delimited(2, delimited(1, filled(ROW)))),
    "unknown fields": (PREDICT, filled(delimited(99, b""))),
    "after a group, which ends the survey": (PREDICT, b"\x4b\x4c" + filled(delimited(2, b""))),
}
MEASURE = """
import json, os, sys
from pathlib import Path
from savedmodel_bakery.wire import attachments, schema

def status(name):
    return next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").open() if line.startswith(name))

content = sys.stdin.buffer.read()
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = status("VmRSS")
message = schema.METHODS[sys.argv[1]].request.FromString(content)
print(status("VmHWM") - before)
"""


@pytest.mark.parametrize("kind", MESSAGES)
def test_parsing_takes_no_more_than_estimated_and_a_copy(kind: str) -> None:
    method, content = MESSAGES[kind]
    measured = subprocess.run([sys.executable, "-c", MEASURE, method], input=content, capture_output=True, check=True)
    taken = json.loads(measured.stdout)
    assert taken <= parsed_size(schema.METHODS[method].request, content) + 1.2 * len(content)


def test_a_photo_and_large_arrays_take_little_more_than_their_bytes() -> None:
    photos = tensor(b"".join(delimited(8, bytes(2**20)) for _ in range(8)))
    array = tensor(delimited(4, bytes(SIZE))) + tensor(delimited(5, bytes(SIZE)))
    for content in (photos, array, delimited(2, delimited(1, ROW))):
        assert parsed_size(schema.METHODS[PREDICT].request, content) < 10_000


def test_messages_in_messages_are_followed_as_far_as_by_protobuf() -> None:
    content = b""
    for _ in range(5000):
        content = delimited(15, delimited(3, content))  # a variant that contains a tensor
    assert parsed_size(schema.METHODS[PREDICT].request, tensor(content)) > 50 * len(content)


def test_no_more_than_the_stated_number_of_fields_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def message_fields(content: memoryview) -> Iterator[tuple[int, int, int, int]]:
        for field in attachments.message_fields(content):
            seen.append(field[0])
            yield field

    monkeypatch.setattr("savedmodel_bakery.wire.parsed_size.message_fields", message_fields)
    parsed_size(schema.METHODS[PREDICT].request, tensor(filled(delimited(8, b""))))
    assert MAX_FIELDS < len(seen) < MAX_FIELDS + 10
