"""EfficientNet-Lite0 baked in bfloat16 has about half the weights and returns the same labels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from server_process import ServerProcess

from savedmodel_bakery import Client
from savedmodel_bakery.client.goldens import read_goldens, replay

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
COMMAND = [
    sys.executable,
    "-m",
    "savedmodel_bakery.exporter",
    "bake",
    "--model",
    "efficientnet-lite0",
    "--precision",
    "bfloat16",
]


@pytest.mark.slow
def test_bfloat16_halves_the_weights_and_keeps_the_labels(lite0: Path, tmp_path: Path) -> None:
    options = ["--out", str(tmp_path), "--parity-atol", "0.1"]
    result = subprocess.run([*COMMAND, *options], check=True, capture_output=True, text=True, timeout=240)
    base_path = tmp_path / "efficientnet_lite0"
    assert f"{base_path}/1\n" == result.stdout
    sizes = [(path / "1" / "variables" / "variables.data-00000-of-00001").stat().st_size for path in (lite0, base_path)]
    assert 0.5 < sizes[1] / sizes[0] < 0.7  # the last layer, more than a quarter of the weights, stays in float32
    photos = [(EXAMPLES / name).read_bytes() for name in ("coffee.png", "rocket.jpg", "chelsea.png")]
    best = []
    goldens = read_goldens(base_path / "1")
    assert {"scores": 0.1, "pixels": 0.5} == goldens.tolerances
    for path in (lite0, base_path):
        flags = ("--model_name=m", f"--model_base_path={path}")
        with ServerProcess(*flags, log=tmp_path / "log") as server, Client(server.target, model="m") as client:
            best.append([result.top[0] for result in client.classify(photos)])
            # The network in float32 stands for another processor.
            assert [] == [text for golden in goldens.requests for text in replay(golden, client, goldens.tolerances)]
    assert [row.class_id for row in best[0]] == [row.class_id for row in best[1]]
    distances = [abs(full.score - half.score) for full, half in zip(*best, strict=True)]
    assert 1e-5 < max(distances) < 0.1


@pytest.mark.slow
def test_a_bake_beyond_the_tolerance_is_rejected_with_advice(tmp_path: Path) -> None:
    options = ["--out", str(tmp_path), "--parity-atol", "0.0001"]
    result = subprocess.run([*COMMAND, *options], check=False, capture_output=True, text=True, timeout=240)
    assert (1, "") == (result.returncode, result.stdout)
    advice = "allow more with --parity-atol, or bake with --precision float32 instead of bfloat16"
    assert result.stderr.splitlines()[-1].endswith(advice)
    assert [] == list((tmp_path / "efficientnet_lite0").glob("*"))
