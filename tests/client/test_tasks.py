"""The results of each task, and the recognition of tasks."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import canned_models
import numpy as np
import pytest
from PIL import Image

from savedmodel_bakery import (
    Box,
    Classification,
    Client,
    Detections,
    InvalidResponseError,
    Regression,
    RequestRefusedError,
    ScoredLabel,
    Segmentation,
    Tag,
    Tags,
)
from savedmodel_bakery.wire.status import Code, StatusError

Connect = Callable[..., Client]

SORREL = ScoredLabel("sorrel", 0.75, 339)
ZEBRA = ScoredLabel("zebra", 0.125, 340)
OX = ScoredLabel("ox", 0.0625, 345)
RESULTS = {
    "classify": ("efficientnet_lite0", Classification(True, None, "sorrel", (SORREL, ZEBRA, OX))),
    "tags": ("tagger", Tags(True, None, (Tag("sky", 0.75), Tag("sea", 0.5)))),
    "detect": ("detector", Detections(True, None, (Box("cat", 0.75, 1, 2, 3, 4), Box("dog", 0.5, 0, 0.5, 1, 1.5)))),
    "segment": (
        "segmenter",
        Segmentation(True, None, canned_models.MAP, ("road", "tree", "road"), {"road": 0.75, "tree": 0.25}),
    ),
    "regress": ("meter", Regression(True, None, {"width": 1.5, "height": -1.0})),
}


@pytest.mark.parametrize("method", RESULTS)
def test_one_image_has_a_result_and_a_list_or_tuple_has_a_list(connect: Connect, method: str) -> None:
    """A bad image has an error in its own result only."""
    model, expected = RESULTS[method]
    call = getattr(connect(model), method)
    bad = type(expected)(ok=False, error="no image")
    assert expected == call(b"horse")
    assert bad == call(b"bad")
    assert [expected] == call([b"horse"])
    assert [bad, expected, bad] == call((b"bad", b"horse", b"?"))


def test_an_embedding_is_a_vector(connect: Connect) -> None:
    good, bad = connect("embedder").embed([b"horse", b"bad"])
    assert good.vector is not None
    assert ([0.5, -1.0], np.float32, None) == (good.vector.tolist(), good.vector.dtype, good.error)
    assert (False, "no image", None) == (bad.ok, bad.error, bad.vector)


def test_a_map_is_decoded_on_demand(connect: Connect) -> None:
    good, bad = connect("segmenter").segment([b"horse", b"bad"])
    assert ([[0, 2]], np.uint8) == (good.map.tolist(), good.map.dtype)
    with pytest.raises(ValueError, match="the image has no map, because it could not be read: no image"):
        _ = bad.map
    with pytest.raises(InvalidResponseError, match=r"the map \(4 bytes\) is not a valid PNG file"):
        _ = Segmentation(True, None, b"\x89PNG").map
    coloured = io.BytesIO()
    Image.new("RGB", (2, 2)).save(coloured, "PNG")
    with pytest.raises(InvalidResponseError, match="the map is a PNG file of mode RGB: must be 8-bit grey"):
        _ = Segmentation(True, None, coloured.getvalue()).map


def test_a_mask_is_decoded_on_demand(connect: Connect) -> None:
    (box,) = connect("masker").detect(b"horse").boxes
    assert ("42102", (3, 4)) == (box.mask_counts, box.mask_size)
    assert [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0]] == box.mask.astype(int).tolist()
    with pytest.raises(InvalidResponseError, match="the mask is invalid: it has 12 pixels: must be 16, of 4x4"):
        _ = replace(box, mask_size=(4, 4)).mask
    with pytest.raises(ValueError, match="the box has no mask: the model was baked without masks"):
        _ = RESULTS["detect"][1].boxes[0].mask


@pytest.mark.parametrize("top_k", [1, 3])
def test_top_k_keeps_the_best_classes(connect: Connect, top_k: int) -> None:
    client = connect("efficientnet_lite0")
    expected = Classification(True, None, "sorrel", (SORREL, ZEBRA, OX)[:top_k])
    assert expected == client.classify(b"horse", top_k=top_k)
    assert [Classification(False, "no image"), expected] == client.classify([b"bad", b"horse"], top_k=top_k)


def test_more_classes_than_the_model_returns_are_refused_with_both_numbers(connect: Connect) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        connect("efficientnet_lite0").classify(b"horse", top_k=4)
    expected = "top_k 4 is too large: the model returns 3 classes"
    assert (Code.INVALID_ARGUMENT, expected) == (caught.value.code, caught.value.message)


def test_top_k_below_one_is_a_value_error(connect: Connect) -> None:
    with pytest.raises(ValueError, match="invalid top_k 0: must be at least 1"):
        connect().classify(b"horse", top_k=0)


def test_an_empty_list_of_images_sends_nothing(connect: Connect, peer: Any) -> None:
    before = peer.requests
    assert [] == connect("efficientnet_lite0").classify([])
    assert before == peer.requests


@pytest.mark.parametrize(
    ("model", "method", "message"),
    [
        (
            "efficientnet_lite0",
            "detect",
            'the task of model "efficientnet_lite0" version 3 is classify or binary: use the method classify() '
            "instead of detect()",
        ),
        (
            "tagger",
            "classify",
            'the task of model "tagger" version 3 is multilabel: use the method tags() instead of classify()',
        ),
        (
            "half_plus_two",
            "regress",
            'the outputs of signature "serving_default" of model "half_plus_two" version 3 fit no task; it has "y". '
            "The tasks are classify, multilabel, embed, detect, segment, keypoints, image, heads, regress, tensors; "
            "any other signature can be run with predict",
        ),
    ],
    ids=["classifier", "tagger", "no task"],
)
def test_a_method_of_another_task_names_the_models_task(
    connect: Connect, model: str, method: str, message: str
) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        getattr(connect(model), method)(b"horse")
    assert (Code.FAILED_PRECONDITION, message) == (caught.value.code, caught.value.message)


def test_a_model_whose_new_version_has_another_task_is_recognised_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect("tagger")
    client.tags(b"horse")
    monkeypatch.setitem(canned_models.MODELS, "tagger", canned_models.MODELS["meter"])
    assert RESULTS["regress"][1] == client.regress(b"horse")


def test_answer_follows_a_new_version_with_other_heads_and_another_task(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata are fetched once more if the outputs do not fit the heads that are known."""
    client = connect("family")
    assert 30.0 == client.answer(b"horse").age.values["value"]
    monkeypatch.setitem(canned_models.MODELS, "family", canned_models.canned_heads("years"))
    assert [30.0] == [each.years.values["value"] for each in client.answer([b"horse"])]
    monkeypatch.setitem(canned_models.MODELS, "family", canned_models.MODELS["meter"])
    assert RESULTS["regress"][1] == client.answer(b"horse")


def test_without_metadata_the_task_is_that_of_the_method(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StatusError(Code.UNIMPLEMENTED, "no metadata")

    monkeypatch.setattr(peer, "metadata", refuse)
    with Client(port=peer.grpc_port, model="efficientnet_lite0") as client:
        assert [RESULTS["classify"][1]] == client.classify([b"horse"])


def test_a_classifier_whose_default_signature_isolates_bad_images_needs_no_other(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    signatures = canned_models.MODELS["efficientnet_lite0"].signatures
    model = canned_models.MODELS["tagger"]
    monkeypatch.setattr(model, "signatures", {"serving_default": signatures["top_k"]})
    run = canned_models.MODELS["efficientnet_lite0"].run
    monkeypatch.setattr(model, "run", lambda _, inputs: run("top_k", inputs))
    assert RESULTS["classify"][1] == connect("tagger").classify(b"horse")
