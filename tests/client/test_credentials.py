"""TLS files and tokens: invalid ones are rejected before anything is sent, and no text contains a token."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from tls_files import TlsFiles

from savedmodel_bakery import AsyncClient, Client, Tls
from savedmodel_bakery.client.credentials import read_token
from savedmodel_bakery.client.servers import Server, parse_server

TOKEN = "correct-horse-battery-staple"


def test_invalid_tls_files_are_value_errors(tls_files: TlsFiles, tmp_path: Path) -> None:
    junk, missing = tmp_path / "junk.pem", tmp_path / "missing.pem"
    junk.write_text("junk")
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
        )
    )
    ca, cert, key, other = tls_files.ca, tls_files.cert, tls_files.key, tls_files.other_key
    nothing = "no certificate, or no private key, in PEM format"
    cases: list[tuple[dict[str, Path], str]] = [
        ({"ca": missing}, f"certificate authorities {missing} cannot be read: No such file or directory"),
        ({"ca": junk}, f"invalid certificate authorities {junk}: no certificate in PEM format"),
        ({"ca": ca, "key": key}, "a private key needs its certificate: pass both"),
        ({"cert": cert, "key": encrypted}, f"the private key {encrypted} is encrypted: pass one that is not"),
        ({"cert": cert}, f"invalid certificate {cert} with private key {cert}: {nothing}"),
        ({"cert": junk, "key": key}, f"invalid certificate {junk} with private key {key}: {nothing}"),
        (
            {"cert": cert, "key": other},
            f"invalid certificate {cert} with private key {other}: the key belongs to another certificate",
        ),
    ]
    for files, message in cases:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
            Tls(**files)
        assert message == str(caught.value)


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        ("models.example", {}, ("grpc", "models.example:8500", False)),
        ("models.example", {"transport": "rest"}, ("rest", "models.example:8501", False)),
        ("grpc://models.example", {}, ("grpc", "models.example:8500", False)),
        ("grpcs://models.example:443", {}, ("grpc", "models.example:443", True)),
        ("http://models.example/", {}, ("rest", "models.example:8501", False)),
        ("https://[::1]", {"rest_api_port": 443}, ("rest", "[::1]:443", True)),
        ("models.example", {"tls": Tls()}, ("grpc", "models.example:8500", True)),
        ("https://models.example", {"transport": "rest", "tls": Tls()}, ("rest", "models.example:8501", True)),
    ],
)
def test_the_scheme_selects_the_transport_and_tls(
    target: str, options: dict[str, object], expected: tuple[str, str, bool]
) -> None:
    server = parse_server(target, **options)
    assert expected == (server.transport, server.endpoints[0].address, server.tls is not None)


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("https://a", {"transport": "grpc"}, "the target's scheme is for REST, not for gRPC"),
        ("grpcs://a", {"transport": "rest"}, "the target's scheme is for gRPC, not for REST"),
        ("http://a", {"tls": Tls()}, "TLS is on, but the target's scheme is for a connection without TLS"),
        ("ftp://a", {}, 'invalid target "ftp://a": the scheme must be one of grpc, grpcs, http, https'),
        (["grpc://127.0.0.1", "127.0.0.2"], {}, "the targets have different schemes: use the same for all"),
        (["127.0.0.1", "127.0.0.2"], {"tls": Tls()}, "2 targets with TLS: gRPC checks certificates against one name"),
        (
            "a",
            {"token": f"{TOKEN}\n"},
            "invalid token: it must be one line of letters, digits and -._~+/, with = only at the end",
        ),
        ("a", {"token": ""}, "the token is empty"),
        (f"https://me:{TOKEN}/x@a", {}, 'invalid target "…@a": must be HOST or HOST:PORT'),
        (f"ftp://me:{TOKEN}/x@a", {}, 'invalid target "ftp://…@a": the scheme must be one of'),
    ],
    ids=str,
)
def test_contradictory_arguments_are_value_errors(
    target: str | list[str], options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        Client(target, **options)
    assert message in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_an_async_client_calls_grpc_servers_only() -> None:
    with pytest.raises(ValueError, match="the target's scheme is for REST, not for gRPC"):
        AsyncClient("https://a")


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(None) is None
    monkeypatch.setenv("BAKERY_CLIENT_TOKEN", "")
    assert read_token(None) is None
    monkeypatch.setenv("BAKERY_CLIENT_TOKEN", "other")
    assert ("other", TOKEN) == (read_token(None), read_token(file))


def test_no_error_quotes_what_may_be_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token may be passed as the name of its file by mistake, or with further text."""
    file = tmp_path / "token"
    file.write_text(f"Bearer {TOKEN}")
    monkeypatch.setenv("BAKERY_CLIENT_TOKEN", f"{TOKEN}ä")
    for name, message in (
        (TOKEN, "No such file"),
        (f"{TOKEN}\0", "invalid name"),
        (file, "must be one line"),
        (None, "must be one line"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            read_token(name)
        assert TOKEN not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_the_repr_of_a_server_has_no_token() -> None:
    server = parse_server("https://models.example", token=TOKEN)
    assert TOKEN == server.token
    assert TOKEN not in repr(server)
    assert isinstance(server, Server)
    assert "Tls(ca=None, cert=None, key=None)" in repr(server)
