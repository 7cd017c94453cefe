"""Tokens, and the TOML text that lists them by their hashes. Does no I/O."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import isfinite
from typing import Any

from savedmodel_bakery.files import parse_toml

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[\w.@/-]{1,100}", re.ASCII)
_REQUIRED = ("name", "sha256", "roles")
_LIMITS = ("requests_per_second", "rows_per_second")
_KEYS = (*_REQUIRED, "models", *_LIMITS)
ALL_MODELS = "all"


class Role(Enum):
    """What a token permits. No role includes another one."""

    PREDICT = "predict"
    ADMIN = "admin"
    METRICS = "metrics"


class TokensError(ValueError):
    """A list of tokens is invalid. The message contains no token and no hash."""


@dataclass(frozen=True)
class Token:
    """An entry of the tokens file."""

    name: str  # for messages and for the file's reader; unique
    # SHA-256 of the token. Salts and slow hashes protect passwords, which can be guessed; a token has 256 random bits,
    # so that nobody can find it from its hash
    sha256: bytes = field(repr=False)
    roles: frozenset[Role]  # at least one
    # names of the models that may be called; None means all. Empty without the role `predict`
    models: frozenset[str] | None
    requests_per_second: float | None = None  # limit of calls; None means none
    rows_per_second: float | None = None  # limit of rows; None means none


def make_secret() -> str:
    """Return a new token. It never begins with a dash, and secret scanners can recognise it by its prefix."""
    return f"bakery_{secrets.token_urlsafe(32)}"


def hash_secret(secret: str) -> bytes:
    """Return the hash of a token by which the file lists it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def parse_tokens(text: str) -> tuple[Token, ...]:
    """Parse the content of a tokens file, which has a table `[[tokens]]` for each token."""
    try:
        document = parse_toml(text)
    except ValueError as error:
        raise TokensError(f"not valid TOML: {error}") from None
    _check_keys(document, "the file", allowed=("tokens",))
    entries = document.get("tokens", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise TokensError("tokens must be tables: [[tokens]]")
    tokens = tuple(_parse_token(entry, f"token {number}") for number, entry in enumerate(entries, 1))
    names: set[str] = set()
    hashes: dict[bytes, str] = {}
    for token in tokens:
        if token.name in names:
            raise TokensError(f'the name "{token.name}" belongs to another token: names must be unique')
        if token.sha256 in hashes:
            raise TokensError(f'the tokens "{hashes[token.sha256]}" and "{token.name}" have the same sha256')
        names.add(token.name)
        hashes[token.sha256] = token.name
    return tokens


def format_token(token: Token) -> str:
    """Return the entry of a token, which `parse_tokens` reads."""
    # A JSON text without characters outside ASCII is valid TOML.
    values: dict[str, Any] = {
        "name": token.name,
        "sha256": token.sha256.hex(),
        "roles": [role.value for role in Role if role in token.roles],
    }
    if Role.PREDICT in token.roles:
        values["models"] = ALL_MODELS if token.models is None else sorted(token.models)
    values |= {limit: getattr(token, limit) for limit in _LIMITS if getattr(token, limit) is not None}
    return "".join(["[[tokens]]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in values.items())])


def check_name(name: object) -> str:
    """Return the name of a token; raises TokensError if it is invalid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TokensError(f"invalid name {_quote(name)}: must be 1 to 100 ASCII letters, digits or _.@/-")
    return name


def _parse_token(entry: Mapping[str, Any], place: str) -> Token:
    if "name" in entry:
        try:
            place = f'token "{check_name(entry["name"])}"'
        except TokensError as error:
            raise TokensError(f"{place}: {error}") from None
    _check_keys(entry, place, allowed=_KEYS, required=_REQUIRED)
    sha256 = entry["sha256"]
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise TokensError(f"{place}: sha256 must be 64 lower-case hexadecimal digits")
    roles = _parse_roles(entry["roles"], place)
    if Role.PREDICT in roles and "models" not in entry:
        raise TokensError(f'{place}: the role "predict" needs models, a list of names or "{ALL_MODELS}"')
    if Role.PREDICT not in roles and "models" in entry:
        raise TokensError(f'{place}: models has no effect without the role "predict"')
    models = _parse_models(entry.get("models", []), place)
    limits = {limit: _parse_limit(entry[limit], limit, place) for limit in _LIMITS if limit in entry}
    return Token(entry["name"], bytes.fromhex(sha256), roles, models, **limits)


def _check_keys(
    table: Mapping[str, Any], place: str, *, allowed: tuple[str, ...], required: tuple[str, ...] = ()
) -> None:
    for key in table:
        if key not in allowed:
            raise TokensError(f"{place}: unknown key {_quote(key)}; must be one of {', '.join(allowed)}")
    for key in required:
        if key not in table:
            raise TokensError(f"{place}: {key} is missing")


def _parse_roles(names: object, place: str) -> frozenset[Role]:
    if not isinstance(names, list) or not names:
        raise TokensError(f"{place}: roles must be a list of at least one role")
    allowed = {role.value: role for role in Role}
    for name in names:
        if not isinstance(name, str) or name not in allowed:
            raise TokensError(f"{place}: unknown role {_quote(name)}; must be one of {', '.join(allowed)}")
    return frozenset(allowed[name] for name in names)


def _parse_models(models: object, place: str) -> frozenset[str] | None:
    if models == ALL_MODELS:
        return None
    if not isinstance(models, list) or not all(isinstance(name, str) and name for name in models):
        raise TokensError(f'{place}: models must be a list of names or "{ALL_MODELS}"')
    return frozenset(models)


def _parse_limit(value: object, limit: str, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise TokensError(f"{place}: invalid {limit} {_quote(value)}: must be a finite number greater than 0")
    return value


def _quote(value: object) -> str:
    """Quote a value of the file for a message, on one line and not too long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
