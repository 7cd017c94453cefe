"""What `ask` prints and writes for each task."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import canned_models
import numpy as np
import pytest
from PIL import Image

from savedmodel_bakery.client.commands.cli import main
from savedmodel_bakery.extras import install_command

Run = Callable[..., tuple[int, str, str]]

LINES = {
    "efficientnet_lite0": ["sorrel\t0.750\t339"],
    "tagger": ["sky\t0.750", "sea\t0.500"],
    "detector": ["1.0\t2.0\t3.0\t4.0\tcat\t0.750", "0.0\t0.5\t1.0\t1.5\tdog\t0.500"],
    "segmenter": ["road\t0.750", "tree\t0.250"],
    "embedder": ["[0.5, -1.0]"],
    "pointer": ["1.0\t2.0\tnose\t0.750", "3.0\t4.5\ttail\t0.500"],
    "family": ["age\tvalue\t30", "sky\tblue\t0.750"],
    "meter": ["height\t-1", "width\t1.5"],
}


@pytest.fixture
def run(peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `ask` in a folder with two photos, and return its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("horse", "bad"):
        Path(name).write_bytes(name.encode())

    def run(model: str, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["ask", "--port", str(peer.grpc_port), "-m", model, *arguments])
        printed = capsys.readouterr()
        return caught.value.code or 0, printed.out, printed.err

    return run


@pytest.mark.parametrize("model", LINES)
def test_a_photo_has_the_lines_of_the_models_task(run: Run, model: str) -> None:
    assert (0, "".join(f"{line}\n" for line in LINES[model]), "") == run(model, "horse")
    several = "".join(f"horse\t{line}\n" for line in LINES[model])
    assert (1, several * 2, "bad: no image\n") == run(model, "horse", "bad", "horse")


def in_json(cells: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in cells.items()
    }


@pytest.mark.parametrize("model", canned_models.CELLS)
def test_json_has_the_columns_of_the_models_task(run: Run, model: str) -> None:
    code, out, err = run(model, "--json", "horse", "bad")
    good, bad = map(in_json, canned_models.CELLS[model])
    named = {"model": model, "version": 3, "signature": "serving_default"}
    expected = [
        {"image": "horse", "ok": True, "error": None, **good, **named},
        {"image": "bad", "ok": False, "error": "no image", **bad, **named},
    ]
    assert (1, expected, "bad: no image\n") == (code, [json.loads(line) for line in out.splitlines()], err)


def test_a_taggers_best_labels_are_printed_with_top_k(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, tagger = canned_models.MODELS["efficientnet_lite0"], canned_models.MODELS["tagger"]
    monkeypatch.setitem(tagger.signatures, "top_k", classifier.signatures["top_k"])
    monkeypatch.setattr(tagger, "run", classifier.run)
    assert (0, "sorrel\t0.750\t339\nzebra\t0.125\t340\n", "") == run("tagger", "--top-k", "2", "horse")


def test_out_is_a_vector_or_a_map(run: Run) -> None:
    assert (0, "", "") == run("embedder", "--out", "vector.npy", "horse")
    vector = np.load("vector.npy")
    assert ([0.5, -1.0], np.float32) == (vector.tolist(), vector.dtype)
    assert (0, "road\t0.750\ntree\t0.250\n", "") == run("segmenter", "--out", "map.png", "horse")
    assert canned_models.MAP == Path("map.png").read_bytes()
    assert (1, "", "bad: no image\n") == run("embedder", "--out", "none.npy", "bad")
    assert not Path("none.npy").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["meter", "--top-k", "2", "horse"], "--top-k does not apply to a model whose task is regress"),
        (
            ["detector", "--out", "a.npy", "horse"],
            "--out is for tasks embed, segment, image, tensors; the model's task is detect",
        ),
        (
            ["embedder", "--draw", "a.png", "horse"],
            "--draw is for tasks detect, segment, keypoints; the model's task is embed",
        ),
        (
            ["efficientnet_lite0", "--draw", "a.png", "horse"],
            "--draw is for tasks detect, segment, keypoints; the model's task is classify or binary",
        ),
        (["embedder", "--out", "a.png", "horse"], "invalid --out a.png: must end with .npy"),
        (["detector", "--draw", "a.jpg", "horse"], "invalid --draw a.jpg: must end with .png"),
        (
            ["embedder", "--out", "a.npy", "horse", "bad"],
            "--out is for one photo, but there are 2; for many photos use bulk",
        ),
        (["embedder", "--out", "none/a.npy", "horse"], "none/a.npy cannot be written: No such file or directory"),
    ],
    ids=[
        "top-k",
        "task",
        "drawn task",
        "drawn task of a classifier",
        "suffix",
        "drawn suffix",
        "several photos",
        "folder",
    ],
)
def test_options_that_do_not_fit_the_task_are_wrong_usage(run: Run, arguments: list[str], error: str) -> None:
    code, out, err = run(*arguments)
    assert (2, "", f"Error: {error}") == (code, out, err.splitlines()[-1])


def test_a_model_without_a_task_is_named(run: Run) -> None:
    code, _, err = run("half_plus_two", "horse")
    assert (1, True) == (code, err.startswith("error: FAILED_PRECONDITION: the outputs of signature"))


@pytest.fixture
def photo(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A photo of two black pixels that the canned models know."""
    file = io.BytesIO()
    Image.new("RGB", (2, 1)).save(file, "PNG")
    for name in ("detector", "segmenter"):
        run = canned_models.MODELS[name].run

        def run_photo(signature: str, _: Any, run: Any = run) -> Any:
            return run(signature, {"image": np.array([b"horse"], object)})

        monkeypatch.setattr(canned_models.MODELS[name], "run", run_photo)
    return file.getvalue()


