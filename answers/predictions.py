"""The outputs of one run of a signature. Imports numpy for type checking only, to be imported fast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
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
        """Return whether they have the same arrays, which don't compare by `==` alone, of the same run."""
        import numpy as np

        if not isinstance(other, Prediction):
            return NotImplemented
        run, other_run = ((p.model, p.version, p.signature, p.arrays.keys()) for p in (self, other))
        return run == other_run and all(
            array.dtype == other.arrays[alias].dtype and np.array_equal(array, other.arrays[alias])
            for alias, array in self.arrays.items()
        )

    @cached_property
    def outputs(self) -> dict[str, Any]:
        """The arrays, nested in dicts and lists if their aliases have the form `a/0/b`."""
        from savedmodel_bakery.wire.trees import restore

        return restore(self.arrays)
