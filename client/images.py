"""Encodes images as the inputs of a baked classifier, and reads classifications from its outputs. Sends nothing.

Of the signatures of a baked classifier, `serving_default` returns labels only and `top_k` returns labels with scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from savedmodel_bakery.client.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.client.results import Classification, Prediction, ScoredLabel
from savedmodel_bakery.wire.status import Code

DEFAULT_SIGNATURE = "serving_default"
TOP_K_SIGNATURE = "top_k"
CLASSIFY_SIGNATURE = "classify"
REGRESS_SIGNATURE = "regress"
_TOP_K_OUTPUTS = ("labels", "scores", "class_ids", "ok", "error")


def choose_signature(signature: str, top_k: int | None) -> str:
    """Return the signature to run: `top_k` if scores are requested from the default signature.

    Raises:
        ValueError: `top_k` is below 1.
    """
    if top_k is not None and top_k < 1:
        raise ValueError(f"invalid top_k {top_k}: must be at least 1")
    return TOP_K_SIGNATURE if top_k is not None and signature == DEFAULT_SIGNATURE else signature


def encode_images(images: Sequence[bytes | str | PathLike[str]]) -> dict[str, np.ndarray]:
    """Return the input of these signatures: `image`, object [batch] of encoded images.

    Args:
        images: image files as bytes; or their paths, as str or Path.

    Raises:
        OSError: a file cannot be read.
        TypeError: an image is neither bytes nor a path.
    """
    column = np.empty(len(images), object)
    column[:] = [_image_bytes(image) for image in images]
    return {"image": column}


def read_classifications(prediction: Prediction, *, batch: int, top_k: int | None) -> list[Classification]:
    """Read the outputs of either signature for `batch` images.

    Args:
        prediction: outputs `output_0` string [batch] alone; or `labels` string, `scores` float32 and `class_ids`
            int32, each [batch, k], with `ok` bool [batch] and `error` string [batch].
        batch: number of images in the request.
        top_k: number of classes to keep per image, at most k; None for all.

    Raises:
        InvalidResponseError: the outputs have other names or shapes.
        RequestRefusedError: `top_k` is larger than k.
    """
    outputs = prediction.arrays
    if outputs.keys() == {"output_0"}:
        _check_shapes(prediction, {"output_0": (batch,)})
        return [Classification(ok=True, error=None, label=_text(item)) for item in outputs["output_0"]]
    if not outputs.keys() >= set(_TOP_K_OUTPUTS):
        raise InvalidResponseError(
            f"{_describe(prediction)} does not classify images: it has the outputs {_join(outputs)}; "
            f'expected "output_0" alone, or {_join(_TOP_K_OUTPUTS)}'
        )
    k = outputs["labels"].shape[-1] if outputs["labels"].ndim else 0
    matrix, column = (batch, k), (batch,)
    shapes = {"labels": matrix, "scores": matrix, "class_ids": matrix, "ok": column, "error": column}
    _check_shapes(prediction, shapes)
    if top_k is not None and top_k > k:
        raise RequestRefusedError(
            Code.INVALID_ARGUMENT, f"top_k {top_k} is too large: {_describe(prediction)} returns {k} classes"
        )
    return [_read_row(outputs, row, top_k) for row in range(batch)]


def _read_row(outputs: dict[str, np.ndarray], row: int, top_k: int | None) -> Classification:
    if not outputs["ok"][row]:
        return Classification(ok=False, error=_text(outputs["error"][row]), label=None)
    columns = (outputs[alias][row][:top_k].tolist() for alias in ("labels", "scores", "class_ids"))
    top = tuple(ScoredLabel(_text(label), score, class_id) for label, score, class_id in zip(*columns, strict=True))
    return Classification(ok=True, error=None, label=top[0].label if top else None, top=top)


def _check_shapes(prediction: Prediction, expected: dict[str, tuple[int, ...]]) -> None:
    for alias, shape in expected.items():
        actual = prediction.arrays[alias].shape
        if actual != shape:
            raise InvalidResponseError(
                f'output "{alias}" of {_describe(prediction)} has shape {list(actual)}; expected {list(shape)}'
            )


def _describe(prediction: Prediction) -> str:
    return f'signature "{prediction.signature}" of model "{prediction.model}"'


def _image_bytes(image: bytes | str | PathLike[str]) -> bytes:
    if isinstance(image, bytes):
        return image
    if isinstance(image, (str, PathLike)):
        return Path(image).read_bytes()
    raise TypeError(f"an image must be bytes or a path, not {type(image).__name__}")


def _text(label: object) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


def _join(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
