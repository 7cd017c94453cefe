"""What the README shows: blocks, the commands in them, and what these print, where `…` stands for what may differ."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

MARK = "=== command"


def blocks(readme: str, language: str) -> list[str]:
    """Its blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)


def commands(console: Sequence[str]) -> list[tuple[str, str]]:
    """Commands in such blocks, and what is shown under each."""
    found = []
    for block in console:
        if block.startswith("$ make demo\n"):
            found.append(("make demo", block.partition("\n")[2]))
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append((command, shown))
    return found


def needs_rabbitmq(block: str) -> bool:
    """Whether a block is about questions by message."""
    return "amqp" in block.lower()


def run(script: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Run lines of shell; what was printed, by the name in the line that began with MARK before it."""
    ended = subprocess.run(
        ["bash", "-c", "exec 2>&1\n" + "\n".join(script)],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, timeout=800, check=False,
    )  # fmt: skip
    return dict(re.findall(rf"^{MARK} (\w+)\n(.*?)(?=^{MARK}|\Z)", ended.stdout, re.MULTILINE | re.DOTALL))


def matches(shown: str, printed: str) -> bool:
    """Whether it printed what is shown."""
    pattern = "".join(".*?" if piece == "…" else re.escape(piece) for piece in re.split("(…)", shown))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None
