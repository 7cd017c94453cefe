"""Which inputs of a network are images, and which others a signature can have."""

from __future__ import annotations

import re

import pytest

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.network_inputs import Input, OtherInput, split_inputs

PHOTO = Input((None, 8, 8, 3), "float32")
TAB = Input((None, 4), "float32")


@pytest.mark.parametrize(
    ("inputs", "stated", "images", "others"),
    [
        pytest.param({"x": PHOTO}, None, ("x",), {}, id="the only one"),
        pytest.param({"tab": TAB, "x": PHOTO}, None, ("x",), {"tab": ((4,), "float32")}, id="the only one for images"),
        pytest.param(
            {"mask": PHOTO, "x": PHOTO}, "x", ("x",), {"mask": ((8, 8, 3), "float32")}, id="an array like an image"
        ),
        pytest.param(
            {"a": PHOTO, "b": PHOTO}, "b, a", ("b", "a"), {"image_2": ((8, 8, 3), "float32")}, id="two images"
        ),
        pytest.param(
            {"a": PHOTO, "b": Input((None, None, 9, 1), "uint8")},
            "a,b",
            ("a", "b"),
            {"image_2": ((0, 9, 1), "uint8")},
            id="two sizes",
        ),
        pytest.param(
            {"x": PHOTO, "text": Input((None,), "string")}, None, ("x",), {"text": ((), "string")}, id="text per image"
        ),
    ],
)
def test_images_and_others(
    inputs: dict[str, Input], stated: str | None, images: tuple[str, ...], others: dict[str, tuple[object, str]]
) -> None:
    split = split_inputs(inputs, stated, "pets")
    expected = {name: OtherInput(*other) for name, other in others.items()}  # type: ignore[arg-type]
    assert (images, expected) == (split.images, split.others)


@pytest.mark.parametrize(
    ("inputs", "stated", "message"),
    [
        pytest.param(
            {"a": PHOTO, "b": PHOTO},
            None,
            'pets has several inputs, "a", "b": select the image with --source-input NAME, or two images with '
            "--source-input NAME,NAME",
            id="two for images",
        ),
        pytest.param({"a": TAB, "b": TAB}, None, "several inputs", id="none for images"),
        pytest.param({"a": PHOTO}, "b", 'pets has no input "b"; it has "a"', id="unknown"),
        pytest.param(
            {"a": PHOTO, "b": PHOTO, "c": PHOTO},
            "a,b,c",
            "invalid source_input 'a,b,c': must be the name of one image, or of two with a comma",
            id="three images",
        ),
        pytest.param(
            {"a": PHOTO, "b": Input((2, 9, 8, 3), "float32")},
            "a,b",
            'takes images float32 [?, 8, 8, 3] as "a" and float32 [2, 9, 8, 3] as "b": two images must have known',
            id="two sizes of a batch",
        ),
        pytest.param({"a": PHOTO, "image_2": TAB}, None, 'has an input "image_2": must be', id="a reserved name"),
        pytest.param({"a": PHOTO, "tab-1": TAB}, None, 'has an input "tab-1": must be a letter', id="a bad name"),
        pytest.param(
            {"a": PHOTO, "tab": Input((None, None), "float32")},
            None,
            'input "tab" of pets is float32 [?, ?]: beside an image float32 [?, 8, 8, 3], it must have a row for each',
            id="any size",
        ),
        pytest.param({"a": PHOTO, "t": Input((), "float32")}, None, "it must have a row for each", id="a scalar"),
        pytest.param(
            {"a": PHOTO, "t": Input((None,), "complex64")}, None, "must be numbers, bool or string", id="a dtype"
        ),
    ],
)
def test_a_choice_that_is_not_allowed(inputs: dict[str, Input], stated: str | None, message: str) -> None:
    with pytest.raises(SourceError, match=re.escape(message)):
        split_inputs(inputs, stated, "pets")
