"""Runs the README's commands about AMQP in order, with a real RabbitMQ."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from rabbitmq import RabbitMQ
from readme import MARK, blocks, commands, matches, needs_rabbitmq, run


@pytest.mark.timeout(900)
def test_every_command_prints_what_the_readme_shows(clone: Path, lite0: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(clone / "examples")
    (tmp_path / "saved_model").symlink_to(lite0.parent)
    console = blocks((clone / "README.md").read_text(), "console")
    examples = commands([block for block in console if needs_rabbitmq(block)])
    script = [line for number, (command, _) in enumerate(examples) for line in (f"echo '{MARK} {number}'", command)]
    with RabbitMQ(tmp_path / "rabbitmq") as broker:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(clone),
            "BAKERY_AMQP_URL": broker.url(),
            "BAKERY_CLIENT_TARGET": broker.url(),
        }
        printed = run(script, folder=tmp_path, environment=environment)
    for number, (command, expected) in enumerate(examples):
        if not command.endswith("&"):
            assert matches(expected, printed[str(number)]), f"$ {command}\n{printed[str(number)]}"
