"""What callers may send without a token when a tokens file is set."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from server_process import free_port

from savedmodel_bakery.serving.access.access import ANYONE, PUBLIC_PATHS, Access
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.call.call import Entrypoint
from savedmodel_bakery.serving.call.http import Request
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.rest.rest_api import RestApi
from savedmodel_bakery.serving.rest.router import Router
from savedmodel_bakery.serving.rest.server import RestServer
from savedmodel_bakery.wire.status import StatusError

PREFLIGHT = Request("OPTIONS", "/v1/models/m:predict", {"origin": "https://shop.example"})


@pytest.fixture
def access(tmp_path: Path) -> Access:
    """Access for nobody."""
    (tmp_path / "tokens.toml").touch()
    return Access(tmp_path / "tokens.toml")


def router(access: Access, *, cors: bool, metrics_path: str | None = None) -> Router:
    api = RestApi(Registry(), limits=Limits(), check_method_names=False)
    return Router([api.find], access=access, cors=cors, metrics_path=metrics_path)


def test_a_browser_may_ask_without_a_token_whether_it_may_send_one(access: Access) -> None:
    serving = router(access, cors=True)
    assert ANYONE is serving.authorize(PREFLIGHT)
    assert 200 == serving.find(PREFLIGHT).handle(PREFLIGHT, RequestContext()).status
    assert "Content-Type, Authorization" == serving.cors_headers["Access-Control-Allow-Headers"]


@pytest.mark.parametrize("path", ["/v1/metrics", *PUBLIC_PATHS])
def test_the_metrics_page_needs_a_token_whatever_its_path_and_the_method(access: Access, path: str) -> None:
    serving = router(access, cors=True, metrics_path=path)
    for method in ("GET", "OPTIONS"):
        with pytest.raises(StatusError, match="UNAUTHENTICATED"):
            serving.authorize(Request(method, path, {"origin": "https://shop.example"}))


def test_a_predict_route_needs_a_token_even_at_a_public_path(access: Access) -> None:
    path = PUBLIC_PATHS[0]
    serving = Router([], access=access, cors=False, predict_path=path)
    with pytest.raises(StatusError, match="UNAUTHENTICATED"):
        serving.authorize(Request("POST", path, {}))


def test_a_rejected_request_of_a_browser_has_cors_headers(access: Access) -> None:
    port, admission = free_port(), Admission(Limits(), MemoryBudget(), turns=1)
    server = RestServer(
        router(access, cors=True), "127.0.0.1", port, admission, Entrypoint("REST", str), timeout_s=None
    )
    server.start()
    response = requests.get(f"http://127.0.0.1:{port}/v1/models/m", timeout=30)
    server.stop(5)
    assert (401, "*") == (response.status_code, response.headers["Access-Control-Allow-Origin"])


def test_only_allowed_hosts_are_served() -> None:
    serving = Router([], access=Access(), cors=False, allowed_hosts=["localhost", "[::1]"])
    for host in ("localhost", "LocalHost:8501", "[::1]", "[::1]:8501", ""):
        assert ANYONE is serving.authorize(Request("GET", "/v1/models/m", {"host": host}))
    for host in ("evil.example", "evil.example:8501", "localhost.evil.example", "127.0.0.1", "[::2]:8501"):
        with pytest.raises(StatusError, match=r"PERMISSION_DENIED: .*must be localhost, \[::1\]"):
            serving.authorize(Request("GET", "/v2/health/live", {"host": host}))
    assert ANYONE is serving.authorize(Request("GET", "/v1/models/m", {}))


def test_without_cors_options_needs_a_token_too(access: Access) -> None:
    with pytest.raises(StatusError, match="UNAUTHENTICATED"):
        router(access, cors=False).authorize(PREFLIGHT)


def test_the_token_is_not_in_the_repr_of_a_request() -> None:
    assert "secret" not in repr(Request("GET", "/", {"authorization": "Bearer secret"}))
