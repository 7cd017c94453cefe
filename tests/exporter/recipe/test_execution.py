"""Optimisation: precision int8 needs photos, some steps and a task with labels. Batching: the sizes of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe import Batching, Optimisation, read_recipe_file

DIGEST = "0123456789abcdef"

REJECTED = {
    "no photos": ({"precision": "int8"}, r"^precision int8 needs photos to calibrate with: pass a folder"),
    "photos for float32": ({"calibration": "photos"}, r"^invalid calibration 'photos': precision float32 has none"),
    "digests for bfloat16": (
        {"precision": "bfloat16", "calibration_digests": DIGEST},
        rf"^invalid calibration_digests '{DIGEST}': precision bfloat16 has none, only int8; leave it out",
    ),
    "no steps": (
        {"precision": "int8", "calibration": "photos", "optimise": "none"},
        r"^invalid optimise 'none': precision int8 needs the steps drop-dead-operations, fold-batch-norm, fold-consta",
    ),
    "no digests": (
        {"precision": "int8", "calibration": "photos", "calibration_digests": f"{DIGEST},xyz"},
        r"must be the first 16 hexadecimal digits of the SHA-256 of each photo",
    ),
}


@pytest.mark.parametrize(("values", "message"), REJECTED.values(), ids=REJECTED)
def test_values_that_do_not_fit(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Optimisation(**values)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (None, {"serving_default", "top_k"}),
        ("pixels", {"pixels"}),
        ("top_k,preview", {"top_k", "preview"}),
        ("all", {"serving_default", "top_k", "pixels", "preview"}),
        ("none", set()),
    ],
)
def test_signatures_to_warm_up(stated: str | None, expected: set[str]) -> None:
    signatures = ["serving_default", "top_k", "pixels", "preview"]
    assert expected == Optimisation(warm_up=stated).warmed_up(signatures)
    with pytest.raises(RecipeError, match=r"^invalid warm_up 'top': no signature is named 'top'; must be all, no"):
        Optimisation(warm_up="top").warmed_up(signatures)


def test_a_folder_is_relative_to_the_recipe_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    recipe = tmp_path / "sub" / "recipe.toml"
    recipe.write_text(f'precision = "int8"\ncalibration = "photos"\ncalibration_digests = "{DIGEST}"\n')
    values = read_recipe_file(recipe).values
    assert "sub/photos" == values["calibration"]
    assert frozenset({DIGEST}) == Optimisation(**values).digests


BATCH_SIZES = {
    "all by default": ({"batch_max": 3}, (1, 2, 3)),
    "some": ({"batch_max": 8, "allowed_batch_sizes": "2,8"}, (2, 8)),
    "a number": ({"batch_max": 8, "allowed_batch_sizes": 8}, (8,)),
    "batching off": ({}, ()),
}


@pytest.mark.parametrize(("values", "expected"), BATCH_SIZES.values(), ids=BATCH_SIZES)
def test_sizes_of_batches(values: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert expected == Batching(**values).batch_sizes
