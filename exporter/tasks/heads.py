"""Task heads: the answers of several tasks, from one decoding of the photo and one run of the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from savedmodel_bakery.errors import RecipeError, VerificationError
from savedmodel_bakery.exporter.tasks.classify import Classify
from savedmodel_bakery.exporter.tasks.task import (
    Answers,
    Change,
    Column,
    Comparison,
    NetworkResult,
    Signature,
    Task,
    Tolerance,
)
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Tensor

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Heads(Task):
    """See `Task`. The outputs of a head begin with its name; each head has a signature of its own too."""

    name: ClassVar[str] = "heads"
    measure: ClassVar[str] = "largest difference of a head, in the measure of its task"
    common: ClassVar[str] = "answers of all heads, as their tasks count them,"
    max_side: ClassVar[int | None] = 2**16 - 1  # the limit of pictures and maps, which heads may be
    tasks: Mapping[str, Task]  # by the names of the heads

    def __post_init__(self) -> None:
        """Check that no two heads have an output of the same name."""
        aliases = Counter(f"{name}_{alias}" for name, task in self.tasks.items() for alias in _answer(task).columns)
        for alias, count in aliases.items():
            if count > 1:
                raise RecipeError(f"two heads would have the output {alias!r}: rename one of them")

    @property
    def tolerance(self) -> Tolerance:  # type: ignore[override]
        """The loosest parts of the tolerances of the heads."""
        tolerances = [task.tolerance for task in self.tasks.values()]
        return _LoosestTolerance(
            atol=max(each.atol for each in tolerances),
            rtol=max(each.rtol for each in tolerances),
            share=min(each.share for each in tolerances),
            iou=min(each.iou for each in tolerances),
        )

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        heads = {name: _of_head(name, _answer(task)) for name, task in self.tasks.items()}
        columns = {f"{name}_{alias}": column for name, head in heads.items() for alias, column in head.columns.items()}

        def compute(outputs: NetworkOutputs, sizes: Tensor) -> Sequence[Tensor]:
            return [output for head in heads.values() for output in head.compute(outputs, sizes)]

        answer = Signature("images", columns, compute)
        return {"serving_default": answer, "pixels": replace(answer, takes="pixels"), **heads}

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`. Both the common signature and that of each head are compared.

        A part of the tolerance that is the default is that of the head's own task.
        """
        default = vars(self.tolerance)
        stated = {part: value for part, value in vars(tolerance).items() if value != default[part]}
        shown, compared = {}, []
        for name, task in self.tasks.items():
            own = NetworkResult(of_head(result.outputs, name), result.size)
            allowed = task.tolerance.replaced(**stated)
            common = {alias: answers["serving_default"][f"{name}_{alias}"] for alias in _answer(task).columns}
            shown[name] = _compare(task, common, own, allowed)
            compared += [shown[name], _compare(task, answers[name], own, allowed)]
        return Comparison(
            max(comparison.difference for comparison in compared),
            all(comparison.is_within for comparison in compared),
            "; ".join(f"{name} {comparison.answer}" for name, comparison in shown.items()),
            "; ".join(f"{name} {comparison.expected}" for name, comparison in shown.items()),
            "; ".join(f"{name}: {comparison.caveat}" for name, comparison in shown.items() if comparison.caveat),
            tuple(
                replace(doubt, reason=f"head {name!r}: {doubt.reason}")
                for name, comparison in shown.items()
                for doubt in comparison.doubts
            ),
        )

    def compare_approximation(self, answers: Answers, result: NetworkResult) -> Change:
        """See `Task.compare_approximation`. The answers agree as far as those of the head that agrees least."""
        changes = [
            task.compare_approximation(
                {_main(task)[0]: answers[name]}, NetworkResult(of_head(result.outputs, name), result.size)
            )
            for name, task in self.tasks.items()
        ]
        differences = np.array([change.changes.max() for change in changes])
        return Change(min(change.agreement for change in changes), differences.max(keepdims=True))


class _LoosestTolerance(Tolerance):
    """A tolerance whose text says that the tasks of some heads may have a stricter one."""

    def __str__(self) -> str:
        return f"{super().__str__()}, for the loosest task of the heads"


def of_head(by_role: Mapping[str, _Value], name: str) -> dict[str, _Value]:
    """Return what belongs to a head, by the role in it; see `network_outputs`."""
    return {role.removeprefix(f"{name}/"): value for role, value in by_role.items() if role.startswith(f"{name}/")}


def _main(task: Task) -> tuple[str, Signature]:
    """Return the signature of a task with the most outputs of an image, and its name."""
    return next((name, each) for name, each in task.signatures().items() if each.takes == "images")


def _answer(task: Task) -> Signature:
    """Return what a head with a task answers; for a classifier, the best label by itself too."""
    _, main = _main(task)
    if not isinstance(task, Classify):
        return main

    def compute(outputs: NetworkOutputs, sizes: Tensor) -> Sequence[Tensor]:
        labels, *others = main.compute(outputs, sizes)
        return [labels[:, 0], labels, *others]

    return replace(main, columns={"label": Column((), b""), **main.columns}, compute=compute)


def _of_head(name: str, answer: Signature) -> Signature:
    """Return a signature that takes the outputs of all heads."""

    def compute(outputs: NetworkOutputs, sizes: Tensor) -> Sequence[Tensor]:
        return answer.compute(of_head(outputs, name), sizes)

    return replace(answer, compute=compute)


def _compare(task: Task, row: Mapping[str, Any], result: NetworkResult, tolerance: Tolerance) -> Comparison:
    name, _ = _main(task)
    if isinstance(task, Classify) and row["label"] != row["labels"][0]:
        raise VerificationError("the SavedModel's label is not the first of its labels")
    return task.compare({name: row}, result, tolerance)
