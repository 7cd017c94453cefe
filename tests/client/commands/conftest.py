"""Fixtures for the tests of the client's commands."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canned server has several models, so commands without `-m` need a name."""
    monkeypatch.setenv("BAKERY_CLIENT_MODEL_SPEC_NAME", "efficientnet_lite0")
