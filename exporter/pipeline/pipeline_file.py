"""Pipeline files: TOML that connects the signatures of SavedModels by the names of tensors.

Checks what the file alone shows; `check` compares it with the signatures. A composed SavedModel contains its pipeline
file with the types of tensors, its description, which can be drawn for Mermaid.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from savedmodel_bakery.errors import PipelineError, PublishError
from savedmodel_bakery.exporter.publish import PIPELINE_FILE
from savedmodel_bakery.files import parse_toml, read_small
from savedmodel_bakery.storage.folders import check_name

DEFAULT_SIGNATURE = "serving_default"

_PIPELINE_KEYS = ("name", "inputs", "outputs", "steps")
_STEP_KEYS = ("name", "model", "signature", "input_map", "output_map", "drop")
_TENSORS = "tensors"  # of a description

# Mermaid's own entities (mermaid.js.org/syntax/flowchart.html), for characters that have a meaning in its labels.
_ENTITIES = {ord(character): f"#{ord(character)};" for character in '"#&<>`*'}


@dataclass(frozen=True)
class Step:
    """A step of a pipeline: one signature of a SavedModel."""

    name: str
    model: Path  # base path of the model, or the folder of a version; relative to the working directory
    signature: str
    input_map: Mapping[str, str]  # tensors of the pipeline by the signature's inputs
    output_map: Mapping[str, str]  # tensors of the pipeline by the signature's outputs
    drop: tuple[str, ...] = ()  # outputs of the signature that are deliberately not used


@dataclass(frozen=True)
class Pipeline:
    """The content of a pipeline file."""

    name: str  # default of the name to serve it under
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]  # one or more, in the order of the file

    def levels(self) -> list[list[Step]]:
        """Return the steps by level: each takes tensors of earlier levels only, and is in the first possible level.

        Steps that need each other in a cycle, or a tensor that doesn't exist, are left out.
        """
        levels: list[list[Step]] = []
        ready, waiting = set(self.inputs), list(self.steps)
        while level := [step for step in waiting if ready.issuperset(step.input_map.values())]:
            levels.append(level)
            ready.update(name for step in level for name in step.output_map.values())
            waiting = [step for step in waiting if step not in level]
        return levels


class Description(NamedTuple):
    """A pipeline as a composed SavedModel states it."""

    pipeline: Pipeline  # with the folders of the versions that were composed, relative to the working directory of then
    forms: Mapping[str, str]  # dtype and shape by tensor, such as `float [?, 4]`; at least of the inputs and outputs

    def to_toml(self) -> str:
        """Return the content of the file."""
        import tomli_w

        pipeline = self.pipeline
        content = {
            "name": pipeline.name,
            "inputs": pipeline.inputs,
            "outputs": pipeline.outputs,
            _TENSORS: self.forms,
            "steps": [{**asdict(step), "model": str(step.model)} for step in pipeline.steps],
        }
        return tomli_w.dumps(content)


def read_pipeline_file(path: Path) -> Pipeline:
    """Read a pipeline file. Relative paths of models in it refer to its folder."""
    try:
        content = parse_toml(read_small(path).decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise PipelineError(f"cannot read the pipeline file {path}: {error}") from error
    try:
        return parse_pipeline(content, folder=path.parent, default_name=path.name.removesuffix(".toml"))
    except PipelineError as error:
        raise PipelineError(f"pipeline file {path}: {error}") from error


def parse_pipeline(content: Mapping[str, Any], *, folder: Path, default_name: str) -> Pipeline:
    """Parse the content of a pipeline file; relative paths of models refer to `folder`."""
    table = _Table(content, "the pipeline", _PIPELINE_KEYS)
    steps = content.get("steps")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, Mapping) for step in steps):
        raise PipelineError("the pipeline has no steps: each step must be a table that begins with [[steps]]")
    pipeline = Pipeline(
        name=table.text("name", default_name),
        inputs=table.names("inputs"),
        outputs=table.names("outputs"),
        steps=tuple(_parse_step(step, number, folder) for number, step in enumerate(steps, 1)),
    )
    for key, names in (("inputs", pipeline.inputs), ("outputs", pipeline.outputs)):
        if not names:
            raise PipelineError(f"the pipeline has no {key}: {key} must list one tensor or more")
    _check_unique(pipeline)
    return pipeline


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


def _parse_step(content: Mapping[str, Any], number: int, folder: Path) -> Step:
    name = _Table(content, f"step {number}", content).text("name")
    try:
        check_name(name, of="step")
    except PublishError as error:
        raise PipelineError(f"step {number}: {error}") from error
    table = _Table(content, f'step "{name}"', _STEP_KEYS)
    return Step(
        name=name,
        model=_model_path(table.text("model"), folder),
        signature=table.text("signature", DEFAULT_SIGNATURE),
        input_map=table.map("input_map"),
        output_map=table.map("output_map"),
        drop=table.names("drop", ()),
    )


def _model_path(model: str, folder: Path) -> Path:
    """Return the path of a model, relative to the working directory unless it is stated as absolute."""
    path = folder / model
    if Path(model).is_absolute():
        return path
    relative = Path(os.path.relpath(path))
    # relpath removes ".." with the name before it, which leads elsewhere if that is a link.
    return relative if os.path.realpath(relative) == os.path.realpath(path) else path


class _Table:
    """A table of the file; `owner` is what messages call it."""

    def __init__(self, content: Mapping[str, Any], owner: str, keys: Iterable[str]) -> None:
        self._content, self._owner = content, owner
        unknown = next((key for key in content if key not in keys), None)
        if unknown is not None:
            raise PipelineError(f"unknown key {unknown!r} of {owner}: must be one of {', '.join(keys)}")

    def text(self, key: str, default: str | None = None) -> str:
        return str(self._value(key, default, _is_text, "text without control characters"))

    def names(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        allowed = 'a list of names without control characters, such as ["a"]'
        return tuple(self._value(key, default, _are_names, allowed))

    def map(self, key: str) -> dict[str, str]:
        allowed = 'a table of names without control characters, such as { x = "a" }'
        return dict(self._value(key, {}, _is_map, allowed))

    def _value(self, key: str, default: object, is_valid: Callable[[object], bool], allowed: str) -> Any:
        value = self._content.get(key, default)
        if value is None:
            raise PipelineError(f"{self._owner} has no {key}")
        if not is_valid(value):
            raise PipelineError(f"invalid {key} {value!r} of {self._owner}: must be {allowed}")
        return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable()


def _are_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_text, value))


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, (*value, *value.values())))


def _check_unique(pipeline: Pipeline) -> None:
    """Reject two steps of one name, a name twice in a list, and a tensor that is made twice."""
    for owner, names in (
        ("there is a step", [step.name for step in pipeline.steps]),
        ("inputs has", pipeline.inputs),
        ("outputs has", pipeline.outputs),
        *((f'drop of step "{step.name}" has', step.drop) for step in pipeline.steps),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                raise PipelineError(f'{owner} "{name}" twice: names must be unique')
    makers = dict.fromkeys(pipeline.inputs, "an input of the pipeline")
    for step in pipeline.steps:
        for alias, tensor in step.output_map.items():
            maker = f'output "{alias}" of step "{step.name}"'
            if tensor in makers:
                raise PipelineError(f'tensor "{tensor}" is both {makers[tensor]} and {maker}: names must be unique')
            makers[tensor] = maker


def _label(*lines: str) -> str:
    return '"' + "<br>".join(line.translate(_ENTITIES) for line in lines) + '"'
