"""The tasks, and the recognition of a model's task by the outputs of its signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from savedmodel_bakery.answers.signatures import DEFAULT_SIGNATURE, TOP_K_SIGNATURE, Signature, Signatures
from savedmodel_bakery.answers.task import ROW_OUTPUTS, Task, join
from savedmodel_bakery.answers.tasks.heads import HEADS, HeadsTask
from savedmodel_bakery.answers.tasks.keypoints import KEYPOINTS
from savedmodel_bakery.answers.tasks.labels import CLASSIFY, MULTILABEL
from savedmodel_bakery.answers.tasks.numbers import EMBED, REGRESS, TENSORS
from savedmodel_bakery.answers.tasks.regions import DETECT, SEGMENT, TRANSFORM
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code

TASKS: tuple[Task[Any], ...] = (
    CLASSIFY,
    MULTILABEL,
    EMBED,
    DETECT,
    SEGMENT,
    KEYPOINTS,
    TRANSFORM,
    HEADS,
    REGRESS,
    TENSORS,
)
"""All tasks, in the order of their recognition."""

for _task in TASKS:
    _task.result._task = _task


def find_task(signatures: Signatures, signature: str = DEFAULT_SIGNATURE) -> tuple[Task[Any], str]:
    """Return the task of a signature, and the signature to run.

    The latter is `top_k` instead of a `serving_default` that does not exist, or returns the label alone: there one bad
    image fails all images of the request. The error has FAILED_PRECONDITION.
    """
    if signature == DEFAULT_SIGNATURE and TOP_K_SIGNATURE in signatures.by_name:
        default = signatures.by_name.get(DEFAULT_SIGNATURE)
        if default is None or default.outputs.keys() == {"output_0"}:
            signature = TOP_K_SIGNATURE
    declared = signatures.find(signature)
    for task in (_heads_of(declared, signatures), *TASKS):
        if task.fits(declared.outputs):
            return task, signature
    raise RequestRefusedError(
        Code.FAILED_PRECONDITION,
        f"the outputs of {declared.title} fit no task; it has {join(declared.outputs)}. The tasks are "
        f"{', '.join(task.name for task in TASKS)}; any other signature can be run with predict",
    )


def _heads_of(declared: Signature, signatures: Signatures) -> HeadsTask:
    """Return the task of a signature with heads: those whose own signatures have a part of its outputs."""
    heads = {}
    for name, signature in sorted(signatures.by_name.items()):
        aliases = sorted(signature.outputs.keys() - ROW_OUTPUTS.keys())
        task = next((task for task in TASKS if task.fits(signature.outputs)), None)
        if task and all(f"{name}_{alias}" in declared.outputs for alias in aliases):
            heads[name] = task, aliases
    return HeadsTask(heads)


def find_pixels_sizes(signatures: Signatures, task: Task[Any], aliases: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the sizes of the arrays that the signature `pixels` takes as these inputs, [height, width, 3] each.

    Those of inputs that it does not have are left out.
    """
    declared = signatures.by_name.get("pixels")
    if declared is None or not task.fits(declared.outputs):
        return []
    specs = [declared.inputs[alias] for alias in aliases if alias in declared.inputs]
    return [spec.shape[1:] for spec in specs if spec.shape and spec.dtype is dtypes.BY_NAME["uint8"]]
