"""A model of more than 2 GiB, which no single protobuf message can hold, is baked, published, served and called."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import requests
from server_process import ServerProcess

from savedmodel_bakery import Client

# A network that returns one row of a table of 2.5 GB; the mean level of the image selects the row.
NETWORK = """
import tensorflow as tf

ROWS = 625_000_000 // 1000


class Large(tf.Module):
    def __init__(self):
        levels = tf.cast(tf.range(ROWS) * 256 // ROWS, tf.float32)[:, tf.newaxis]
        self.table = tf.Variable(tf.abs(levels - tf.linspace(0.0, 255.0, 1000)) * -1.0)

    def __call__(self, pixels):
        level = tf.reduce_mean(pixels, [1, 2, 3])
        return tf.gather(self.table, tf.cast(level / 256 * ROWS, tf.int32))
"""
OPTIONS = "--labels imagenet --size 8 --crop none --resize bilinear --no-antialias --scale 0..255 --channels RGB"
TABLE_BYTES = 2_500_000_000
FREE_BYTES = 5 * TABLE_BYTES  # enough for the bake


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_of_2_5_gb(clone: Path, tmp_path: Path) -> None:
    """The weights are in memory once: the server takes at most 1.5 times the size of the model."""
    (tmp_path / "large.py").write_text(NETWORK)
    assert psutil.virtual_memory().available > FREE_BYTES, f"this test needs {FREE_BYTES / 1e9} GB of memory"
    command = [
        sys.executable,
        "-m",
        "exporter",
        "bake",
        "--model",
        "large:Large",
        "--name",
        "large",
        "--outputs",
        "logits",
    ]
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    ended = subprocess.run(
        [*command, *OPTIONS.split()], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert 0 == ended.returncode, ended.stderr
    base_path = tmp_path / "saved_model" / "large"
    model_bytes = sum(path.stat().st_size for path in base_path.rglob("*") if path.is_file())
    assert model_bytes > TABLE_BYTES
    flags = ("--model_name=large", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        photo = (clone / "examples" / "coffee.png").read_bytes()
        body = {"signature_name": "preprocess", "inputs": {"image": [{"b64": base64.b64encode(photo).decode()}]}}
        shown = requests.post(f"{server.url}/v1/models/large:predict", json=body, timeout=60).json()["outputs"][
            "pixels"
        ]
        with Client(model="large", port=server.port) as client:
            answer = client.classify(photo)
        assert round(int(np.mean(shown)) * 999 / 255) == answer.top[0].class_id
        assert psutil.Process(server.process.pid).memory_info().rss < 1.5 * model_bytes
