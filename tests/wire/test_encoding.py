"""Parsing a message takes no more memory than estimated before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from small_fields import FIELDS, delimited, tensor

from savedmodel_bakery.wire import attachments, schema
from savedmodel_bakery.wire.encoding import MAX_FIELDS, parsed_size

SIZE = 9 * 2**20  # a little more than a power of two, beyond which lists have the most room
REQUEST = schema.METHODS["Predict"].request
MEASURE = """
import sys
from pathlib import Path
from savedmodel_bakery.wire import schema

def status(name):
    return next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").open() if line.startswith(name))

content = sys.stdin.buffer.read()
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = status("VmRSS")
message = schema.METHODS[sys.argv[1]].request.FromString(content)
print(status("VmHWM") - before)
"""


@pytest.mark.parametrize("kind", FIELDS)
def test_parsing_takes_no_more_than_estimated_and_a_copy(kind: str) -> None:
    method, make = FIELDS[kind]
    content = make(SIZE)
    measured = subprocess.run([sys.executable, "-c", MEASURE, method], input=content, capture_output=True, check=True)
    taken = int(measured.stdout)
    assert taken <= parsed_size(schema.METHODS[method].request, content) + 1.2 * len(content)


def test_a_photo_and_large_arrays_take_little_more_than_their_bytes() -> None:
    photos = tensor(b"".join(delimited(8, bytes(2**20)) for _ in range(8)))
    array = tensor(delimited(4, bytes(SIZE))) + tensor(delimited(5, bytes(SIZE)))
    for content in (photos, array):
        assert parsed_size(REQUEST, content) < 10_000


def test_a_small_message_is_not_looked_at() -> None:
    _, make = FIELDS["inputs"]
    assert 0 == parsed_size(REQUEST, make(4096)) < parsed_size(REQUEST, make(4098))


def test_messages_in_messages_are_followed_as_far_as_by_protobuf() -> None:
    content = b""
    for _ in range(5000):
        content = delimited(15, delimited(3, content))  # a variant that contains a tensor
    assert parsed_size(REQUEST, tensor(content)) > 50 * len(content)


def test_no_more_than_the_stated_number_of_fields_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def message_fields(content: memoryview) -> Iterator[tuple[int, int, int, int]]:
        for field in attachments.message_fields(content):
            seen.append(field[0])
            yield field

    monkeypatch.setattr("savedmodel_bakery.wire.encoding.message_fields", message_fields)
    parsed_size(REQUEST, FIELDS["texts"][1](SIZE))
    assert MAX_FIELDS < len(seen) < MAX_FIELDS + 10
