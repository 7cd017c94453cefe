"""Functions: what is baked, and which ones are rejected."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_models

from savedmodel_bakery.errors import BakeError, RecipeError, SourceError, VerificationError
from savedmodel_bakery.exporter.function.bake import bake_function
from savedmodel_bakery.exporter.function.function_module import parse_input, read_example

FUNCTIONS = """
import tensorflow as tf

table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0)
weight = tf.Variable(3.0)
calls = []


def nested(a, k):
    return {"sum": [element["b"] * weight + tf.cast(k, tf.float32) for element in a], "n/m": tf.size(k)}


def pair(first, second):
    return first - second, tf.strings.length("text")


def ended(text):
    return text + b"\\0"


def decode(image):
    return tf.io.decode_png(image)


def frozen(x):
    return x + tf.zeros([2])


def counted(x):
    calls.append(x)
    return x + len(calls)


def words(x):
    return "not a tensor: " + x.name, object()


def nothing(x):
    return {}
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module of functions."""
    folder = tmp_path_factory.mktemp("functions")
    (folder / "sample_functions.py").write_text(FUNCTIONS)
    return folder


@pytest.fixture(autouse=True)
def working_directory(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are imported from the working directory."""
    monkeypatch.chdir(workshop)
    monkeypatch.syspath_prepend(str(workshop))


def bake(folder: Path, name: str, *inputs: str, **options: Any) -> Path:
    return bake_function(
        base_path=folder / "baked", name=f"sample_functions:{name}", inputs=list(map(parse_input, inputs)), **options
    )


def test_trees_of_tensors_are_baked_with_the_names_of_their_leaves(workshop: Path) -> None:
    inputs = ("--input", "a/0/b:float32[?]", "--input", "a/1/b:float32[...]", "--input", "k:int64[]")
    arguments = ("sample_functions:nested", *inputs, "--out", "out")
    run = tiny_models.run(workshop, "function", *arguments, is_cold=True)
    version = workshop / "out" / "nested" / "1"
    assert (0, "out/nested/1\n") == (run.code, run.stdout), run.stderr
    assert [version] == list(version.parent.iterdir())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(version)).signature_def["serving_default"]
        feeds = {"a/0/b": np.float32([1, 2]), "a/1/b": np.float32(3), "k": np.int64(5)}
        outputs = session.run(
            {alias: tensor.name for alias, tensor in loaded.outputs.items()},
            {loaded.inputs[alias].name: array for alias, array in feeds.items()},
        )
    assert {"sum/0": [8, 11], "sum/1": 14, "n~1m": 1} == {alias: array.tolist() for alias, array in outputs.items()}
    index = json.loads((version / "assets.extra" / "goldens" / "index.json").read_text())
    assert ("nested", {"sum/0", "sum/1"}, 2) == (
        index["model"], index["tolerances"].keys(), index["signatures"]["serving_default"]["requests"],
    )  # fmt: skip
    assert (version / "assets.extra" / "tf_serving_warmup_requests").stat().st_size


def test_inputs_with_other_names_are_passed_in_order_and_an_example_is_used(tmp_path: Path) -> None:
    example = {"x": np.float64([5]), "y": np.float64([3])}
    path = bake(tmp_path, "pair", "x:double[?]", "y:float64[?]", example=example)
    [golden] = map(json.loads, (path / "assets.extra/goldens/serving_default.jsonl").read_text().splitlines())
    assert ["output_0", "output_1"] == sorted(golden["response"]["outputs"])
    assert np.float64([2]).tobytes().hex() == base64.b64decode(
        golden["response"]["outputs"]["output_0"]["tensor_content"]
    ).hex()  # fmt: skip


def test_a_scalar_text_is_baked_with_its_trailing_zero(tmp_path: Path) -> None:
    path = bake(tmp_path, "ended", "text:string[]", example={"text": np.array(b"a", object)})
    golden = json.loads((path / "assets.extra/goldens/serving_default.jsonl").read_text())
    assert [b"a\0"] == [base64.b64decode(text) for text in golden["response"]["outputs"]["output_0"]["string_val"]]


@pytest.mark.parametrize(
    ("name", "inputs", "options", "error", "message"),
    [
        pytest.param("decode", ["image:string[]"], {}, SourceError, "with --example FILE.npz", id="generated inputs"),
        pytest.param("frozen", ["x:float32[?]"], {}, SourceError, "the function fails with InvalidArg", id="size"),
        pytest.param("counted", ["x:float32[?]"], {}, VerificationError, "depend on state in Python", id="state"),
        pytest.param("words", ["x:float32[]"], {}, SourceError, "words cannot be traced: ", id="not a tensor"),
        pytest.param("nothing", ["x:float32[]"], {}, SourceError, "the function returns nothing", id="nothing"),
        pytest.param("nested", ["a:float32[]"], {}, SourceError, "missing a required argument", id="too few"),
        pytest.param("table", ["x:string[]"], {}, SourceError, "is a StaticHashTable: must be", id="not callable"),
        pytest.param("none", ["x:string[]"], {}, SourceError, "cannot import '.*': AttributeError", id="unknown"),
        pytest.param("pair", ["x:float32[]"] * 2, {}, RecipeError, "duplicate input x", id="twice"),
        pytest.param(
            "frozen", ["x:float32[?]"], {"example": {"x": np.zeros(2)}}, RecipeError,
            r"x is float64\[2\]; the input is x:float32\[\?\]", id="example of another type",
        ),
        pytest.param(
            "frozen", ["x:float32[?]"], {"example": {"y": np.zeros(2)}}, RecipeError,
            "the example has the arrays y; the inputs are x", id="example of other names",
        ),
    ],
)  # fmt: skip
def test_a_rejected_function_leaves_no_file(
    tmp_path: Path, name: str, inputs: list[str], options: dict[str, Any], error: type[BakeError], message: str
) -> None:
    with pytest.raises(error, match=message):
        bake(tmp_path, name, *inputs, **options)
    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("x:float64[?,3]", "x:float64[?,3]"), ("x:double[]", "x:float64[]"), ("a/0/b:string[...]", "a/0/b:string[...]")],
)
def test_an_input_is_parsed(text: str, expected: str) -> None:
    assert expected == str(parse_input(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "must be NAME:TYPE"),
        ("x:float32", "must be NAME:TYPE"),
        ("x:float32[-1]", "must be NAME:TYPE"),
        ("x:float32[?,]", "must be NAME:TYPE"),
        ("x:floot[?]", "its type floot must be one of bfloat16, bool, "),
        ("x:resource[]", "its type resource must be one of"),
    ],
)
def test_an_invalid_input_is_rejected(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_input(text)


def test_an_example_that_is_not_an_npz_file_is_rejected(tmp_path: Path) -> None:
    for index, content in enumerate((b"", b"PK\x03\x04", b"text")):
        path = tmp_path / f"{index}.npz"
        path.write_bytes(content)
        with pytest.raises(RecipeError, match="is not a valid npz file"):
            read_example(path)
