"""The tokens file lists tokens by their hashes; every mistake in it is one line that names the entry."""

from __future__ import annotations

import hashlib

import pytest

from savedmodel_bakery.serving.access.tokens import (
    Role,
    Token,
    TokensError,
    format_token,
    hash_secret,
    make_secret,
    parse_tokens,
)

HASH = "ab" * 32
VALID = f'[[tokens]]\nname = "shop"\nsha256 = "{HASH}"\nroles = ["predict"]\nmodels = "all"\n'


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(Token("shop", b"1" * 32, frozenset({Role.PREDICT}), None), id="all models"),
        pytest.param(
            Token("a-Z_0.9@x/y", b"2" * 32, frozenset(Role), frozenset({"b", 'ä"\\\n'}), 0.5, 1000), id="everything"
        ),
        pytest.param(Token("ops", b"3" * 32, frozenset({Role.ADMIN}), frozenset()), id="no predict role"),
    ],
)
def test_a_written_entry_is_read_as_the_same_token(token: Token) -> None:
    assert (token,) == parse_tokens(format_token(token))


def test_entries_are_appended() -> None:
    tokens = tuple(Token(name, name.encode() * 32, frozenset({Role.METRICS}), frozenset()) for name in "abc")
    assert tokens == parse_tokens("\n".join(map(format_token, tokens)))


def test_a_file_without_tokens_permits_nobody() -> None:
    assert () == parse_tokens("")


def test_a_token_has_256_random_bits_and_is_stored_by_its_sha256() -> None:
    first, second = make_secret(), make_secret()
    assert first != second
    assert len("bakery_") + 43 == len(first)
    assert hashlib.sha256(first.encode()).digest() == hash_secret(first)


def test_the_hash_is_not_in_the_repr() -> None:
    assert HASH not in repr(parse_tokens(VALID)) + str(parse_tokens(VALID))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("tokens =", "not valid TOML: Invalid value (at end of document)", id="not TOML"),
        pytest.param("token = 1", "the file: unknown key 'token'; must be one of tokens", id="unknown table"),
        pytest.param("tokens = 1", "tokens must be tables: [[tokens]]", id="no tables"),
        pytest.param("[[tokens]]", "token 1: name is missing", id="no name"),
        pytest.param(
            VALID.replace('"shop"', '"a b"'),
            "token 1: invalid name 'a b': must be 1 to 100 ASCII letters, digits or _.@/-",
            id="bad name",
        ),
        pytest.param(
            VALID + "\n" + VALID.replace(HASH, "cd" * 32),
            'the name "shop" belongs to another token: names must be unique',
            id="duplicate name",
        ),
        pytest.param(
            VALID + "\n" + VALID.replace("shop", "web"),
            'the tokens "shop" and "web" have the same sha256',
            id="duplicate hash",
        ),
        pytest.param(
            VALID + "model = 1",
            "token \"shop\": unknown key 'model'; must be one of name, sha256, roles, models, requests_per_second, "
            "rows_per_second",
            id="unknown key",
        ),
        pytest.param(
            VALID.replace(HASH, "secret"),
            'token "shop": sha256 must be 64 lower-case hexadecimal digits',
            id="bad hash",
        ),
        pytest.param(
            VALID.replace('["predict"]', '["root"]'),
            "token \"shop\": unknown role 'root'; must be one of predict, admin, metrics",
            id="unknown role",
        ),
        pytest.param(
            VALID.replace('["predict"]', "[]"), 'token "shop": roles must be a list of at least one role', id="no role"
        ),
        pytest.param(
            VALID.replace('models = "all"', ""),
            'token "shop": the role "predict" needs models, a list of names or "all"',
            id="no models",
        ),
        pytest.param(
            VALID.replace("predict", "admin"),
            'token "shop": models has no effect without the role "predict"',
            id="useless models",
        ),
        pytest.param(
            VALID.replace('"all"', '"pets"'),
            'token "shop": models must be a list of names or "all"',
            id="models not a list",
        ),
        pytest.param(
            VALID + "rows_per_second = 0",
            'token "shop": invalid rows_per_second 0: must be a finite number greater than 0',
            id="limit of zero",
        ),
        pytest.param(
            VALID + "requests_per_second = true",
            'token "shop": invalid requests_per_second True: must be a finite number greater than 0',
            id="limit not a number",
        ),
        pytest.param(
            VALID + "requests_per_second = nan",
            'token "shop": invalid requests_per_second nan: must be a finite number greater than 0',
            id="limit is nan",
        ),
        pytest.param("x = " + "[" * 2000 + "]" * 2000, "not valid TOML: it is nested too deeply", id="nested"),
    ],
)
def test_a_mistake_is_explained_in_one_line(text: str, message: str) -> None:
    with pytest.raises(TokensError) as error:
        parse_tokens(text)
    assert message == str(error.value)
