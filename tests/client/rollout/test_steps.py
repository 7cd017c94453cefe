"""What is served after each step of a rollout."""

from __future__ import annotations

import pytest

from savedmodel_bakery.client.rollout import RolloutError, steps
from savedmodel_bakery.client.rollout.steps import Serving


def serving(*versions: int, **labels: int) -> Serving:
    return Serving(frozenset(versions), labels)


@pytest.mark.parametrize(
    ("now", "after"),
    [
        (serving(6), [serving(6, 7, stable=6, canary=7)]),
        (serving(6, stable=6), [serving(6, 7, stable=6, canary=7)]),
        (
            serving(5, 6, stable=6, previous=5),
            [serving(5, 6, 7, stable=6, canary=7, previous=5), serving(6, 7, stable=6, canary=7)],
        ),
        (
            serving(5, 6, stable=6, previous=5, old=5),
            [serving(5, 6, 7, stable=6, canary=7, previous=5, old=5), serving(5, 6, 7, stable=6, canary=7, old=5)],
        ),
        (
            serving(6, 7, stable=6, previous=7),
            [serving(6, 7, stable=6, canary=7, previous=7), serving(6, 7, stable=6, canary=7)],
        ),
        (serving(3, 6), [serving(3, 6, 7, stable=6, canary=7)]),
        (serving(7), [serving(6, 7, stable=6, canary=7)]),
        (serving(6, 7, stable=6, canary=7), [serving(6, 7, stable=6, canary=7)]),
    ],
    ids=[
        "without labels",
        "with a stable version",
        "with a previous version",
        "with a previous version that has another label",
        "with the previous version as canary",
        "with a version without label",
        "with the canary alone",
        "a second time",
    ],
)
def test_start(now: Serving, after: list[Serving]) -> None:
    assert after == steps.start(now, canary=7, stable=6)
    assert after[-1] == steps.start(after[0], canary=7, stable=6)[-1]  # again, after an interrupt


@pytest.mark.parametrize(
    ("now", "error"),
    [
        (serving(6, 8, stable=6, canary=8), "version 8 is the canary already: promote it or roll it back first"),
        (serving(5, stable=5), "version 5 is stable, not 6: leave out --stable"),
    ],
)
def test_a_start_is_refused(now: Serving, error: str) -> None:
    with pytest.raises(RolloutError, match=error):
        steps.start(now, canary=7, stable=6)
    with pytest.raises(RolloutError, match="version 6 is stable already: a canary must be another version"):
        steps.start(serving(6, stable=6), canary=6, stable=6)


@pytest.mark.parametrize(
    ("now", "after"),
    [
        (serving(6, 7, stable=6, canary=7), serving(6, 7, stable=7, previous=6)),
        (serving(6, 7, canary=7), serving(6, 7, stable=7)),
        (serving(6, 7, stable=6, canary=7, old=6), serving(6, 7, stable=7, previous=6, old=6)),
        (serving(5, 6, 7, stable=6, canary=7, previous=5), serving(6, 7, stable=7, previous=6)),
        (serving(6, 7, stable=6, canary=7, previous=7), serving(6, 7, stable=7, previous=6)),
    ],
    ids=[
        "from a stable version",
        "without one",
        "with another label",
        "after an interrupted start",
        "after an interrupted start of the previous version",
    ],
)
def test_promote(now: Serving, after: Serving) -> None:
    assert after == steps.promote(now)


@pytest.mark.parametrize(
    ("now", "after"),
    [
        (serving(6, 7, stable=6, canary=7), [serving(6, stable=6)]),
        (serving(6, 7, stable=6, canary=7, new=7), [serving(6, 7, stable=6, new=7)]),
        (serving(5, 6, 7, stable=6, canary=7, previous=5), [serving(5, 6, stable=6, previous=5)]),
        (serving(6, 7, stable=7, previous=6), [serving(6, 7, stable=6, canary=7), serving(6, stable=6)]),
        (
            serving(3, 6, 7, stable=7, previous=6, new=7),
            [serving(3, 6, 7, stable=6, canary=7, new=7), serving(3, 6, 7, stable=6, new=7)],
        ),
        (serving(6, 7, previous=6), [serving(6, 7, stable=6)]),
    ],
    ids=[
        "before a promotion",
        "with another label",
        "after an interrupted start",
        "after a promotion",
        "with other versions",
        "without a stable version",
    ],
)
def test_roll_back(now: Serving, after: list[Serving]) -> None:
    assert after == steps.roll_back(now)
    if len(after) == 2:  # again, after an interrupt
        assert after[1:] == steps.roll_back(after[0])
