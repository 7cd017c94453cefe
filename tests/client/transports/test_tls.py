"""TLS and tokens over gRPC, with asyncio, and over REST: what connects, and one error for everything that does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from canned_server import Peer
from tls_files import TlsFiles

from savedmodel_bakery import AsyncClient, Client, ConnectionFailedError, Tls, TlsHandshakeError

TOKEN = "correct-horse-battery-staple"
SERVERS = {
    "valid": ("valid", False),
    "for another name": ("for another name", False),
    "expired": ("expired", False),
    "mutual": ("valid", True),
}


class Servers:
    """The ports of servers with TLS, by the kind of their certificates, and of one without."""

    def __init__(self, peer: Peer, files: TlsFiles, stack: ExitStack) -> None:
        self.grpc = {"plain": peer.grpc_port}
        self.rest = {"plain": peer.rest_port}
        for name, (certificate, require_client) in SERVERS.items():
            credentials = files.grpc_credentials(certificate, require_client=require_client)
            self.grpc[name] = stack.enter_context(peer.serve_grpc(credentials=credentials))
            context = files.ssl_context(certificate, require_client=require_client)
            self.rest[name] = stack.enter_context(peer.serve_rest(tls=context))


@pytest.fixture(scope="module")
def servers(peer: Peer, tls_files: TlsFiles) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(peer, tls_files, stack)


Status = Callable[..., Any]


@pytest.fixture(params=["gRPC", "asyncio", "REST"])
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def status(protocol: str, servers: Servers) -> Status:
    """Get the status from one of the servers, with each client."""

    async def send(port: int, **options: Any) -> Any:
        async with AsyncClient(port=port, model="half_plus_two", **options) as client:
            return await client.status()

    def status(server: str, *, target: str = "127.0.0.1", **options: Any) -> Any:
        if protocol == "asyncio":
            return asyncio.run(send(servers.grpc[server], target=target, **options))
        ports = {"gRPC": {"port": servers.grpc[server]}, "REST": {"rest_api_port": servers.rest[server]}}[protocol]
        transport = {"gRPC": "grpc", "REST": "rest"}[protocol]
        with Client(target, transport=transport, model="half_plus_two", **ports, **options) as client:
            return client.status()

    return status


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_whose_authority_is_trusted(status: Status, tls_files: TlsFiles, host: str) -> None:
    assert 3 == status("valid", target=host, tls=Tls(tls_files.ca))[0].version


def test_the_scheme_of_a_target_turns_tls_on(status: Status, protocol: str, tls_files: TlsFiles) -> None:
    scheme = "https" if protocol == "REST" else "grpcs"
    assert 3 == status("valid", target=f"{scheme}://localhost", tls=Tls(tls_files.ca))[0].version
    with pytest.raises(TlsHandshakeError, match="the server's certificate is not trusted"):
        # Not a name: if it has several addresses, gRPC tells the error of the last one.
        status("valid", target=f"{scheme}://127.0.0.1")  # a public authority did not sign it


def test_a_client_certificate_from_two_files_or_one(status: Status, tls_files: TlsFiles) -> None:
    for tls in (Tls(tls_files.ca, tls_files.cert, tls_files.key), Tls(tls_files.ca, tls_files.cert_with_key)):
        assert 3 == status("mutual", tls=tls)[0].version


@pytest.mark.parametrize(
    ("server", "ca", "error", "reason"),
    [
        pytest.param(
            "valid",
            "other_ca",
            TlsHandshakeError,
            " with TLS: the server's certificate is not trusted: unable to get local issuer certificate",
            id="other authority",
        ),
        pytest.param(
            "expired",
            "ca",
            TlsHandshakeError,
            " with TLS: the server's certificate is not trusted: certificate has expired",
            id="expired",
        ),
        pytest.param(
            "for another name",
            "ca",
            TlsHandshakeError,
            " with TLS: the server's certificate is not valid for 127.0.0.1",
            id="other name",
        ),
        pytest.param(
            "plain", "ca", TlsHandshakeError, " with TLS: the server does not use TLS on this port", id="no TLS"
        ),
        pytest.param(
            "valid",
            None,
            ConnectionFailedError,
            ": the connection was closed; if the server requires TLS, use {scheme}://",
            id="without TLS",
        ),
    ],
)
def test_each_failed_handshake_is_one_sentence(
    status: Status,
    protocol: str,
    servers: Servers,
    tls_files: TlsFiles,
    server: str,
    ca: str | None,
    error: type[ConnectionFailedError],
    reason: str,
) -> None:
    with pytest.raises(ConnectionFailedError) as caught:
        status(server, tls=None if ca is None else Tls(getattr(tls_files, ca)))
    assert error is caught.type
    name, ports, scheme = ("REST", servers.rest, "https") if protocol == "REST" else ("gRPC", servers.grpc, "grpcs")
    where = f"127.0.0.1:{ports[server]} over {name}"
    assert f"cannot connect to {where}{reason.format(scheme=scheme)}" == str(caught.value)


def test_a_client_without_the_certificate_that_the_server_requires(status: Status, tls_files: TlsFiles) -> None:
    """Over gRPC the server's alert does not reach the caller, and over HTTP only if it arrives before the end."""
    with pytest.raises(ConnectionFailedError) as caught:
        status("mutual", tls=Tls(tls_files.ca))
    reasons = (
        "with TLS: the server requires a client certificate",
        "with TLS: the connection was closed; does the server require a certificate?",
    )
    assert str(caught.value).endswith(reasons)


def test_a_server_that_is_down_is_not_a_failed_handshake(transport: str, closed_port: int) -> None:
    with (
        Client(f"127.0.0.1:{closed_port}", transport=transport, tls=Tls()) as client,
        pytest.raises(ConnectionFailedError, match="; is a model server running there") as caught,
    ):
        client.status()
    assert caught.type is ConnectionFailedError


def test_a_token_is_sent_with_each_call_with_and_without_tls(status: Status, peer: Peer, tls_files: TlsFiles) -> None:
    for server, tls in (("valid", Tls(tls_files.ca)), ("plain", None)):
        peer.authorizations.clear()
        status(server, tls=tls, token=TOKEN)
        assert [f"Bearer {TOKEN}"] == peer.authorizations


def test_a_token_takes_precedence_over_netrc(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, servers: Servers
) -> None:
    """The library requests replaces the session's header by a password of ~/.netrc."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    peer.authorizations.clear()
    with Client(transport="rest", rest_api_port=servers.rest["plain"], model="half_plus_two", token=TOKEN) as client:
        client._transport._http._session.trust_env = True  # as for a server on another machine
        client.status()
    assert [f"Bearer {TOKEN}"] == peer.authorizations


def test_the_token_is_in_no_error_and_no_repr(closed_port: int) -> None:
    client = Client(port=closed_port, token=TOKEN, timeout_s=0.2)
    rest = Client(transport="rest", rest_api_port=closed_port, token=TOKEN, timeout_s=0.2)
    shown = [repr(client), repr(rest), repr(client._transport._server), repr(vars(rest._transport._http))]
    for each in (client, rest):
        with pytest.raises(ConnectionFailedError) as caught:
            each.status()
        error: BaseException | None = caught.value
        while error is not None:
            shown += [str(error), repr(error), repr(vars(error))]
            error = error.__cause__ or error.__context__
        each.close()
    assert len(shown) > 8
    assert not [text for text in shown if TOKEN in text]
