"""Preprocessing: the forms of sizes, crops and scales."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from savedmodel_bakery.exporter.recipe.preprocessing import SCALES, Size, parse_crop, parse_scale

SIZES = {
    "side": ("224", (224, 224)),
    "number": (224, (224, 224)),
    "height first": ("240x320", (240, 320)),
    "capital X": ("240X320", (240, 320)),
    "list": ([240, 320], (240, 320)),
    "list of one": ([240], (240, 240)),
}


@pytest.mark.parametrize(("text", "expected"), SIZES.values(), ids=SIZES)
def test_forms_of_size(text: object, expected: tuple[int, int]) -> None:
    assert expected == Size().parse(text)


@pytest.mark.parametrize("text", ["", "big", "224.5", "1x2x3", "224x", [], [1, 2, 3], True], ids=repr)
def test_another_form_of_size_is_rejected(text: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the field has the message
        Size().parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", None),
        ("letterbox", None),
        ("1", Fraction(1)),
        ("7/8", Fraction(7, 8)),
        ("0.875", Fraction(7, 8)),
        ("15/17", Fraction(15, 17)),
    ],
)
def test_forms_of_crop(text: str, expected: Fraction | None) -> None:
    assert expected == parse_crop(text)


@pytest.mark.parametrize(("text", "whole", "part"), [("15/17", 272, 240), ("0.1", 30, 3)])
def test_crop_is_exact_where_a_float_loses_a_pixel(text: str, whole: int, part: int) -> None:
    fraction = parse_crop(text)
    assert fraction is not None
    assert part == whole * fraction


def keras_torch(x: np.ndarray) -> np.ndarray:
    """Mode `torch` of keras.applications.imagenet_utils.preprocess_input, as its documentation states it."""
    return (x / 255 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])


FORMULAS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "0..255": ("0..255", lambda x: x),
    "0..1": ("0..1", lambda x: x / 255),
    "-1..1": ("-1..1", lambda x: x / 127.5 - 1),
    "imagenet": ("imagenet", keras_torch),
    "caffe": ("caffe", lambda x: x - np.array([123.68, 116.779, 103.939])),
    "one mean, one deviation": ("127:128", lambda x: (x - 127) / 128),
    "three of each": ("1,2,3:4,5,6", lambda x: (x - np.array([1, 2, 3])) / np.array([4, 5, 6])),
    "three means, one deviation": ("1,2,3:2", lambda x: (x - np.array([1, 2, 3])) / 2),
}


@pytest.mark.parametrize(("text", "formula"), FORMULAS.values(), ids=FORMULAS)
def test_scales_are_their_formulas(text: str, formula: Callable[[np.ndarray], np.ndarray]) -> None:
    mean, std = parse_scale(text)
    levels = np.array([[0.0, 0.0, 0.0], [255.0, 255.0, 255.0], [17.0, 100.0, 203.0]])
    np.testing.assert_allclose(formula(levels), (levels - np.array(mean)) / np.array(std), rtol=1e-9, atol=1e-9)


def test_every_named_scale_has_its_formula_here() -> None:
    assert SCALES.keys() <= FORMULAS.keys()
