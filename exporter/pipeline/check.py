"""Checks a pipeline against the signatures of its steps, before anything is built.

Each error names the step and the tensor, and shows what would fit there. Does not load models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from savedmodel_bakery.errors import PipelineError, PublishError
from savedmodel_bakery.exporter.pipeline.pipeline_file import Pipeline, Step
from savedmodel_bakery.exporter.signatures import Signature, Tensor, read_signatures, unify, unify_all
from savedmodel_bakery.storage.folders import find_version
from savedmodel_bakery.wire import dtypes


@dataclass(frozen=True)
class CheckedStep:
    """A step with what it runs."""

    step: Step
    version: Path  # folder of the SavedModel, of its newest version if the file states a base path
    signature: Signature

    @property
    def name(self) -> str:
        """The step's name."""
        return self.step.name


@dataclass(frozen=True)
class CheckedPipeline:
    """A pipeline whose steps fit together."""

    pipeline: Pipeline
    steps: Sequence[CheckedStep]  # each after those that it takes tensors from
    tensors: Mapping[str, Tensor]  # all by name, inputs included, with the unified shape of producer and consumers


def check_pipeline(pipeline: Pipeline) -> CheckedPipeline:
    """Find the models of a pipeline, and check that its steps fit together.

    Raises:
        PipelineError: a model, signature or tensor is unknown, a saved_model.pb is damaged, an input has no tensor, an
            output is neither used nor dropped, dtypes or shapes differ, or steps need each other in a cycle.
    """
    steps = [_find_signature(step) for step in pipeline.steps]
    for step in steps:
        _check_aliases(step)
    wiring = _Wiring(pipeline, steps)
    for step in steps:
        wiring.check_inputs(step)
    for step in steps:
        wiring.check_outputs(step)
    wiring.check_ends()
    return CheckedPipeline(pipeline, wiring.sorted_steps(), wiring.tensors())


def check_base_path(checked: CheckedPipeline, base_path: Path) -> None:
    """Check that a pipeline isn't published as a version of a model that one of its steps runs."""
    for step in checked.steps:
        if base_path.resolve() == step.version.resolve().parent:
            raise PipelineError(
                f'cannot publish the pipeline in {base_path}, which contains the model of step "{step.name}"; choose '
                "another name with --name"
            )


def _find_signature(step: Step) -> CheckedStep:
    try:
        version = find_version(step.model)
        signatures = {signature.name: signature for signature in read_signatures(version)}
    except PublishError as error:
        raise PipelineError(f'step "{step.name}": {error}') from error
    except OSError as error:
        raise PipelineError(f'step "{step.name}": cannot read the model {step.model}: {error.strerror}') from error
    if step.signature not in signatures:
        raise PipelineError(
            f'step "{step.name}": {version} has no signature "{step.signature}"; it has {_listed(signatures)}'
        )
    return CheckedStep(step, version, signatures[step.signature])


def _check_aliases(checked: CheckedStep) -> None:
    """Check that the maps of a step have names of its signature only."""
    step, signature = checked.step, checked.signature
    for key, names, role, tensors in (
        ("input_map", step.input_map, "input", signature.inputs),
        ("output_map", step.output_map, "output", signature.outputs),
        ("drop", step.drop, "output", signature.outputs),
    ):
        for alias in names:
            if alias not in {tensor.alias for tensor in tensors}:
                raise PipelineError(
                    f'step "{step.name}": {key} has "{alias}", but signature "{signature.name}" of {checked.version} '
                    f"has no such {role}; it has {', '.join(map(str, tensors)) or 'none'}"
                )
        for tensor in tensors:
            if key != "drop" and tensor.alias in names and tensor.dtype not in dtypes.BY_NAME:
                raise PipelineError(
                    f'step "{step.name}": {role} "{tensor.alias}" is {tensor.form}, which cannot be connected; it must '
                    f"be a tensor of {', '.join(sorted(dtypes.BY_NAME))}"
                )
    for alias in step.drop:
        if alias in step.output_map:
            raise PipelineError(
                f'step "{step.name}": output "{alias}" is both in output_map, as "{step.output_map[alias]}", and in '
                "drop; remove it from one of them"
            )


