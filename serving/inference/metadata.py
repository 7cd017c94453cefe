"""What a server knows about its models: their signatures and the states of their versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, VersionStatus
from savedmodel_bakery.serving.models.servable import Servable


class Metadata(NamedTuple):
    """The signatures of one version of a model: SignatureDefs by name."""

    model_name: str
    version: int
    signatures: Mapping[str, Any]


def metadata(servable: Servable) -> Metadata:
    """Return the metadata of a servable."""
    return Metadata(servable.name, servable.version, servable.signatures)


def status(registry: Registry, choice: ModelChoice) -> list[VersionStatus]:
    """Return the states of the chosen version, or of all versions of the model, highest first; ignores labels.

    Raises:
        StatusError: NOT_FOUND if the server has never seen the model or the version.
    """
    return registry.statuses(choice.name, choice.version)
