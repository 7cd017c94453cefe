"""Modules that are not imported, each tested in a new process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

HEAVY = (
    "PIL",
    "aio_pika",
    "google.protobuf",
    "grpc",
    "keras",
    "ml_dtypes",
    "numpy",
    "pyarrow",
    "requests",
    "tensorflow",
    "tensorflow_serving",
    "tqdm",
)

ASK = """
import sys
from savedmodel_bakery import Client
with Client(transport={transport!r}, model="efficientnet_lite0", port={grpc_port}, rest_api_port={rest_port}) as client:
    print(client.classify(b"horse").label)
    client.metadata(), client.status()
print(*sorted(sys.modules.keys() & {heavy!r}))
"""

COMMAND = """
import sys
from savedmodel_bakery.client.commands.cli import main
try:
    main({arguments!r})
except SystemExit as exit:
    print()
    print(exit.code, *sorted(sys.modules.keys() & {heavy!r}))
"""


def run(program: str, **values: object) -> list[str]:
    """Run a program and return its lines on stdout."""
    code = program.format(heavy=set(HEAVY), **values)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["bench", "--help"], ["classify", "--help"], [], ["--port", "x"], ["-i", "missing.jpg"]],
    ids=["help", "subcommand's help", "job's help", "nothing to do", "wrong option", "missing file"],
)
def test_commands_that_need_no_server_import_nothing_heavy(arguments: list[str]) -> None:
    code = "0" if "--help" in arguments else "2"
    assert code == run(COMMAND, arguments=arguments)[-1]


def test_the_package_alone_imports_nothing_heavy() -> None:
    assert [""] == run("import sys, savedmodel_bakery\nprint(*sorted(sys.modules.keys() & {heavy!r}))")


@pytest.mark.parametrize(
    ("transport", "expected"),
    [
        ("grpc", "google.protobuf grpc ml_dtypes numpy"),
        ("rest", "ml_dtypes numpy requests"),
        ("v2", "google.protobuf ml_dtypes numpy requests"),
        ("v2-grpc", "google.protobuf grpc ml_dtypes numpy"),
    ],
)
def test_a_call_imports_its_own_transport_only(peer: Any, transport: str, expected: str) -> None:
    lines = run(ASK, transport=transport, grpc_port=peer.grpc_port, rest_port=peer.rest_port)
    assert ["sorrel", expected] == lines
