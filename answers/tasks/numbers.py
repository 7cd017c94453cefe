"""The tasks that return numbers: embed, an image's embedding; regress, values by name; and tensors, arrays by name."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from savedmodel_bakery.answers.task import ROW_OUTPUTS, ImageResult, Row, Scores, Task
from savedmodel_bakery.wire import dtypes

if TYPE_CHECKING:
    from savedmodel_bakery.answers.signatures import TensorSpec

_SHOWN = 5  # values of an array


@dataclass(frozen=True, eq=False, repr=False)
class Embedding(ImageResult):
    """The embedding of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        vector: float32 [d]; None if not `ok`.
    """

    vector: np.ndarray | None = None


class _Embed(Task[Embedding]):
    name = "embed"
    outputs: ClassVar = {"embedding": "nd"}
    result = Embedding
    file_suffix = ".npy"

    def read_row(self, row: Row) -> Embedding:
        return Embedding(ok=True, error=None, vector=row["embedding"])

    def cells(self, result: Embedding) -> dict[str, Any]:
        return {"error": result.error, "embedding": [] if result.vector is None else result.vector.tolist()}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        return len(row["embedding"]), dict(enumerate(row["embedding"]))

    def lines(self, result: Embedding) -> list[str]:
        return [] if result.vector is None else [json.dumps(result.vector.tolist())]

    def file_content(self, result: Embedding) -> bytes:
        assert result.vector is not None
        file = io.BytesIO()
        np.save(file, result.vector)
        return file.getvalue()


EMBED = _Embed()


@dataclass(frozen=True, eq=False, repr=False)
class Regression(ImageResult):
    """The numbers of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        values: name to number, sorted by name; a single number without a name is called `value`. Empty if not `ok`.
    """

    values: Mapping[str, float] = field(default_factory=dict)


class _Regress(Task[Regression]):
    name = "regress"
    result = Regression

    def read_row(self, row: Row) -> Regression:
        values = {alias: float(row[alias]) for alias in sorted(row.keys() - ROW_OUTPUTS.keys())}
        return Regression(ok=True, error=None, values=values)

    def cells(self, result: Regression) -> dict[str, Any]:
        return {"error": result.error, "values": dict(result.values)}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        return frozenset(row["values"]), row["values"]

    def lines(self, result: Regression) -> list[str]:
        return [f"{name}\t{value:.6g}" for name, value in result.values.items()]


REGRESS = _Regress()


@dataclass(frozen=True, eq=False, repr=False)
class Tensors(ImageResult):
    """What the network returned for one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        tensors: name to array, without the axis of the batch, sorted by name. Empty if not `ok`.
    """

    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array of a type that NumPy itself has: bfloat16 becomes float32."""
    return np.asarray(array, np.float32) if np.asarray(array).dtype.kind == "V" else np.asarray(array)


class _Tensors(Task[Tensors]):
    name = "tensors"
    result = Tensors
    file_suffix = ".npz"

    def axes(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, Sequence[str]]:
        """Return names of axes of which only the first is that of other outputs."""
        return {
            alias: ["n", *(f"{alias} {axis}" for axis in range(1, array.ndim))]
            for alias, array in arrays.items()
            if alias not in ROW_OUTPUTS
        }

    def fits(self, outputs: Mapping[str, TensorSpec]) -> bool:
        """Return whether there are numbers beside the outputs of all tasks."""
        own = [spec for alias, spec in outputs.items() if alias not in ROW_OUTPUTS]
        return outputs.keys() > ROW_OUTPUTS.keys() and not any(spec.dtype in (None, dtypes.STRING) for spec in own)

    def read_row(self, row: Row) -> Tensors:
        return Tensors(
            ok=True,
            error=None,
            tensors={alias: _plain(row[alias]) for alias in sorted(row.keys() - ROW_OUTPUTS.keys())},
        )

    def cells(self, result: Tensors) -> dict[str, Any]:
        return {"error": result.error, "npz": self.file_content(result) if result.ok else None}

    def document(self, result: Tensors) -> dict[str, Any]:
        """Return the arrays as nested lists."""
        return {"error": result.error, "tensors": {name: array.tolist() for name, array in result.tensors.items()}}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        """Return the shapes as labels, and the means as scores."""
        if row["npz"] is None:
            return (), {}
        with np.load(io.BytesIO(row["npz"])) as arrays:
            shapes = tuple((name, arrays[name].shape) for name in arrays)
            return shapes, {name: float(arrays[name].mean()) for name in arrays if arrays[name].size}

    def lines(self, result: Tensors) -> list[str]:
        return [
            f"{name}\t{array.dtype}{list(array.shape)}\t{np.array2string(array.reshape(-1)[:_SHOWN], precision=4)}"
            for name, array in result.tensors.items()
        ]

    def file_content(self, result: Tensors) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as arrays:  # numpy.savez can't write an array that is called `file`
            for name, array in result.tensors.items():
                with arrays.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.save(entry, array, allow_pickle=False)
        return file.getvalue()


TENSORS = _Tensors()
