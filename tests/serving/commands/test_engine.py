"""`--engine` runs the real tensorflow_model_server if it is installed, and only with flags that it supports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STUB = '#!/bin/sh\nprintf "%s\\n" "$@" > "$(dirname "$0")/arguments"\nexit 7\n'


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """Path of a fake tensorflow_model_server that writes its arguments to a file."""
    path = tmp_path / "tensorflow_model_server"
    path.write_text(STUB)
    path.chmod(0o755)
    return path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    command = [sys.executable, "-m", "savedmodel_bakery.serving", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_auto_replaces_the_process_by_the_real_server_with_its_own_flags(binary: Path) -> None:
    extensions = ("--engine=auto", "--bind_address=0.0.0.0", "--allow_unknown_flags")
    flags = ("--port=8600", *extensions, "--nosuch=1", "--model_name=m")
    result = run(binary.parent, *flags)
    assert result.returncode == 7
    assert ["--port=8600", "--nosuch=1", "--model_name=m"] == (binary.parent / "arguments").read_text().split()


def test_an_extension_flag_that_the_real_server_does_not_support_is_rejected(binary: Path) -> None:
    result = run(binary.parent, "--bind_address=127.0.0.1")
    assert result.returncode == 255
    expected = (
        "Failed to start server. Error: INVALID_ARGUMENT: --bind_address=127.0.0.1 is not supported by "
        "tensorflow_model_server, which always uses 0.0.0.0; remove the flag or use --engine=embedded\n"
    )
    assert expected == result.stdout
    assert not (binary.parent / "arguments").exists()


@pytest.mark.parametrize("flag", ["--auth_tokens_file=x", "--rest_ssl_config_file=x", "--allow_plaintext_rest"])
def test_the_real_server_needs_a_proxy_for_tokens_and_tls_of_rest(binary: Path, flag: str) -> None:
    result = run(binary.parent, flag)
    assert result.returncode == 255
    name = flag.partition("=")[0]
    expected = (
        f"Failed to start server. Error: INVALID_ARGUMENT: {name} is not supported by tensorflow_model_server; put a "
        "proxy in front of it, such as Envoy with deploy/envoy.yaml, or use --engine=embedded\n"
    )
    assert expected == result.stdout
    assert not (binary.parent / "arguments").exists()


def test_a_required_but_missing_binary_is_an_error(tmp_path: Path) -> None:
    result = run(tmp_path, "--engine=tensorflow_model_server")
    assert result.returncode == 255
    assert "tensorflow_model_server is not on the PATH; use --engine=embedded" in result.stdout


def test_an_unknown_engine_is_rejected(tmp_path: Path) -> None:
    result = run(tmp_path, "--engine=onnx")
    assert result.returncode == 255
    assert "invalid engine 'onnx': must be one of auto, embedded, tensorflow_model_server\n" in result.stdout


@pytest.mark.parametrize("flag", ["--use_alts_credentials", "--platform_config_file=x"])
def test_the_embedded_engine_rejects_flags_that_it_cannot_run_with(binary: Path, flag: str) -> None:
    result = run(binary.parent, "--engine=embedded", "--model_base_path=/nowhere", flag)
    assert result.returncode == 255
    name = flag.partition("=")[0]
    assert f"UNIMPLEMENTED: {name} is not possible with the embedded engine; it needs" in result.stdout
