"""The real tensorflow_model_server is used where there is one, with what it can honour and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STUB = '#!/bin/sh\nprintf "%s\\n" "$@" > "$(dirname "$0")/arguments"\nexit 7\n'


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """A tensorflow_model_server that writes its arguments down."""
    path = tmp_path / "tensorflow_model_server"
    path.write_text(STUB)
    path.chmod(0o755)
    return path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    command = [sys.executable, "-m", "savedmodel_bakery.serving", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_auto_becomes_the_real_server_with_its_own_flags(binary: Path) -> None:
    ended = run(binary.parent, "--port=8600", "--engine=auto", "--bind_address=0.0.0.0", "--nosuch=1", "--model_name=m")
    assert ended.returncode == 7
    assert ["--port=8600", "--nosuch=1", "--model_name=m"] == (binary.parent / "arguments").read_text().split()


def test_an_extension_it_cannot_honour_is_refused(binary: Path) -> None:
    ended = run(binary.parent, "--bind_address=127.0.0.1")
    assert ended.returncode == 255
    assert (
        "Failed to start server. Error: INVALID_ARGUMENT: --bind_address=127.0.0.1 cannot be honoured by "
        "tensorflow_model_server, which always uses 0.0.0.0; leave it out, or use --engine=embedded\n" == ended.stdout
    )
    assert not (binary.parent / "arguments").exists()


def test_the_real_server_asked_for_but_missing(tmp_path: Path) -> None:
    ended = run(tmp_path, "--engine=tensorflow_model_server")
    assert ended.returncode == 255
    assert "there is no tensorflow_model_server on the PATH; try --engine=embedded" in ended.stdout


def test_an_unknown_engine(tmp_path: Path) -> None:
    ended = run(tmp_path, "--engine=onnx")
    assert ended.returncode == 255
    assert "engine is 'onnx'; allowed are auto, embedded, tensorflow_model_server\n" in ended.stdout


@pytest.mark.parametrize("flag", ["--use_alts_credentials", "--platform_config_file=x"])
def test_the_embedded_engine_refuses_what_would_make_another_server_of_it(binary: Path, flag: str) -> None:
    ended = run(binary.parent, "--engine=embedded", "--model_base_path=/nowhere", flag)
    assert ended.returncode == 255
    name = flag.partition("=")[0]
    assert f"UNIMPLEMENTED: {name} is not possible with the embedded engine; it needs" in ended.stdout
