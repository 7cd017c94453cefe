"""`bakery token new` prints a token once, and writes entries that the server accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from savedmodel_bakery.command import bakery
from savedmodel_bakery.serving.access.tokens import Role, Token, hash_secret, parse_tokens


def new(*arguments: object) -> Result:
    return CliRunner().invoke(bakery, ["token", "new", *map(str, arguments)])


def test_without_a_file_the_token_and_its_entry_are_printed() -> None:
    result = new("shop")
    secret, _, entry = result.stdout.partition("\n\n")
    assert (Token("shop", hash_secret(secret), frozenset({Role.PREDICT}), None),) == parse_tokens(entry)
    assert secret not in entry


def test_with_a_file_only_the_token_is_printed_and_the_entry_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    first = new("shop", "--model", "b", "--model", "a", "--requests_per_second", "5", "--file", path)
    second = new("ops", "--role", "admin", "--role", "metrics", "--rows-per-second", "0.5", "--file", path)
    assert (f"Added shop to {path}\n", 1) == (first.stderr, len(first.stdout.splitlines()))
    hashes = [hash_secret(result.stdout.rstrip("\n")) for result in (first, second)]
    assert (
        Token("shop", hashes[0], frozenset({Role.PREDICT}), frozenset("ab"), 5),
        Token("ops", hashes[1], frozenset({Role.ADMIN, Role.METRICS}), frozenset(), None, 0.5),
    ) == parse_tokens(path.read_text())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["shop"], 1, 'the name "shop" belongs to another token'),
        (["a b"], 1, "Error: invalid name 'a b': must be 1 to 100 ASCII letters, digits or _.@/-"),
        (["x", "--role", "metrics", "--model", "y"], 2, "Error: --model has no effect without --role predict"),
        (["x", "--requests-per-second", "0"], 2, "0.0 is not in the range x>0"),
        (["x", "--rows-per-second", "nan"], 2, "Invalid value for '--rows-per-second': 'nan' is not a valid"),
        (["x", "--requests-per-second", "inf"], 2, "Error: invalid limit inf: must be a finite number"),
        (["x", "--file", "missing/tokens.toml"], 1, "Error: missing/tokens.toml: No such file or directory"),
    ],
    ids=["duplicate", "name", "model", "limit", "no number", "infinite", "folder"],
)
def test_a_mistake_leaves_the_file_as_it_is(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    path = tmp_path / "tokens.toml"
    new("shop", "--file", path)
    before = path.read_text()
    result = new("--file", path, *arguments)
    assert (code, "") == (result.exit_code, result.stdout)
    assert message in result.stderr
    assert before == path.read_text()
