"""The pages quote error messages as the code has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CLONE = Path(__file__).parent.parent.parent
PACKAGES = ("answers", "client", "exporter", "serving", "storage", "wire", "savedmodel_bakery")


def quoted_on(page: str) -> list[str]:
    """Return the error messages that a page quotes: headings, or first cells of tables."""
    text = (CLONE / "docs" / page).read_text()
    return re.findall(r"^(?:### |\| )`(\S+ [^`]+)`(?: \||$)", text, re.MULTILINE)


QUOTES = [*quoted_on("troubleshooting.md"), *quoted_on("reference/signatures.md")]


@cache
def texts_of_the_code() -> frozenset[str]:
    """Return all texts in the sources, with … for each part that is computed."""
    files = {file.resolve() for package in PACKAGES for file in (CLONE / package).rglob("*.py")}
    return frozenset(text for file in files for text in _texts(ast.parse(file.read_text())))


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)):
            yield _text(node)
        elif isinstance(node, ast.List):  # the pieces of tf.strings.join
            yield "".join(map(_text, node.elts))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub("%[sd]", "…", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return "…"


def is_printed(quote: str) -> bool:
    """Return whether the code has this text; each … of the quote stands for one or more characters of it."""
    pattern = re.compile(".+".join(map(re.escape, quote.split("…"))), re.DOTALL)
    return any(map(pattern.fullmatch, texts_of_the_code()))


@pytest.mark.parametrize("quote", QUOTES)
def test_the_code_has_the_text(quote: str) -> None:
    assert len(quote.replace("…", "")) >= 12, "the quote is too short to be found on a page"
    assert is_printed(quote)


def test_thirty_errors_are_explained() -> None:
    assert len(quoted_on("troubleshooting.md")) >= 30


def test_other_texts_are_not_found() -> None:
    for quote in ("cannot connect to the moon", "… is a version; pass the file that contains it: …"):
        assert not is_printed(quote)
