"""docs/reference/compatibility.md is generated from the flags, and the server behaves as it says."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import grpc
import pytest
import requests
from server_process import ServerProcess

from savedmodel_bakery.serving.options.flags import FLAGS
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.v2.schema import METHODS as V2_METHODS


@pytest.fixture(scope="module")
def tool(clone: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_compatibility", clone / "tools" / "make_compatibility.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_what_the_script_makes(clone: Path, tmp_path: Path) -> None:
    made = tmp_path / "page"
    subprocess.run([sys.executable, clone / "tools" / "make_compatibility.py", made], check=True)
    assert made.read_text() == (clone / "docs" / "reference" / "compatibility.md").read_text()


def test_notes_are_of_flags_and_calls_that_exist(tool: ModuleType) -> None:
    assert set() == set(tool.FLAG_NOTES) - set(FLAGS)
    assert set() == set(tool.RPC_NOTES) - set(METHODS)


def code(server: ServerProcess, path: str) -> str:
    with grpc.insecure_channel(server.target) as channel:
        try:
            channel.unary_unary(path)(b"", timeout=30)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def test_calls_are_served_or_not_as_the_page_says(server: ServerProcess, tool: ModuleType) -> None:
    for method in METHODS.values():
        assert "UNIMPLEMENTED" != code(server, method.path), method.path
    for method in ("ServerLive", "ModelMetadata", "ModelInfer"):
        assert "UNIMPLEMENTED" != code(server, V2_METHODS[method].path), method
    for service, text in tool.OTHER_RPCS.items():
        if text.startswith("extension"):  # has tests of its own
            continue
        is_served = text.endswith("Terminate")
        assert is_served or text.endswith("UNIMPLEMENTED") or "flag" in text
        assert is_served == (code(server, f"/{service}/Terminate") != "UNIMPLEMENTED"), service


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/models/half_plus_two:predict"),
        ("POST", "/v1/models/half_plus_two/versions/1:classify"),
        ("POST", "/v1/models/half_plus_two/labels/stable:regress"),
        ("GET", "/v1/models/half_plus_two/versions/1"),
        ("GET", "/v1/models/half_plus_two/labels/stable/metadata"),
        ("GET", "/v2/models/half_plus_two"),
    ],
)
def test_urls_are_served(server: ServerProcess, method: str, path: str) -> None:
    answer = requests.request(method, server.url + path, timeout=30)
    assert "application/json" == answer.headers["Content-Type"]
    assert "Malformed request" not in answer.text


def test_the_answer_to_head_has_no_body(server: ServerProcess) -> None:
    answer = requests.head(f"{server.url}/v1/models/half_plus_two", timeout=30)
    assert (400, b"") == (answer.status_code, answer.content)
