"""Baking: a mistake is reported in one line, and nothing is published."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import command_line
import onnx_models
import pytest
import tiny_models
from tiny_models import OPTIONS

from savedmodel_bakery.exporter.commands.bake import bake

BUILD = ["--model", "tiny:build"]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a module of networks, label files and unusable files."""
    folder = tmp_path_factory.mktemp("workshop")
    tiny_models.write_workshop(folder)
    for name, content in ("deep", "[" * 100_000), ("large", " " * 20_000_000):
        with zipfile.ZipFile(folder / f"{name}.keras", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("metadata.json", content)
            archive.writestr("config.json", "{}")
    (folder / "cut.keras").write_bytes((folder / "deep.keras").read_bytes().replace(b"PK\x01\x02", b"PKxx"))
    (folder / "garbage.keras").write_bytes(b"PK\x03\x04 and then something else")
    onnx_models.means(folder / "swapped.onnx", order=(2, 1, 0))
    onnx_models.means(folder / "small.onnx", size=7)
    (folder / "garbage.onnx").write_bytes(b"something else")
    (folder / "typo.py").write_text("def build(:\n")
    (folder / "typo.toml").write_text("crops = 'none'\n")
    return folder


# Name of the case: arguments, exit code, parts of the last line of stderr.
REJECTED: dict[str, tuple[list[str], int, list[str]]] = {
    "no model": (OPTIONS, 2, ["no model given: pass --model, or state it in the --recipe file"]),
    "not a callable": (["--model", "tiny:number", *OPTIONS], 1, ["'tiny:number' is a int: must be callable"]),
    "no such module": (
        ["--model", "none.such:build", *OPTIONS],
        1,
        ["cannot import 'none.such:build': ModuleNotFoundError: "],
    ),
    "module with a typo": (["--model", "typo:build", *OPTIONS], 1, ["cannot import 'typo:build': SyntaxError: "]),
    "incomplete recipe": (
        [*BUILD, "--labels", "rgb.txt", "--crop", "none"],
        1,
        ["tiny:build needs --outputs, --resize, --antialias, --scale and --channels: they cannot be inferred from the"],
    ),
    "map without a task": (
        ["--model", "tiny:colour_map", "--labels", "rgb.txt"],
        1,
        [
            "the network of tiny:colour_map returns shape (None, 8, 8, 3), so its task must be stated: pass --task seg",
        ],
    ),
    "too few labels": (
        [*BUILD, "--labels", "two.txt", *OPTIONS[2:]],
        1,
        ["the network has 3 classes, but labels 'two.txt' have 2", "background class at id 0"],
    ),
    "unknown model": (
        ["--model", "resnet", *OPTIONS],
        1,
        ["unknown model 'resnet': allowed are efficientnet-lite0,", "the path of a .keras or .h5 file;"],
    ),
    "no such file": (["--model", "none.keras", *OPTIONS], 1, ["file not found: none.keras"]),
    "damaged file": (["--model", "garbage.keras", *OPTIONS], 1, ["garbage.keras is not a valid .keras file"]),
    "damaged directory": (["--model", "cut.keras", *OPTIONS], 1, ["cut.keras is not a valid .keras file: Bad magic"]),
    "deep metadata": (["--model", "deep.keras", *OPTIONS], 1, ["cannot load deep.keras: "]),
    "large metadata": (
        ["--model", "large.keras", *OPTIONS],
        1,
        ["metadata.json in large.keras has 20000000 bytes; at most 16777216 are allowed"],
    ),
    "callable fails": (["--model", "tiny:fails", *OPTIONS], 1, ["tiny:fails", "RuntimeError: no weights here"]),
    "another size": ([*BUILD, *OPTIONS, "--size", "9"], 1, ["invalid size 9x9: tiny:build requires 8x8"]),
    "logits declared as probabilities": (
        ["--model", "tiny:logits", *OPTIONS],
        1,
        ["outputs is probabilities, but the network's outputs for a photo look like logits", "--outputs logits"],
    ),
    "probabilities declared as logits": (
        [*BUILD, *OPTIONS, "--outputs", "logits"],
        1,
        ["outputs is logits, but the network's outputs for a photo look like probabilities", "--outputs probabilities"],
    ),
    "other scores than the network's": (
        ["--model", "tiny:counting", *OPTIONS],
        1,
        ["on chelsea.png the SavedModel answers red 0.", ", the network red 0.", "; --optimise none bakes"],
    ),
    "not a number": (
        ["--model", "tiny:not_a_number", *OPTIONS],
        1,
        ["the network returns values that are not finite"],
    ),
    "other scores than the reference's": (
        [*BUILD, *OPTIONS, "--reference", "swapped.onnx"],
        1,
        [
            "on chelsea.png the SavedModel answers red 0.",
            ", the ONNX model blue 0.",
            ": score difference 0.",
            "(allowed:",
        ],
    ),
    "reference of another size": (
        [*BUILD, *OPTIONS, "--reference", "small.onnx"],
        1,
        ["small.onnx takes tensor(float) ['batch', 3, 7, 7]: must take tensor(float) [1, 3, 8, 8] (NCHW) or"],
    ),
    "no reference": ([*BUILD, *OPTIONS, "--reference", "none.onnx"], 2, ["'none.onnx' does not exist"]),
    "reference is not an ONNX model": (
        [*BUILD, *OPTIONS, "--reference", "garbage.onnx"],
        1,
        ["cannot load garbage.onnx as an ONNX model: "],
    ),
    "recipe file with a typo": (
        [*BUILD, "--recipe", "typo.toml"],
        1,
        ["recipe file typo.toml: unknown recipe field crops; did you mean crop"],
    ),
    "no recipe file": ([*BUILD, "--recipe", "none.toml"], 2, ["'none.toml' does not exist"]),
    "size as a word": ([*BUILD, "--size", "big"], 2, ["invalid size 'big': must be SIDE or HEIGHTxWIDTH"]),
    "unknown scale": ([*BUILD, "--scale", "0..2"], 2, ["invalid scale '0..2': must be one of 0..255, 0..1,"]),
    "crop above one": (
        [*BUILD, "--crop", "9/8"],
        2,
        ["invalid crop '9/8': must be none, letterbox, letterbox:down, "],
    ),
    "no number": ([*BUILD, "--parity-atol", "nan"], 2, ["Invalid value for '--parity-atol': 'nan' is not a valid"]),
    "version below zero": ([*BUILD, "--version", "-1"], 2, ["-1 is not in the range x>=0"]),
    "name with a slash": (
        [*BUILD, "--name", "a/b"],
        2,
        ["invalid model name 'a/b': must be text without / \\ : and control characters, and not . or .."],
    ),
}


@pytest.mark.parametrize(("arguments", "code", "parts"), REJECTED.values(), ids=REJECTED)
def test_a_mistake_is_reported_in_one_line_and_nothing_is_published(
    workshop: Path,
    arguments: list[str],
    code: int,
    parts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process, because another one would spend most of its time importing TensorFlow."""
    monkeypatch.chdir(workshop)
    monkeypatch.setattr(sys, "path", sys.path[:])
    try:
        run = command_line.run(bake, ["--name", "tiny", "--out", tmp_path, *arguments], capsys)
    finally:
        sys.modules.pop("tiny", None)
    assert (code, "") == (run.code, run.stdout), run.stderr
    *before, last = run.stderr.splitlines()
    assert last.startswith("error: " if code == 1 else "Error: ")
    for part in parts:
        assert part in last
    assert all(line.endswith(" …") or line.startswith(("Usage: ", "Try ")) or not line for line in before), run.stderr
    assert [] == list(tmp_path.iterdir())


def test_a_detector_that_finds_nothing_on_the_photos_is_published_with_a_warning(
    workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workshop)
    monkeypatch.setattr(sys, "path", sys.path[:])
    options = ["--boxes", "yxyx", "--box-unit", "fractions", "--out", str(tmp_path), "--name", "blind"]
    try:
        run = command_line.run(bake, ["--model", "tiny:blind", *OPTIONS, *options], capsys)
    finally:
        sys.modules.pop("tiny", None)
    assert (0, f"{tmp_path}/blind/1\n") == (run.code, run.stdout), run.stderr
    assert (
        "warning: on all 3 photos no box has a score of 0.5 or more, so no boxes were compared; pass photos that show "
        "the model's labels with --photos FOLDER"
    ) == run.stderr.splitlines()[-1]
