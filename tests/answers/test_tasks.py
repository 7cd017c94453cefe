"""The recognition of tasks, and the outputs that each task has."""

from __future__ import annotations

import pickle

import canned_models
import numpy as np
import pytest

from savedmodel_bakery import Detections, InvalidResponseError, Prediction
from savedmodel_bakery.answers.rows import COLUMNS
from savedmodel_bakery.answers.signatures import TensorSpec, read_signatures
from savedmodel_bakery.answers.tasks import find_task
from savedmodel_bakery.answers.tasks.heads import HEADS
from savedmodel_bakery.answers.tasks.labels import CLASSIFY
from savedmodel_bakery.answers.tasks.numbers import TENSORS
from savedmodel_bakery.answers.tasks.regions import DETECT
from savedmodel_bakery.wire import dtypes


def test_a_signature_can_be_named() -> None:
    """A tagger's `top_k` has the outputs of a classifier."""
    model = canned_models.MODELS["tagger"].signatures | {
        "top_k": canned_models.MODELS["efficientnet_lite0"].signatures["top_k"]
    }
    document = {"model_spec": {"name": "m"}, "metadata": {"signature_def": {"signature_def": model}}}
    signatures = read_signatures(document)
    assert ("multilabel", "serving_default") == (find_task(signatures)[0].name, find_task(signatures)[1])
    assert (CLASSIFY, "top_k") == find_task(signatures, "top_k")


def test_models_with_the_same_heads_have_the_same_task() -> None:
    document = {
        "model_spec": {"name": "m"},
        "metadata": {"signature_def": {"signature_def": canned_models.MODELS["family"].signatures}},
    }
    (task, signature), again = find_task(read_signatures(document)), find_task(read_signatures(document))
    assert (task, signature) == again
    assert "task heads (age: regress, sky: multilabel)" == str(task)
    assert task != HEADS
    failed = pickle.loads(pickle.dumps(task.failed("no image")))
    assert (False, "no image", failed.heads["age"]) == (failed.sky.ok, failed.error, failed.age)
    with pytest.raises(AttributeError, match="there is no head 'sex', only age, sky"):
        _ = failed.sex
    rows = {"age_value": np.zeros(1, np.float32), "ok": np.ones(1, bool), "error": np.array([b""], object)}
    with pytest.raises(InvalidResponseError, match='task heads has "age_value", "sky_count"'):
        task.read(Prediction(rows, "m", 1, signature), batch=1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"y": np.zeros(1), "z": np.zeros(1)},
            'signature "s" of model "m" has the outputs "y", "z"; task detect has "labels", "scores", "boxes", '
            '"count", "ok", "error"',
        ),
        ({"count": np.zeros(1)}, 'output "count" of signature "s" of model "m" has shape [1]; expected [2]'),
        (
            {"boxes": np.zeros((2, 3, 5))},
            'output "boxes" of signature "s" of model "m" has shape [2, 3, 5]; expected [2, 3, 4]',
        ),
        (
            {"scores": np.zeros((2, 2))},
            'output "scores" of signature "s" of model "m" has shape [2, 2]; expected [2, 3]',
        ),
        ({"labels": np.zeros(2)}, 'output "labels" of signature "s" of model "m" has shape [2]; expected [2, ?]'),
    ],
    ids=["other outputs", "batch", "edges", "sizes that differ", "rank"],
)
def test_outputs_of_another_shape_are_an_invalid_response(arrays: dict[str, np.ndarray], message: str) -> None:
    valid = {
        "labels": np.full((2, 3), b"", object),
        "scores": np.zeros((2, 3)),
        "boxes": np.zeros((2, 3, 4)),
        "count": np.zeros(2, np.int32),
        "ok": np.ones(2, bool),
        "error": np.full(2, b"", object),
    }
    assert [Detections(True, None)] * 2 == DETECT.read(Prediction(valid, "m", 1, "s"), batch=2)
    outputs = arrays if "y" in arrays else valid | arrays
    with pytest.raises(InvalidResponseError) as caught:
        DETECT.read(Prediction(outputs, "m", 1, "s"), batch=2)
    assert message == str(caught.value)


def test_each_task_has_its_columns() -> None:
    expected = {
        "classify": ("label", "error", "top"),
        "multilabel": ("error", "tags"),
        "embed": ("error", "embedding"),
        "detect": ("error", "boxes"),
        "segment": ("error", "shares", "map_png"),
        "regress": ("error", "values"),
        "tensors": ("error", "npz"),
        "image": ("error", "png"),
        "keypoints": ("error", "points"),
        "heads": ("error", "heads"),
    }
    assert expected == {task: columns[2:-3] for task, columns in COLUMNS.items()}


def test_tensors_are_numbers_only() -> None:
    row = {"ok": TensorSpec(dtypes.BY_NAME["bool"], (-1,)), "error": TensorSpec(dtypes.STRING, (-1,))}
    numbers = {"map": TensorSpec(dtypes.BY_NAME["bfloat16"], (-1, 4, 4))}
    assert TENSORS.fits(row | numbers)
    assert not TENSORS.fits(row)
    assert not TENSORS.fits(row | numbers | {"text": TensorSpec(dtypes.STRING, (-1,))})
