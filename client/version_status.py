"""The states of a model's versions, as a server reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from savedmodel_bakery.errors import InvalidResponseError
from savedmodel_bakery.wire.status import Code


@dataclass(frozen=True)
class VersionStatus:
    """The state of one version of a model.

    Attributes:
        version: version number; None if a server of the v2 protocol does not number versions.
        state: START, LOADING, AVAILABLE, UNLOADING or END.
        code: OK, or why the version could not be loaded; over v2 always UNKNOWN.
        message: the error message; empty if `code` is OK.
    """

    version: int | None
    state: str
    code: Code
    message: str


def read_status(document: Mapping[str, Any]) -> list[VersionStatus]:
    """Read GetModelStatusResponse from its protobuf JSON, in the server's order.

    Raises:
        InvalidResponseError: the document is not such a message.
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
        raise InvalidResponseError(f"the status is not a valid GetModelStatusResponse: {exc!r}") from exc
