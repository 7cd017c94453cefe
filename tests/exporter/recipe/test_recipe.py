"""The recipe: what is refused and how, which layer wins, and what the short spellings stand for."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.exporter import recipe
from savedmodel_bakery.exporter.errors import RecipeError
from savedmodel_bakery.exporter.recipe import Recipe

KNOWN = {
    "labels": "imagenet",
    "size": (224, 224),
    "crop": "7/8",
    "resize": "bicubic",
    "antialias": False,
    "scale": "127:128",
    "channels": "RGB",
    "outputs": "probabilities",
}

REFUSED = {
    "resize": ("resize", "cubic", "resize is 'cubic'; allowed are bilinear, bicubic, area, lanczos3"),
    "resize of another type": ("resize", ["area"], "resize is ['area']; allowed are bilinear"),
    "channels": ("channels", "rgb", "channels is 'rgb'; allowed are RGB, BGR"),
    "outputs": ("outputs", "softmax", "outputs is 'softmax'; allowed are probabilities, logits"),
    "no height": ("size", (0, 224), "size is (0, 224); allowed are a height and a width from 1 to 4096"),
    "too wide": ("size", (224, 4097), "size is (224, 4097); allowed are a height and a width from 1 to 4096"),
    "size of a part": ("size", (224.5, 224), "size is (224.5, 224); allowed"),
    "one side": ("size", (224,), "size is (224,); allowed"),
    "antialias of text": ("antialias", "yes", "antialias is 'yes'; allowed are true and false"),
    "antialias of a number": ("antialias", 1, "antialias is 1; allowed are true and false"),
    "top_k 0": ("top_k", 0, "top_k is 0; allowed is a whole number from 1"),
    "top_k of a part": ("top_k", 2.0, "top_k is 2.0; allowed is a whole number from 1"),
    "top_k true": ("top_k", True, "top_k is True; allowed is a whole number from 1"),
    "labels of a number": ("labels", 5, "labels is 5; allowed are the name of a set and the path of a file"),
    **{
        f"crop {value}": ("crop", value, f"crop is {value!r}; allowed are none, letterbox and a fraction above 0")
        for value in ("0", "9/8", "-1/2", "1/0", "half", "", "nan", float("inf"), True, [1])
    },
    **{
        f"padding {value}": ("padding", value, f"padding is {value!r}; allowed are one or three levels from 0 to 255")
        for value in ("256", "-1", "1,2", "1,2,3,4", "white", "", "0.5", 0.5, True)
    },
    "background beyond 255": ("background", "0,0,300", "background is '0,0,300'; allowed are one or three levels"),
    "batch_max below 0": ("batch_max", -1, "batch_max is -1; allowed is a whole number from 0 to 4096"),
    "batch_max too large": ("batch_max", 4097, "batch_max is 4097; allowed is a whole number from 0 to 4096"),
    "batch_max of text": ("batch_max", "8", "batch_max is '8'; allowed is a whole number from 0 to 4096"),
    "batch_timeout_us": (
        "batch_timeout_us",
        -1,
        "batch_timeout_us is -1; allowed is a whole number from 0 to 60000000",
    ),
    "batch_threads": ("batch_threads", 0, "batch_threads is 0; allowed is a whole number from 1 to 1024"),
    **{
        f"allowed_batch_sizes {value}": (
            "allowed_batch_sizes",
            value,
            f"allowed_batch_sizes is {value!r}; allowed are whole numbers from 1, each larger than the one before",
        )
        for value in ("", "a", "0,4", "4,2", "2,2", "1,,4", "-1", 1.5, True, [1, 4])
    },
    "allowed_batch_sizes without batch_max": (
        "allowed_batch_sizes",
        "1,4",
        "allowed_batch_sizes is '1,4', but batch_max is 0; the last of the sizes must be batch_max",
    ),
    "decode": ("decode", "quick", "decode is 'quick'; allowed are exact, fast"),
    "precision": ("precision", "int8", "precision is 'int8'; allowed are float32, bfloat16, float16"),
    **{
        f"optimise {value}": ("optimise", value, f"optimise is {value!r}; allowed are none and, with commas between")
        for value in ("", "fold", "none,fold-constants", "fold-constants,", True)
    },
    **{
        f"scale {value}": ("scale", value, f"scale is {value!r}; allowed are 0..255, 0..1, -1..1, imagenet, caffe and")
        for value in ("0..2", "127", "1:2:3", "1,2:3", "a:b", "", 5, ["0..1"], 0.5)
    },
    **{
        f"scale {value}": (
            "scale",
            value,
            f"scale is {value!r}; numbers must be finite, and a standard deviation above",
        )
        for value in ("127:0", "127:-1", "0,0,0:1,0,1", "nan:1", "0:inf", "0:nan")
    },
}


@pytest.mark.parametrize(("name", "value", "says"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_is_not_allowed_is_refused_with_what_is(
    recipe_of: Callable[..., Recipe], name: str, value: Any, says: str
) -> None:
    with pytest.raises(RecipeError) as refused:
        recipe_of(**{name: value})
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize("missing", KNOWN)
def test_each_value_that_is_not_given_is_asked_for_by_its_flag(missing: str) -> None:
    given = {name: value for name, value in KNOWN.items() if name != missing}
    with pytest.raises(RecipeError) as refused:
        recipe.complete(given, {"model": "pets.keras"})
    assert (
        f"the recipe of pets.keras lacks --{missing}, which cannot be guessed from the model; "
        "give what is missing as options, or in a file with --recipe"
    ) == str(refused.value)


def test_all_that_is_missing_is_asked_for_at_once() -> None:
    with pytest.raises(RecipeError, match="lacks --labels, --size, --crop, --resize, --antialias, --scale, --channels"):
        recipe.complete({"model": "pets.keras"})


def test_top_k_alone_has_a_default() -> None:
    assert 5 == recipe.complete(KNOWN, {"model": "m"}).top_k


LAYERS = {
    "source alone": ({}, {}, "7/8"),
    "file over source": ({"crop": "1/2"}, {}, "1/2"),
    "flag over source": ({}, {"crop": "1/3"}, "1/3"),
    "flag over file": ({"crop": "1/2"}, {"crop": "1/3"}, "1/3"),
    "a flag not given leaves the file's": ({"crop": "1/2"}, {"crop": None}, "1/2"),
}


@pytest.mark.parametrize(("from_file", "flags", "expected"), LAYERS.values(), ids=LAYERS)
def test_flags_win_over_the_file_and_the_file_over_the_source(
    from_file: dict[str, Any], flags: dict[str, Any], expected: str
) -> None:
    made = recipe.complete(KNOWN, from_file, flags, {"model": "m"})
    assert expected == made.crop
    assert Recipe(model="m", **{**KNOWN, "crop": expected}) == made


def test_false_is_a_value_that_wins() -> None:
    assert recipe.complete({**KNOWN, "antialias": True}, {"antialias": False}, {"model": "m"}).antialias is False


ROUND_TRIPS = {
    "plain": {},
    "all other": {"crop": "none", "size": (3, 4096), "antialias": True, "scale": "1,2,3:4,5,6", "precision": "float16"},
    "letterbox": {"crop": "letterbox", "padding": "114", "background": "1,2,3", "decode": "fast", "top_k": 1},
    "batches": {"batch_max": 8, "batch_timeout_us": 500, "batch_threads": 2, "allowed_batch_sizes": "1,8"},
    "quotes and umlauts": {"labels": 'C:\\"größe"\n.txt'},
}


@pytest.mark.parametrize("changes", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_toml_round_trip(recipe_of: Callable[..., Recipe], tmp_path: Path, changes: dict[str, Any]) -> None:
    made = recipe_of(**changes)
    path = tmp_path / "recipe.toml"
    path.write_text(made.to_toml())
    assert made == recipe.complete(recipe.read_toml(path))


UNREADABLE = {
    "no TOML": (b"crop = ", "cannot be read: "),
    "no text": (b"\xff\xfe", "cannot be read: "),
    "unknown names": (b"zoom = 1\ncrop = '1/2'\nwarp = 2", "names warp, zoom; a recipe has model, labels, size, crop,"),
    "size of a part": (b"size = [224.5, 224]", "size is [224.5, 224]; allowed are SIDE and HEIGHTxWIDTH, as 224 or"),
    "size in a list": (b"size = [[224], 224]", "size is [[224], 224]; allowed are SIDE"),
}


@pytest.mark.parametrize(("content", "says"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_unusable_recipe_file_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(content)
    with pytest.raises(RecipeError) as refused:
        recipe.read_toml(path)
    assert says in str(refused.value)


def test_a_missing_recipe_file_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"the recipe file .*none\.toml cannot be read: .*No such file"):
        recipe.read_toml(tmp_path / "none.toml")


def test_a_recipe_file_may_hold_only_some_values(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('crop = 0.875\nsize = "240x320"\n')
    assert {"crop": 0.875, "size": (240, 320)} == recipe.read_toml(path)
    any_size = {name: value for name, value in KNOWN.items() if name != "size"}
    assert Fraction(7, 8) == recipe.complete(any_size, recipe.read_toml(path), {"model": "m"}).crop_fraction


@pytest.mark.parametrize(
    ("known", "given", "says"),
    [
        ({"size": (224, 224)}, {"size": (240, 320)}, "size is 240x320, but m takes 224x224"),
        ({"channels": "GRAY"}, {"channels": "RGB"}, "channels is RGB, but m takes GRAY"),
    ],
)
def test_what_is_the_networks_own_cannot_be_changed(known: dict[str, Any], given: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError) as refused:
        recipe.complete(KNOWN | known, given, {"model": "m"})
    assert says == str(refused.value)


BATCH_SIZES = {
    "none is all": ({"batch_max": 3}, (1, 2, 3)),
    "some": ({"batch_max": 8, "allowed_batch_sizes": "2,8"}, (2, 8)),
    "a number": ({"batch_max": 8, "allowed_batch_sizes": 8}, (8,)),
    "no batches": ({}, ()),
}


@pytest.mark.parametrize(("changes", "expected"), BATCH_SIZES.values(), ids=BATCH_SIZES)
def test_sizes_of_batches(recipe_of: Callable[..., Recipe], changes: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert expected == recipe_of(**changes).batch_sizes


SIZES = {
    "side": ("224", (224, 224)),
    "number": (224, (224, 224)),
    "height first": ("240x320", (240, 320)),
    "capital X": ("240X320", (240, 320)),
    "list": ([240, 320], (240, 320)),
    "list of one": ([240], (240, 240)),
}


@pytest.mark.parametrize(("text", "expected"), SIZES.values(), ids=SIZES)
def test_spellings_of_size(text: object, expected: tuple[int, int]) -> None:
    assert expected == recipe.parse_size(text)


@pytest.mark.parametrize("text", ["", "big", "224.5", "1x2x3", "224x", [], [1, 2, 3], True], ids=repr)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(RecipeError) as refused:
        recipe.parse_size(text)
    assert f"size is {text!r}; allowed are SIDE and HEIGHTxWIDTH, as 224 or 240x320" == str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", None),
        ("1", Fraction(1)),
        ("7/8", Fraction(7, 8)),
        ("0.875", Fraction(7, 8)),
        ("15/17", Fraction(15, 17)),
    ],
)
def test_spellings_of_crop(text: str, expected: Fraction | None) -> None:
    assert expected == recipe.parse_crop(text)


def test_crop_is_exact_where_a_float_loses_a_pixel() -> None:
    """15/17 of 272 is 240; 0.1 of 30 is 3."""
    for text, whole, part in (("15/17", 272, 240), ("0.1", 30, 3)):
        fraction = recipe.parse_crop(text)
        assert fraction is not None
        assert part == whole * fraction


def keras_torch(x: np.ndarray) -> np.ndarray:
    """Mode `torch` of keras.applications.imagenet_utils.preprocess_input, as its documentation words it."""
    return (x / 255 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])


SCALES: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "0..255": ("0..255", lambda x: x),
    "0..1": ("0..1", lambda x: x / 255),
    "-1..1": ("-1..1", lambda x: x / 127.5 - 1),
    "imagenet": ("imagenet", keras_torch),
    "caffe": ("caffe", lambda x: x - np.array([123.68, 116.779, 103.939])),
    "one mean, one deviation": ("127:128", lambda x: (x - 127) / 128),
    "three of each": ("1,2,3:4,5,6", lambda x: (x - np.array([1, 2, 3])) / np.array([4, 5, 6])),
    "three means, one deviation": ("1,2,3:2", lambda x: (x - np.array([1, 2, 3])) / 2),
}


@pytest.mark.parametrize(("text", "formula"), SCALES.values(), ids=SCALES)
def test_scales_are_their_formulas(text: str, formula: Callable[[np.ndarray], np.ndarray]) -> None:
    mean, std = recipe.parse_scale(text)
    levels = np.array([[0.0, 0.0, 0.0], [255.0, 255.0, 255.0], [17.0, 100.0, 203.0]])
    np.testing.assert_allclose(formula(levels), (levels - np.array(mean)) / np.array(std), rtol=1e-9, atol=1e-9)


def test_every_named_scale_has_its_formula_here() -> None:
    assert set(recipe.SCALES) <= set(SCALES)
