"""What an ask gives back. Must not know a network; numpy only by name, so that importing costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from savedmodel_bakery.client.errors import InvalidResponseError
from savedmodel_bakery.wire.status import Code

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Prediction:
    """The outputs of one run of a signature.

    Attributes:
        arrays: alias to array, of the same element types over every transport; strings are object arrays of
            bytes.
        model: name of the model, as asked.
        version: the version that answered; over REST, which doesn't say it, the one asked for by number, or
            None.
        signature: name of the signature that was run.
    """

    arrays: dict[str, np.ndarray]
    model: str
    version: int | None
    signature: str

    @cached_property
    def outputs(self) -> dict[str, Any]:
        """The arrays, in dicts and lists where their aliases are of the form `a/0/b`; see `wire.trees`."""
        from savedmodel_bakery.wire.trees import restore

        return restore(self.arrays)


@dataclass(frozen=True)
class ScoredLabel:
    """One class of an image: label, score (a probability, 0..1) and index among the model's classes."""

    label: str
    score: float
    class_id: int


@dataclass(frozen=True)
class Classification:
    """What one image shows.

    Attributes:
        ok: whether the image could be classified.
        error: why not; None where `ok`.
        label: the best class; None where not `ok`.
        top: the best classes, best first; empty where the signature gives labels only, and where not `ok`.
    """

    ok: bool
    error: str | None
    label: str | None
    top: tuple[ScoredLabel, ...] = ()


@dataclass(frozen=True)
class VersionStatus:
    """Where one version of a model stands.

    Attributes:
        version: its number.
        state: START, LOADING, AVAILABLE, UNLOADING or END.
        code: OK, or why the version could not be loaded.
        message: the same in words; empty where `code` is OK.
    """

    version: int
    state: str
    code: Code
    message: str


def read_status(document: Mapping[str, Any]) -> list[VersionStatus]:
    """Read GetModelStatusResponse from its protobuf JSON, in the server's order.

    Raises:
        InvalidResponseError: where the document is no such message.
    """
    try:
        return [
            VersionStatus(
                version=int(row["version"]),
                state=str(row["state"]),
                code=Code[row["status"]["error_code"]],
                message=str(row["status"]["error_message"]),
            )
            for row in document["model_version_status"]
        ]
    except (KeyError, TypeError, ValueError) as exc:
        raise InvalidResponseError(f"the status is not one of the API: {exc!r}") from exc
