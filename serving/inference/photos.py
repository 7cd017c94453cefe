"""Runs a loaded version on photos, if its signatures are those of a task. Knows no messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from savedmodel_bakery.answers.other_inputs import IMAGE, other_inputs, photo_inputs
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import Signature, Signatures, TensorSpec
from savedmodel_bakery.answers.task import Task
from savedmodel_bakery.answers.tasks import TASKS, find_task
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference.predict import PredictCall, predict
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor


class PhotoModel:
    """A version that takes photos; raises StatusError (FAILED_PRECONDITION) if it does not."""

    def __init__(self, servable: Servable) -> None:
        self._servable = servable
        self.task, self.signature, self.others = find_photo_task(servable.name, servable.version, servable.signatures)

    def run(self, photos: Sequence[tuple[bytes, Mapping[str, Any]]], context: RequestContext) -> dict[str, Tensor]:
        """Run the signature on encoded photos, each with its other inputs, and return its outputs by alias.

        Raises StatusError (INVALID_ARGUMENT) if other inputs are missing or don't fit.
        """
        try:
            arrays = photo_inputs(photos, self.others)
        except ValueError as error:
            raise invalid_argument(str(error)) from error
        inputs = {alias: Tensor(array, dtypes.of_array(array)) for alias, array in arrays.items()}
        return predict(self._servable, PredictCall(self.signature, inputs), context)

    def prediction(self, outputs: Mapping[str, Tensor]) -> Prediction:
        """Return the outputs of a run as the task reads them."""
        arrays = {alias: tensor.array for alias, tensor in outputs.items()}
        return Prediction(arrays, self._servable.name, self._servable.version, self.signature)


class PhotoTask(NamedTuple):
    """What a version does with photos."""

    task: Task[Any]
    signature: str  # to run
    others: Mapping[str, TensorSpec]  # inputs beside the photo


def find_photo_task(model: str, version: int, definitions: Mapping[str, Any]) -> PhotoTask:
    """Return the task of a version that takes photos.

    Raises:
        StatusError: FAILED_PRECONDITION if it takes no photos.
    """
    title = f'model "{model}" version {version}'
    by_name = {
        name: Signature(
            f'signature "{name}" of {title}',
            _read_specs(definition.inputs),
            _read_specs(definition.outputs),
            frozenset(),
        )
        for name, definition in definitions.items()
    }
    try:
        task, signature = find_task(Signatures(title, version, by_name))
        inputs = by_name[signature].inputs
        if IMAGE in inputs and inputs[IMAGE].dtype is dtypes.STRING:
            return PhotoTask(task, signature, other_inputs(inputs))
    except RequestRefusedError:
        pass
    raise StatusError(
        Code.FAILED_PRECONDITION,
        f'{title} does not take photos: none of its signatures has the input "image" and the outputs of a task '
        f"({', '.join(task.title for task in TASKS)}); call it with /v1/models or /v2/models",
    )


def _read_specs(tensors: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {
        alias: TensorSpec(
            dtypes.BY_NUMBER.get(info.dtype),
            None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim),
        )
        for alias, info in tensors.items()
    }
