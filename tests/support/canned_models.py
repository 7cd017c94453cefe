"""Models with canned responses, for `canned_server`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
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


def signature_of(inputs: Mapping[str, str], outputs: Mapping[str, str], sizes: Sequence[int] = ()) -> dict[str, Any]:
    """A SignatureDef as REST's metadata spell it; alias to DT_ name. `sizes` are the axes of inputs after the batch."""

    def tensors(names: Mapping[str, str], *sizes: int) -> dict[str, Any]:
        dim = [{"size": str(size), "name": ""} for size in (-1, *sizes)]
        shape = {"dim": dim, "unknown_rank": False}
        return {alias: {"dtype": dtype, "tensor_shape": shape, "name": f"{alias}:0"} for alias, dtype in names.items()}

    return {
        "inputs": tensors(inputs, *sizes),
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


def canned_task(answers: Mapping[str, Any]) -> Model:
    """A model of a task: `answers` are the outputs for the image `horse` or a dark array; others cannot be read."""
    columns = {alias: np.array(value, object if isinstance(value, bytes) else None) for alias, value in answers.items()}
    columns = {
        alias: column.astype(object if column.dtype.kind in "SO" else {"f": "f4", "i": "i4"}[column.dtype.kind])
        for alias, column in columns.items()
    }
    names = {"O": "DT_STRING", "f": "DT_FLOAT", "i": "DT_INT32"}
    outputs = {alias: names[column.dtype.kind] for alias, column in columns.items()} | ROW

    def run(_: str, inputs: Outputs) -> Outputs:
        (images,) = inputs.values()
        ok = np.array([image == b"horse" if isinstance(image, bytes) else image.max() < 9 for image in images])
        answers = {}
        for alias, column in columns.items():
            blank = np.full(column.shape, b"" if column.dtype == object else 0, column.dtype)
            answers[alias] = np.stack([column if good else blank for good in ok])
        error = np.array([b"" if good else b"no image" for good in ok], object)
        return {**answers, "ok": ok, "error": error}

    return Model(
        {
            "serving_default": signature_of({"image": "DT_STRING"}, outputs),
            "pixels": signature_of({"pixels": "DT_UINT8"}, outputs, (2, 2, 3)),
        },
        run,
    )


def canned_heads(age: str = "age") -> Model:
    """A model with a head for an age, a number, and the head `sky`, tags."""
    tags = {"labels": [b"blue", b""], "scores": [0.75, 0], "count": 1}
    model = canned_task({f"{age}_value": 30.0, **{f"sky_{alias}": value for alias, value in tags.items()}})
    heads = {age: {"value": "DT_FLOAT"}, "sky": {"labels": "DT_STRING", "scores": "DT_FLOAT", "count": "DT_INT32"}}
    signatures = {name: signature_of({"image": "DT_STRING"}, {**outputs, **ROW}) for name, outputs in heads.items()}
    return Model({**model.signatures, **signatures}, model.run)


def labelled(labels: Sequence[bytes]) -> Outputs:
    """The outputs of `top_k` with one class per image."""
    column, ones = np.array(labels, object), np.ones((len(labels), 1), np.float32)
    rows = {"labels": column[:, None], "scores": ones, "class_ids": ones.astype(np.int32)}
    return {**rows, "ok": np.ones(len(labels), bool), "error": np.full(len(labels), b"", object)}


def run_types(_: str, __: Outputs) -> Outputs:
    return TYPES


ROW = {"ok": "DT_BOOL", "error": "DT_STRING"}
TOP_K = {"labels": "DT_STRING", "scores": "DT_FLOAT", "class_ids": "DT_INT32", **ROW}
# A grey PNG file with the pixels 0 and 2.
MAP_BASE64 = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAAAAADRSSBWAAAAC0lEQVR4nGNgYAIAAAUAAx/mhvYAAAAASUVORK5CYII="
MAP = base64.b64decode(MAP_BASE64)
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
# A mask of 3 by 4 pixels, of which the middle two of the last two rows are set.
MASK_COUNTS = "42102"
NO_MASK = {"mask_counts": None, "mask_size": None}
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
    "tagger": canned_task({"labels": [b"sky", b"sea", b""], "scores": [0.75, 0.5, 0], "count": 2}),
    "embedder": canned_task({"embedding": [0.5, -1.0]}),
    "detector": canned_task(
        {
            "boxes": [[1.0, 2.0, 3.0, 4.0], [0.0, 0.5, 1.0, 1.5], [0.0, 0.0, 0.0, 0.0]],
            "labels": [b"cat", b"dog", b""],
            "scores": [0.75, 0.5, 0],
            "count": 2,
        }
    ),
    "masker": canned_task(
        {
            "boxes": [[1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]],
            "labels": [b"cat", b""],
            "scores": [0.75, 0],
            "count": 1,
            "mask_counts": [MASK_COUNTS.encode(), b""],
            "mask_size": [3, 4],
        }
    ),
    "segmenter": canned_task(
        {"map_png_bytes": MAP, "shares": [0.5, 0.25, 0.25], "labels": [b"road", b"tree", b"road"]}
    ),
    "pointer": canned_task(
        {
            "points": [[1.0, 2.0], [3.0, 4.5]],
            "names": [b"nose", b"tail"],
            "scores": [0.75, 0.5],
            "edges": [[0, 1]],
        }
    ),
    "family": canned_heads(),
    "meter": canned_task({"width": 1.5, "height": -1.0}),
    "types": Model({"serving_default": signature_of({"x": "DT_FLOAT"}, TYPE_NAMES)}, run_types),
}
CELLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tagger": ({"tags": [{"label": "sky", "score": 0.75}, {"label": "sea", "score": 0.5}]}, {"tags": []}),
    "embedder": ({"embedding": [0.5, -1.0]}, {"embedding": []}),
    "detector": (
        {
            "boxes": [
                {"label": "cat", "score": 0.75, "ymin": 1.0, "xmin": 2.0, "ymax": 3.0, "xmax": 4.0, **NO_MASK},
                {"label": "dog", "score": 0.5, "ymin": 0.0, "xmin": 0.5, "ymax": 1.0, "xmax": 1.5, **NO_MASK},
            ]
        },
        {"boxes": []},
    ),
    "masker": (
        {
            "boxes": [
                {
                    "label": "cat",
                    "score": 0.75,
                    "ymin": 1.0,
                    "xmin": 1.0,
                    "ymax": 3.0,
                    "xmax": 3.0,
                    "mask_counts": MASK_COUNTS,
                    "mask_size": [3, 4],
                }
            ]
        },
        {"boxes": []},
    ),
    "segmenter": (
        {"shares": {"road": 0.75, "tree": 0.25}, "map_png": MAP},
        {"shares": {}, "map_png": None},
    ),
    "pointer": (
        {
            "points": [
                {"name": "nose", "y": 1.0, "x": 2.0, "score": 0.75},
                {"name": "tail", "y": 3.0, "x": 4.5, "score": 0.5},
            ]
        },
        {"points": []},
    ),
    "family": (
        {"heads": {"age": {"values": {"value": 30.0}}, "sky": {"tags": [{"label": "blue", "score": 0.75}]}}},
        {"heads": {}},
    ),
    "meter": ({"values": {"height": -1.0, "width": 1.5}}, {"values": {}}),
}
"""The cells of the row of a good and of a bad image, by model."""
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
