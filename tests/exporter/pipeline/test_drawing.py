"""Pipelines are drawn as text and as SVG, from the description that a composed version contains."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import signature_files

from savedmodel_bakery.exporter.errors import PipelineError
from savedmodel_bakery.exporter.pipeline.check import check_pipeline
from savedmodel_bakery.exporter.pipeline.description import Description, describe, read_description
from savedmodel_bakery.exporter.pipeline.pipeline_file import parse_pipeline
from savedmodel_bakery.exporter.pipeline.svg_drawing import draw_svg
from savedmodel_bakery.exporter.pipeline.text_drawing import draw_text
from savedmodel_bakery.exporter.publish import PIPELINE_FILE

SVG = "{http://www.w3.org/2000/svg}"
DRAWING = """\
a: float [?]
│
▼
┌─────────────────┐  ┌─────────────────┐
│ left            │  │ right           │
│ half/1          │  │ half/1          │
│ serving_default │  │ serving_default │
│ → a             │  │ → a             │
│ ← l             │  │ ← r<&>          │
└─────────────────┘  └─────────────────┘
l: float [?] ► output
r<&>: float [?]
│
▼
┌─────────────────┐
│ sum             │
│ add/1           │
│ serving_default │
│ → l, r<&>       │
│ ← total         │
└─────────────────┘
total: float [?] ► output"""


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


def read(version: Path) -> Description:
    description = read_description(version)
    assert description is not None
    return description


def test_steps_are_drawn_by_level_with_their_tensors(version: Path) -> None:
    assert DRAWING == draw_text(*read(version))


def test_the_picture_has_a_box_for_each_step_and_end_and_an_edge_for_each_use(version: Path) -> None:
    picture = ElementTree.fromstring(draw_svg(*read(version)))
    boxes = {style: len(picture.findall(f"{SVG}rect[@class='{style}']")) for style in ("step", "end")}
    assert {"step": 3, "end": 3} == boxes
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert ["left", "right", "sum"] == sorted(text for text in texts if text in ("left", "right", "sum"))
    assert 1 == texts.count("r<&>")
    heads = [path for path in picture.iter(f"{SVG}path") if path.get("marker-end")]
    assert 2 + 2 + 2 == len(heads)


def test_boxes_of_a_row_do_not_overlap(version: Path) -> None:
    picture = ElementTree.fromstring(draw_svg(*read(version)))
    rows: dict[str, list[tuple[float, float]]] = {}
    for box in picture.iter(f"{SVG}rect"):
        if box.get("y"):
            left = float(box.get("x", 0))
            rows.setdefault(box.get("y", ""), []).append((left, left + float(box.get("width", 0))))
    assert 2 in map(len, rows.values())
    for edges in map(sorted, rows.values()):
        assert all(right < left for (_, right), (left, _) in pairwise(edges))


def test_a_version_without_a_pipeline_and_a_damaged_one_are_told_apart(version: Path, tmp_path: Path) -> None:
    assert read_description(tmp_path / "half/1") is None
    (version / PIPELINE_FILE).write_text('name = "x"\n')
    with pytest.raises(PipelineError, match=r"the pipeline in .* is damaged"):
        read_description(version)
