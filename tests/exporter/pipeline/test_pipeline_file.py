"""Pipeline files: what is read, and what is rejected; and the drawing of one that a composed version contains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import signature_files

from savedmodel_bakery.errors import PipelineError
from savedmodel_bakery.exporter.pipeline.check import check_pipeline
from savedmodel_bakery.exporter.pipeline.compose import describe
from savedmodel_bakery.exporter.pipeline.pipeline_file import (
    Step,
    draw_mermaid,
    parse_pipeline,
    read_description,
    read_pipeline_file,
)
from savedmodel_bakery.exporter.publish import PIPELINE_FILE

ADD_SUB_MUL = """
inputs = ["a", "b"]
outputs = ["product"]

[[steps]]
name = "add_sub"
model = "models/add_sub"
input_map = { a = "a", b = "b" }
output_map = { sum = "sum", difference = "difference" }

[[steps]]
name = "mul"
model = "models/mul/3"
signature = "multiply"
input_map = { x = "sum", y = "difference" }
output_map = { output_0 = "product" }
drop = ["output_1"]
"""


def test_a_pipeline_is_read_with_models_relative_to_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/add_sub_mul.toml").write_text(ADD_SUB_MUL)
    monkeypatch.chdir(tmp_path)
    pipeline = read_pipeline_file(Path("pipelines/add_sub_mul.toml"))
    assert ("add_sub_mul", ("a", "b"), ("product",)) == (pipeline.name, pipeline.inputs, pipeline.outputs)
    assert (
        Step(
            name="add_sub",
            model=Path("pipelines/models/add_sub"),
            signature="serving_default",
            input_map={"a": "a", "b": "b"},
            output_map={"sum": "sum", "difference": "difference"},
        ),
        Step(
            name="mul",
            model=Path("pipelines/models/mul/3"),
            signature="multiply",
            input_map={"x": "sum", "y": "difference"},
            output_map={"output_0": "product"},
            drop=("output_1",),
        ),
    ) == pipeline.steps


def test_the_file_may_state_a_name_and_absolute_paths(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('name = "calc"\n' + ADD_SUB_MUL.replace("models/mul/3", "/models/mul"))
    pipeline = read_pipeline_file(file)
    assert ("calc", Path("/models/mul")) == (pipeline.name, pipeline.steps[1].model)


def test_the_folder_above_a_link_is_that_of_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project/pipelines").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("project/pipelines")
    (tmp_path / "project/pipelines/file.toml").write_text(ADD_SUB_MUL.replace("models/add_sub", "../models/add_sub"))
    monkeypatch.chdir(tmp_path)
    for file, shown in (
        ("linked/file.toml", "linked/../models/add_sub"),
        ("project/pipelines/file.toml", "project/models/add_sub"),
    ):
        model = read_pipeline_file(Path(file)).steps[0].model
        assert (Path(shown), tmp_path.resolve() / "project/models/add_sub") == (model, model.resolve())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param("inputs", "inputs =", "cannot read the pipeline file ", id="not TOML"),
        pytest.param('inputs = ["a", "b"]', "", "the pipeline has no inputs", id="no inputs"),
        pytest.param('["product"]', "[]", "the pipeline has no outputs: outputs must list one tensor", id="no outputs"),
        pytest.param('["a", "b"]', '"a"', "invalid inputs 'a' of the pipeline: must be a list of names", id="no list"),
        pytest.param('["a", "b"]', '["a", "a"]', 'inputs has "a" twice: names must be unique', id="input twice"),
        pytest.param("[[steps]]", "[[step]]", "unknown key 'step' of the pipeline: must be one of name,", id="key"),
        pytest.param('"mul"', '"add_sub"', 'there is a step "add_sub" twice: names must be unique', id="step twice"),
        pytest.param('name = "mul"', 'name = "../mul"', "step 2: invalid step name '../mul'", id="step is path"),
        pytest.param('"product" }', r'"p\u001b[31m" }', "invalid output_map {", id="control characters"),
        pytest.param('{ x = "sum", y', r'{ "x\u0007" = "sum", y', "names without control", id="bell"),
        pytest.param('name = "mul"', "", "step 2 has no name", id="step without name"),
        pytest.param('name = "mul"', "name = 2", "invalid name 2 of step 2: must be text", id="name is a number"),
        pytest.param('model = "models/mul/3"', "", 'step "mul" has no model', id="step without model"),
        pytest.param("drop", "dropp", "unknown key 'dropp' of step \"mul\": must be one of name,", id="step key"),
        pytest.param('["output_1"]', '["o", "o"]', 'drop of step "mul" has "o" twice', id="dropped twice"),
        pytest.param('{ x = "sum", y', '{ x = 1, y', 'of step "mul": must be a table of names', id="map"),
        pytest.param(
            '"product" }', '"sum" }',
            'tensor "sum" is both output "sum" of step "add_sub" and output "output_0" of step "mul"', id="made twice",
        ),
        pytest.param(
            '"product" }', '"a" }',
            'tensor "a" is both an input of the pipeline and output "output_0" of step "mul"', id="made and sent",
        ),
    ],
)  # fmt: skip
def test_a_wrong_file_is_rejected_with_its_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "wrong.toml"
    assert old in ADD_SUB_MUL
    file.write_text(ADD_SUB_MUL.replace(old, new))
    with pytest.raises(PipelineError, match=re.escape(message)) as raised:
        read_pipeline_file(file)
    assert f"pipeline file {file}" in str(raised.value)


def test_a_missing_file_and_one_without_steps_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"cannot read the pipeline file .*none\.toml.*No such file"):
        read_pipeline_file(tmp_path / "none.toml")
    (tmp_path / "empty.toml").write_text('inputs = ["a"]\noutputs = ["b"]\n')
    with pytest.raises(PipelineError, match=r"has no steps: each step must be a table that begins with \[\[steps\]\]"):
        read_pipeline_file(tmp_path / "empty.toml")


FLOWCHART = """\
flowchart TD
    input1(["a<br>float [?]"])
    step1["left<br>half/1<br>serving_default"]
    step2["right<br>half/1<br>serving_default"]
    step3["sum<br>add/1<br>serving_default"]
    input1 --> step1
    input1 --> step2
    step1 -->|"l"| step3
    step2 -->|"r#60;#38;#62;"| step3
    step3 --> output1(["total<br>float [?]"])
    step1 --> output2(["l<br>float [?]"])"""


@pytest.fixture
def version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A version that contains the description of a pipeline of two levels."""
    monkeypatch.chdir(tmp_path)
    signature_files.write(Path("half/1"), ["x: float [?]"], ["y: float [?]"])
    signature_files.write(Path("add/1"), ["x: float [?]", "y: float [?]"], ["z: float [?]"])
    steps = [
        {"name": name, "model": "half", "input_map": {"x": "a"}, "output_map": {"y": made}}
        for name, made in (("left", "l"), ("right", "r<&>"))
    ]
    steps += [{"name": "sum", "model": "add", "input_map": {"x": "l", "y": "r<&>"}, "output_map": {"z": "total"}}]
    content = {"name": "tree", "inputs": ["a"], "outputs": ["total", "l"], "steps": steps}
    checked = check_pipeline(parse_pipeline(content, folder=Path(), default_name=""))
    (tmp_path / "1" / PIPELINE_FILE).parent.mkdir(parents=True)
    (tmp_path / "1" / PIPELINE_FILE).write_text(describe(checked).to_toml())
    return tmp_path / "1"


def test_mermaid_has_a_box_for_each_step_and_end_and_an_arrow_for_each_use(version: Path) -> None:
    description = read_description(version)
    assert description is not None
    assert FLOWCHART == draw_mermaid(description)


def test_a_version_without_a_pipeline_and_a_damaged_one_are_told_apart(version: Path, tmp_path: Path) -> None:
    assert read_description(tmp_path / "half/1") is None
    (version / PIPELINE_FILE).write_text('name = "x"\n')
    with pytest.raises(PipelineError, match=r"the pipeline in .* is damaged"):
        read_description(version)
