"""What a task is: what its outputs mean, and how a result is shown. Does no I/O."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from savedmodel_bakery.answers.display import html_table, short_text
from savedmodel_bakery.answers.images import convert_photo
from savedmodel_bakery.answers.predictions import Prediction, as_key
from savedmodel_bakery.answers.signatures import DEFAULT_SIGNATURE, TensorSpec
from savedmodel_bakery.errors import InvalidResponseError
from savedmodel_bakery.wire import dtypes

if TYPE_CHECKING:
    import numpy as np

    from savedmodel_bakery.label_files import Colour  # which imports protobuf

ROW_OUTPUTS = {"ok": "n", "error": "n"}
"""The outputs of all tasks."""

Row = Mapping[str, Any]
"""The outputs for one image, by alias."""

Scores = dict[Any, Any]
"""The scores of an image, by label or position: numbers, masks as run lengths, or pictures as arrays from 0 to 1."""


@dataclass(frozen=True, eq=False, repr=False)
class ImageResult:
    """The attributes that all results have. They are equal if all attributes are, also arrays, and can be hashed."""

    ok: bool  # whether the image could be read
    error: str | None  # the reason if not

    _task: ClassVar[Task[Any]]  # `answers.tasks` states it
    _path: ClassVar[str | PathLike[str] | None] = None  # of an instance, to draw the photo in notebooks

    def __eq__(self, other: object) -> bool:
        """Return whether all attributes are equal."""
        return type(self) is type(other) and isinstance(other, ImageResult) and self._key() == other._key()

    def __hash__(self) -> int:
        """Return a hash of all attributes."""
        return hash(self._key())

    def __repr__(self) -> str:
        """Return the first lines of the result."""
        return short_text(type(self).__name__, self._lines())

    def _repr_html_(self) -> str:
        """Return a table with bars for scores, and the photo with what was found, if it was passed as a path."""
        picture = b""
        with suppress(OSError, ValueError, InvalidResponseError, ModuleNotFoundError):
            picture = self._task.picture(self) if self.ok else b""
        column = self._task.score_column if self.ok else None
        return html_table(type(self).__name__, self._lines(), score_column=column, picture=picture)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as types that JSON has, for `json.dumps` or as a row of `pandas.DataFrame`.

        It is the JSON object that `/photos` returns for the image: arrays are nested lists, and files base64.
        """
        return {"ok": self.ok, **self._task.document(self)}

    def keep_path(self, path: str | PathLike[str]) -> None:
        """Keep the path of the photo."""
        object.__setattr__(self, "_path", path)

    def _key(self) -> Hashable:
        return tuple(as_key(getattr(self, field.name)) for field in fields(self))

    def _lines(self) -> list[str]:
        return self._task.lines(self) if self.ok else [f"not ok: {self.error}"]


ResultT = TypeVar("ResultT", bound=ImageResult)


