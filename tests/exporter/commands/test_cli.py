"""The command line: inspect, help without TensorFlow, and a missing extra."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import command_line
import pytest
import tiny_models
from stored_versions import memory_store

from savedmodel_bakery.exporter import publish
from savedmodel_bakery.exporter.bake import bake
from savedmodel_bakery.exporter.commands.inspect import inspect
from savedmodel_bakery.exporter.recipe import convert_values, read_recipe_file
from savedmodel_bakery.storage.publish import publish as publish_to

SIGNATURES = ["classify", "pixels", "preprocess", "preview", "serving_default", "top_k"]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the versions 1 and 2 of a model, and a damaged one."""
    folder = tmp_path_factory.mktemp("workshop")
    tiny_models.write_workshop(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", sys.path[:])
        version = bake(model="tiny:build", out="out", name="tiny", recipe=tiny_models.RECIPE).path
        shutil.copytree(version, version.with_name("2"))
    sys.modules.pop("tiny", None)
    (folder / "named.toml").write_text('name = "a/b"\n')
    (folder / "damaged").mkdir()
    (folder / "damaged" / "saved_model.pb").write_bytes(b"\xff\xff")
    for name, file in (("baked", publish.FUNCTION_FILE), ("unreadable", publish.RECIPE_FILE)):
        (folder / name / file).parent.mkdir(parents=True)
        (folder / name / file).write_text("function =")
        shutil.copy(folder / version / "saved_model.pb", folder / name)
    return folder


@pytest.fixture(scope="module")
def version_1(workshop: Path) -> Path:
    return workshop / "out" / "tiny" / "1"


def test_inspect_shows_signatures_recipe_and_size(workshop: Path, version_1: Path) -> None:
    run = tiny_models.run(workshop, "inspect", str(version_1))
    assert (0, "") == (run.code, run.stderr)
    lines = run.stdout.splitlines()
    assert lines[0].startswith(f"{version_1}: ")
    assert "oldest TensorFlow tested with these options: 2.14.1" == lines[1]
    assert [
        f"{name} (tensorflow/serving/{'classify' if name == 'classify' else 'predict'})" for name in SIGNATURES
    ] == [line for line in lines if line.endswith(")")]
    for line in ("  → image: string [?]", "  ← output_0: string [?]", "  ← scores: float [?, 3]", "recipe"):
        assert line in lines
    assert '  model = "tiny:build"' in lines


def test_inspect_prints_the_same_as_json(workshop: Path, version_1: Path) -> None:
    run = tiny_models.run(workshop, "inspect", "--json", str(version_1))
    inspection = json.loads(run.stdout)
    assert SIGNATURES == [signature["name"] for signature in inspection["signatures"]]
    assert {
        "name": "pixels",
        "method": "tensorflow/serving/predict",
        "inputs": [{"alias": "pixels", "dtype": "uint8", "shape": [-1, 8, 8, 3]}],
        "outputs": [
            {"alias": "class_ids", "dtype": "int32", "shape": [-1, 3]},
            {"alias": "error", "dtype": "string", "shape": [-1]},
            {"alias": "labels", "dtype": "string", "shape": [-1, 3]},
            {"alias": "ok", "dtype": "bool", "shape": [-1]},
            {"alias": "scores", "dtype": "float", "shape": [-1, 3]},
        ],
    } == inspection["signatures"][1]
    assert sum(map(len, tiny_models.files(version_1).values())) == inspection["size_bytes"]
    assert sum(map(len, tiny_models.files(version_1 / "variables").values())) == inspection["weights_bytes"]
    assert read_recipe_file(version_1 / publish.RECIPE_FILE).values == convert_values(inspection["recipe"])
    assert (str(version_1), "2.14.1") == (inspection["path"], inspection["oldest_tensorflow"])


def test_inspect_prints_the_same_of_a_version_in_a_bucket(version_1: Path, capsys: pytest.CaptureFixture[str]) -> None:
    version = publish_to(version_1, memory_store(), 1)
    local, stored = (
        json.loads(command_line.run(inspect, ["--json", place], capsys).stdout) for place in (version_1, version)
    )
    assert version.url == stored.pop("path")
    assert local["size_bytes"] + len(version.read("assets.extra/manifest.json")) == stored.pop("size_bytes")
    assert local == {**stored, "path": local["path"], "size_bytes": local["size_bytes"]}


def test_versions_are_listed(workshop: Path, version_1: Path) -> None:
    run = tiny_models.run(workshop, "inspect", str(version_1.parent))
    assert (0, "") == (run.code, run.stderr)
    assert [["1", str(version_1)], ["2", str(version_1.with_name("2"))]] == [
        [line.split("\t")[0], line.split("\t")[-1]] for line in run.stdout.splitlines()
    ]


def test_versions_are_listed_as_json(workshop: Path, version_1: Path) -> None:
    rows = json.loads(tiny_models.run(workshop, "inspect", "--json", str(version_1.parent)).stdout)
    assert [1, 2] == [row["version"] for row in rows]
    assert str(version_1) == rows[0]["path"]
    assert sum(map(len, tiny_models.files(version_1).values())) == rows[0]["size_bytes"]


def test_inspect_prints_the_recipe_of_a_function_as_an_object(workshop: Path) -> None:
    (workshop / "inspected" / "assets.extra").mkdir(parents=True)
    shutil.copy(workshop / "out/tiny/1/saved_model.pb", workshop / "inspected")
    (workshop / "inspected" / publish.FUNCTION_FILE).write_text('function = "m:f"\ninputs = ["x:int32[]"]\n')
    run = tiny_models.run(workshop, "inspect", "--json", "inspected")
    inspection = json.loads(run.stdout)
    assert {"function": "m:f", "inputs": ["x:int32[]"]} == inspection["recipe"]
    assert inspection["oldest_tensorflow"] is None
    assert "oldest" not in tiny_models.run(workshop, "inspect", "inspected").stdout


def test_parity_compares_with_a_model_that_was_moved(workshop: Path) -> None:
    """In another working directory than the bake's, with the model and the labels under other names.

    The folder is that of the model, whose newest version is compared.
    """
    folder = workshop / "elsewhere"
    folder.mkdir()
    (workshop / "rgb.txt").rename(folder / "names.txt")
    (workshop / "tiny.py").rename(folder / "moved.py")
    try:
        arguments = ("../out/tiny", "--model", "moved:build", "--labels", "names.txt", "--json")
        run = tiny_models.run(folder, "parity", *arguments, is_cold=True)
    finally:
        (folder / "names.txt").rename(workshop / "rgb.txt")
        (folder / "moved.py").rename(workshop / "tiny.py")
    assert 0 == run.code, run.stderr
    report = json.loads(run.stdout)
    assert ("moved:build", True) == (report["model"], report["is_within"])


NOT_A_VERSION = {
    "inspect a missing folder": (["inspect", "none"], "no SavedModel in none: must be the folder of a version, such"),
    "inspect a folder of models": (["inspect", "out"], "no SavedModel in out: must be the folder of a version, such"),
    "inspect a damaged version": (
        ["inspect", "damaged"],
        "damaged/saved_model.pb is damaged, or has no graph tagged serve",
    ),
    "inspect a damaged recipe": (["inspect", "unreadable"], "the recipe in unreadable is damaged: "),
    "parity of a missing folder": (["parity", "out"], "no SavedModel in out: must be the folder of a version"),
    "parity of a function": (["parity", "baked"], "no assets.extra/recipe.toml in baked: pass the folder"),
    "parity of another SavedModel": (["parity", "damaged"], "no assets.extra/recipe.toml in damaged: pass the folder"),
}


@pytest.mark.parametrize(("arguments", "message"), NOT_A_VERSION.values(), ids=NOT_A_VERSION)
def test_a_path_without_a_version_is_reported_in_one_line(workshop: Path, arguments: list[str], message: str) -> None:
    run = tiny_models.run(workshop, *arguments)
    assert (1, "") == (run.code, run.stdout)
    (line,) = run.stderr.splitlines()
    assert line.startswith(f"error: {message}")


LOADED = """
import sys
from savedmodel_bakery.exporter.commands.cli import exporter
exporter(sys.argv[1:], standalone_mode=False)
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
LIGHT = {
    "help": (["--help"], {"numpy", "google", "tensorflow", "tomli_w"}),
    "help of bake": (["bake", "--help"], {"numpy", "google", "tensorflow", "tomli_w"}),
    "inspect": (["inspect", "out/tiny/1"], {"tensorflow", "keras"}),
    "versions": (["inspect", "out/tiny"], {"tensorflow", "keras"}),
}


@pytest.mark.parametrize(("arguments", "heavy"), LIGHT.values(), ids=LIGHT)
def test_commands_that_bake_nothing_do_not_import_tensorflow(
    workshop: Path, arguments: list[str], heavy: set[str]
) -> None:
    command = [sys.executable, "-c", LOADED, *arguments]
    ended = subprocess.run(command, cwd=workshop, capture_output=True, text=True, check=True)
    assert ended.stdout
    assert set() == heavy & set(ended.stderr.split())


WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
from savedmodel_bakery.exporter.commands.cli import main
main()
"""


@pytest.mark.parametrize(
    "arguments",
    [["bake", "--model", "m"], ["function", "m:f", "--input", "x:int32[]"], ["parity", "out/tiny/1"]],
    ids=" ".join,
)
def test_a_missing_extra_is_named_in_one_line(arguments: list[str], clone: Path, workshop: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *arguments]
    ended = subprocess.run(command, cwd=workshop, capture_output=True, text=True, check=False)
    assert (1, "") == (ended.returncode, ended.stdout)
    feature = arguments[0]
    assert (
        f"error: {feature} needs tensorflow, which is not installed; try: pip install '{clone}[export]'"
    ) == ended.stderr.strip()


EARLY_ERRORS = {
    "no model": (
        ["bake", "--crop", "none"],
        2,
        "Error: no model given: pass --model, or state it in the --recipe file",
    ),
    "version exists": (
        ["bake", "--model", "tiny:build", "--name", "tiny", "--version", "1"],
        1,
        "error: version 1 alr",
    ),
    "of a default name": (["bake", "--model", "other:tiny", "--version", "1"], 1, "error: version 1 already exists in"),
    "of a function": (["function", "m:tiny", "--input", "x:int32[]", "--version", "2"], 1, "error: version 2 already "),
    "name in a recipe file": (["bake", "--model", "m", "--recipe", "named.toml"], 1, "error: invalid model name 'a/b'"),
    "recipe file": (["bake", "--recipe", "damaged/saved_model.pb"], 1, "error: cannot read the recipe file damaged/sa"),
}


@pytest.mark.parametrize(("arguments", "code", "message"), EARLY_ERRORS.values(), ids=EARLY_ERRORS)
def test_some_mistakes_are_reported_before_tensorflow_is_imported(
    workshop: Path, arguments: list[str], code: int, message: str
) -> None:
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *arguments, "--out", "out"]
    ended = subprocess.run(command, cwd=workshop, capture_output=True, text=True, check=False)
    assert (code, "") == (ended.returncode, ended.stdout)
    assert ended.stderr.splitlines()[-1].startswith(message)
