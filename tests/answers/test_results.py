"""Results are equal if their values are, also those with arrays; they can be shown, and become rows of a table."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from savedmodel_bakery import (
    Box,
    Classification,
    Detections,
    Embedding,
    Heads,
    Keypoint,
    Keypoints,
    Picture,
    Prediction,
    Regression,
    ScoredLabel,
    Segmentation,
    Tag,
    Tags,
    Tensors,
)
from savedmodel_bakery.answers.task import ImageResult, Task
from savedmodel_bakery.answers.tasks import TASKS

ZEROS = np.zeros(3, np.float32)
PREDICTION = Prediction({"a": ZEROS, "b": np.array([b"x"], object)}, "flowers", 1, "top_k")
OTHERS = {
    "another value": (Embedding(True, None, ZEROS), Embedding(True, None, ZEROS + 1)),
    "another length": (Embedding(True, None, ZEROS), Embedding(True, None, ZEROS[:2])),
    "no vector": (Embedding(True, None, ZEROS), Embedding(True, None)),
    "another error": (Embedding(False, "empty"), Embedding(False, "damaged")),
    "another type": (Embedding(False, "empty"), "empty"),
    "another array": (PREDICTION, dataclasses.replace(PREDICTION, arrays={**PREDICTION.arrays, "a": ZEROS + 1})),
    "another text": (PREDICTION, dataclasses.replace(PREDICTION, arrays={"a": ZEROS, "b": np.array([b"y"], object)})),
    "another dtype": (PREDICTION, dataclasses.replace(PREDICTION, arrays={**PREDICTION.arrays, "a": np.zeros(3)})),
    "another output": (PREDICTION, dataclasses.replace(PREDICTION, arrays={"a": ZEROS, "c": ZEROS})),
    "fewer outputs": (PREDICTION, dataclasses.replace(PREDICTION, arrays={"a": ZEROS})),
    "another version": (PREDICTION, dataclasses.replace(PREDICTION, version=2)),
}


@pytest.mark.parametrize("pair", OTHERS.values(), ids=OTHERS)
def test_results_with_other_values_differ(pair: tuple[object, object]) -> None:
    one, other = pair
    assert one != other
    assert other != one
    assert hash(one) != hash(other)


def test_results_with_the_same_values_are_equal() -> None:
    assert Embedding(True, None, ZEROS) == Embedding(True, None, ZEROS.copy())
    assert Embedding(False, "empty") == Embedding(False, "empty")
    assert 1 == len({Embedding(True, None, ZEROS), Embedding(True, None, -ZEROS)})
    assert dataclasses.replace(PREDICTION, arrays={alias: a.copy() for alias, a in PREDICTION.arrays.items()}) == (
        PREDICTION
    )


def png(size: tuple[int, int] = (40, 30)) -> bytes:
    file = io.BytesIO()
    Image.new("L", size).save(file, "PNG")
    return file.getvalue()


TULIP = Classification(True, None, "tulip", (ScoredLabel("tulip", 0.9, 1), ScoredLabel("<rose>", 0.1, 0)))
# Each with its text, and a part of its HTML.
RESULTS: list[tuple[ImageResult, str, str]] = [
    (TULIP, "<Classification: tulip 0.900 1; <rose> 0.100 0>", "#9ecae9 90.0%"),
    (Tags(True, None, (Tag("wet", 0.7),)), "<Tags: wet 0.700>", "#9ecae9 70.0%"),
    (Tags(True, None), "<Tags: none>", ": none</p>"),
    (Embedding(True, None, ZEROS), "<Embedding: [0.0, 0.0, 0.0]>", "[0.0, 0.0, 0.0]</td>"),
    (Regression(True, None, {"age": 7.5}), "<Regression: age 7.5>", "7.5</td>"),
    (Tensors(True, None, {"a": ZEROS}), "<Tensors: a float32[3] [0. 0. 0.]>", "float32[3]</td>"),
    (
        Detections(True, None, (Box("cat", 0.5, 1, 2, 13, 14),) * 12),
        "<Detections: " + "; ".join(["1.0 2.0 13.0 14.0 cat 0.500"] * 3) + "; … 9 more>",
        "<p>… 2 more</p>",
    ),
    (Keypoints(True, None, (Keypoint("nose", 1, 2, None),)), "<Keypoints: 1.0 2.0 nose>", "nose</td>"),
    (Segmentation(True, None, png(), ("road",), {"road": 1.0}), "<Segmentation: road 1.000>", "#9ecae9 100.0%"),
    (Picture(True, None, png()), f"<Picture: PNG 40x30 {len(png())} bytes>", "data:image/png;base64,"),
    (Heads(True, None, {"kind": TULIP}), "<Heads: kind tulip 0.900 1; kind <rose> 0.100 0>", "<h4>kind</h4>"),
]


@pytest.mark.parametrize(("result", "text", "html"), RESULTS, ids=[type(each[0]).__name__ for each in RESULTS])
def test_a_result_is_shown_and_becomes_json(result: ImageResult, text: str, html: str) -> None:
    assert text == repr(result)
    assert html in result._repr_html_()
    assert "<rose>" not in result._repr_html_()
    assert {"ok": True, "error": None}.items() <= json.loads(json.dumps(result.to_dict())).items()
    assert result == pickle.loads(pickle.dumps(result))


def test_every_task_has_such_a_result() -> None:
    assert {task.result for task in TASKS} == {type(result) for result, _, _ in RESULTS}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_result_of_an_image_that_could_not_be_read_says_so(task: Task[Any]) -> None:
    failed = task.failed("not a <photo>")
    assert f"<{task.result.__name__}: not ok: not a <photo>>" == repr(failed)
    assert "not ok: not a &lt;photo&gt;" in failed._repr_html_()


def test_a_prediction_is_shown_by_its_shapes() -> None:
    expected = '<Prediction of signature "top_k" of model "flowers" version 1: a float32[3]; b object[1]>'
    assert expected == repr(PREDICTION)
    assert "float32[3]</td>" in PREDICTION._repr_html_()


def test_results_are_rows_of_a_data_frame() -> None:
    results = [TULIP, Classification(False, "no image")]
    table = pd.DataFrame(result.to_dict() for result in results)
    assert ["tulip", None] == [label if isinstance(label, str) else None for label in table["label"]]
    assert 0.9 == table["score"][0]
    assert (0.9, None) == tuple(result.score for result in results)


def test_boxes_are_drawn_on_the_photo_if_its_path_is_known(tmp_path: Path) -> None:
    """Small enough for a notebook; if it is gone, the table is shown without it."""
    photo = tmp_path / "photo.png"
    photo.write_bytes(png((1400, 700)))
    result = Detections(True, None, (Box("cat", 0.5, 10, 10, 500, 500),))
    result.keep_path(photo)
    _, _, encoded = result._repr_html_().partition("data:image/png;base64,")
    drawn = Image.open(io.BytesIO(b64decode(encoded.partition('"')[0])))
    assert (640, 320) == drawn.size
    assert drawn.getextrema() != ((0, 0),) * 3
    photo.unlink()
    assert "<img" not in result._repr_html_()
    assert "cat</td>" in result._repr_html_()
