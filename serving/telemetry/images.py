"""Counts the rows of each request, and the images among them by outcome; and times the stages of runs on images."""

from __future__ import annotations

import re
from collections import Counter as Totals
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from prometheus_client import Counter, Histogram

from savedmodel_bakery.serving.telemetry.metrics import REGISTRY
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

IMAGES = Counter(
    "bakery_images",
    "Images that models ran on, by outcome; reason says why an image is bad, or its request failed.",
    ("model_name", "model_version", "outcome", "reason"),
    registry=REGISTRY,
)
REQUEST_ROWS = Histogram(
    "bakery_request_rows",
    "Rows per request, such as images.",
    ("model_name",),
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    registry=REGISTRY,
)
RUN_STAGE_SECONDS = Histogram(
    "bakery_run_stage_seconds",
    "Duration of the stages of a run, in a sample of the runs (--stage_sample_interval).",
    ("model_name", "model_version", "stage"),
    buckets=tuple(0.001 * 2**power for power in range(15)),
    registry=REGISTRY,
)

_REASONS = {
    b"empty": "empty",
    b"neither base64": "format",
    b"base64 of": "format",
    **dict.fromkeys((b"HEIC", b"HEIF", b"AVIF", b"TIFF", b"JPEG XL", b"JPEG 2000"), "format"),
    b"too large": "too_large",
    b"damaged": "damaged",
}
"""How the errors of baked models begin; docs/reference/signatures.md lists them."""

_OTHER = "other"
_OF_SECOND_IMAGE = b"paired with an image_2 that is "
_REJECTED_ROW = re.compile(r"image \d+ is (.*)", re.DOTALL)  # of signatures that have no output for errors


class _Outputs(NamedTuple):
    """The tensors that say which images of a signature could be read; None if it fails on a bad image instead."""

    ok: str | None
    error: str | None


class RowCounts:
    """Counts what the requests for one version of a model contain.

    Signatures with the outputs `ok` and `error` take images; with `is_image_model`, all others do too.
    """

    def __init__(self, name: str, version: int, signatures: Mapping[str, Any], *, is_image_model: bool) -> None:
        self._labels = name, str(version)
        self._rows = REQUEST_ROWS.labels(name)
        self._ok = IMAGES.labels(*self._labels, "ok", "")
        self._outputs: dict[str, _Outputs] = {}  # by input tensor, which the signatures of a baked model don't share
        for signature in signatures.values():
            outputs = _find_outputs(signature)
            if is_image_model or outputs.ok:
                self._outputs |= dict.fromkeys((info.name for info in signature.inputs.values()), outputs)

    def count(self, feeds: Mapping[str, Tensor], rows: int, outputs: Mapping[str, Tensor]) -> None:
        """Count a request of so many rows that succeeded; its feeds and outputs are by tensor name."""
        self._rows.observe(rows)
        images = self._find(feeds)
        if images is None:
            return
        ok, errors = (outputs[name].array.ravel() if name and name in outputs else None for name in images)
        if ok is None and errors is not None:
            ok = errors == b""
        if ok is not None:
            self._ok.inc(int(np.count_nonzero(ok)))
            bad = np.flatnonzero(~ok).tolist()
            reasons = (_OTHER if errors is None or len(errors) <= row else _reason(errors[row]) for row in bad)
            for reason, count in Totals(reasons).items():
                self._add("bad", reason, count)
        elif images.ok is None:
            self._ok.inc(rows)
        else:  # the request has left out both
            self._add("unknown", "", rows)

    def count_failed(self, feeds: Mapping[str, Tensor], rows: int, error: StatusError) -> None:
        """Count a request whose run failed; see `count`. If a bad image was the cause, the error describes it."""
        self._rows.observe(rows)
        images = self._find(feeds)
        if images is None:
            return
        rejected = _REJECTED_ROW.search(error.message) if error.code is Code.INVALID_ARGUMENT else None
        if rejected and images.ok is None:
            self._add("bad", _reason(rejected[1].encode(errors="replace")))
            rows -= 1
        if rows > 0:
            self._add("failed", error.code.name, rows)

    def _find(self, feeds: Mapping[str, Tensor]) -> _Outputs | None:
        return next((self._outputs[name] for name in feeds if name in self._outputs), None)

    def _add(self, outcome: str, reason: str, count: int = 1) -> None:
        IMAGES.labels(*self._labels, outcome, reason).inc(count)


def record_stages(name: str, version: int, decoding_s: float, network_s: float) -> None:
    """Record the stages of a run of a version of a model."""
    RUN_STAGE_SECONDS.labels(name, str(version), "decoding").observe(decoding_s)
    RUN_STAGE_SECONDS.labels(name, str(version), "network").observe(network_s)


def _find_outputs(signature: Any) -> _Outputs:
    expected = {"ok": dtypes.BY_NAME["bool"], "error": dtypes.STRING}
    if all(
        alias in signature.outputs and signature.outputs[alias].dtype == expected[alias].number for alias in expected
    ):
        return _Outputs(signature.outputs["ok"].name, signature.outputs["error"].name)
    return _Outputs(None, None)


def _reason(error: bytes) -> str:
    error = error.removeprefix(_OF_SECOND_IMAGE)
    return next((reason for start, reason in _REASONS.items() if error.startswith(start)), _OTHER)
