"""The description of a pipeline in its SavedModel: its pipeline file with the types of tensors; drawn for Mermaid."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from savedmodel_bakery.errors import PipelineError
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline
from savedmodel_bakery.exporter.pipeline.pipeline_file import Pipeline, parse_pipeline
from savedmodel_bakery.exporter.publish import PIPELINE_FILE
from savedmodel_bakery.files import parse_toml, read_small

_TENSORS = "tensors"

# Mermaid's own entities (mermaid.js.org/syntax/flowchart.html), for characters that have a meaning in its labels.
_ENTITIES = {ord(character): f"#{ord(character)};" for character in '"#&<>`*'}


class Description(NamedTuple):
    """A pipeline as a composed SavedModel states it."""

    pipeline: Pipeline  # with the folders of the versions that were composed, relative to the working directory of then
    forms: dict[str, str]  # dtype and shape of each input and output of the pipeline by name, such as `float [?, 4]`


def describe(checked: CheckedPipeline) -> str:
    """Return the description of a pipeline as TOML."""
    import tomli_w

    pipeline = checked.pipeline
    versions = {step.name: step.version for step in checked.steps}
    content = {
        "name": pipeline.name,
        "inputs": pipeline.inputs,
        "outputs": pipeline.outputs,
        _TENSORS: {name: tensor.form for name, tensor in checked.tensors.items()},
        "steps": [{**asdict(step), "model": str(versions[step.name])} for step in pipeline.steps],
    }
    return tomli_w.dumps(content)


def read_description(version: Path) -> Description | None:
    """Read the description in a version's folder; None if it contains no pipeline."""
    file = version / PIPELINE_FILE
    if not file.is_file():
        return None
    try:
        content = parse_toml(read_small(file).decode())
        forms = content.pop(_TENSORS)
        pipeline = parse_pipeline(content, folder=Path(), default_name=version.name)
        return Description(pipeline, {name: forms[name] for name in (*pipeline.inputs, *pipeline.outputs)})
    except (OSError, ValueError, KeyError, TypeError, PipelineError) as error:
        raise PipelineError(f"the pipeline in {version} is damaged: {error}") from error


def draw_mermaid(description: Description) -> str:
    """Return a flowchart: a box for each input, step and output, and arrows with the tensors' names."""
    pipeline, forms = description
    lines = ["flowchart TD"]
    makers = {name: f"input{number}" for number, name in enumerate(pipeline.inputs, 1)}
    lines += [f"    {box}([{_label(name, forms[name])}])" for name, box in makers.items()]
    for number, step in enumerate(pipeline.steps, 1):
        lines.append(f"    step{number}[{_label(step.name, str(step.model), step.signature)}]")
        makers.update(dict.fromkeys(step.output_map.values(), f"step{number}"))
    for number, step in enumerate(pipeline.steps, 1):
        tensors: dict[str, list[str]] = {}
        for name in dict.fromkeys(step.input_map.values()):
            tensors.setdefault(makers[name], []).append(name)
        for maker, names in tensors.items():
            label = "" if names[0] in pipeline.inputs else f"|{_label(*names)}|"  # the box of an input has the name
            lines.append(f"    {maker} -->{label} step{number}")
    for number, name in enumerate(pipeline.outputs, 1):
        lines.append(f"    {makers[name]} --> output{number}([{_label(name, forms[name])}])")
    return "\n".join(lines)


def _label(*lines: str) -> str:
    return '"' + "<br>".join(line.translate(_ENTITIES) for line in lines) + '"'
