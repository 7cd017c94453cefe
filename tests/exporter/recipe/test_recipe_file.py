"""Recipe files: what they may contain, and which folder their paths refer to."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.recipe import Recipe, read_recipe_file
from savedmodel_bakery.wire import version_folder

UNREADABLE = {
    "not TOML": (b"crop = ", "cannot read the recipe file "),
    "not text": (b"\xff\xfe", "cannot read the recipe file "),
    "unknown names": (b"zoom = 1\ncrop = '1/2'\nquux = 2", "unknown recipe fields quux and zoom; a recipe has model,"),
    "fractional size": (b"size = [224.5, 224]", "invalid size [224.5, 224]: must be SIDE or HEIGHTxWIDTH, such as"),
    "nested size": (b"size = [[224], 224]", "invalid size [[224], 224]: must be SIDE"),
    "name that is not text": (b"name = 7", "invalid name 7: must be text"),
    "invalid value": (b"top_k = 0", "invalid top_k 0: must be a whole number from 1"),
}


@pytest.mark.parametrize(("content", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_unusable_recipe_file_is_rejected_with_its_path(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(content)
    with pytest.raises(RecipeError) as rejected:
        read_recipe_file(path)
    assert message in str(rejected.value)
    assert str(path) in str(rejected.value)


def test_a_missing_recipe_file_is_rejected_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"cannot read the recipe file .*none\.toml: .*No such file"):
        read_recipe_file(tmp_path / "none.toml")


def test_a_recipe_file_may_state_only_some_values(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('crop = 0.875\nsize = "240x320"\n')
    assert (None, {"crop": "0.875", "size": (240, 320)}) == read_recipe_file(path)


def test_a_recipe_file_may_state_the_name_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('name = "flowers"\ntop_k = 3\n')
    assert ("flowers", {"top_k": 3}) == read_recipe_file(path)


PATHS = {
    "file": ("model", "flowers.keras", "recipes/flowers.keras"),
    "folder": ("model", "flowers/1", "recipes/flowers/1"),
    "outside": ("model", "../flowers.keras", "flowers.keras"),
    "absolute": ("model", "/models/flowers.keras", "/models/flowers.keras"),
    "folder of TF Hub": ("model", "hub:module", "hub:recipes/module"),
    "absolute folder of TF Hub": ("model", "hub:/module", "hub:/module"),
    "built-in": ("model", "efficientnet-lite0", "efficientnet-lite0"),
    "Keras": ("model", "keras:InceptionV3", "keras:InceptionV3"),
    "URL": ("model", "https://tfhub.dev/google/imagenet/1", "https://tfhub.dev/google/imagenet/1"),
    "function": ("model", "my.models:build", "my.models:build"),
    "labels": ("labels", "flowers.txt", "recipes/flowers.txt"),
    "weights": ("weights", "w.weights.h5", "recipes/w.weights.h5"),
    "weights of ImageNet": ("weights", "imagenet", "imagenet"),
    "no weights": ("weights", "none", "none"),
    **{f"label set {name}": ("labels", name, name) for name in resources.known_sets()},
}


@pytest.mark.parametrize("is_absolute", [False, True], ids=["relative recipe", "absolute recipe"])
@pytest.mark.parametrize(("field", "value", "expected"), PATHS.values(), ids=PATHS)
def test_paths_refer_to_the_folder_of_the_recipe(
    field: str, value: str, expected: str, is_absolute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipes").mkdir()
    path = Path("recipes", "flowers.toml")
    path.write_text(f'{field} = "{value}"\n')
    assert {field: expected} == read_recipe_file(path.resolve() if is_absolute else path).values


def test_paths_of_a_recipe_stored_in_a_version_refer_to_the_working_directory(tmp_path: Path) -> None:
    path = tmp_path / "flowers" / "1" / version_folder.RECIPE
    path.parent.mkdir(parents=True)
    path.write_text('model = "flowers.keras"\n')
    assert {"model": "flowers.keras"} == read_recipe_file(path).values


def test_a_deeply_nested_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "nested.toml"
    path.write_text(f"x = {'[' * 5000}{']' * 5000}\n")
    with pytest.raises(RecipeError, match=r"cannot read the recipe file .*nested\.toml: it is nested too deeply"):
        read_recipe_file(path)


def test_every_field_with_a_path_is_resolved() -> None:
    """A field whose metavar mentions a file, other than a table `[image_2]`, which has no paths."""
    fields = {name for name, field in Recipe.FIELDS.items() if "FILE" in field.metavar}
    assert {"heads", "labels", "like", "weights", "image_2"} == fields
    with_paths = fields - {"heads", "image_2"}
    assert all("x/y.json" == Recipe.FIELDS[name].values.resolve("y.json", Path("x")) for name in with_paths)
