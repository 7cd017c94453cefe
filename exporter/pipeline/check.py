"""Checks a pipeline against the signatures of its steps, before anything is built.

Each error names the step and the tensor, and shows what would fit there. Does not load models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from savedmodel_bakery.errors import PipelineError, PublishError
from savedmodel_bakery.exporter.pipeline.pipeline_file import Pipeline, Step
from savedmodel_bakery.exporter.publish import find_version
from savedmodel_bakery.exporter.signatures import Signature, Tensor, read_signatures, unify, unify_all
from savedmodel_bakery.wire import dtypes


@dataclass(frozen=True)
class CheckedStep:
    """A step with what it runs.

    Attributes:
        step: of the pipeline file.
        version: folder of the SavedModel, of its newest version if the file states a base path.
        signature: the SavedModel's.
    """

    step: Step
    version: Path
    signature: Signature

    @property
    def name(self) -> str:
        """The step's name."""
        return self.step.name


@dataclass(frozen=True)
class CheckedPipeline:
    """A pipeline whose steps fit together.

    Attributes:
        pipeline: the content of the file.
        levels: the steps; each takes tensors of earlier levels only, and is in the first level where it can be.
        tensors: all tensors of the pipeline by name, inputs included, each with the unified shape of its producer and
            consumers.
    """

    pipeline: Pipeline
    levels: tuple[tuple[CheckedStep, ...], ...]
    tensors: Mapping[str, Tensor]

    @property
    def steps(self) -> list[CheckedStep]:
        """The steps, each after those that it takes tensors from."""
        return [step for level in self.levels for step in level]


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
    return CheckedPipeline(pipeline, wiring.levels(), wiring.tensors())


