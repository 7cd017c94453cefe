"""Presets of KerasHub: what is reported without it, and image converters; tests/system bakes presets with it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources import read_network
from savedmodel_bakery.exporter.sources.keras_hub_preset import read_converter
from savedmodel_bakery.extras import MissingPackageError


def test_a_folder_without_a_preset_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"contains no task\.json: must be a folder that save_to_preset of a task of"):
        read_network({"model": f"keras-hub:{tmp_path}"})


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    (tmp_path / "task.json").write_text("{}")
    with pytest.raises(MissingPackageError, match=r"^a preset of KerasHub needs keras_hub, which .*\[keras-hub\]"):
        read_network({"model": f"keras-hub:{tmp_path}"})


class Converter:
    """What `keras_hub.layers.ImageConverter` has."""

    def __init__(self, factor: Any = 1.0, offset: Any = 0.0, **options: Any) -> None:
        self._factor, self._offset = factor, offset
        self.image_size = options.get("image_size")
        self.crop_to_aspect_ratio = options.get("crop_to_aspect_ratio", True)
        self.pad_to_aspect_ratio = options.get("pad_to_aspect_ratio", False)
        self.interpolation, self.antialias = "bicubic", True

    def __call__(self, images: np.ndarray) -> np.ndarray:
        return (images * np.float32(self._factor) + np.float32(self._offset)).astype(np.float32)


RESIZING = {"resize": "bicubic", "antialias": True}


@pytest.mark.parametrize(
    ("converter", "expected"),
    [
        (Converter(), {"scale": "0..255"}),
        (Converter(1 / 127.5, -1.0), {"scale": "-1..1"}),
        (Converter([1 / 4, 1 / 5, 1 / 8], [-1, -2, -4.5]), {"scale": "4,10,36:4,5,8"}),
        (
            Converter(image_size=(8, 8)),
            {"scale": "0..255", "size": (8, 8), "crop": "1", "crop_margin": "down", **RESIZING},
        ),
        (Converter(image_size=(8, 6)), {"scale": "0..255", "size": (8, 6), **RESIZING}),
        (
            Converter(image_size=(8, 6), crop_to_aspect_ratio=False),
            {"scale": "0..255", "size": (8, 6), "crop": "none", **RESIZING},
        ),
        (
            Converter(image_size=(8, 6), crop_to_aspect_ratio=False, pad_to_aspect_ratio=True),
            {"scale": "0..255", "size": (8, 6), "crop": "letterbox", **RESIZING},
        ),
    ],
    ids=["pixels", "a named scale", "another scale", "square", "oblong", "stretched", "letterbox"],
)
def test_a_converter_is_read_as_preprocessing(converter: Converter, expected: Mapping[str, Any]) -> None:
    assert {"channels": "RGB", **expected} == read_converter(converter)
