"""Rows and images are counted by what a model returned for them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.serving.telemetry.images import RowCounts
from savedmodel_bakery.serving.telemetry.metrics import REGISTRY
from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

ERRORS = {
    b"": ("ok", ""),
    b"empty: no bytes were sent": ("bad", "empty"),
    b"neither base64 nor a supported image format: it starts with 68 69": ("bad", "format"),
    b"base64 of an unsupported file format: it starts with 68 69": ("bad", "format"),
    b"HEIC, which TensorFlow cannot decode: convert it to JPEG or PNG": ("bad", "format"),
    b"too large: its header states 9 by 9 pixels; the maximum is 8": ("bad", "too_large"),
    b"damaged, truncated or of an unsupported kind: the image file cannot be decoded": ("bad", "damaged"),
    b"<img src=x> \xff": ("bad", "other"),
}


def signature(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Any:
    """A SignatureDef: dtypes by alias; the tensor of alias x is x:0."""
    made = schema.SignatureDef()
    for infos, names in ((made.inputs, inputs), (made.outputs, outputs)):
        for alias, dtype in names.items():
            infos[alias].name, infos[alias].dtype = f"{alias}:0", dtypes.BY_NAME[dtype].number
    return made


PER_ROW = {"serving_default": signature({"image": "string"}, {"value": "float", "ok": "bool", "error": "string"})}
LABEL = {"serving_default": signature({"image": "string"}, {"output_0": "string"})}


class Counted:
    """A version whose counts can be read."""

    def __init__(self, signatures: Mapping[str, Any], *, is_image_model: bool = True) -> None:
        self.name = uuid.uuid4().hex
        self.counts = RowCounts(self.name, 3, signatures, is_image_model=is_image_model)

    def images(self) -> dict[tuple[str, str], float]:
        """Return the counts of images that are not 0, by outcome and reason."""
        [metric] = [metric for metric in REGISTRY.collect() if metric.name == "bakery_images"]
        samples = [sample for sample in metric.samples if sample.labels["model_name"] == self.name]
        assert {"3"} >= {sample.labels["model_version"] for sample in samples}
        return {(sample.labels["outcome"], sample.labels["reason"]): sample.value for sample in samples if sample.value}

    def rows(self) -> tuple[float | None, float | None]:
        """Return the number of requests, and of their rows."""
        labels = {"model_name": self.name}
        return tuple(REGISTRY.get_sample_value(f"bakery_request_rows_{suffix}", labels) for suffix in ("count", "sum"))


def strings(*values: bytes) -> Tensor:
    return Tensor(np.array(values, object), dtypes.STRING)


def feeds(rows: int = 1) -> dict[str, Tensor]:
    return {"image:0": strings(*[b"photo"] * rows)}


def ok_and_error(*errors: bytes) -> dict[str, Tensor]:
    return {
        "ok:0": Tensor(np.array([not error for error in errors]), dtypes.BY_NAME["bool"]),
        "error:0": strings(*errors),
    }


def test_each_image_is_counted_by_its_error() -> None:
    model = Counted(PER_ROW)
    model.counts.count(feeds(len(ERRORS)), len(ERRORS), ok_and_error(*ERRORS))
    expected: dict[tuple[str, str], int] = {}
    for outcome in ERRORS.values():
        expected[outcome] = expected.get(outcome, 0) + 1
    assert expected == model.images()
    assert (1, len(ERRORS)) == model.rows()


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ("ok:0", {("ok", ""): 1, ("bad", "empty"): 1}),
        ("error:0", {("ok", ""): 1, ("bad", "other"): 1}),
        ("ok:0 error:0", {("unknown", ""): 2}),
    ],
)
def test_a_request_may_leave_outputs_out(left_out: str, expected: object) -> None:
    model = Counted(PER_ROW)
    outputs = ok_and_error(b"", b"empty: no bytes were sent")
    for name in left_out.split():
        del outputs[name]
    model.counts.count(feeds(2), 2, outputs)
    assert expected == model.images()


def test_a_model_may_return_fewer_errors_than_images() -> None:
    model = Counted(PER_ROW)
    model.counts.count(feeds(3), 3, {**ok_and_error(b"", b"x", b"x"), "error:0": strings(b"empty")})
    assert {("ok", ""): 1, ("bad", "other"): 2} == model.images()


def test_without_an_output_for_errors_all_images_of_an_answer_are_ok() -> None:
    model = Counted(LABEL)
    model.counts.count(feeds(4), 4, {"output_0:0": strings(*[b"cat"] * 4)})
    assert {("ok", ""): 4} == model.images()


def test_the_bad_image_that_fails_a_request_is_counted_apart_from_the_others() -> None:
    model = Counted(LABEL)
    error = invalid_argument(
        "assertion failed: [image 12 is too large: its header states 9 by 9 pixels]\n\t [[{{node}}]]"
    )
    model.counts.count_failed(feeds(20), 20, error)
    assert {("bad", "too_large"): 1, ("failed", "INVALID_ARGUMENT"): 19} == model.images()


@pytest.mark.parametrize("signatures", [PER_ROW, LABEL], ids=["per row", "label"])
def test_a_request_that_fails_for_another_reason_counts_its_code(signatures: Mapping[str, Any]) -> None:
    model = Counted(signatures)
    model.counts.count_failed(feeds(2), 2, StatusError(Code.DEADLINE_EXCEEDED, "image 1 is empty"))
    assert {("failed", "DEADLINE_EXCEEDED"): 2} == model.images()
    assert (1, 2) == model.rows()


def test_the_rows_of_other_models_are_no_images() -> None:
    model = Counted(LABEL, is_image_model=False)
    model.counts.count(feeds(4), 4, {"output_0:0": strings(*[b"cat"] * 4)})
    model.counts.count_failed(feeds(2), 2, invalid_argument("image 1 is empty"))
    assert {} == model.images()
    assert (2, 6) == model.rows()
