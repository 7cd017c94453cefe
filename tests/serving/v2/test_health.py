"""`/v2/health/live` and `/v2/health/ready`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.call.http import Request
from savedmodel_bakery.serving.models.registry import Registry, State
from savedmodel_bakery.serving.v2.handlers import HttpHandlers


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_server_is_ready_while_every_configured_model_has_an_available_version(method: str) -> None:
    registry = Registry()
    handlers = HttpHandlers(registry, limits=Limits(), check_method_names=False)

    def status(path: str) -> int:
        request = Request(method, path, {})
        route = handlers.find(request)
        assert route is not None
        return route.handle(request, RequestContext()).status

    def statuses() -> tuple[int, int]:
        return status("/v2/health/live"), status("/v2/health/ready")

    registry.set_labels({"a": {}, "b": {}})
    servable: Any = object()
    a, b = (registry.add(name, 1, Path("/models") / name) for name in "ab")
    registry.update(a, State.AVAILABLE, servable=servable)
    assert (200, 503) == statuses()
    registry.update(b, State.AVAILABLE, servable=servable)
    assert (200, 200) == statuses()
    registry.update(a, State.UNLOADING)
    assert (200, 503) == statuses()
    registry.set_labels({"b": {}})
    assert (200, 200) == statuses()
