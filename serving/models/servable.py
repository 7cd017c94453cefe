"""A servable: one loaded version of a model, and the runtime that executes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from savedmodel_bakery.serving.runtimes.runtime import Runtime
from savedmodel_bakery.serving.telemetry.images import RowCounts


class SignatureTensors(NamedTuple):
    """A signature for Predict, as plain values: reading a SignatureDef takes longer than a small tensor.

    Attributes:
        method_name: that it was exported for.
        inputs: names of tensors by alias, in the order of the aliases.
        outputs: names of tensors by alias, in the order of the aliases.
        defaults: TensorProtos by alias of the inputs that a request may leave out.
    """

    method_name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    defaults: Mapping[str, Any]


@dataclass(frozen=True)
class Servable:
    """A loaded version of a model.

    Attributes:
        name: the model's name.
        version: the version number.
        runtime: executes the model.
        max_pixels: pixels of images that it decodes at one time in a run; None if that is not limited.
        row_counts: counts the rows of its requests; None while it is warmed up.
    """

    name: str
    version: int
    runtime: Runtime
    max_pixels: int | None = None
    row_counts: RowCounts | None = None

    @property
    def signatures(self) -> Mapping[str, Any]:
        """Return the SignatureDefs by signature name."""
        return self.runtime.signatures

    @cached_property
    def tensors(self) -> Mapping[str, SignatureTensors]:
        """The tensors of each signature, by signature name."""
        return {
            key: SignatureTensors(
                signature.method_name, _names(signature.inputs), _names(signature.outputs), dict(signature.defaults)
            )
            for key, signature in self.signatures.items()
        }

    def close(self) -> None:
        """Free the model's memory; no run may be in progress."""
        self.runtime.close()


def _names(tensors: Mapping[str, Any]) -> dict[str, str]:
    return {alias: tensors[alias].name for alias in sorted(tensors)}
