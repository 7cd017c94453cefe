"""Checks a canary before its promotion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from savedmodel_bakery.client.error_text import one_line
from savedmodel_bakery.client.goldens import GoldensError, read_goldens, replay
from savedmodel_bakery.client.rollout.errors import RolloutError
from savedmodel_bakery.client.rollout.servers import ModelServer

_MAX_LISTED = 10


def check_goldens(
    folder: Path, servers: Sequence[ModelServer], version: int, *, report: Callable[[str], object]
) -> None:
    """Send the goldens of a version to it on each server.

    Args:
        folder: of the version, with its goldens.
        servers: the servers.
        version: its number.
        report: is called with each difference, up to ten, or else with the number of responses.

    Raises:
        RolloutError: a response differs, or the version has no goldens.
        ClientError: a server cannot be reached, or needs another token.
    """
    try:
        goldens = read_goldens(folder)
    except GoldensError as error:
        raise RolloutError(
            f"cannot check version {version}: {error}; to promote it all the same, add --no-goldens"
        ) from error
    differing = []
    for server in servers:
        with server.open_client(version) as client:
            for golden in goldens.requests:
                if differences := replay(golden, client, goldens.tolerances):
                    reason = one_line("; ".join(differences))
                    differing.append(f"{server.name}: {golden.signature} {golden.number}: {reason}")
    for line in differing[:_MAX_LISTED]:
        report(line)
    total = len(goldens.requests) * len(servers)
    if differing:
        raise RolloutError(
            f"version {version} was not promoted: {len(differing)} of {total} responses differ from its goldens"
        )
    report(f"{total} of {total} responses agree with the goldens of version {version}")
