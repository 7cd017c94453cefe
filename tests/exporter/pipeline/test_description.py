"""Pipelines are drawn for Mermaid, from the description that a composed version contains."""

from __future__ import annotations

from pathlib import Path

import pytest
import signature_files

from savedmodel_bakery.errors import PipelineError
from savedmodel_bakery.exporter.pipeline.check import check_pipeline
from savedmodel_bakery.exporter.pipeline.description import describe, draw_mermaid, read_description
from savedmodel_bakery.exporter.pipeline.pipeline_file import parse_pipeline
from savedmodel_bakery.exporter.publish import PIPELINE_FILE

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
    (tmp_path / "1" / PIPELINE_FILE).write_text(describe(checked))
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
