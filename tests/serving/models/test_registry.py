"""The states of versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, State
from savedmodel_bakery.wire.status import Code, StatusError


def test_status_lists_versions_highest_first_and_ignores_labels() -> None:
    registry, failure = Registry(), StatusError(Code.NOT_FOUND, "no saved_model.pb")
    registry.update(registry.add("m", 1, Path()), State.END, error=failure)
    registry.update(registry.add("m", 2, Path()), State.LOADING)
    assert [(2, State.LOADING, None), (1, State.END, failure)] == registry.statuses(ModelChoice("m", label="stable"))
    assert [(1, State.END, failure)] == registry.statuses(ModelChoice("m", 1))


def test_status_has_the_error_of_an_attempt_while_the_load_is_tried_again() -> None:
    registry, failure = Registry(), StatusError(Code.NOT_FOUND, "no saved_model.pb")
    version = registry.add("m", 1, Path())
    registry.update(version, State.LOADING)
    registry.retry(version, failure)
    assert [(1, State.LOADING, failure)] == registry.statuses(ModelChoice("m"))
    registry.update(version, State.AVAILABLE)
    assert [(1, State.AVAILABLE, None)] == registry.statuses(ModelChoice("m"))


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (ModelChoice("n"), "NOT_FOUND: Could not find any versions of model n"),
        (ModelChoice("m", 2), "NOT_FOUND: Could not find version 2 of model m"),
    ],
)
def test_status_of_what_the_server_has_never_seen(choice: ModelChoice, reason: str) -> None:
    registry = Registry()
    registry.add("m", 1, Path())
    with pytest.raises(StatusError) as caught:
        registry.statuses(choice)
    assert reason == str(caught.value)
