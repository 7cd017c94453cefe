"""The outputs of one run of a signature. Imports numpy for type checking only, to be imported fast."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from savedmodel_bakery.answers.display import html_table, short_text

if TYPE_CHECKING:
    import numpy as np


def as_key(value: Any) -> Hashable:
    """Return a value that is equal for equal results, and can be hashed: arrays compare by dtype, shape and values."""
    if isinstance(value, Mapping):
        return frozenset((name, as_key(each)) for name, each in value.items())
    if hasattr(value, "tobytes"):
        if value.dtype.kind == "O":
            return value.shape, tuple(value.ravel().tolist())
        return (
            str(value.dtype),
            value.shape,
            (value + 0 if value.dtype.kind in "fc" else value).tobytes(),
        )  # -0.0 is 0.0
    key: Hashable = value
    return key


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The outputs of one run of a signature.

    Attributes:
        arrays: alias to array, with the dtype and shape of the signature's output. They are the same over every
            transport; strings are object arrays of bytes.
        model: name of the model.
        version: the version that ran. REST responses do not state it, and some servers of the v2 protocol have none:
            then the number that was requested, or None.
        signature: name of the signature.
    """

    arrays: dict[str, np.ndarray]
    model: str
    version: int | None
    signature: str

    def __eq__(self, other: object) -> bool:
        """Return whether they have the same arrays, of the same run."""
        return isinstance(other, Prediction) and self._key() == other._key()

    def __hash__(self) -> int:
        """Return a hash of all values."""
        return hash(self._key())

    def __repr__(self) -> str:
        """Return the dtypes and shapes of the arrays."""
        return short_text(f"Prediction of {self._run}", self._lines())

    def _repr_html_(self) -> str:
        return html_table(f"Prediction of {self._run}", self._lines(), score_column=None)

    @property
    def _run(self) -> str:
        version = "" if self.version is None else f" version {self.version}"
        return f'signature "{self.signature}" of model "{self.model}"{version}'

    def _key(self) -> Hashable:
        return self.model, self.version, self.signature, as_key(self.arrays)

    def _lines(self) -> list[str]:
        return [f"{alias}\t{array.dtype}{list(array.shape)}" for alias, array in sorted(self.arrays.items())]

    @cached_property
    def outputs(self) -> dict[str, Any]:
        """The arrays, nested in dicts and lists if their aliases have the form `a/0/b`."""
        from savedmodel_bakery.wire.trees import restore

        return restore(self.arrays)
