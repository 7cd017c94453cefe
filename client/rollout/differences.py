"""Compares the state of a server with the configuration of a model. Does no I/O."""

from __future__ import annotations

from savedmodel_bakery.client.rollout.errors import RolloutError
from savedmodel_bakery.client.rollout.servers import ServerState
from savedmodel_bakery.client.rollout.steps import LABELS
from savedmodel_bakery.wire.model_config import ModelConfig, Specific
from savedmodel_bakery.wire.status import Code


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
    return [
        f"version {version} is {_state(state, version)}, not AVAILABLE{_reason(state, version)}"
        for version in sorted(versions - state.available)
    ]


def check_not_failed(versions: frozenset[int], name: str, state: ServerState, before: ServerState | None) -> None:
    """Check that a server has not given up loading one of these versions.

    Args:
        versions: the versions that it must load.
        name: of the server.
        state: the server's.
        before: that before the versions were configured, if the server may not have noticed yet: then a version that
            could not be loaded before does not count as failed.

    Raises:
        RolloutError: a version could not be loaded.
    """
    for version in sorted(versions):
        status, reason = state.status_of(version), _reason(state, version)
        if status is not None and status.state == "END" and reason and not (before and status in before.versions):
            raise RolloutError(f"{name} cannot load version {version}{reason}")


def _state(state: ServerState, version: int) -> str:
    status = state.status_of(version)
    return "unknown" if status is None else status.state


def _reason(state: ServerState, version: int) -> str:
    """Return why a version could not be loaded, after a colon; empty if there is no error."""
    status = state.status_of(version)
    return "" if status is None or status.code is Code.OK else f": {status.code.name}: {status.message}"
