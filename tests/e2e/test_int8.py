"""EfficientNet-Lite0 in int8: it answers as in float32, also served, and on CPUs with other instructions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import int8_networks
import numpy as np
import pytest
from photos import labelled_photos
from PIL import Image
from server_process import ServerProcess

from savedmodel_bakery import Client

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
COMMAND = [sys.executable, "-m", "savedmodel_bakery.exporter"]

# Of probabilities: the last layers are float32, which other CPUs round differently. Numbers that are rounded to other
# codes, as after a stem or a norm in float32, and pools without oneDNN, change them more.
SAME_CODES, SAME_BUT_SOME_CODES = 1e-6, 3e-3
# The variables, the instructions that oneDNN's log then states, and the tolerance. Without oneDNN, quantised operations
# use it all the same.
OTHER_CPUS = {
    "avx2": ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, "Intel AVX2", SAME_CODES),
    "avx512dq": (  # without VNNI
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
        "Intel AVX-512 with AVX512BW, AVX512VL, and AVX512DQ extensions",
        SAME_CODES,
    ),
    "avx512_vnni": ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, "Intel AVX-512 with Intel DL Boost", SAME_CODES),
    "sse4_1": ({"ONEDNN_MAX_CPU_ISA": "SSE41"}, "Intel SSE4.1", SAME_BUT_SOME_CODES),
    "without oneDNN": ({"TF_ENABLE_ONEDNN_OPTS": "0"}, None, SAME_BUT_SOME_CODES),
}
"""By the CPU's flag that they need."""


class Outputs(NamedTuple):
    """What networks return in a process, and the instructions and number of calls of oneDNN there."""

    varied: dict[str, np.ndarray]
    lite0: dict[str, np.ndarray]
    instructions: str
    calls: int


@pytest.fixture(scope="module")
def outputs_of(base_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, str]], Outputs]:
    """Return the outputs of a network with the parts of all others, by batch size, and those of Lite0 for a photo."""
    file = tmp_path_factory.mktemp("cpus") / "outputs.npz"

    def run(variables: dict[str, str], *arguments: Path) -> tuple[dict[str, np.ndarray], str]:
        """Return the arrays and the log."""
        command = [sys.executable, int8_networks.__file__, file, *arguments]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "ONEDNN_VERBOSE": "1", **variables}
        log = subprocess.run(command, check=True, env=environment, timeout=120, stdout=subprocess.PIPE, text=True)
        with np.load(file) as arrays:
            return dict(arrays), log.stdout

    def outputs_of(variables: dict[str, str]) -> Outputs:
        varied, log = run(variables)
        (instructions,) = re.findall(r"^onednn_verbose,.*info,cpu,isa:(.*)$", log, re.MULTILINE)
        lite0, _ = run(variables, base_path / "1", EXAMPLES / "rocket.jpg")
        return Outputs(varied, lite0, instructions, log.count("primitive,exec"))

    return outputs_of


@pytest.fixture(scope="module")
def outputs(outputs_of: Callable[[dict[str, str]], Outputs]) -> Outputs:
    return outputs_of({})


@pytest.mark.parametrize("name", OTHER_CPUS)
def test_other_cpus_return_the_same(
    name: str, outputs: Outputs, outputs_of: Callable[[dict[str, str]], Outputs]
) -> None:
    variables, instructions, atol = OTHER_CPUS[name]
    if instructions is not None and name not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip(f"this CPU has no {name}")
    others = outputs_of(variables)
    if instructions is None:
        assert others.calls < outputs.calls
    else:
        assert instructions == others.instructions
    assert set(map(str, int8_networks.BATCHES)) == outputs.varied.keys() == others.varied.keys()
    for size, array in outputs.varied.items():
        np.testing.assert_allclose(array, others.varied[size], atol=atol)
    assert outputs.lite0["class_ids"][0, 0] == others.lite0["class_ids"][0, 0]
    np.testing.assert_allclose(outputs.lite0["scores"], others.lite0["scores"], atol=30 * atol)  # more layers


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 photos: labelled ones of ImageNet, and two parts of each."""
    folder = tmp_path_factory.mktemp("photos")
    for photo in labelled_photos():
        shutil.copy(photo, folder)
        with Image.open(photo) as picture:
            width, height = picture.size
            for name, left in (("left", 0), ("right", width // 5)):
                part = picture.crop((left, height // 10, left + width * 4 // 5, height))
                part.convert("RGB").save(folder / f"{photo.stem}_{name}.png")
    return folder


@pytest.fixture(scope="module")
def base_path(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lite0")
    options = ["--model", "efficientnet-lite0", "--precision", "int8", "--calibration", str(photos)]
    subprocess.run([*COMMAND, "bake", *options, "--out", str(root)], check=True, timeout=500)
    return root / "efficientnet_lite0"


def test_labels_agree_on_photos_that_were_held_back(base_path: Path) -> None:
    report = json.loads((base_path / "1" / "assets.extra" / "parity.json").read_text())
    assert report["is_within"]
    assert (24, 36) == (report["int8"]["photos"], report["int8"]["calibration_photos"])
    assert report["int8"]["agreement"] >= 0.95
    assert report["int8"]["max_change"] < 0.2
    assert 0.96 < report["int8"]["quantised_share"] < 0.98


def test_it_takes_half_the_space(lite0: Path, base_path: Path) -> None:
    sizes = [
        sum(file.stat().st_size for file in (path / "1").rglob("*") if file.is_file()) for path in (lite0, base_path)
    ]
    assert 0.4 < sizes[1] / sizes[0] < 0.6


@pytest.mark.parametrize("flags", [[], ["--enable_batching"]], ids=["", "batching"])
def test_a_server_answers_as_with_float32(lite0: Path, base_path: Path, flags: list[str], tmp_path: Path) -> None:
    photos = [(EXAMPLES / name).read_bytes() for name in ("coffee.png", "rocket.jpg", "chelsea.png")]
    best = []
    for path in (lite0, base_path):
        options = ("--model_name=m", f"--model_base_path={path}", *flags)
        with (
            ServerProcess(*options, log=tmp_path / "log") as server,
            Client(server.target, model="m") as client,
            ThreadPoolExecutor(8) as pool,
        ):
            together = client.classify(photos)
            alone = list(pool.map(lambda photo: client.classify([photo])[0], photos * 8))
            assert [result.top[0].class_id for result in together] * 8 == [result.top[0].class_id for result in alone]
            best.append([result.top[0] for result in together])
    assert [row.class_id for row in best[0]] == [row.class_id for row in best[1]]
    assert 1e-4 < max(abs(full.score - int8.score) for full, int8 in zip(*best, strict=True)) < 0.2


def test_parity_and_too_little_agreement(base_path: Path, photos: Path, tmp_path: Path) -> None:
    page = tmp_path / "parity.html"
    command = [*COMMAND, "parity", str(base_path / "1"), "--photos", str(photos), "--parity-html", str(page)]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    last = result.stdout.splitlines()[-1]
    assert last.startswith("int8 and float32 have the same labels for")
    assert last in page.read_text()
    (bad := tmp_path / "bad").mkdir()
    for name in ("coffee.png", "rocket.jpg", "chelsea.png"):
        shutil.copy(EXAMPLES / name, bad)
    options = ["--model", "efficientnet-lite0", "--precision", "int8", "--calibration", str(bad)]
    result = subprocess.run([*COMMAND, "bake", *options], capture_output=True, text=True, timeout=240, check=False)
    assert 1 == result.returncode
    assert f"error: too few photos to calibrate with: {bad} has 3 different ones" in result.stderr
