"""Type checkers know the public names, and that one image has one result, and a list or tuple a list."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import savedmodel_bakery

PROGRAM = """
from io import BytesIO
from pathlib import Path
import numpy as np
from PIL import Image

paths: list[Path] = []

async def call(client: Client, async_client: AsyncClient) -> None:
    reveal_type(client.classify("a.jpg", top_k=2))
    reveal_type(client.tags(b""))
    reveal_type(client.embed(BytesIO()))
    reveal_type(client.detect(Image.new("RGB", (1, 1))))
    reveal_type(await async_client.segment(np.zeros((1, 1, 3), np.uint8)))
    reveal_type(client.regress(paths))
    reveal_type(await async_client.classify(("a.jpg", b"")))
    reveal_type(client.tags(Path().glob("*.jpg")))
    client.classify(7)
"""


def test_names_are_known_and_the_type_of_the_argument_determines_that_of_the_result(
    clone: Path, tmp_path: Path
) -> None:
    names = [*savedmodel_bakery.__all__, "Clint"]
    program = "".join(f"from savedmodel_bakery import {name}\n" for name in names) + PROGRAM
    (tmp_path / "user.py").write_text(program)
    options = ["--config-file", "", "--strict", "--follow-imports=silent", "--ignore-missing-imports"]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir=cache", "user.py"],
        cwd=tmp_path, env=os.environ | {"MYPYPATH": str(clone)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    revealed = re.findall(r'Revealed type is "(.*)"', ended.stdout)
    single = ["Classification", "Tags", "Embedding", "Detections", "Segmentation"]
    assert [*single, "list[Regression]", "list[Classification]", "list[Tags]"] == [
        re.sub(r"\w+\.", "", name) for name in revealed
    ]
    errors = re.findall(r"^user.py:(\d+): error: (.*)", ended.stdout, re.MULTILINE)
    assert [len(names), len(program.splitlines())] == [int(line) for line, _ in errors], ended.stdout
    assert 'has no attribute "Clint"' in errors[0][1]
