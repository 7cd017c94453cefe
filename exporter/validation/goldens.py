"""Writes goldens: requests with the responses at baking time, stored in the version together with its warm-up.

index.json                      the files, and how closely responses must agree
<signature>.jsonl               one {"request": …, "response": …} per line, in protobuf JSON
tf_serving_warmup_requests      some of the requests, for all outputs, as TFRecords of PredictionLog, run before serving
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict

from savedmodel_bakery.answers import run_lengths
from savedmodel_bakery.answers.other_inputs import SECOND_PIXELS
from savedmodel_bakery.exporter.tasks.task import Signature, Task, Tolerance
from savedmodel_bakery.exporter.validation.other_values import OtherValues
from savedmodel_bakery.exporter.validation.session import (
    PREPROCESS,
    PredictionLog,
    decode_outputs,
    example_request,
    image_input,
    predict_request,
    repeated,
    write_records,
)
from savedmodel_bakery.wire import schema, version_folder

MAX_PHOTOS = 8
NOT_AN_IMAGE = b"<html>"

_PICTURE = "png_bytes"
_PIXEL_TOLERANCE = 0.5
_MASK_TOLERANCE = 0.01  # 1 less the IoU: another processor may compute a value on the other side of the threshold
# Differences that another processor or another build of TensorFlow may cause in other numbers, relative to the largest
# number of the output, or to 1 if that is more.
_TOLERANCE = 1e-3


def golden_requests(
    task: Task,
    photos: Sequence[tuple[bytes, OtherValues]],
    pictures: Sequence[np.ndarray],
    preprocess: Sequence[str] = (PREPROCESS,),
) -> list[PredictionLog]:
    """Build a request to each signature with the smallest photo, and one with each of the other photos.

    There are `MAX_PHOTOS` at most, each with the values of other inputs. The `pictures`, uint8 [height, width, 3], have
    the network's input size, the second one that of a second image. `preprocess` are the signatures that return pixels.
    """
    (smallest, others), *more = sorted(photos, key=lambda photo: len(photo[0]))
    image = image_input(smallest, others=others)
    single: list[PredictionLog] = []
    several: list[PredictionLog] = []
    for name, signature in task.signatures().items():
        outputs = _compared(signature)
        match signature.takes:
            case "pixels":
                aliases = ["pixels"] if others.second is None else ["pixels", SECOND_PIXELS]
                arrays = {alias: each[np.newaxis] for alias, each in zip(aliases, pictures, strict=False)}
                single.append(predict_request(name, {**arrays, **repeated(others, 1)}, outputs))
            case "examples":
                single.append(example_request(name, smallest, others))
            case "images" if signature.rejects_bad_images:
                single.append(predict_request(name, image, outputs))
            case "images":
                with_bad_image = image_input(smallest, NOT_AN_IMAGE, others=others)
                several += (
                    predict_request(name, inputs, outputs)
                    for inputs in (with_bad_image, image, *(image_input(photo, others=own) for photo, own in more))
                )
    return [
        *single,
        *(predict_request(name, image_input(smallest)) for name in dict.fromkeys(preprocess)),
        predict_request("preview", image_input(smallest), outputs=["ok", "error"]),
        *several,
    ]


def _compared(signature: Signature) -> list[str]:
    """Return the outputs to request; none means all.

    Without pictures, because other builds of libpng may encode the same picture in other bytes.
    """
    if not any(alias.endswith(_PICTURE) for alias in signature.columns):
        return []
    return [*(alias for alias in signature.columns if not alias.endswith(_PICTURE)), "ok", "error"]


def golden_tolerances(logs: Sequence[PredictionLog], least: Tolerance | None = None) -> dict[str, float]:
    """Return the allowed absolute differences by output, for the responses in `logs`; other outputs must be equal.

    The difference of two masks is 1 less their intersection over union.
    `least` is for a network that computes in 16 bits, whose answers depend on the processor as much as they differ from
    those in float32.
    """
    least = least or Tolerance()
    largest: dict[str, float] = {}
    for alias, array in itertools.chain.from_iterable(_outputs(log).items() for log in logs):
        if array.dtype.kind == "f":
            largest[alias] = float(np.abs(array).max(initial=largest.get(alias, 1.0)))
    masks = {alias for log in logs for alias in _outputs(log) if alias.endswith(run_lengths.ALIAS)}
    return dict.fromkeys(sorted(masks), max(_MASK_TOLERANCE, 1 - least.iou)) | {
        alias: _PIXEL_TOLERANCE if alias == "pixels" else max(_TOLERANCE * value, least.atol + least.rtol * value)
        for alias, value in largest.items()
    }


def _outputs(log: PredictionLog) -> Mapping[str, np.ndarray]:
    """Decode the outputs of a response; the scores of Classify and the values of Regress as if of Predict."""
    match log.WhichOneof("log_type"):
        case "classify_log":
            rows = log.classify_log.response.result.classifications
            return {"scores": np.array([[scored.score for scored in row.classes] for row in rows], np.float32)}
        case "regress_log":
            rows = log.regress_log.response.result.regressions
            return {"outputs": np.array([row.value for row in rows], np.float32)}
        case _:
            return decode_outputs(log)


def write_goldens(
    version: Path,
    model_name: str,
    logs: Sequence[PredictionLog],
    tolerances: Mapping[str, float],
    warm_up: Collection[str],
) -> None:
    """Write goldens and warm-up requests into a staged version's folder, which has an `assets.extra`.

    `tolerances` are the allowed absolute differences by output; all other outputs must be equal. `warm_up` has the
    signatures whose requests are for warm-up too.
    """
    folder = version / version_folder.GOLDENS
    folder.mkdir()
    lines: dict[str, list[str]] = {}
    warmup = []
    for log in logs:
        log_type = log.WhichOneof("log_type")
        exchange = getattr(log, log_type)
        for message in (exchange.request, exchange.response):
            message.model_spec.name = model_name
        signature = exchange.request.model_spec.signature_name
        golden = {"request": _to_json(exchange.request), "response": _to_json(exchange.response)}
        lines.setdefault(signature, []).append(json.dumps(golden) + "\n")
        if signature not in warm_up:
            continue
        request_only = schema.PredictionLog()
        getattr(request_only, log_type).request.CopyFrom(exchange.request)
        if log_type == "predict_log":  # callers ask for all outputs
            del request_only.predict_log.request.output_filter[:]
        warmup.append(request_only)
    for signature, signature_lines in lines.items():
        (folder / f"{signature}.jsonl").write_text("".join(signature_lines))
    index = {
        "model": model_name,
        "tolerances": dict(tolerances),
        "signatures": {
            signature: {"file": f"{signature}.jsonl", "requests": len(signature_lines)}
            for signature, signature_lines in lines.items()
        },
    }
    (folder / "index.json").write_text(json.dumps(index, indent=2) + "\n")
    if warmup:
        write_records(version / version_folder.WARMUP, warmup)


def _to_json(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=schema.POOL)
