"""The command: what it prints, writes and rejects. tests/e2e/test_pipelines.py has what it makes."""

from __future__ import annotations

import json
from pathlib import Path

import model_makers
import numpy as np
import pytest
import tiny_models

from savedmodel_bakery.exporter.resources import folder

PIPELINE = """
name = "quarter"
inputs = ["x"]
outputs = ["z"]
[[steps]]
name = "first"
model = "half"
input_map = { x = "x" }
output_map = { y = "y" }
[[steps]]
name = "second"
model = "half"
input_map = { x = "y" }
output_map = { y = "z" }
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compose")
    (folder / "files").mkdir()
    model_makers.half_plus(folder / "files/half", 1)
    (folder / "files/pipeline.toml").write_text(PIPELINE)
    (folder / "files/unknown.toml").write_text(PIPELINE.replace('"y" }\noutput', '"u" }\noutput'))
    (folder / "files/name.toml").write_text(PIPELINE.replace('"quarter"', '"a/b"'))
    (folder / "out/taken/7").mkdir(parents=True)
    (folder / "out/half").symlink_to("../files/half")
    (folder / "out/inside").symlink_to("../files/half/1")
    return folder


def test_a_pipeline_is_published_with_its_example_as_golden(workshop: Path) -> None:
    np.savez(workshop / "example.npz", x=np.float32([8, 16]))
    arguments = ("files/pipeline.toml", "--out", "out", "--version", "3", "--example", "example.npz")
    run = tiny_models.run(workshop, "compose", *arguments, is_cold=True)
    assert (0, "out/quarter/3\n") == (run.code, run.stdout), run.stderr
    assert [
        "composing first, second …",
        "verifying it in a fresh process …",
        "verified on 1 request: the outputs equal those of the steps called one after another",
    ] == run.stderr.splitlines()
    (golden,) = (workshop / "out/quarter/3/assets.extra/goldens/serving_default.jsonl").read_text().splitlines()
    assert "quarter" == json.loads(golden)["request"]["model_spec"]["name"]
    inspected = tiny_models.run(workshop, "inspect", "out/quarter/3")
    assert '\npipeline\n  name = "quarter"\n' in inspected.stdout
    drawn = tiny_models.run(workshop, "inspect", "out/quarter/3", "--mermaid")
    assert drawn.stdout.startswith('flowchart TD\n    input1(["x<br>float [?]"])\n')
    as_json = json.loads(tiny_models.run(workshop, "inspect", "out/quarter/3", "--json").stdout)
    assert ["files/half/1"] * 2 == [step["model"] for step in as_json["recipe"]["steps"]]
    parity = tiny_models.run(workshop, "parity", "out/quarter/3")
    assert "error: no assets.extra/recipe.toml in out/quarter/3: pass the folder of a version" in parity.stderr


ERRORS = {
    "a tensor that does not exist": (
        ["files/unknown.toml"], 1, 'error: step "second": input "x" (float [?]) takes "u", which is neither an input',
    ),
    "a version that exists": (
        ["files/pipeline.toml", "--name", "taken", "--version", "7"], 1, "error: version 7 already exists in out/taken",
    ),
    "the name of a step's model": (
        ["files/pipeline.toml", "--name", "half"], 1,
        'error: cannot publish the pipeline in out/half, which contains the model of step "first"; choose another name',
    ),
    "a folder in a step's version": (
        ["files/pipeline.toml", "--name", "inside"], 1, "files/half/1 has a SavedModel, and published versions stay",
    ),
    "a name that is not allowed": (["files/name.toml"], 1, "error: invalid model name 'a/b'"),
    "a name of the option that is not allowed": (
        ["files/pipeline.toml", "--name", ".."], 2, "Error: Invalid value for --name: invalid model name '..'",
    ),
    "photos and an example": (
        ["files/pipeline.toml", "--photos", str(folder("examples")), "--example", "files/pipeline.toml"], 2,
        "Error: --photos cannot be combined with --example, which has all inputs",
    ),
    "a file that does not exist": (["none.toml"], 2, "'none.toml' does not exist"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "message"), ERRORS.values(), ids=ERRORS)
def test_wrong_input_is_reported_and_leaves_no_files(
    workshop: Path, arguments: list[str], code: int, message: str
) -> None:
    run = tiny_models.run(workshop, "compose", *arguments, "--out", "out")
    assert (code, "") == (run.code, run.stdout)
    assert message in run.stderr
    assert "Traceback" not in run.stderr
    assert run.before == run.after


def test_a_diagram_of_another_version_is_rejected(workshop: Path) -> None:
    run = tiny_models.run(workshop, "inspect", "files/half/1", "--mermaid")
    assert (1, "", "error: no pipeline in files/half/1: only a version that `bakery compose` made can be drawn\n") == (
        run.code, run.stdout, run.stderr,
    )  # fmt: skip
