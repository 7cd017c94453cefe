"""Images in, labels out: how a question about photos is put to a baked servable, and how its answer is read.

Must not know a transport. Of a baked servable's signatures `serving_default` answers labels alone, `top_k`
scored labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from savedmodel_bakery.client.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.client.results import Classification, Prediction, ScoredLabel
from savedmodel_bakery.wire.status import Code

DEFAULT_SIGNATURE = "serving_default"
TOP_K_SIGNATURE = "top_k"
CLASSIFY_SIGNATURE = "classify"
_TOP_K_OUTPUTS = ("labels", "scores", "class_ids", "ok", "error")


def signature_for(signature: str, top_k: int | None) -> str:
    """The signature that answers: asking for scored labels means `top_k` unless another one was named.

    Raises:
        ValueError: where `top_k` is below 1.
    """
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k {top_k} was given; it is 1 or more")
    return TOP_K_SIGNATURE if top_k is not None and signature == DEFAULT_SIGNATURE else signature


def encode_images(images: Sequence[bytes | str | PathLike[str]]) -> dict[str, np.ndarray]:
    """The input of those signatures: `image`, object [batch] of encoded images; a str is a path, and paths are read.

    Raises:
        OSError: where a file can't be read.
        TypeError: for anything else.
    """
    column = np.empty(len(images), object)
    column[:] = [_image_bytes(image) for image in images]
    return {"image": column}


def read_classifications(prediction: Prediction, *, batch: int, top_k: int | None) -> list[Classification]:
    """Read the answer for `batch` images, of either signature.

    Args:
        prediction: outputs `output_0` string [batch] alone; or `labels` string, `scores` float32, `class_ids`
            int32, each [batch, k], with `ok` bool [batch] and `error` string [batch].
        batch: how many images were asked about.
        top_k: how many classes of each image to keep, at most the k of the answer; None keeps all.

    Raises:
        InvalidResponseError: where the outputs are others, or of another shape.
        RequestRefusedError: where more classes are wanted than the servable gives.
    """
    outputs = prediction.arrays
    if outputs.keys() == {"output_0"}:
        _check_shapes(prediction, {"output_0": (batch,)})
        return [Classification(ok=True, error=None, label=_text(item)) for item in outputs["output_0"]]
    if not outputs.keys() >= set(_TOP_K_OUTPUTS):
        raise InvalidResponseError(
            f"{_named(prediction)} has the outputs {_listed(outputs)}; "
            f'images are classified by "output_0" alone or by {_listed(_TOP_K_OUTPUTS)}'
        )
    given = outputs["labels"].shape[-1] if outputs["labels"].ndim else 0
    matrix, column = (batch, given), (batch,)
    shapes = {"labels": matrix, "scores": matrix, "class_ids": matrix, "ok": column, "error": column}
    _check_shapes(prediction, shapes)
    if top_k is not None and top_k > given:
        raise RequestRefusedError(
            Code.INVALID_ARGUMENT,
            f"top_k {top_k} was asked; {_named(prediction)} gives {given}",
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
        found = prediction.arrays[alias].shape
        if found != shape:
            raise InvalidResponseError(
                f'output "{alias}" of {_named(prediction)} has shape {list(found)}; it must be {list(shape)}'
            )


def _named(prediction: Prediction) -> str:
    return f'signature "{prediction.signature}" of model "{prediction.model}"'


def _image_bytes(image: bytes | str | PathLike[str]) -> bytes:
    if isinstance(image, bytes):
        return image
    if isinstance(image, (str, PathLike)):
        return Path(image).read_bytes()
    raise TypeError(f"an image is {type(image).__name__}; supported are bytes and a path")


def _text(label: object) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


def _listed(names: Sequence[str] | dict[str, np.ndarray]) -> str:
    return ", ".join(f'"{name}"' for name in names)
