"""Goldens: requests with the answers that were given when the version was baked, kept beside it, and its warm-up.

index.json                      which files there are, and how exactly answers must agree
<signature>.jsonl               one {"request": …, "response": …} a line, in protobuf JSON
tf_serving_warmup_requests      the same requests as TFRecords of PredictionLog, replayed before a version answers
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict

from savedmodel_bakery.exporter.servable_module import ENCODED_FEATURE
from savedmodel_bakery.exporter.validation.requests import images, predict, write_records
from savedmodel_bakery.wire import schema, version_folder
from savedmodel_bakery.wire.examples import encode_example

MAX_PHOTOS = 8
NO_IMAGE = b"<html>"

# Absolute differences that another processor or another build of TensorFlow may cause; all else must be equal.
TOLERANCES = {"scores": 1e-3, "pixels": 0.5}


def questions(photos: Sequence[bytes], shown: np.ndarray) -> list[Any]:
    """A question for each signature about the smallest photo, and one about each of the others.

    Args:
        photos: the bytes of files, `MAX_PHOTOS` at most.
        shown: uint8 [height, width, 3], a picture of the network's own size.
    """
    encoded = sorted(photos, key=len)
    smallest = images(encoded[0])
    return [
        predict("serving_default", smallest),
        _classify(encoded[0]),
        predict("pixels", {"pixels": shown[np.newaxis]}),
        predict("preprocess", smallest),
        # Not the picture itself: other builds of libpng may write the same one in other bytes.
        predict("preview", smallest, outputs=["ok", "error"]),
        predict("top_k", images(encoded[0], NO_IMAGE)),
        *(predict("top_k", images(photo)) for photo in encoded),
    ]


def _classify(photo: bytes) -> Any:
    log = schema.PredictionLog()
    request = log.classify_log.request
    request.model_spec.signature_name = "classify"
    request.input.example_list.examples.append(encode_example({ENCODED_FEATURE: photo}))
    return log


def write(version: Path, name: str, answered: Sequence[Any], *, tolerances: Mapping[str, float] = TOLERANCES) -> None:
    """Write goldens and warm-up requests into a staged version.

    Args:
        version: its folder, which has an `assets.extra`.
        name: of the model, as requests will name it.
        answered: the questions with their answers.
        tolerances: absolute differences that are allowed, by alias of the output; all else must be equal.
    """
    folder = version / version_folder.GOLDENS
    folder.mkdir()
    lines: dict[str, list[str]] = {}
    warmup = []
    for log in answered:
        kind = log.WhichOneof("log_type")
        exchange = getattr(log, kind)
        for message in (exchange.request, exchange.response):
            message.model_spec.name = name
        golden = {"request": _as_json(exchange.request), "response": _as_json(exchange.response)}
        lines.setdefault(exchange.request.model_spec.signature_name, []).append(json.dumps(golden) + "\n")
        only_asked = schema.PredictionLog()
        getattr(only_asked, kind).request.CopyFrom(exchange.request)
        warmup.append(only_asked)
    for signature, written in lines.items():
        (folder / f"{signature}.jsonl").write_text("".join(written))
    index = {
        "model": name,
        "tolerances": dict(tolerances),
        "signatures": {
            signature: {"file": f"{signature}.jsonl", "requests": len(written)} for signature, written in lines.items()
        },
    }
    (folder / "index.json").write_text(json.dumps(index, indent=2) + "\n")
    write_records(version / version_folder.WARMUP, warmup)


def _as_json(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=schema.POOL)
