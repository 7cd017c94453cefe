"""A recipe: which values it accepts, how its layers combine, and its TOML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe import (
    Answers,
    Batching,
    Optimisation,
    Preprocessing,
    Recipe,
    Source,
    complete_recipe,
    convert_values,
    read_recipe_file,
)

NESTED: list[Any] = []
for _ in range(5000):
    NESTED = [NESTED]

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

REJECTED = {
    "resize": ("resize", "cubic", "invalid resize 'cubic': must be one of bilinear, bicubic, area, lanczos3"),
    "resize of another type": ("resize", ["area"], "invalid resize ['area']: must be one of bilinear"),
    "channels": ("channels", "rgb", "invalid channels 'rgb': must be one of RGB, BGR"),
    "outputs": ("outputs", "softmax", "invalid outputs 'softmax': must be one of probabilities, logits"),
    "no height": ("size", (0, 224), "invalid size (0, 224): must be SIDE or HEIGHTxWIDTH"),
    "too wide": ("size", (224, 4097), "invalid size (224, 4097): must be SIDE or HEIGHTxWIDTH"),
    "fractional size": ("size", (224.5, 224), "invalid size (224.5, 224): must be SIDE or HEIGHTxWIDTH"),
    "no sides": ("size", (), "invalid size (): must be SIDE or HEIGHTxWIDTH"),
    "antialias as text": ("antialias", "yes", "invalid antialias 'yes': must be true or false"),
    "antialias as a number": ("antialias", 1, "invalid antialias 1: must be true or false"),
    "top_k 0": ("top_k", 0, "invalid top_k 0: must be a whole number from 1"),
    "fractional top_k": ("top_k", 2.0, "invalid top_k 2.0: must be a whole number from 1"),
    "top_k true": ("top_k", True, "invalid top_k True: must be a whole number from 1"),
    "labels without names": ("labels", [], "labels of the list are empty: at least one name is required"),
    "labels with a number": ("labels", ["cat", 7], "labels of the list have the name 7 for class id 1: must be text"),
    "labels with a blank": ("labels", ["cat", " "], "labels of the list have a blank name for class id 1"),
    "labels with a wrong id": ("labels", {"one": "cat"}, "labels of the list have the id 'one': must be a whole"),
    "labels beyond 16 bits": ("labels", {2**16: "cat"}, "labels of the list have the class id 65536: the highest"),
    "labels as a number": ("labels", 5, "invalid labels 5: must be a label set, the path"),
    **{
        f"crop {value}": (
            "crop",
            value,
            f"invalid crop {value!r}: must be none, letterbox, letterbox:down, ",
        )
        for value in ("0", "9/8", "-1/2", "1/0", "half", "", "nan", float("inf"), True, [1], "short:4097")
    },
    **{
        f"padding {value}": ("padding", value, f"invalid padding {value!r}: must be one or three levels from 0 to 255")
        for value in ("256", "-1", "1,2", "1,2,3,4", "white", "", "0.5", 0.5, True)
    },
    "background above 255": ("background", "0,0,300", "invalid background '0,0,300': must be one or three levels"),
    "batch_max below 0": ("batch_max", -1, "invalid batch_max -1: must be a whole number from 0 to 4096"),
    "batch_max too large": ("batch_max", 4097, "invalid batch_max 4097: must be a whole number from 0 to 4096"),
    "batch_max as text": ("batch_max", "8", "invalid batch_max '8': must be a whole number from 0 to 4096"),
    "batch_timeout_us": (
        "batch_timeout_us",
        -1,
        "invalid batch_timeout_us -1: must be a whole number from 0 to 60000000",
    ),
    "batch_threads": ("batch_threads", 0, "invalid batch_threads 0: must be a whole number from 1 to 1024"),
    **{
        f"allowed_batch_sizes {value}": (
            "allowed_batch_sizes",
            value,
            f"invalid allowed_batch_sizes {value!r}: must be whole numbers from 1, each larger than the one before",
        )
        for value in ("", "a", "0,4", "4,2", "2,2", "1,,4", "-1", 1.5, True, [1, 4])
    },
    "allowed_batch_sizes without batch_max": (
        "allowed_batch_sizes",
        "1,4",
        "invalid allowed_batch_sizes '1,4': the last size must be batch_max, which is 0",
    ),
    "torchvision's scale": (
        "scale",
        "0.485,0.456,0.406:0.229,0.224,0.225",
        "invalid scale '0.485,0.456,0.406:0.229,0.224,0.225': mean and standard deviation are on pixels 0..255, and "
        "these look like those of pixels 0..1; on 0..255 they are 123.675,116.28,103.53:58.395,57.12,57.375",
    ),
    "jpeg_dct": ("jpeg_dct", "INTEGER_FAST", "invalid jpeg_dct 'INTEGER_FAST': must be one of accurate, fast"),
    "alpha": ("alpha", "keep", "invalid alpha 'keep': must be one of background, drop"),
    "crop_margin": ("crop_margin", "floor", "invalid crop_margin 'floor': must be one of up, down, even"),
    "white": ("white", 2**16, "invalid white 65536: must be a whole number from 1 to 65535"),
    "decode": ("decode", "quick", "invalid decode 'quick': must be one of exact, fast"),
    "precision": ("precision", "int4", "invalid precision 'int4': must be one of float32, bfloat16, float16, int8"),
    **{
        f"optimise {value}": ("optimise", value, f"invalid optimise {value!r}: must be none, or some of drop-dead-op")
        for value in ("", "fold", "none,fold-constants", "fold-constants,", True)
    },
    **{
        f"scale {value}": ("scale", value, f"invalid scale {value!r}: must be one of 0..255, 0..1, -1..1, imagenet,")
        for value in ("0..2", "127", "1:2:3", "1,2:3", "a:b", "", 5, ["0..1"], 0.5)
    },
    **{
        f"scale {value}": ("scale", value, f"invalid scale {value!r}: must be one of 0..255, 0..1, -1..1, imagenet,")
        for value in ("127:0", "127:-1", "0,0,0:1,0,1", "nan:1", "0:inf", "0:nan")
    },
}


@pytest.mark.parametrize(("name", "value", "message"), REJECTED.values(), ids=REJECTED)
def test_an_invalid_value_is_rejected_with_the_allowed_ones(
    recipe_of: Callable[..., Recipe], name: str, value: Any, message: str
) -> None:
    with pytest.raises(RecipeError) as rejected:
        recipe_of(**{name: value})
    assert str(rejected.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"size": (40, 56)},
            "invalid crop 'short:48': the centre of 40x56 pixels does not fit into a shorter side of 48",
        ),
        (
            {"resize": "nearest"},
            "invalid resize 'nearest': crop short:48 needs another method; must be one of bilinear",
        ),
        ({"task": "segment", "outputs": "logits"}, "invalid crop 'short:48': task segment answers for the whole photo"),
    ],
)
def test_what_a_shorter_side_excludes(recipe_of: Callable[..., Recipe], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as rejected:
        recipe_of(**{"size": (40, 40), "crop": "short:48", **changes})
    assert str(rejected.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"antialias": True}, "invalid antialias True: crop letterbox:padded needs no antialias; must be False"),
        ({"resize": "area"}, "invalid resize 'area': crop letterbox:padded needs another method; must be one of bilin"),
        ({"task": "segment", "outputs": "logits"}, "invalid crop 'letterbox:padded': task segment answers for the"),
    ],
)
def test_what_padding_before_the_resize_excludes(
    recipe_of: Callable[..., Recipe], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError) as rejected:
        recipe_of(**{"crop": "letterbox:padded", "antialias": False, **changes})
    assert str(rejected.value).startswith(message)


def test_scales_that_differ_by_colour_are_rejected_for_gray(recipe_of: Callable[..., Recipe]) -> None:
    with pytest.raises(RecipeError) as rejected:
        recipe_of(channels="GRAY", scale="1,2,3:1")
    assert (
        "invalid scale '1,2,3:1': it differs by colour; with channels GRAY it must be one mean and one standard "
        "deviation"
    ) == str(rejected.value)


@pytest.mark.parametrize("missing", [name for name in KNOWN if name != "labels"])
def test_a_missing_value_is_requested_by_its_option(missing: str) -> None:
    values = {name: value for name, value in KNOWN.items() if name != missing}
    with pytest.raises(RecipeError) as rejected:
        complete_recipe(values, {"model": "pets.keras"})
    assert str(rejected.value).startswith(
        f"pets.keras needs --{missing}: it cannot be inferred from the model. Pass it or state it in a --recipe file"
    )
    assert (missing not in ("size", "outputs")) == ("pass --predictions to find" in str(rejected.value))


def test_labels_may_be_missing_until_the_number_of_outputs_is_known() -> None:
    values = {name: value for name, value in KNOWN.items() if name not in ("labels", "outputs")}
    assert complete_recipe(values, {"model": "age.keras"}).answers.labels is None
    with pytest.raises(RecipeError, match=r"age\.keras needs --labels and --outputs: they cannot be inferred"):
        complete_recipe(values, {"model": "age.keras", "task": "multilabel"})


def test_labels_that_a_source_knows_are_not_for_tasks_without_labels() -> None:
    answers = complete_recipe(KNOWN, {"model": "keras:MobileNetV2", "task": "embed"}).answers
    assert (None, None) == (answers.labels, answers.outputs)


def test_the_tasks_without_labels_are_named_if_nothing_says_that_there_are_some() -> None:
    values = {name: value for name, value in KNOWN.items() if name not in ("labels", "outputs", "crop")}
    for stated, is_named in (({}, True), ({"outputs": "logits"}, False), ({"task": "multilabel"}, False)):
        with pytest.raises(RecipeError) as rejected:
            complete_recipe(values, {"model": "pets.keras", **stated})
        assert is_named == ("a model without labels needs a --task instead: embed, regress" in str(rejected.value))


@pytest.mark.parametrize(("task", "has_top_k"), [("binary", True), ("embed", False), ("segment", False)])
def test_a_recipe_file_has_top_k_for_the_tasks_that_use_it(task: str, has_top_k: bool) -> None:
    without_labels = {} if has_top_k or task == "segment" else {"labels": None, "outputs": None}
    values = {**KNOWN, "model": "pets.keras", "task": task, "crop": "none", **without_labels}
    assert has_top_k == ("top_k = 5" in Recipe.from_values(values).to_toml())


def test_all_missing_values_are_requested_at_once() -> None:
    values = {name: value for name, value in KNOWN.items() if name not in ("labels", "crop", "scale")}
    with pytest.raises(RecipeError) as rejected:
        complete_recipe(values, {"model": "pets.keras"})
    assert (
        "pets.keras needs --labels, --crop and --scale: they cannot be inferred from the model. Pass them or state "
        "them in a --recipe file, or pass --predictions to find how photos are prepared"
    ) == str(rejected.value)


def test_an_unknown_field_is_rejected() -> None:
    with pytest.raises(RecipeError, match="unknown recipe field crops; did you mean crop"):
        Recipe.from_values({**KNOWN, "crops": "none"})


LAYERS = {
    "source only": ({}, "7/8"),
    "the user's value over the source's": ({"crop": "1/3"}, "1/3"),
    "None leaves the source's": ({"crop": None}, "7/8"),
    "false over true": ({"antialias": False}, "7/8"),
}


@pytest.mark.parametrize(("values", "expected"), LAYERS.values(), ids=LAYERS)
def test_the_users_values_override_the_sources(values: dict[str, Any], expected: str) -> None:
    recipe = complete_recipe({**KNOWN, "antialias": True}, {"model": "m", **values})
    assert expected == recipe.preprocessing.crop
    assert values.get("antialias", True) == recipe.preprocessing.antialias


LIKE = {"size": (96, 96), "crop": "none", "resize": "area", "antialias": True, "scale": "-1..1", "channels": "BGR"}


@pytest.mark.parametrize(
    ("known", "values", "expected"),
    [
        ({}, {}, LIKE),
        ({"size": (64, 48)}, {}, {**LIKE, "size": (64, 48)}),
        ({"scale": "0..1"}, {"crop": "7/8", "channels": "RGB"}, {**LIKE, "crop": "7/8", "channels": "RGB"}),
    ],
    ids=["all of it", "not its size if the model has one", "except what the user states"],
)
def test_the_preprocessing_is_like_that_of_a_known_network(
    known: dict[str, Any], values: dict[str, Any], expected: dict[str, Any]
) -> None:
    recipe = complete_recipe(
        {"labels": "n.txt", "outputs": "logits", **known}, {"model": "m", "like": "keras:VGG16", **values}, like=LIKE
    )
    assert {"like": "keras:VGG16", **expected} == {
        name: value for name, value in vars(recipe.preprocessing).items() if name in expected or name == "like"
    }


@pytest.mark.parametrize("scale", ["0..255", "0:1"])
def test_pixels_are_for_networks_that_scale_them_themselves(scale: str) -> None:
    recipe = complete_recipe(KNOWN, {"model": "m", "scale": scale}, scaling_layer="rescaling")
    assert scale == recipe.preprocessing.scale


@pytest.mark.parametrize(
    ("values", "origin"),
    [({"scale": "-1..1"}, ""), ({"like": "keras:MobileNetV2"}, " of like 'keras:MobileNetV2'")],
    ids=["--scale", "--like"],
)
def test_scaling_twice_is_rejected_with_both_places(values: dict[str, Any], origin: str) -> None:
    with pytest.raises(RecipeError) as rejected:
        complete_recipe(KNOWN, {"model": "m", **values}, like=LIKE, scaling_layer="rescaling")
    assert (
        f"invalid scale '-1..1'{origin}: the layer 'rescaling' of m already scales pixels, so the scale must be 0..255"
    ) == str(rejected.value)


def test_it_can_be_composed_from_its_parts(recipe_of: Callable[..., Recipe]) -> None:
    composed = Recipe(
        Source(model="tiny"),
        Answers(labels="names.txt", outputs="probabilities", top_k=3),
        Preprocessing(size="24x32", crop="none", resize="bilinear", antialias=False, scale="0..1", channels="RGB"),
        Optimisation(optimise="none"),
        Batching(batch_max=4),
    )
    assert recipe_of(top_k=3, optimise="none", batch_max=4) == composed
    assert composed == Recipe.from_values(composed.to_values())


ROUND_TRIPS = {
    "defaults": {},
    "others": {"crop": "none", "size": (3, 4096), "antialias": True, "scale": "1,2,3:4,5,6", "precision": "float16"},
    "letterbox": {"crop": "letterbox", "padding": "114", "background": "1,2,3", "decode": "fast", "top_k": 1},
    "batching": {"batch_max": 8, "batch_timeout_us": 500, "batch_threads": 2, "allowed_batch_sizes": "1,8"},
    "quotes and umlauts": {"labels": 'C:\\"größe"\n.txt'},
}


@pytest.mark.parametrize("changes", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_toml_round_trip(
    recipe_of: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    recipe = recipe_of(**changes)
    monkeypatch.chdir(tmp_path)
    path = Path("recipe.toml")
    path.write_text(recipe.to_toml(), encoding="utf-8")
    assert recipe == Recipe.from_values(read_recipe_file(path).values)


def test_the_toml_file_is_flat(recipe_of: Callable[..., Recipe]) -> None:
    assert (
        'model = "tiny"\nlabels = "names.txt"\noutputs = "probabilities"\ntop_k = 5\nsize = "24x32"\ncrop = "none"\n'
    ) == recipe_of().to_toml().partition("resize")[0]


@pytest.mark.parametrize(
    ("known", "values", "message"),
    [
        ({"size": (224, 224)}, {"size": (240, 320)}, "invalid size 240x320: m requires 224x224"),
        ({"channels": "GRAY"}, {"channels": "RGB"}, "invalid channels RGB: m requires GRAY"),
    ],
)
def test_properties_of_the_network_cannot_be_changed(
    known: dict[str, Any], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError) as rejected:
        complete_recipe(KNOWN | known, {"model": "m", **values})
    assert message == str(rejected.value)


def test_each_part_of_like_refers_to_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    file = tmp_path / "recipes" / "pets.toml"
    file.write_text('like = "load_img, keras-hub:preset, config.json"\n')
    monkeypatch.chdir(tmp_path)
    assert "load_img,keras-hub:recipes/preset,recipes/config.json" == read_recipe_file(file).values["like"]


@pytest.mark.parametrize(
    ("labels", "stored"),
    [
        (Path("flowers.txt"), "flowers.txt"),
        (["cat", "dog"], ("cat", "dog")),
        ({0: "cat", 2: "dog"}, ("cat", "", "dog")),
        ((name for name in ("cat", "dog")), ("cat", "dog")),
    ],
    ids=["path", "list", "dict with a gap", "generator"],
)
def test_labels_may_be_a_path_or_the_names(labels: object, stored: object, tmp_path: Path) -> None:
    """A file of the recipe has the names too."""
    recipe = Recipe.from_values({**KNOWN, "model": "flowers.keras", "labels": labels})
    assert stored == recipe.answers.labels
    (folder := tmp_path / "assets.extra").mkdir()
    (folder / "recipe.toml").write_text(recipe.to_toml())
    assert recipe == Recipe.from_toml(folder / "recipe.toml")


def test_a_recipe_with_other_values() -> None:
    recipe = Recipe.from_values({**KNOWN, "model": "flowers.keras", "top_k": 3})
    changed = recipe.with_(scale="0..1", top_k=None)
    assert ("0..1", 5, "7/8") == (changed.preprocessing.scale, changed.answers.top_k, changed.preprocessing.crop)
    with pytest.raises(RecipeError, match="unknown recipe field scaling"):
        recipe.with_(scaling="0..1")


def test_a_recipe_is_shown_by_what_is_not_the_default() -> None:
    recipe = Recipe.from_values({**KNOWN, "model": "<flowers>.keras", "labels": [f"flower {n}" for n in range(9)]})
    expected = "<Recipe: model='<flowers>.keras', labels=('flower 0', 'flower 1', 'flower 2', 'f…, outputs='proba"
    assert repr(recipe).startswith(expected)
    assert "top_k" not in repr(recipe)
    assert "model = &quot;&lt;flowers&gt;.keras&quot;" in recipe._repr_html_()


@pytest.mark.parametrize(
    "value",
    ["a\0b", "a\nb", "a\ud800", "", "x" * 100_000, int("7" * 70), "7" * 70, NESTED, {"a": NESTED}, float("nan")],
    ids=["NUL", "line break", "surrogate", "empty", "long", "number", "digits", "lists", "table", "nan"],
)
def test_a_value_of_any_field_is_accepted_or_rejected_in_a_few_words(value: Any) -> None:
    messages = []
    for name in Recipe.FIELDS:
        try:
            convert_values({name: value})
        except RecipeError as error:
            messages.append(str(error))
    assert [] == [message for message in messages if len(message) > 1200 or not message.isprintable()]
