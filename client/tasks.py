"""The tasks of baked models: recognises one by a signature's outputs, and reads its results. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from savedmodel_bakery.client.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.client.image_results import (
    Box,
    Classification,
    Detections,
    Embedding,
    ImageResult,
    Regression,
    ScoredLabel,
    Segmentation,
    Tag,
    Tags,
)
from savedmodel_bakery.client.results import Prediction
from savedmodel_bakery.client.signatures import DEFAULT_SIGNATURE, TOP_K_SIGNATURE, Signatures, TensorSpec
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code

if TYPE_CHECKING:
    import numpy as np

_ROW_OUTPUTS = {"ok": "n", "error": "n"}
_LABEL_OUTPUT = "output_0"

ResultT = TypeVar("ResultT", bound=ImageResult)
Row = Mapping[str, Any]
"""The outputs for one image, by alias."""


@dataclass(frozen=True)
class Task(Generic[ResultT]):
    """What the outputs of a model mean.

    Attributes:
        name: as in a recipe.
        method: the method of `Client` that returns its results.
        signature: the signature to run on a baked model whose signatures are unknown.
        outputs: alias to the names of the axes, apart from `ok` and `error`: `n` is the batch, a digit a fixed size.
            Empty if any output is a number per image.
        result: class of the results.
        read_row: reads the result of an image.
        title: what messages call it; the name, unless models of several tasks have these outputs.
    """

    name: str
    method: str
    signature: str
    outputs: Mapping[str, str]
    result: type[ResultT]
    read_row: Callable[[Row], ResultT]
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)

    def fits(self, outputs: Mapping[str, TensorSpec]) -> bool:
        """Return whether these are the outputs of a signature of this task."""
        own = outputs.keys() - _ROW_OUTPUTS.keys()
        if not outputs.keys() >= _ROW_OUTPUTS.keys() or not own:
            return False
        if self.outputs:
            return own == self.outputs.keys()
        return all(outputs[alias].dtype is dtypes.BY_NAME["float"] for alias in own)

    def failed(self, error: str) -> ResultT:
        """Return the result of an image that could not be read."""
        return self.result(ok=False, error=error)

    def read(self, prediction: Prediction, *, batch: int) -> list[ResultT]:
        """Return the results of `batch` images. Outputs with one value per image may be [n, 1], as Triton has them.

        Raises:
            InvalidResponseError: the outputs have other names or shapes.
        """
        arrays = prediction.arrays
        axes = {**(self.outputs or dict.fromkeys(arrays, "n")), **_ROW_OUTPUTS}
        if not arrays.keys() >= axes.keys():
            raise InvalidResponseError(
                f"{_title(prediction)} has the outputs {_join(arrays)}; task {self.name} has {_join(axes)}"
            )
        arrays = {
            alias: array[:, 0] if axes.get(alias) == "n" and array.shape[1:] == (1,) else array
            for alias, array in arrays.items()
        }
        _check_shapes(arrays, axes, batch, _title(prediction))
        rows = [{alias: arrays[alias][number] for alias in axes} for number in range(batch)]
        return [self.read_row(row) if row["ok"] else self.failed(_text(row["error"])) for row in rows]


def find_task(signatures: Signatures, signature: str = DEFAULT_SIGNATURE) -> tuple[Task[Any], str]:
    """Return the task of a signature, and the signature to run.

    The latter is `top_k` instead of a `serving_default` that does not exist, or returns the label alone: there one bad
    image fails all images of the request.

    Raises:
        RequestRefusedError: FAILED_PRECONDITION if the signature does not exist or fits no task.
    """
    if signature == DEFAULT_SIGNATURE and TOP_K_SIGNATURE in signatures.by_name:
        default = signatures.by_name.get(DEFAULT_SIGNATURE)
        if default is None or default.outputs.keys() == {_LABEL_OUTPUT}:
            signature = TOP_K_SIGNATURE
    declared = signatures.find(signature)
    for task in TASKS:
        if task.fits(declared.outputs):
            return task, signature
    raise RequestRefusedError(
        Code.FAILED_PRECONDITION,
        f"the outputs of {declared.title} fit no task; it has {_join(declared.outputs)}. The tasks are "
        f"{', '.join(task.name for task in TASKS)}; any other signature can be run with predict",
    )


def find_pixels_size(signatures: Signatures, task: Task[Any]) -> tuple[int, ...] | None:
    """Return the size of the arrays that the signature `pixels` takes, [height, width, 3]; None if there is none."""
    declared = signatures.by_name.get("pixels")
    if declared is None or not task.fits(declared.outputs) or declared.inputs.keys() != {"pixels"}:
        return None
    spec = declared.inputs["pixels"]
    return spec.shape[1:] if spec.shape and spec.dtype is dtypes.BY_NAME["uint8"] else None


def keep_top(result: Classification, top_k: int | None) -> Classification:
    """Return a classification with the best `top_k` classes only; None for all.

    Raises:
        RequestRefusedError: the model returns fewer classes.
    """
    if top_k is None or not result.ok:
        return result
    if top_k > len(result.top):
        raise RequestRefusedError(
            Code.INVALID_ARGUMENT, f"top_k {top_k} is too large: the model returns {len(result.top)} classes"
        )
    return Classification(result.ok, result.error, result.label, result.top[:top_k])


def _read_classification(row: Row) -> Classification:
    columns = (row[alias].tolist() for alias in ("labels", "scores", "class_ids"))
    top = tuple(ScoredLabel(_text(label), score, class_id) for label, score, class_id in zip(*columns, strict=True))
    return Classification(ok=True, error=None, label=top[0].label if top else None, top=top)


def _read_tags(row: Row) -> Tags:
    columns = (row[alias][: row["count"]].tolist() for alias in ("labels", "scores"))
    return Tags(
        ok=True, error=None, tags=tuple(Tag(_text(label), score) for label, score in zip(*columns, strict=True))
    )


def _read_embedding(row: Row) -> Embedding:
    return Embedding(ok=True, error=None, vector=row["embedding"])


def _read_detections(row: Row) -> Detections:
    columns = (row[alias][: row["count"]].tolist() for alias in ("labels", "scores", "boxes"))
    boxes = tuple(Box(_text(label), score, *edges) for label, score, edges in zip(*columns, strict=True))
    return Detections(ok=True, error=None, boxes=boxes)


def _read_segmentation(row: Row) -> Segmentation:
    labels = tuple(map(_text, row["labels"]))
    shares = dict.fromkeys(labels, 0.0)
    for label, share in zip(labels, row["shares"].tolist(), strict=True):
        shares[label] += share  # two classes may have the same label
    return Segmentation(ok=True, error=None, map_png=row["map_png_bytes"], labels=labels, shares=shares)


def _read_regression(row: Row) -> Regression:
    values = {alias: float(row[alias]) for alias in sorted(row.keys() - _ROW_OUTPUTS.keys())}
    return Regression(ok=True, error=None, values=values)


_LABELS = {"labels": "nk", "scores": "nk"}
CLASSIFY = Task(
    "classify",
    "classify",
    TOP_K_SIGNATURE,
    {**_LABELS, "class_ids": "nk"},
    Classification,
    _read_classification,
    "classify or binary",
)
MULTILABEL = Task("multilabel", "tags", DEFAULT_SIGNATURE, {**_LABELS, "count": "n"}, Tags, _read_tags)
EMBED = Task("embed", "embed", DEFAULT_SIGNATURE, {"embedding": "nd"}, Embedding, _read_embedding)
DETECT = Task(
    "detect", "detect", DEFAULT_SIGNATURE, {**_LABELS, "boxes": "nk4", "count": "n"}, Detections, _read_detections
)
SEGMENT = Task(
    "segment",
    "segment",
    DEFAULT_SIGNATURE,
    {"map_png_bytes": "n", "shares": "nk", "labels": "nk"},
    Segmentation,
    _read_segmentation,
)
REGRESS = Task("regress", "regress", DEFAULT_SIGNATURE, {}, Regression, _read_regression)
TASKS: tuple[Task[Any], ...] = (CLASSIFY, MULTILABEL, EMBED, DETECT, SEGMENT, REGRESS)
"""All tasks, in the order of their recognition. A binary model has the outputs of `classify`."""


def _check_shapes(arrays: Mapping[str, np.ndarray], outputs: Mapping[str, str], batch: int, title: str) -> None:
    sizes = {"n": batch, "4": 4}
    for alias, axes in outputs.items():
        shape = arrays[alias].shape
        if len(shape) == len(axes):
            expected: list[Any] = [sizes.setdefault(axis, size) for axis, size in zip(axes, shape, strict=True)]
        else:
            expected = [sizes.get(axis, "?") for axis in axes]
        if list(shape) != expected:
            raise InvalidResponseError(
                f'output "{alias}" of {title} has shape {list(shape)}; expected [{", ".join(map(str, expected))}]'
            )


def _title(prediction: Prediction) -> str:
    return f'signature "{prediction.signature}" of model "{prediction.model}"'


def _text(label: object) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


def _join(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
