"""Extracts the README's code blocks and commands, runs them, and compares output; `…` matches any text."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

MARK = "=== command"


def blocks(readme: str, language: str) -> list[str]:
    """Return the code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)


def commands(console: Sequence[str]) -> list[tuple[str, str]]:
    """Return the commands of console blocks, each with the output shown below it."""
    pairs = []
    for block in console:
        if block.startswith("$ make demo\n"):
            pairs.append(("make demo", block.partition("\n")[2]))
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            pairs.append((command, shown))
    return pairs


def needs_rabbitmq(block: str) -> bool:
    """Return whether a block uses AMQP."""
    return "amqp" in block.lower()


def run(script: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Run a shell script; return its output by name, where a line `MARK NAME` precedes the output of a command."""
    result = subprocess.run(
        ["bash", "-c", "exec 2>&1\n" + "\n".join(script)],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, timeout=800, check=False,
    )  # fmt: skip
    return dict(re.findall(rf"^{MARK} (\w+)\n(.*?)(?=^{MARK}|\Z)", result.stdout, re.MULTILINE | re.DOTALL))


def matches(shown: str, printed: str) -> bool:
    """Return whether the printed output matches the shown one."""
    pattern = "".join(".*?" if piece == "…" else re.escape(piece) for piece in re.split("(…)", shown))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None
