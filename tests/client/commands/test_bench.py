"""The command `bench` with a real server and tiny models."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import model_makers
import numpy as np
import pytest
from server_process import ServerProcess

Run = Callable[..., subprocess.CompletedProcess[str]]

CONFIG = """
model_config_list {{
  config {{ name: "labels" base_path: "{root}/labels" model_platform: "tensorflow" }}
  config {{ name: "half" base_path: "{root}/half" model_platform: "tensorflow" }}
  config {{ name: "counting" base_path: "{root}/counting" model_platform: "tensorflow" }}
}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("models")
    model_makers.labelling(root / "labels")
    model_makers.half_plus_two_tf2(root / "half")
    model_makers.counting(root / "counting")
    config = root / "models.config"
    config.write_text(CONFIG.format(root=root))
    with ServerProcess(f"--model_config_file={config}", log=root / "log") as running:
        yield running


@pytest.fixture
def bench(server: ServerProcess, tmp_path: Path) -> Run:
    (tmp_path / "horse.jpg").write_bytes(b"horse")
    (tmp_path / "cow.jpg").write_bytes(b"cow")
    np.save(tmp_path / "x.npy", np.float32([1, 2]))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        ports = ("--port", str(server.port), "--rest_api_port", str(server.rest_api_port))
        command = [sys.executable, "-m", "savedmodel_bakery.client", "bench", *ports, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.mark.parametrize(("transport", "option"), [("GRPC", "--batch-size"), ("REST", "--batch")])
def test_images_are_sent_in_turn_and_the_result_is_json(bench: Run, transport: str, option: str) -> None:
    ended = bench(
        "-f", transport, "-m", "labels", "-i", "horse.jpg", "-i", "cow.jpg", option, "3",
        "--expect", "sorrel", "--expect", "ox", "--requests", "30", "--callers", "1", "--callers", "4", "--json",
    )  # fmt: skip
    assert (0, "") == (ended.returncode, ended.stderr)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(1, 30, 30, {}), (4, 30, 30, {})] == [
        (row["callers"], row["requests"], row["answered"], row["errors"]) for row in rows
    ]
    for row in rows:
        assert row["requests_per_s"] * 3 == pytest.approx(row["images_per_s"])
        assert 0 < row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"] <= row["max_ms"]


def test_arrays_are_sent_at_a_rate_and_plotted(bench: Run, tmp_path: Path) -> None:
    (tmp_path / "y.json").write_text('{"output_0": [2.5, 3]}')
    ended = bench(
        "-m", "half", "--input", "x=x.npy", "--expect", "y.json", "--rate", "50", "--requests", "25", "--plot", "p.svg"
    )
    assert 0 == ended.returncode
    assert ended.stderr.endswith("p.svg\n")
    head, row = ended.stdout.splitlines()
    assert ["callers", "rate/s", "requests", "requests/s", "p50"] == head.split()[:5]
    assert ["8", "50.0", "25"] == row.split()[:3]
    assert "<svg" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize("transport", ["GRPC", "REST", "V2", "V2-GRPC"])
def test_a_response_that_differs_from_the_first_is_wrong(bench: Run, transport: str) -> None:
    """The model returns another number in each run."""
    ended = bench("-f", transport, "-m", "counting", "--input", "x=x.npy", "--requests", "10", "--callers", "2")
    assert 1 == ended.returncode
    assert ended.stdout.splitlines()[1].endswith("10 wrong response")
    assert re.fullmatch(
        r'wrong response: "runs" is np\.int32\(\d+\) at \[\], expected np\.int32\(\d+\)\n', ended.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["-m", "labels", "-i", "horse.jpg", "--expect", "ox"], 1, 'photo 0 is "sorrel"; expected "ox"'),
        (["-m", "half", "-i", "horse.jpg"], 1, "INVALID_ARGUMENT: .* takes x: float32"),
        (["-m", "labels", "horse.jpg", "--port", "1"], 3, "cannot connect to 127.0.0.1:1 over gRPC"),
        ([], 2, "pass what to send: either photos as arguments or arrays with --input"),
        (["-i", "horse.jpg", "--expect", "a", "--expect", "b"], 2, "--expect was given 2 times: pass it once, or"),
        (["-f", "AMQP", "-i", "horse.jpg"], 2, "invalid --format AMQP: bench supports GRPC, REST, V2 and V2-GRPC"),
        (
            ["-i", "horse.jpg", "--plot", "p.doc"],
            2,
            r'unsupported plot file p\.doc: .* ends with "\.doc", supported are \.',
        ),
        (["-i", "horse.jpg", "--plot", "nowhere/p.svg"], 2, "folder of the plot not found: nowhere"),
    ],
    ids=["wrong", "refused", "no server", "nothing to send", "labels", "by message", "kind of plot", "folder of plot"],
)
def test_the_last_line_is_the_error(bench: Run, arguments: list[str], code: int, error: str) -> None:
    ended = bench(*arguments)
    assert (code, "") == (ended.returncode, ended.stdout)
    assert re.match(f"(?i)error: {error}", ended.stderr.splitlines()[-1])


def test_without_matplotlib_the_error_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "horse.jpg").write_bytes(b"horse")
    hidden = "import sys; sys.modules['matplotlib'] = None; "
    hidden += "from savedmodel_bakery.client.commands.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", hidden, "bench", "-i", "horse.jpg", "--plot", "p.svg"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert 1 == ended.returncode
    assert ended.stderr.endswith("[plot]'\n")
