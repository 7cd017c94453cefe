"""Models in ONNX: what is reported without onnxruntime; tests/system runs models."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.validation.onnx_model import load_onnx
from savedmodel_bakery.extras import MissingPackageError


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^file not found: .*m\.onnx$"):
        load_onnx(tmp_path / "m.onnx")


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(MissingPackageError, match=r"^--reference needs onnxruntime, which .*\[onnx\]'$"):
        load_onnx(tmp_path / "m.onnx")