class Task(Generic[ResultT]):
    """What the outputs of a model mean."""

    name: str  # as in a recipe
    title: str = ""  # in messages; not the name if models of several tasks have these outputs
    method: str = ""  # of `Client`; by default the name
    signature: str = DEFAULT_SIGNATURE  # to run on a baked model whose signatures are unknown
    # Alias to the names of the axes, apart from `ok` and `error`: `n` is the batch, a digit a fixed size. Empty if any
    # output is a number per image.
    outputs: ClassVar[dict[str, str]] = {}
    optional_outputs: ClassVar[dict[str, str]] = {}  # that some models have too
    result: type[ResultT]
    file_suffix: str = ""  # of the files with `file_content`; empty if there are none
    can_draw: bool = False
    score_column: int | None = None  # of `lines`, whose numbers are 0 to 1

    def __init__(self) -> None:
        self.title = self.title or self.name
        self.method = self.method or self.name

    def __str__(self) -> str:
        return f"task {self.name}"

    def read_row(self, row: Row) -> ResultT:
        """Return the result of an image."""
        raise NotImplementedError

    def cells(self, result: ResultT) -> dict[str, Any]:
        """Return the cells of a result in the row of a bulk job, by column; those of all tasks are added."""
        raise NotImplementedError

    def document(self, result: ResultT) -> dict[str, Any]:
        """Return the JSON object of a result in a response of `/photos`."""
        return self.cells(result)

    def lines(self, result: ResultT) -> list[str]:
        """Return the lines of a result for people, with tabs between the columns."""
        raise NotImplementedError

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        """Return the labels of a row with the columns `cells`, and its scores, to compare two rows of a photo."""
        raise NotImplementedError

    def file_content(self, result: ResultT) -> bytes:
        """Return the result as a file."""
        raise NotImplementedError

    def draw(self, photo: bytes, result: ResultT, colours: Mapping[str, Colour]) -> bytes:
        """Return a PNG file of the photo with the result; needs the extra `draw`.

        Raises InvalidResponseError if the result has no valid map, and ValueError if Pillow cannot read the photo, or
        the map has another size.
        """
        raise NotImplementedError

    def picture(self, result: ResultT) -> bytes:
        """Return an image file that shows a result in a notebook; empty if there is none."""
        if not self.can_draw or result._path is None:
            return b""
        return self.draw(convert_photo(Path(result._path).read_bytes()), result, {})

    def axes(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, Sequence[str]]:
        """Return the names of the axes of the outputs, apart from those of all tasks; see `outputs`."""
        if not self.outputs:
            return {alias: "n" for alias in arrays if alias not in ROW_OUTPUTS}
        return self.outputs | {alias: axes for alias, axes in self.optional_outputs.items() if alias in arrays}

    def fits(self, outputs: Mapping[str, TensorSpec]) -> bool:
        """Return whether these are the outputs of a signature of this task."""
        own = outputs.keys() - ROW_OUTPUTS.keys()
        if not outputs.keys() >= ROW_OUTPUTS.keys() or not own:
            return False
        if self.outputs:
            return self.outputs.keys() <= own <= self.outputs.keys() | self.optional_outputs.keys()
        return all(_is_number(outputs[alias]) for alias in own)

    def failed(self, error: str) -> ResultT:
        """Return the result of an image that could not be read."""
        return self.result(ok=False, error=error)

    def read(self, prediction: Prediction, *, batch: int) -> list[ResultT]:
        """Return the results of `batch` images. Outputs with one value per image may be [n, 1], as Triton has them."""
        arrays = prediction.arrays
        axes = {**self.axes(arrays), **ROW_OUTPUTS}
        if not arrays.keys() >= axes.keys():
            raise InvalidResponseError(
                f"{_title(prediction)} has the outputs {join(arrays)}; task {self.name} has {join(axes)}"
            )
        arrays = {
            alias: array[:, 0] if axes.get(alias) == "n" and array.shape[1:] == (1,) else array
            for alias, array in arrays.items()
        }
        _check_shapes(arrays, axes, batch, _title(prediction))
        rows = [{alias: arrays[alias][number] for alias in axes} for number in range(batch)]
        return [self.read_row(row) if row["ok"] else self.failed(as_text(row["error"])) for row in rows]


def _is_number(output: TensorSpec) -> bool:
    """Return whether an output is a float per image, [n] or [n, 1], or has no declared shape."""
    has_one = output.shape is None or len(output.shape) < 2 or output.shape[1:] in ((1,), (-1,))
    return output.dtype is dtypes.BY_NAME["float"] and has_one


def first_scores(scored: Sequence[Mapping[str, Any]]) -> Scores:
    """Return the score of each label; of equal labels the first and best one."""
    return {each["label"]: each["score"] for each in reversed(scored)}


def _check_shapes(
    arrays: Mapping[str, np.ndarray], outputs: Mapping[str, Sequence[str]], batch: int, title: str
) -> None:
    sizes = {"n": batch, "2": 2, "4": 4}
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


def as_text(label: object) -> str:
    """Return a label as text."""
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


def join(names: Iterable[str]) -> str:
    """Return names in quotation marks, with commas."""
    return ", ".join(f'"{name}"' for name in names)
