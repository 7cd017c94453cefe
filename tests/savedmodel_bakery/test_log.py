"""No value in the log can forge a line or control a terminal."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from savedmodel_bakery.log import EscapingFormatter, escape


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain text, ü 花 😀 and a \\n of two characters", "plain text, ü 花 😀 and a \\n of two characters"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x00\x1b[31m\x7f\x9b", r"\x00\x1b[31m\x7f\x9b"),
        ("\u2028\u2029\u202e\udcff", r"\u2028\u2029\u202e\udcff"),
    ],
    ids=["printable", "line breaks", "control characters", "separators, direction, surrogates"],
)
def test_unprintable_characters_are_escaped(text: str, escaped: str) -> None:
    assert escaped == escape(text)


def test_a_record_has_one_line_and_its_traceback_is_indented() -> None:
    try:
        raise ValueError("a\n2026-01-01 INFO forged\x1b[2J\r")
    except ValueError:
        record = logging.LogRecord("name\n", logging.ERROR, __file__, 1, "model %s", ("m\nforged",), sys.exc_info())
    first, *traceback = EscapingFormatter("%(levelname)s %(name)s] %(message)s").format(record).split("\n")
    assert r"ERROR name\n] model m\nforged" == first
    assert traceback[0] == "  Traceback (most recent call last):"
    assert traceback[-2:] == ["  ValueError: a", r"  2026-01-01 INFO forged\x1b[2J\r"]


CLOSED = """
import logging, os, sys
from savedmodel_bakery import log

log.configure(logging.INFO, "%(message)s")
descriptor = os.open(os.devnull, os.O_RDONLY)
print("text", flush=True)
logging.getLogger("any").error("text")
sys.exit(0 if descriptor > 2 else 3)
"""


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_opened(streams: str) -> None:
    command = ["bash", "-c", f'exec "$0" -c "$1" {streams}', sys.executable, CLOSED]
    assert 0 == subprocess.run(command, capture_output=True, timeout=60, check=False).returncode
