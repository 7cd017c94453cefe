"""A model server in a rollout: the state of a model, how that differs from the config file, and a new configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from savedmodel_bakery.answers.signatures import read_signatures
from savedmodel_bakery.client.calls import Metadata, ModelSpec, Status, VersionStatus
from savedmodel_bakery.client.client import BaseClient
from savedmodel_bakery.client.rollout import RolloutError
from savedmodel_bakery.client.rollout.steps import LABELS
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import create_transport
from savedmodel_bakery.errors import AccessDeniedError, RequestRefusedError
from savedmodel_bakery.wire.model_config import ModelConfig, Specific
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code

_STATE_TIMEOUT_S = 10.0
_PREDICT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ServerState:
    """The state of a model on a server: all versions that it knows, newest first, and the labels that are in effect."""

    versions: Sequence[VersionStatus] = ()
    labels: Mapping[str, int] = field(default_factory=dict)

    @property
    def available(self) -> frozenset[int]:
        """The versions that answer requests."""
        return frozenset(
            status.version for status in self.versions if status.state == "AVAILABLE" and status.version is not None
        )

    def status_of(self, version: int) -> VersionStatus | None:
        """Return the status of a version; None if the server does not know it."""
        return next((status for status in self.versions if status.version == version), None)


def labels_of(config: ModelConfig) -> list[str]:
    """Return the labels to look for on servers: those of a model, and those that rollouts assign."""
    return sorted({*filter(None, config.labels), *LABELS})


def find_differences(config: ModelConfig, state: ServerState) -> list[str]:
    """Return the labels that differ, and the versions that are not in the configuration; empty if there are none."""
    found = []
    for label in labels_of(config):
        wanted, actual = config.labels.get(label), state.labels.get(label)
        if actual != wanted:
            found.append(
                f"label {label} is {'not in effect' if actual is None else f'version {actual}'}, "
                f"but {'has been removed' if wanted is None else f'must be version {wanted}'}"
            )
    if isinstance(config.policy, Specific):
        found += [f"version {version} is still loaded" for version in sorted(state.available - config.policy.versions)]
    return found


def find_missing(versions: frozenset[int], state: ServerState) -> list[str]:
    """Return which of these versions are not AVAILABLE, with their states."""
    missing = []
    for version in sorted(versions - state.available):
        status = state.status_of(version)
        name = "unknown" if status is None else status.state
        missing.append(f"version {version} is {name}, not AVAILABLE{_reason(status)}")
    return missing


def check_not_failed(versions: frozenset[int], name: str, state: ServerState, before: ServerState | None) -> None:
    """Raise RolloutError if a server has given up loading one of these versions.

    A failure in the state `before` does not count: the server may not have noticed yet that the version is configured.
    """
    for version in sorted(versions):
        status = state.status_of(version)
        reason = _reason(status)
        if status is not None and status.state == "END" and reason and not (before and status in before.versions):
            raise RolloutError(f"{name} cannot load version {version}{reason}")


def _reason(status: VersionStatus | None) -> str:
    """Return why a version could not be loaded, after a colon; empty if there is no error."""
    return "" if status is None or status.code is Code.OK else f": {status.code.name}: {status.message}"


class ModelServer:
    """One model server, over gRPC or REST, named by its address; nothing is connected before the first call."""

    def __init__(self, server: Server) -> None:
        self.name = server.endpoints[0].address
        self._server = server
        self._transport = create_transport(server, timeout_s=_STATE_TIMEOUT_S)

    @property
    def can_reload(self) -> bool:
        """Whether `reload` works: it needs gRPC."""
        return self._server.uses_grpc

    def read(self, model: str, labels: Iterable[str] = ()) -> ServerState:
        """Return the state of a model's versions, and of these labels."""
        try:
            versions = self._transport.send(Status(ModelSpec(model)))
        except RequestRefusedError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            return ServerState()
        resolved = {label: self._resolve(model, label) for label in labels}
        return ServerState(versions, {label: version for label, version in resolved.items() if version is not None})

    def reload(self, config: Any, *, timeout_s: float) -> None:
        """Replace the server's configuration by a ModelServerConfig.

        If the server refuses it (RolloutError), it keeps the one that it has, or some of the new models failed.
        """
        from savedmodel_bakery.client.transports.grpc import GrpcTransport

        method = METHODS["HandleReloadConfigRequest"]
        request = method.request()
        request.config.CopyFrom(config)
        transport = GrpcTransport(self._server, timeout_s=timeout_s)
        try:
            transport.prepare_message(method.path, request.SerializeToString())(timeout_s)
        except AccessDeniedError:
            raise
        except RequestRefusedError as error:
            raise RolloutError(f"{self.name} did not accept the configuration: {error}") from error
        finally:
            transport.close()

    def open_client(self, model: str, version: int) -> BaseClient:
        """Return a client of a version of a model."""
        return BaseClient(ModelSpec(model, version), create_transport(self._server, timeout_s=_PREDICT_TIMEOUT_S))

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _resolve(self, model: str, label: str) -> int | None:
        """Return the version that has a label; None if the label is unknown or its version is not AVAILABLE."""
        try:
            document = self._transport.send(Metadata(ModelSpec(model, label=label)))
        except RequestRefusedError as error:
            if error.code in (Code.INVALID_ARGUMENT, Code.NOT_FOUND):
                return None
            raise
        return read_signatures(document).version