class _Wiring:
    """The tensors of a pipeline, their producers and consumers."""

    def __init__(self, pipeline: Pipeline, steps: Sequence[CheckedStep]) -> None:
        self._pipeline, self._steps = pipeline, steps
        self._maker: dict[str, CheckedStep] = {}
        self._sources = dict.fromkeys(pipeline.inputs, "an input of the pipeline")
        # What the producer and the consumers of each tensor declare.
        self._forms: dict[str, list[Tensor]] = {name: [] for name in pipeline.inputs}
        # The unified shape of a tensor's producer and of the consumers that were checked.
        self._known: dict[str, Tensor] = {}
        self._last_user: dict[str, str] = {}
        self._taken = {name for step in steps for name in step.step.input_map.values()}
        for step in steps:
            for output in step.signature.outputs:
                if (name := step.step.output_map.get(output.alias)) is not None:
                    self._maker[name] = step
                    self._sources[name] = f'output "{output.alias}" of step "{step.name}"'
                    self._known[name] = Tensor(name, output.dtype, output.shape)
                    self._forms[name] = [output]
        for step in steps:
            for taken in step.signature.inputs:
                if (name := step.step.input_map.get(taken.alias)) in self._forms:
                    self._forms[name].append(taken)

    def check_inputs(self, checked: CheckedStep) -> None:
        """Check that each input has a tensor that exists and fits."""
        for tensor in checked.signature.inputs:
            name = checked.step.input_map.get(tensor.alias)
            if name is None:
                problem = f"({tensor.form}) is not in input_map"
            elif name not in self._sources:
                problem = (
                    f'({tensor.form}) takes "{name}", which is neither an input of the pipeline nor made by a step'
                )
            else:
                known = self._known.get(name, Tensor(name, tensor.dtype, tensor.shape))
                unified = unify(known, tensor)
                if unified is not None:
                    self._known[name] = unified
                    self._last_user[name] = checked.name
                    continue
                source = self._sources[name]
                if name in self._last_user:
                    source += f' that step "{self._last_user[name]}" also takes'
                problem = f'is {tensor.form}, but "{name}", {source}, is {known.form}'
            raise PipelineError(
                f'step "{checked.name}": input "{tensor.alias}" {problem}; {self._fitting(checked, tensor)}'
            )

    def check_outputs(self, checked: CheckedStep) -> None:
        """Check that each output is used, by a step or as an output of the pipeline, or dropped."""
        for tensor in checked.signature.outputs:
            name = checked.step.output_map.get(tensor.alias)
            if name is None and tensor.alias not in checked.step.drop:
                problem = "is neither in output_map nor in drop"
            elif name is not None and name not in (*self._taken, *self._pipeline.outputs):
                problem = (
                    f'is "{name}", which is not used by a step and is not an output of the pipeline; add it to drop'
                )
            else:
                continue
            raise PipelineError(
                f'step "{checked.name}": output "{tensor.alias}" ({tensor.form}) {problem}; {self._takers(tensor)}'
            )

    def check_ends(self) -> None:
        """Check that each input of the pipeline is taken by a step, and each output made by one."""
        for name in self._pipeline.inputs:
            if name not in self._taken:
                raise PipelineError(
                    f'input "{name}" of the pipeline is taken by no step; steps take {_listed(sorted(self._taken))}'
                )
        for name in self._pipeline.outputs:
            if name not in self._maker:
                raise PipelineError(
                    f'output "{name}" of the pipeline is made by no step; steps make {_listed(self._maker)}'
                )

    def sorted_steps(self) -> list[CheckedStep]:
        """Return the steps, each after those that it takes tensors from."""
        by_name = {step.name: step for step in self._steps}
        steps = [by_name[step.name] for level in self._pipeline.levels() for step in level]
        waiting = [step for step in self._steps if step not in steps]
        if waiting:
            raise PipelineError(
                "the steps form a cycle, in which each takes a tensor of the next: "
                f"{_listed(step.name for step in self._cycle(waiting))}"
            )
        return steps

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the `CheckedPipeline`."""
        return {name: self._known[name] for name in self._forms}

    def _fitting(self, checked: CheckedStep, tensor: Tensor) -> str:
        """Say which tensors would fit an input of a step."""
        fitting = [
            name
            for name, forms in self._forms.items()
            if self._maker.get(name) is not checked and unify_all([tensor, *forms]) is not None
        ]
        return f"{_listed(fitting)} would fit" if fitting else "no tensor of the pipeline fits"

    def _takers(self, tensor: Tensor) -> str:
        """Say which inputs of steps an output would fit."""
        fitting = [
            f'input "{taken.alias}" of step "{step.name}"'
            for step in self._steps
            for taken in step.signature.inputs
            if unify(tensor, taken)
        ]
        return f"it would fit {', '.join(fitting)}" if fitting else "no input of a step fits it"

    def _cycle(self, waiting: Sequence[CheckedStep]) -> list[CheckedStep]:
        """Return the first cycle among `waiting`, of which each takes a tensor of another one."""
        step, visited = waiting[0], list[CheckedStep]()
        while step not in visited:
            visited.append(step)
            makers = [self._maker[name] for name in step.step.input_map.values() if name in self._maker]
            step = next(maker for maker in makers if maker in waiting)
        return [*visited[visited.index(step) :], step]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"
