"""Other clients of the v2 protocol call the server unmodified."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import model_makers
import pytest
from pages import blocks
from server_process import ServerProcess
from v2_environments import CLIENTS, MLSERVER, program, run_script, variables

SCRIPTS = Path(__file__).parent / "v2_clients"
CONFIG = """
model_config_list {{
  config {{ name: "half_plus_two" base_path: "{root}/half_plus_two" model_platform: "tensorflow"
            model_version_policy {{ all {{}} }} }}
  config {{ name: "echo" base_path: "{root}/echo" model_platform: "tensorflow" }}
}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with half_plus_two in versions 1 (adds 2) and 3 (adds 3), and a model that returns its inputs."""
    root = tmp_path_factory.mktemp("v2")
    model_makers.half_plus(root / "half_plus_two", 1)
    model_makers.half_plus(root / "half_plus_two", 3, plus=3.0)
    model_makers.echoing(root / "echo", ["float32", "float16", "bfloat16", "bool", "int8", "uint16", "string"])
    config = root / "models.config"
    config.write_text(CONFIG.format(root=root))
    with ServerProcess(f"--model_config_file={config}", log=root / "log") as running:
        yield running


@pytest.mark.system
@pytest.mark.parametrize("script", ["tritonclient_calls.py", "kserve_calls.py"])
def test_clients_over_http_and_grpc(server: ServerProcess, script: str) -> None:
    run_script(CLIENTS, (SCRIPTS / script).read_text(), server.url.removeprefix("http://"), server.target)


@pytest.mark.system
def test_the_code_for_tritonclient_in_the_documentation(server: ServerProcess, clone: Path) -> None:
    page = (clone / "docs" / "reference" / "v2.md").read_text()
    [code] = (block.content for block in blocks(page) if block.language == "python" and not block.title)
    for shown, here in (
        ("127.0.0.1:8501", server.url.removeprefix("http://")),
        ('"sums"', '"half_plus_two"'),
        ("serving_default", "two"),
    ):
        assert shown in code
        code = code.replace(shown, here)
    assert code.endswith(f"  # {run_script(CLIENTS, code)}")


@pytest.mark.system
@pytest.mark.parametrize("options", [(), ("--binary-data",)], ids=["json", "binary"])
def test_the_batch_client_of_mlserver(server: ServerProcess, tmp_path: Path, options: tuple[str, ...]) -> None:
    requests, responses = tmp_path / "requests.jsonl", tmp_path / "responses.jsonl"
    entry = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 4]}
    requests.write_text("".join(json.dumps({"id": name, "inputs": [entry]}) + "\n" for name in "ab"))
    address = server.url.removeprefix("http://")
    command = [program(MLSERVER, "mlserver"), "infer", "-u", address, "-m", "half_plus_two", *options]
    subprocess.run(
        [*command, "-i", requests, "-o", responses], env=variables(), check=True, capture_output=True, timeout=120
    )
    answers = [json.loads(line) for line in responses.read_text().splitlines()]
    received = {answer["id"]: answer["outputs"][0]["data"] for answer in answers}
    assert {"a": [3.5, 5.0], "b": [3.5, 5.0]} == received


@pytest.mark.system
def test_the_message_definitions_are_those_that_the_script_generates(clone: Path, tmp_path: Path) -> None:
    generated = tmp_path / "descriptors.binpb"
    command = [program(CLIENTS), clone / "tools" / "make_v2_descriptors.py", generated]
    subprocess.run(command, env=variables(), check=True, capture_output=True, timeout=120)
    assert (clone / "wire" / "v2" / "descriptors.binpb").read_bytes() == generated.read_bytes()
