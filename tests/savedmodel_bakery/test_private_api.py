"""In serving, TensorFlow's private Python API is used in one module only."""

from __future__ import annotations

import re
from pathlib import Path

import savedmodel_bakery.serving

PRIVATE = re.compile(
    r"\btensorflow\.(?:python|core|lite\.python)\b|pywrap|\._(?:as_tf_output|call_tf_sessionrun|extend_graph|make_callable)"
)


def test_only_tf_session_uses_it() -> None:
    root = Path(savedmodel_bakery.serving.__file__).parent
    users = [path.relative_to(root).as_posix() for path in root.rglob("*.py") if PRIVATE.search(path.read_text())]
    assert ["runtimes/tf_session.py"] == users