def check_base_path(checked: CheckedPipeline, base_path: Path) -> None:
    """Check that a pipeline isn't published as a version of a model that one of its steps runs.

    Raises:
        PipelineError: `base_path` is the base path of a step's model.
    """
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

    def __init__(self, pipeline: Pipeline, steps: Collection[CheckedStep]) -> None:
        self._pipeline, self._steps = pipeline, steps
        self._made: dict[str, Tensor] = {}
        self._maker: dict[str, CheckedStep] = {}
        self._users: dict[str, list[tuple[CheckedStep, Tensor]]] = {}
        for step in steps:
            for output in step.signature.outputs:
                if (name := step.step.output_map.get(output.alias)) is not None:
                    self._made[name], self._maker[name] = output, step
            for taken in step.signature.inputs:
                if (name := step.step.input_map.get(taken.alias)) is not None:
                    self._users.setdefault(name, []).append((step, taken))

    def check_inputs(self, checked: CheckedStep) -> None:
        """Check that each input has a tensor that exists and fits."""
        where = f'step "{checked.name}"'
        for tensor in checked.signature.inputs:
            name = checked.step.input_map.get(tensor.alias)
            if name is None:
                raise PipelineError(
                    f'{where}: input "{tensor.alias}" ({tensor.form}) is not in input_map; '
                    f"{self._fitting(checked, tensor)}"
                )
            if name not in self._made and name not in self._pipeline.inputs:
                raise PipelineError(
                    f'{where}: input "{tensor.alias}" ({tensor.form}) takes "{name}", which is neither an input of '
                    f"the pipeline nor made by a step; {self._fitting(checked, tensor)}"
                )
            form, source = self._known_before(name, checked, tensor)
            if form is not None and unify(form, tensor) is None:
                raise PipelineError(
                    f'{where}: input "{tensor.alias}" is {tensor.form}, but "{name}", {source}, is {form.form}; '
                    f"{self._fitting(checked, tensor)}"
                )

    def check_outputs(self, checked: CheckedStep) -> None:
        """Check that each output is used, by a step or as an output of the pipeline, or dropped."""
        for tensor in checked.signature.outputs:
            name = checked.step.output_map.get(tensor.alias)
            if name is None and tensor.alias not in checked.step.drop:
                problem = "is neither in output_map nor in drop"
            elif name is not None and name not in self._users and name not in self._pipeline.outputs:
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
            if name not in self._users:
                free = [f'"{step.name}" takes {_listed(step.step.input_map.values())}' for step in self._steps]
                raise PipelineError(f'input "{name}" of the pipeline is taken by no step; step {", step ".join(free)}')
        for name in self._pipeline.outputs:
            if name not in self._made:
                raise PipelineError(
                    f'output "{name}" of the pipeline is made by no step; steps make {_listed(self._made)}'
                )

    def levels(self) -> tuple[tuple[CheckedStep, ...], ...]:
        """Return the steps by level; see `CheckedPipeline`."""
        by_name = {step.name: step for step in self._steps}
        levels = tuple(tuple(by_name[step.name] for step in level) for level in self._pipeline.levels())
        sorted_steps = {step.name for level in levels for step in level}
        waiting = [step for step in self._steps if step.name not in sorted_steps]
        if waiting:
            made = {name for level in levels for step in level for name in step.step.output_map.values()}
            raise self._cycle(waiting, made.union(self._pipeline.inputs))
        return levels

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name; see `CheckedPipeline`."""
        tensors = {}
        for name in (*self._pipeline.inputs, *self._made):
            unified = unify_all(self._forms(name))
            assert unified is not None  # check_inputs has unified them
            tensors[name] = Tensor(name, unified.dtype, unified.shape)
        return tensors

    def _forms(self, name: str) -> list[Tensor]:
        made = [self._made[name]] if name in self._made else []
        return [*made, *(taken for _, taken in self._users.get(name, []))]

    def _known_before(self, name: str, checked: CheckedStep, tensor: Tensor) -> tuple[Tensor | None, str]:
        """Return the unified shape of a tensor's producer and earlier consumers, and where the tensor comes from."""
        users = self._users[name]
        position = next(index for index, user in enumerate(users) if user == (checked, tensor))
        known = [*([self._made[name]] if name in self._made else []), *(taken for _, taken in users[:position])]
        if name in self._made:
            source = f'output "{self._made[name].alias}" of step "{self._maker[name].name}"'
        else:
            source = "an input of the pipeline"
        if users[:position]:
            source += f' that step "{users[position - 1][0].name}" also takes'
        return (unify_all(known) if known else None), source

    def _fitting(self, checked: CheckedStep, tensor: Tensor, names: Iterable[str] | None = None) -> str:
        """Say which tensors would fit an input of a step."""
        if names is None:
            names = (*self._pipeline.inputs, *self._made)
        fitting = [
            name
            for name in names
            if self._maker.get(name) is not checked and unify_all([tensor, *self._forms(name)]) is not None
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

    def _cycle(self, waiting: Collection[CheckedStep], ready: Collection[str]) -> PipelineError:
        """Return the error for a cycle among `waiting`, of which each step takes a tensor of another one."""
        step, visited = next(iter(waiting)), list[CheckedStep]()
        while step not in visited:
            visited.append(step)
            step = self._maker[self._missing(step, ready).name]
        cycle = visited[visited.index(step) :]
        needs = []
        for member in cycle:
            missing = self._missing(member, ready)
            needs.append(
                f'step "{member.name}" takes "{missing.name}" of step "{self._maker[missing.name].name}" as '
                f'"{missing.tensor.alias}"'
            )
        tensor = self._missing(step, ready).tensor
        return PipelineError(
            f'the steps form a cycle: {", and ".join(needs)}; for the input "{tensor.alias}" of step "{step.name}", '
            f"{self._fitting(step, tensor, sorted(ready))} without a cycle"
        )

    def _missing(self, step: CheckedStep, ready: Collection[str]) -> _Taken:
        """Return the first input of a step whose tensor isn't ready."""
        return next(
            _Taken(name, tensor)
            for tensor in step.signature.inputs
            if (name := step.step.input_map[tensor.alias]) not in ready
        )


@dataclass(frozen=True)
class _Taken:
    """A tensor of the pipeline, and the input that takes it."""

    name: str
    tensor: Tensor


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"
