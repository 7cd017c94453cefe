"""Baking: the versions that it publishes, from the command line and from Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx_models
import pytest
import tiny_models
from tiny_models import OPTIONS, RECIPE, TIMEOUT_S, Run

from savedmodel_bakery import Recipe, bake
from savedmodel_bakery.errors import PublishError, RecipeError
from savedmodel_bakery.exporter import publish, resources

# Each run waits for another process, so the runs of this file start together, two at a time.
WORKERS = 2

TRAIN = """
import keras
import numpy as np

keras.utils.set_random_seed(0)
model = keras.Sequential([
    keras.Input((8, 8, 3)),
    keras.layers.Flatten(),
    keras.layers.Dense(1024, activation="relu"),
    keras.layers.Dense(3, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(np.random.rand(32, 8, 8, 3), np.arange(32) % 3, epochs=2, verbose=0)
model.save("trained.keras")
plain = keras.models.clone_model(model)
plain.set_weights(model.get_weights())
plain.save("plain.h5")
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a module of networks, label files, and models in files."""
    folder = tmp_path_factory.mktemp("workshop")
    tiny_models.write_workshop(folder)
    onnx_models.means(folder / "means.onnx")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", TRAIN], cwd=folder, check=True, capture_output=True, env=environment)
    return folder


def run_bake(workshop: Path, root: str, *arguments: str, is_cold: bool = False) -> Run:
    return tiny_models.run(workshop, "bake", "--name", "tiny", "--out", root, *arguments, root=root, is_cold=is_cold)


def bake_recipe(workshop: Path) -> Run:
    """Bake a recipe in another folder; its paths refer to that folder."""
    recipe = workshop / "recipes" / "blooms.toml"
    recipe.parent.mkdir()
    values = {**tiny_models.RECIPE, "name": "blooms", "model": "../trained.keras", "labels": "../rgb.txt"}
    recipe.write_text("".join(f"{field} = {json.dumps(value)}\n" for field, value in values.items()))
    return tiny_models.run(workshop, "bake", "--recipe", str(recipe), "--out", "from-recipe", root="from-recipe")


RunOf = Callable[[str], Run]


@pytest.fixture(scope="module")
def run_of(workshop: Path) -> Iterator[RunOf]:
    """Wait for a run by its name."""
    with ThreadPoolExecutor(WORKERS) as pool:

        def after_first() -> Run:
            runs["first"].result()
            recipe = str(Path("out", "tiny", "1", publish.RECIPE_FILE))
            # Forks have the hashes of one process, and so the same order of sets.
            return run_bake(workshop, "out", "--recipe", recipe, is_cold=True)

        def existing() -> Run:
            runs["again"].result()
            return run_bake(workshop, "out", "--model", "tiny:build", "--version", "2", *OPTIONS)

        runs: dict[str, Future[Run]] = {}
        runs["first"] = pool.submit(run_bake, workshop, "out", "--model", "tiny:build", *OPTIONS)
        runs["again"] = pool.submit(after_first)
        runs["zero"] = pool.submit(run_bake, workshop, "plain", "--model", "plain.h5", "--version", "0", *OPTIONS)
        runs["existing"] = pool.submit(existing)
        runs["reference"] = pool.submit(
            run_bake, workshop, "referenced", "--model", "tiny:build", "--reference", "means.onnx", *OPTIONS
        )
        runs["recipe"] = pool.submit(bake_recipe, workshop)
        yield lambda name: runs[name].result(TIMEOUT_S * 2)
        pool.shutdown(cancel_futures=True)


def test_the_first_bake_publishes_version_1_and_prints_only_its_path(run_of: RunOf) -> None:
    run = run_of("first")
    assert (0, "out/tiny/1\n") == (run.code, run.stdout), run.stderr
    assert "tiny/1/saved_model.pb" in run.after
    assert {"1"} == {Path(name).parts[1] for name in run.after}


def test_progress_and_agreement_go_to_stderr(run_of: RunOf) -> None:
    *steps, verdict = run_of("first").stderr.splitlines()
    assert [
        "loading tiny:build …",
        "3 labels: red, green, blue …",
        "building the servable …",
        "writing it for task classify …",
        "verifying it in a fresh process …",
        "no evidence of the training: --predictions, --inputs or --labelled would check the recipe",
    ] == steps
    assert verdict.startswith("verified on 3 photos: answers within ")


def test_its_recipe_file_bakes_the_same_model_again_as_version_2(workshop: Path, run_of: RunOf) -> None:
    run = run_of("again")
    assert (0, "out/tiny/2\n") == (run.code, run.stdout), run.stderr
    assert run.before.items() < run.after.items()
    for name in (str(publish.RECIPE_FILE), "variables/variables.data-00000-of-00001"):
        assert run.after[f"tiny/1/{name}"] == run.after[f"tiny/2/{name}"]
    assert outputs(workshop / "out" / "tiny" / "1") == outputs(workshop / "out" / "tiny" / "2")


def test_the_complete_recipe_is_written(run_of: RunOf) -> None:
    recipe = run_of("first").after[f"tiny/1/{publish.RECIPE_FILE}"].decode().splitlines()
    for line in ('model = "tiny:build"', 'labels = "rgb.txt"', 'scale = "0..1"', "antialias = false", "top_k = 5"):
        assert line in recipe


def test_version_0_is_published_on_request(run_of: RunOf) -> None:
    run = run_of("zero")
    assert (0, "plain/tiny/0\n") == (run.code, run.stdout), run.stderr


def test_a_bake_that_agrees_with_its_onnx_model_is_published_and_says_so(run_of: RunOf) -> None:
    run = run_of("reference")
    assert (0, "referenced/tiny/1\n") == (run.code, run.stdout), run.stderr
    assert re.search(r"verified on 3 photos: .*, \S+ of means\.onnx's, .* of the reference pipeline's$", run.stderr)


def test_a_recipe_file_has_the_name_and_paths_relative_to_its_folder(run_of: RunOf) -> None:
    """It names a Keras file."""
    run = run_of("recipe")
    assert (0, "from-recipe/blooms/1\n") == (run.code, run.stdout), run.stderr


def test_the_stored_recipe_has_paths_relative_to_the_working_directory(run_of: RunOf) -> None:
    stored = run_of("recipe").after[f"blooms/1/{publish.RECIPE_FILE}"].decode().splitlines()
    assert {'model = "trained.keras"', 'labels = "rgb.txt"'} < {*stored}


def outputs(version: Path) -> tuple[Any, Any]:
    """Return labels and scores of three images of one colour each, from a Session."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        signature = tf.compat.v1.saved_model.load(session, ["serve"], str(version)).signature_def["pixels"]
        colours = np.repeat(np.eye(3, dtype=np.uint8) * 255, 64, axis=0).reshape(3, 8, 8, 3)
        labels, scores = session.run(
            [signature.outputs["labels"].name, signature.outputs["scores"].name],
            {signature.inputs["pixels"].name: colours},
        )
        return labels.tolist(), scores.tolist()


def test_files_of_the_same_weights_give_the_same_outputs(workshop: Path, run_of: RunOf) -> None:
    run_of("recipe"), run_of("zero")
    trained, plain = workshop / "from-recipe" / "blooms" / "1", workshop / "plain" / "tiny" / "0"
    assert outputs(plain) == outputs(trained)


def test_the_baked_network_returns_the_label_of_each_colour(workshop: Path, run_of: RunOf) -> None:
    run_of("first")
    labels, _ = outputs(workshop / "out" / "tiny" / "1")
    assert [b"red", b"green", b"blue"] == [row[0] for row in labels]


def test_optimizer_state_is_not_baked(run_of: RunOf) -> None:
    """Adam keeps two numbers per weight, which would make the version three times as large."""
    trained, plain = (sum(map(len, run_of(name).after.values())) for name in ("recipe", "zero"))
    weights = 4 * (192 * 1024 + 1024 + 1024 * 3 + 3)
    assert plain >= weights
    assert trained <= plain * 1.05


def test_an_existing_version_is_rejected_before_any_work(run_of: RunOf) -> None:
    run = run_of("existing")
    assert 1 == run.code
    assert "" == run.stdout
    assert [
        "error: version 2 already exists in out/tiny, and published versions are never overwritten; "
        "the next free version is 3"
    ] == run.stderr.splitlines()
    assert run.before == run.after
    assert {"1", "2"} == {Path(name).parts[1] for name in run.after}


class TestFromPython:
    @pytest.fixture
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """The working directory, with a module of networks."""
        tiny_models.write_workshop(tmp_path)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", sys.path[:])
        yield tmp_path
        sys.modules.pop("tiny", None)

    def test_it_returns_the_path_the_recipe_and_the_reports(self, here: Path) -> None:
        steps: list[str] = []
        photos = map(str, resources.example_photos()[:2])
        result = bake(
            model="tiny:build", labels=["red", "green", "blue"], out=here / "models", recipe=RECIPE, photos=photos,
            progress=steps.append,
        )  # fmt: skip
        assert here / "models" / "build" / "1" == result.path
        recipe = result.recipe
        assert (("red", "green", "blue"), (8, 8)) == (recipe.answers.labels, recipe.preprocessing.size)
        assert recipe == Recipe.from_toml(result.path / publish.RECIPE_FILE)
        assert 2 == result.agreement.photos == len(result.parity.photos)
        assert result.parity.is_within
        assert repr(result).startswith(f"<BakeResult {result.path}: <ParityReport: within tolerance on 2 photos; ")
        assert 2 * 4 == result._repr_html_().count("src=&quot;data:image/")
        assert [
            "loading tiny:build",
            "3 labels: red, green, blue",
            "building the servable",
            "writing it for task classify",
            "verifying it in a fresh process",
        ] == steps
        # A default name must not take over another model's.
        with pytest.raises(PublishError, match="build already serves tiny:build; choose another name for other:build"):
            bake(model="other:build", out=here / "models", recipe=RECIPE)

    def test_a_model_that_is_an_object_needs_a_name(self) -> None:
        with pytest.raises(RecipeError, match="a model that is an object needs a name to serve it under: pass name="):
            bake(model=print)

    def test_a_model_is_required(self) -> None:
        with pytest.raises(RecipeError, match="no model given: pass --model, or state it in the --recipe file"):
            bake(recipe=RECIPE)

    @pytest.mark.parametrize("name", ["", "..", "a/b", "a:b", "a\nb", "a\0b"])
    def test_a_name_that_is_not_a_folder_name_is_rejected(self, name: str) -> None:
        allowed = r"invalid model name .*: must be text without / \\ : and control characters, and not"
        with pytest.raises(PublishError, match=allowed):
            bake(model="efficientnet-lite0", name=name)


NAMES = {
    "efficientnet-lite0": "efficientnet_lite0",
    "keras:InceptionV3": "InceptionV3",
    "models/flowers.keras": "flowers",
    "models/flowers.h5": "flowers",
    "models/flowers/": "flowers",
    "hub:modules/inception": "inception",
    "https://tfhub.dev/google/inception/4": "inception",
    "saved_model/flowers/1": "flowers",
    "package.models:build": "build",
}


@pytest.mark.parametrize(("model", "expected"), NAMES.items())
def test_the_default_name_comes_from_the_model(model: str, expected: str) -> None:
    assert expected == publish.default_name(model)
