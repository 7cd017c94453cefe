"""The rows of docs/how-to/keras-model.md on OpenCV and torchvision give their pixels; see tests/exporter/image."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_code import SIZE, options_of, write_photos

from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.sources import read_preprocessing
from savedmodel_bakery.exporter.validation import reference

ROUNDING = 1.01  # to whole levels
ROWS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "OpenCV": (("cv2.resize(image, size)", "cv2.imread"), {"orientation": "exif"}),
    "torchvision": (("CenterCrop", '`Image.open(…).convert("RGB")`'), {"crop": "short:64", "channels": "RGB"}),
}


@pytest.fixture(scope="module")
def prepared(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Mapping[str, np.ndarray]]:
    folder, out = tmp_path_factory.mktemp("photos"), tmp_path_factory.mktemp("out") / "out.npz"
    photos = write_photos(folder)
    python = clone / ".cache" / "guides" / "torch-env" / "bin" / "python"
    script = Path(__file__).with_name("as_in_training.py")
    subprocess.run([python, script, folder, *map(str, SIZE), out], check=True)
    return photos, np.load(out)


@pytest.mark.parametrize(("library", "row"), ROWS.items(), ids=ROWS)
def test_rows_of_the_page(
    clone: Path,
    prepared: tuple[list[Path], Mapping[str, np.ndarray]],
    library: str,
    row: tuple[tuple[str, ...], dict[str, Any]],
) -> None:
    page = (clone / "docs" / "how-to" / "keras-model.md").read_text()
    photos, arrays = prepared
    rows, changes = row
    recipe = Preprocessing(**{**options_of(page, *rows), "scale": "0..255", **changes, "size": SIZE})
    for photo in photos:
        pixels = reference.fit(reference.read_upright(photo, recipe), recipe)[np.newaxis]
        expected = arrays[f"{library} {photo.name}"]
        np.testing.assert_allclose(
            expected, reference.normalise(pixels, recipe)[0], rtol=0, atol=ROUNDING, err_msg=photo.name
        )


def test_the_table_of_torchvisions_weights(prepared: tuple[list[Path], Mapping[str, np.ndarray]]) -> None:
    weights = json.loads(str(prepared[1]["weights"]))
    assert len(weights) > 80
    wrong = {}
    for name, (short, side, resize, mean, std) in weights.items():
        values = read_preprocessing(f"torchvision:{name}")
        recipe = Preprocessing(**values)
        levels = [[255 * number for number in numbers] for numbers in (mean, std)]
        if (recipe.short_side, recipe.size, recipe.resize) != (short, (side, side), resize) or not np.allclose(
            levels, recipe.mean_and_std
        ):
            wrong[name] = values
    assert not wrong
