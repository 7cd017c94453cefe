"""What a client presents to a model server, and what it trusts: TLS files and a bearer token. Does no network I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NoReturn

from savedmodel_bakery.defaults import TOKEN_VARIABLE

# b64token of RFC 6750, section 2.1. Another character could end the header, or would appear in gRPC's error about it.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


@dataclass(frozen=True)
class Tls:
    """Encrypt the connection to a model server and check the server's certificate.

    `Tls()` trusts the public certificate authorities that come with gRPC and requests.

    Attributes:
        ca: PEM file with the certificate authorities to trust instead.
        cert: PEM file with the client's certificate, if the server requires one.
        key: PEM file with the private key of `cert`, not encrypted; None if `cert` contains the key.

    Raises:
        ValueError: a file cannot be read or has other content, or the key does not match the certificate.
    """

    ca: str | PathLike[str] | None = None
    cert: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        import ssl  # not for `--help`

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is not None:
            ca = os.fspath(self.ca)
            _check(f"certificate authorities {ca}", "certificate", lambda: context.load_verify_locations(ca))
        if self.cert is not None:
            cert, key = os.fspath(self.cert), os.fspath(self.cert if self.key is None else self.key)

            def refuse_password() -> NoReturn:
                raise ValueError(f"the private key {key} is encrypted: pass one that is not")

            _check(
                f"certificate {cert} with private key {key}",
                "certificate, or no private key,",
                lambda: context.load_cert_chain(cert, key, password=refuse_password),
            )
        elif self.key is not None:
            raise ValueError("a private key needs its certificate: pass both")


def check_token(token: str) -> str:
    """Return a token that can be sent in a header. The text of the ValueError does not quote it."""
    if not token:
        raise ValueError("the token is empty")
    if _TOKEN.fullmatch(token) is None:
        raise ValueError("invalid token: it must be one line of letters, digits and -._~+/, with = only at the end")
    return token


def read_token(token_file: str | PathLike[str] | None) -> str | None:
    """Return the token of a command-line program: the content of a file, or of BAKERY_CLIENT_TOKEN; None without both.

    The ValueErrors do not quote the file's name, which may be a token that was passed by mistake.
    """
    if token_file is None:
        token = os.environ.get(TOKEN_VARIABLE)
        return check_token(token.strip()) if token else None
    try:
        content = Path(token_file).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "invalid name"
        raise ValueError(
            f"the token file cannot be read: {reason}; pass the name of a file that contains the token"
        ) from None
    return check_token(content.strip())


def _check(files: str, content: str, load: Callable[[], None]) -> None:
    import ssl

    try:
        load()
    except ssl.SSLError as exc:
        mismatch = exc.reason == "KEY_VALUES_MISMATCH"
        reason = "the key belongs to another certificate" if mismatch else f"no {content} in PEM format"
        raise ValueError(f"invalid {files}: {reason}") from exc
    except OSError as exc:
        raise ValueError(f"{files} cannot be read: {exc.strerror}") from exc
