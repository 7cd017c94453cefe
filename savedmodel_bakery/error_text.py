"""Turns error messages of servers into single lines for people."""

from __future__ import annotations

import re

from savedmodel_bakery.log import escape


def one_line(message: str) -> str:
    """Return a message on one line, without the line breaks of servers; control characters become escapes."""
    return escape(" ".join(message.split()))


def image_error(message: str) -> str:
    """Return what a baked servable says about a bad image, without TensorFlow's text about the failed assertion."""
    return re.sub(r"assertion failed: \[(.*?)\]\s+\[\[.*", r"\1", message, flags=re.DOTALL)
