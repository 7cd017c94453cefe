"""Flags that decide who can reach the server, and with which encryption."""

from __future__ import annotations

import json
import ssl
import traceback
from pathlib import Path

import pytest
import trustme

from savedmodel_bakery.serving.options import flags
from savedmodel_bakery.serving.options.config_files import TextFormatError
from savedmodel_bakery.serving.options.settings import (
    Tls,
    check_flags,
    read_settings,
    read_ssl_context,
    read_tls,
    warn_if_exposed,
)
from savedmodel_bakery.wire.status import StatusError

MODEL = "--model_base_path=/models/m"


def write_tls(path: Path, **fields: object) -> Path:
    """Write an SSLConfig of a new authority; `fields` replace its values."""
    certificate = trustme.CA().issue_cert("localhost")
    values = {
        "server_key": certificate.private_key_pem.bytes().decode(),
        "server_cert": certificate.cert_chain_pems[0].bytes().decode(),
        **fields,
    }
    path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items()))
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rest_api_port=8501", "--rest_ssl_config_file=y"),
        ("--rest_api_port=8501", "--allow_plaintext_rest"),
        ("--rest_api_port=0",),
    ],
)
def test_grpc_with_tls_does_not_start_beside_plaintext_rest(arguments: tuple[str, ...]) -> None:
    check_flags(flags.parse([MODEL, "--ssl_config_file=x", *arguments]))
    with pytest.raises(StatusError) as error:
        check_flags(flags.parse([MODEL, "--ssl_config_file=x", "--rest_api_port=8501"]))
    assert (
        "INVALID_ARGUMENT: gRPC has TLS (--ssl_config_file), but REST would have none; set --rest_ssl_config_file, "
        "--rest_api_port=0, or --allow_plaintext_rest"
    ) == str(error.value)


GRPC = "gRPC has no TLS (--ssl_config_file)"
REST = "REST has no TLS (--rest_ssl_config_file)"
TOKENS = "callers need no token (--auth_tokens_file)"


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        pytest.param((), f"{GRPC}; {TOKENS}", id="default"),
        pytest.param(("--rest_api_port=8501",), f"{GRPC}; {REST}; {TOKENS}", id="REST"),
        pytest.param(("--rest_api_port=8501", "--ssl_config_file=x", "--auth_tokens_file=y"), REST, id="only gRPC"),
        pytest.param(("--ssl_config_file=x",), TOKENS, id="no tokens"),
        pytest.param(("--auth_tokens_file=x",), GRPC, id="no TLS"),
        pytest.param(("--auth_tokens_file=x", "--ssl_config_file=y"), "", id="both"),
        pytest.param(("--bind_address=127.0.0.1",), "", id="loopback"),
        pytest.param(("--bind_address=::1",), "", id="loopback of IPv6"),
        pytest.param(("--port=0", "--grpc_socket_path=s"), "", id="socket"),
    ],
)
def test_one_warning_if_other_machines_can_call_without_tls_or_tokens(
    arguments: tuple[str, ...], missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_exposed(flags.parse(arguments))
    warning = f"The server accepts connections from other machines at 0.0.0.0: {missing}"
    assert ([warning] if missing else []) == [record.message for record in caplog.records]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"server_key": "x"}, "not valid PEM", id="no key"),
        pytest.param({"server_cert": "x"}, "not valid PEM", id="no certificate"),
        pytest.param(
            {"server_key": trustme.CA().issue_cert("other").private_key_pem.bytes().decode()},
            "KEY_VALUES_MISMATCH",
            id="another key",
        ),
        pytest.param({"client_verify": True, "custom_ca": "x"}, "not valid PEM", id="no authority"),
    ],
)
def test_an_unusable_key_or_certificate_of_rest_is_an_error(
    tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    path = write_tls(tmp_path / "tls", **fields)
    with pytest.raises(StatusError) as error:
        read_ssl_context(path)
    assert f"INVALID_ARGUMENT: {path}: cannot use the key or a certificate: {reason}" == str(error.value)


@pytest.mark.parametrize(("verify", "mode"), [(True, ssl.CERT_REQUIRED), (False, ssl.CERT_NONE)])
def test_rest_asks_for_client_certificates_only_with_client_verify(
    tmp_path: Path, verify: bool, mode: ssl.VerifyMode
) -> None:
    authority = trustme.CA()
    fields = {"custom_ca": authority.cert_pem.bytes().decode(), "client_verify": verify}
    context = read_ssl_context(write_tls(tmp_path / "tls", **fields))
    assert mode is context.verify_mode
    assert int(verify) == len(context.get_ca_certs())


def test_rest_has_tls_of_version_1_2_or_later(tmp_path: Path) -> None:
    assert ssl.TLSVersion.TLSv1_2 == read_ssl_context(write_tls(tmp_path / "tls")).minimum_version


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('server_key: "SECRET\n', "1:13"),
        ("server_key: SECRET", "1:13"),
        ('server_key: "a"\nSECRET\n', "2:1"),
        ('server_key: "SECRET\\xzz"', "1:13"),
    ],
    ids=["a line break", "no quotes", "a second line", "an escape"],
)
def test_a_mistake_in_the_file_of_a_private_key_does_not_print_the_key(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "tls"
    path.write_text(text)
    with pytest.raises(TextFormatError) as error:
        read_tls(path)
    expected = f'{place}: expected FIELD: "TEXT" on one line, with \\n for each line break'
    assert f"Error parsing text-format tensorflow.serving.SSLConfig: {expected}" == error.value.reason
    assert "SECRET" not in str(error.value) + "".join(traceback.format_exception(error.value))


def test_the_private_key_is_not_in_the_repr() -> None:
    assert "secret" not in repr(Tls("secret", "", "", verify_clients=False))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "INVALID_ARGUMENT: --auth_tokens_file={path} cannot be read: No such file or directory"),
        ("[[tokens]]", "INVALID_ARGUMENT: {path}: token 1: name is missing"),
    ],
    ids=["missing", "invalid"],
)
def test_an_unusable_tokens_file_is_an_error(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "tokens.toml"
    if content:
        path.write_text(content)
    with pytest.raises(StatusError) as error:
        read_settings(flags.parse([MODEL, f"--auth_tokens_file={path}"]))
    assert message.format(path=path) == str(error.value)


@pytest.mark.parametrize("name", ["health_route", "predict_route"])
def test_a_route_cannot_be_the_path_of_the_metrics(tmp_path: Path, name: str) -> None:
    (tmp_path / "monitoring").write_text('prometheus_config { enable: true path: "/a" }')
    arguments = (f"--monitoring_config_file={tmp_path / 'monitoring'}", "--rest_api_port=8501", f"--{name}=/a")
    with pytest.raises(StatusError, match=f"{name} and the metrics page are both /a: choose two different paths$"):
        read_settings(flags.parse([MODEL, *arguments]))
