"""What a server says of its models: metadata and status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from savedmodel_bakery.serving.models.registry import ModelChoice, Registry
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import invalid_argument

SIGNATURE_FIELD = "signature_def"


def check_metadata_fields(fields: Sequence[str]) -> None:
    """Refuse what can't be told.

    Raises:
        StatusError: INVALID_ARGUMENT where nothing is asked for, or something else than the signatures.
    """
    if not fields:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in fields:
        if field != SIGNATURE_FIELD:
            raise invalid_argument(f"Metadata field {field} is not supported")


def metadata(servable: Servable) -> Any:
    """A GetModelMetadataResponse with all signatures."""
    signatures = schema.SignatureDefMap()
    for name, signature in servable.signatures.items():
        signatures.signature_def[name].CopyFrom(signature)
    response = schema.GetModelMetadataResponse()
    response.model_spec.name = servable.name
    response.model_spec.version.value = servable.version
    response.metadata[SIGNATURE_FIELD].Pack(signatures)
    return response


def status(registry: Registry, choice: ModelChoice) -> Any:
    """A GetModelStatusResponse for the version chosen by number, or for all; a label is not looked at.

    Raises:
        StatusError: NOT_FOUND where nothing is known.
    """
    response = schema.GetModelStatusResponse()
    for version in registry.statuses(choice.name, choice.version):
        entry = response.model_version_status.add(version=version.number, state=int(version.state))
        entry.status.error_code = int(version.error.code) if version.error else 0
        entry.status.error_message = version.error.message if version.error else ""
    return response