@pytest.mark.parametrize("model", ["detector", "segmenter"])
def test_draw_writes_the_photo_with_the_result(run: Run, photo: bytes, model: str) -> None:
    Path("photo.png").write_bytes(photo)
    code, _, err = run(model, "--draw", "drawn.png", "photo.png")
    assert (0, "") == (code, err)
    with Image.open("drawn.png") as drawn:
        assert (2, (2, 1) if model == "detector" else (2, 37)) == (drawn.width, drawn.size)


def test_colours_come_from_a_label_file(run: Run, photo: bytes) -> None:
    Path("photo.png").write_bytes(photo)
    Path("labels.csv").write_text("name,colour\nroad,#0a141e\n")
    assert 0 == run("segmenter", "--draw", "drawn.png", "--colours", "labels.csv", "photo.png")[0]
    with Image.open("drawn.png") as drawn:
        assert (10, 20, 30) in drawn.get_flattened_data()
    for arguments, error in (
        (["--colours", "labels.csv"], "--colours is for --draw"),
        (["--draw", "drawn.png", "--colours", "photo.png"], "labels 'photo.png' are not valid UTF-8"),
    ):
        code, _, err = run("segmenter", *arguments, "photo.png")
        assert (2, f"Error: {error}") == (code, err.splitlines()[-1])


def test_a_photo_that_pillow_cannot_read_is_not_drawn(run: Run) -> None:
    code, _, err = run("detector", "--draw", "drawn.png", "horse")
    assert (1, True) == (code, err.startswith("error: cannot draw the result: Pillow cannot read the photo: "))


def test_draw_needs_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    expected = f"error: --draw needs PIL, which is not installed; try: {install_command('draw')}\n"
    assert (1, "", expected) == run("detector", "--draw", "drawn.png", "horse")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "tab=1", "horse"], "invalid --input tab=1: must be NAME=FILE or NAME=JSON; the inputs are none"),
        (["--input", "tab=1", "--result-queue", "results", "horse"], "--input does not apply to --result-queue"),
    ],
)
def test_inputs_that_the_model_or_the_request_does_not_take(run: Run, arguments: list[str], message: str) -> None:
    code, _, err = run("meter", *arguments)
    assert 2 == code
    assert message in err
