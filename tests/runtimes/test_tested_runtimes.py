"""Bakes answer in older versions of TensorFlow as in the current one, where the table says so; and only there."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import int8_networks
import numpy as np
import pytest
from baked_tasks import RECIPE, TASKS, bake_tasks, draw_photo
from PIL import Image
from runtime_answers import Answers, Requests, ask_runtime

from savedmodel_bakery.client.goldens import Golden, compare, read_goldens
from savedmodel_bakery.exporter.bake import bake
from savedmodel_bakery.exporter.commands.inspect import OLDEST, OLDEST_FOR_PHOTOS, TESTED_VERSIONS
from savedmodel_bakery.wire.tensors import decode_array

# Keras saves its variables in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

ATOL = 1e-5
PRECISIONS = {"bfloat16": 2**-7, "float16": 2**-10}  # the distance between neighbouring numbers below 1


@pytest.fixture(scope="module")
def bakes(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Versions by the option that they test."""
    folder = tmp_path_factory.mktemp("bakes")
    bake_tasks(folder)
    photo = draw_photo(folder / "photo.png")
    classifier = {"model": "shape_models:classifier", "outputs": "probabilities", "labels": str(folder / "colours.txt")}

    def bake_one(name: str, **values: Any) -> list[Path]:
        limits = {"min_agreement": 0} if name == "int8" else {}
        recipe = {**RECIPE, **values}
        return [bake(recipe=recipe, name=name, out=folder, photos=[photo], require_parity=False, **limits).path]

    options = {f"`--task {task}`": [folder / task / "1"] for task in TASKS if f"`--task {task}`" in OLDEST}
    options["`--task classify`"].append(lite0 / "1")
    options["`--precision float32`"] = options["`--task classify`"]
    options["`--batch-max`"] = bake_one("batching", **classifier, batch_max=8)
    (folder / "calibration").mkdir()
    levels = (int8_networks.images(60) * 60 + 127).clip(0, 255).astype(np.uint8)
    for number, image in enumerate(levels):
        Image.fromarray(image).save(folder / "calibration" / f"{number}.png")
    (folder / "ten.txt").write_text("\n".join(map(str, range(int8_networks.CLASSES))))
    network = {
        "model": "int8_networks:varied",
        "labels": str(folder / "ten.txt"),
        "outputs": "probabilities",
        "size": (int8_networks.SIDE,) * 2,
    }
    for precision in PRECISIONS:
        options[f"`--precision {precision}`"] = bake_one(precision, **network, precision=precision)
    calibration = str(folder / "calibration")
    with int8_networks.int8_always_gains():
        options["`--precision int8`"] = bake_one("int8", **network, precision="int8", calibration=calibration)
    return options


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A photo by the name of its format."""
    folder = tmp_path_factory.mktemp("photos")
    photo = Image.open(draw_photo(folder / "photo.png"))

    def encode(name: str) -> bytes:
        file = io.BytesIO()
        photo.save(file, name)
        return file.getvalue()

    return {name: encode(name) for name in OLDEST_FOR_PHOTOS}


@pytest.fixture(scope="module")
def requests(bakes: Mapping[str, list[Path]], photos: Mapping[str, bytes]) -> Requests:
    """The requests of the goldens, and to `classify` a photo of each format."""
    folders = {folder for versions in bakes.values() for folder in versions}
    requests: Requests = {str(folder): [*map(request_of, read_goldens(folder).requests)] for folder in folders}
    requests[str(bakes["`--task classify`"][0])] += [("preprocess", [photo]) for photo in photos.values()]
    return requests


def request_of(golden: Golden) -> tuple[str, list[Any]]:
    if golden.has_examples:
        examples = golden.request.input.example_list.examples
        return golden.signature, [example.SerializeToString() for example in examples]
    (tensor,) = golden.request.inputs.values()
    return golden.signature, decode_array(tensor).tolist()


@pytest.fixture(scope="module")
def ask(requests: Requests, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | Path], Answers]:
    folder = tmp_path_factory.mktemp("answers")
    return lambda python: ask_runtime(python, requests, folder)


@pytest.fixture(scope="module")
def expected(ask: Callable[[str | Path], Answers]) -> Answers:
    """The answers of the TensorFlow that baked them."""
    answers = ask(sys.executable)
    assert not [outputs for each in answers.outputs.values() for outputs in each if isinstance(outputs, str)]
    return answers


def differences(expected: dict[str, Any] | str, actual: dict[str, Any] | str, folder: str) -> list[str]:
    """Return what differs between the outputs of one request to the bake in a folder."""
    assert not isinstance(expected, str)
    atol = PRECISIONS.get(Path(folder).parent.name, ATOL)
    return [actual] if isinstance(actual, str) else compare(arrays(expected), arrays(actual), lambda _: atol)


def arrays(outputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return outputs as arrays; those of bytes as objects."""
    converted = {alias: np.array(values) for alias, values in outputs.items()}
    return {
        alias: np.array(outputs[alias], object) if array.dtype.kind == "S" else array
        for alias, array in converted.items()
    }


@pytest.mark.timeout(900)  # the first one bakes
@pytest.mark.parametrize("version", TESTED_VERSIONS)
def test_bakes_answer_the_same_from_the_version_in_the_table_on(
    version: str,
    clone: Path,
    bakes: Mapping[str, list[Path]],
    photos: Mapping[str, bytes],
    expected: Answers,
    ask: Callable[[str | Path], Answers],
) -> None:
    environment = clone / ".cache" / "runtimes" / version
    assert (environment / ".installed").is_file(), f"{environment} is missing: run make test-runtimes"
    actual = ask(environment / "bin" / "python")
    assert version == actual.version
    found = {
        folder: [differences(*pair, folder) for pair in zip(outputs, actual.outputs[folder], strict=True)]
        for folder, outputs in expected.outputs.items()
    }
    classify = str(bakes["`--task classify`"][0])
    of_photos = dict(zip(photos, found[classify][-len(photos) :], strict=True))
    del found[classify][-len(photos) :]
    of_options = {option: [found[str(folder)] for folder in folders] for option, folders in bakes.items()}
    print(version, of_options, of_photos)
    assert is_same(OLDEST, version) == {option: not any(map(any, each)) for option, each in of_options.items()}
    assert is_same(OLDEST_FOR_PHOTOS, version) == {name: not each for name, each in of_photos.items()}


def is_same(table: Mapping[str, str], version: str) -> dict[str, bool]:
    """Return whether a table says that a version gives the same answers, by its rows."""
    return {name: TESTED_VERSIONS.index(version) >= TESTED_VERSIONS.index(oldest) for name, oldest in table.items()}
