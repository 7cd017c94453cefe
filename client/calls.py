"""What a client can ask a model server, as values that any transport answers. Must not know a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from savedmodel_bakery.client.signatures import Signature
    from savedmodel_bakery.wire.features import Example


@dataclass(frozen=True)
class ModelSpec:
    """Which model is asked: its name and, for another than the newest version, a number (0 up) or a label."""

    name: str
    version: int | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.label is not None:
            raise ValueError(f'version {self.version} and label "{self.label}" are given; give one of them')
        if self.version is not None and not 0 <= self.version < 2**63:
            raise ValueError(f"version {self.version} is none; versions are 0 to {2**63 - 1}")
        if not self.name or self.label == "":
            raise ValueError("the name of a model, and a label, cannot be empty")
        # Raises UnicodeEncodeError, a ValueError, for the surrogates of a command line that is not UTF-8.
        f"{self.name}{self.label}".encode()

    def instead(self, *, model: str | None, version: int | None, label: str | None) -> ModelSpec:
        """This one where nothing is given; else the model given, or this one's, in the version given, or the newest.

        Raises:
            ValueError: for what no server could be asked about.
        """
        if model is None and version is None and label is None:
            return self
        return ModelSpec(self.name if model is None else model, version, label)


@dataclass(frozen=True)
class Predict:
    """Run a signature on arrays; the answer is a Prediction.

    Attributes:
        spec: whom to ask.
        signature: name of the signature.
        inputs: alias to array.
        output_filter: aliases of the outputs wanted; all where empty.
        declared: what the metadata say of the signature; None where the server doesn't tell.
    """

    spec: ModelSpec
    signature: str
    inputs: Mapping[str, np.ndarray]
    output_filter: Sequence[str]
    declared: Signature | None


@dataclass(frozen=True)
class Classify:
    """Run a Classify signature on examples; the answer is a list of (label, score) for each."""

    spec: ModelSpec
    signature: str
    examples: Sequence[Example]


@dataclass(frozen=True)
class Metadata:
    """The answer is the signatures, as the protobuf JSON of GetModelMetadataResponse that the REST API has."""

    spec: ModelSpec


@dataclass(frozen=True)
class Status:
    """The answer is a VersionStatus for each version of the model, or for the one asked for by number."""

    spec: ModelSpec


Question = Predict | Classify | Metadata | Status
