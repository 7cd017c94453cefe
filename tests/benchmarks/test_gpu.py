"""`benchmarks.gpu` measures each option, here on the CPU; the figures themselves are not tested."""

from __future__ import annotations

import json
import stat
from dataclasses import asdict
from pathlib import Path

import pytest
from baked_tasks import draw_photo
from click.testing import CliRunner

from benchmarks import devices, gpu, machine, networks
from benchmarks.candidates import Workshop
from savedmodel_bakery.exporter.bake import bake
from savedmodel_bakery.exporter.commands.bake import bake as bake_command
from savedmodel_bakery.exporter.recipe import OPTIMISATIONS

# Keras saves its variables in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

RECIPE = {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..1", "channels": "RGB"}


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A workshop whose bakes are of a tiny network."""
    workshop = Workshop(tmp_path / "cache", tmp_path, "efficientnet-lite0", gpu.bakes_of(gpu.GROUPS, [4]))
    folder = tmp_path / "cache" / "models" / workshop.network
    folder.mkdir(parents=True)
    description = networks.Description(8, 0.0, 255.0, ["red", "green", "blue"], is_trained=False)
    (folder / networks.DESCRIPTION_FILE).write_text(json.dumps(asdict(description)))
    (tmp_path / "names.txt").write_text("\n".join(description.labels))
    photo = draw_photo(tmp_path / "photo.png")

    def bake_tiny(name: str, _: Path, base_path: Path, *, options: list[str]) -> None:
        assert workshop.network == name
        values = bake_command.make_context("bake", list(options)).params
        recipe = {**RECIPE, "labels": str(tmp_path / "names.txt"), "outputs": "probabilities"}
        recipe |= {
            field: values[field] for field in ("batch_max", "precision", "optimise") if values[field] is not None
        }
        bake(
            model="shape_models:convolutional_classifier",
            name=base_path.name,
            out=base_path.parent,
            recipe=recipe,
            photos=[photo],
        )

    monkeypatch.setattr(networks, "bake", bake_tiny)
    return workshop


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_servers_of_all_bakes_and_a_process_are_measured(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All groups, by the command."""
    monkeypatch.setattr(gpu, "CACHE", workshop.cache)
    options = "--batch-max 4 --callers 2 --rounds 1 --seconds 0.3 --images 9"
    outcome = CliRunner().invoke(gpu.main, [*options.split(), "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert 0 == outcome.exit_code, outcome.output
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {*gpu.bakes_of(gpu.GROUPS, [4]), "on-cpu"} == {row["candidate"] for row in document["rows"]}
    assert all(row["images_per_s"] > 0 for row in document["rows"])
    assert ["as needed", "nearly all"] == list(document["devices"])
    for row in document["devices"].values():
        assert row["operations"]["CPU:0"] > 50
        assert row["ms"].keys() == {"preprocess", "pixels", "top_k"}
        assert min(row["ms"].values()) > 0
    page = outcome.stdout
    assert "| batch-4 | " in page
    assert "- `batch-4`: --batch-max 4\n" in page
    assert "No GPU was found" in page


def test_each_option_is_one_that_bake_has(tmp_path: Path) -> None:
    bakes = gpu.bakes_of(gpu.GROUPS, [8, 32])
    options = {"batch-8", "batch-32", "bfloat16", "float16", "without-steps"}
    assert {"base"} | options | {f"without-{step}" for step in OPTIMISATIONS} == bakes.keys()
    for name, texts in bakes.items():
        values = bake_command.make_context("bake", list(texts)).params
        stated = {field for field in ("batch_max", "precision", "optimise") if values[field] is not None}
        assert (0 if name == gpu.BASE else 1) == len(stated)
    candidates = gpu.candidates_of(bakes, gpu.GROUPS, tmp_path / "session.config")
    assert {*bakes, "on-cpu"} == candidates.keys()
    assert (("CUDA_VISIBLE_DEVICES", "-1"),) == candidates["on-cpu"].variables


def test_a_process_table_says_what_is_hidden_and_what_memory_is_used() -> None:
    operations = {"CPU:0": 700, "GPU:0": 90}
    times_ms = {"preprocess": 100.0, "pixels": 40.0, "top_k": 110.0}
    row = {"operations": operations, "ms": times_ms, "gpu_memory_mib": [3.0, 903.0]}
    assert (
        "| as needed | 700 on CPU:0, 90 on GPU:0 | 100.0 | 40.0 | 110.0 | 75% | 3 → 903 |"
        == (devices.table({"as needed": row}).splitlines()[-1])
    )


def test_figures_of_the_gpu_come_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\ntest "$1 $2" = "--id=0 --query-gpu=memory.used" && echo 903\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "903" == machine.query_gpu("memory.used")
    assert machine.query_gpu("name") is None
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert machine.query_gpu("memory.used") is None
