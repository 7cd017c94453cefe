"""Models with canned responses, for `canned_server`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from savedmodel_bakery.wire.status import invalid_argument

HORSE = [(b"sorrel", 0.75, 339), (b"zebra", 0.125, 340), (b"ox", 0.0625, 345)]
PHOTOS = {b"horse": HORSE, b"cat": [(b"tabby", 0.5, 281), (b"lynx", 0.25, 287), (b"ox", 0.125, 345)]}

TYPES = {
    "b": np.array([True, False]),
    "d": np.array([0.1, -0.0, np.inf]),
    "f": np.array([[0.1], [np.nan]], np.float32),
    "i8": np.array([-128, 127], np.int8),
    "i64": np.array(-(2**63), np.int64),
    "s": np.array([b"plain", "größer".encode()], object),
    "s_bytes": np.array([b"\x00\xff\x00"], object),
    "u64": np.array([1, 2**64 - 1], np.uint64),
    "u8": np.zeros((3, 0), np.uint8),
}

Outputs = dict[str, np.ndarray]


def signature_of(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, Any]:
    """A SignatureDef as REST's metadata spell it; alias to DT_ name."""

    def tensors(names: Mapping[str, str]) -> dict[str, Any]:
        shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
        return {alias: {"dtype": dtype, "tensor_shape": shape, "name": f"{alias}:0"} for alias, dtype in names.items()}

    return {
        "inputs": tensors(inputs),
        "outputs": tensors(outputs),
        "method_name": "tensorflow/serving/predict",
        "defaults": {},
    }


@dataclass
class Model:
    """A canned model: its signatures as metadata spell them, and what runs them."""

    signatures: dict[str, Any]
    run: Callable[[str, Outputs], Outputs]
    labels: dict[str, int] = field(default_factory=dict)


def run_half_plus_two(_: str, inputs: Outputs) -> Outputs:
    return {"y": inputs["x"] / np.float32(2) + np.float32(2)}


def run_photos(signature: str, inputs: Outputs) -> Outputs:
    images = inputs["image"].tolist()
    if signature == "serving_default":
        for row, image in enumerate(images):
            if image not in PHOTOS:
                raise invalid_argument(f"row {row} is no image:\n\t bytes of no known kind")
        return {"output_0": np.array([PHOTOS[image][0][0] for image in images], object)}
    rows = [PHOTOS.get(image, [(b"", 0.0, 0)] * 3) for image in images]
    return {
        "labels": np.array([[label for label, _, _ in row] for row in rows], object),
        "scores": np.array([[score for _, score, _ in row] for row in rows], np.float32),
        "class_ids": np.array([[class_id for _, _, class_id in row] for row in rows], np.int32),
        "ok": np.array([image in PHOTOS for image in images]),
        "error": np.array([b"" if image in PHOTOS else b"no image" for image in images], object),
    }


def run_types(_: str, __: Outputs) -> Outputs:
    return TYPES


TOP_K = {
    "labels": "DT_STRING",
    "scores": "DT_FLOAT",
    "class_ids": "DT_INT32",
    "ok": "DT_BOOL",
    "error": "DT_STRING",
}
TYPE_NAMES = {
    "b": "DT_BOOL",
    "d": "DT_DOUBLE",
    "f": "DT_FLOAT",
    "i8": "DT_INT8",
    "i64": "DT_INT64",
    "s": "DT_STRING",
    "s_bytes": "DT_STRING",
    "u64": "DT_UINT64",
    "u8": "DT_UINT8",
}
MODELS = {
    "half_plus_two": Model(
        {"serving_default": signature_of({"x": "DT_FLOAT"}, {"y": "DT_FLOAT"})},
        run_half_plus_two,
        {"stable": 2, "a b": 3},
    ),
    "a/b:c": Model({"serving_default": signature_of({"x": "DT_FLOAT"}, {"y": "DT_FLOAT"})}, run_half_plus_two),
    "efficientnet_lite0": Model(
        {
            "serving_default": signature_of({"image": "DT_STRING"}, {"output_0": "DT_STRING"}),
            "top_k": signature_of({"image": "DT_STRING"}, TOP_K),
        },
        run_photos,
    ),
    "types": Model({"serving_default": signature_of({"x": "DT_FLOAT"}, TYPE_NAMES)}, run_types),
}
VERSIONS = (3, 2)
STATUS = {
    "model_version_status": [
        {"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}},
        {
            "version": "2",
            "state": "END",
            "status": {"error_code": "NOT_FOUND", "error_message": "no\n\x1bsaved_model.pb"},
        },
    ]
}
