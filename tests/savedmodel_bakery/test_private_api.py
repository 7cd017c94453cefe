"""TensorFlow's private Python API is used in three modules only."""

from __future__ import annotations

import os
import re
from pathlib import Path

import savedmodel_bakery

PRIVATE = re.compile(
    r"\btensorflow\.(?:python|core|lite\.python)\b|pywrap|\._(?:as_tf_output|call_tf_sessionrun|extend_graph|make_callable)"
)


def test_only_the_session_the_inliner_and_the_reader_of_tf_lite_files_use_it() -> None:
    root = Path(savedmodel_bakery.__file__).parent
    # In the repository the packages are linked, and rglob doesn't follow links.
    files = [Path(folder) / name for folder, _, names in os.walk(root, followlinks=True) for name in names]
    modules = {file.relative_to(root).as_posix(): file for file in files if file.suffix == ".py"}
    assert len(modules) > 150
    users = {name for name, file in modules.items() if PRIVATE.search(file.read_text(encoding="utf-8"))}
    expected = {
        "exporter/optimisation/inlining.py",
        "serving/runtimes/direct_session.py",
        "serving/runtimes/tf_lite.py",  # the schema of the files
    }
    assert expected == users
