"""Runs a loaded version on photos, if its signatures are those of a task. Knows no messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from savedmodel_bakery.answers.images import encode_images
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import Signature, Signatures, TensorSpec
from savedmodel_bakery.answers.task import Task
from savedmodel_bakery.answers.tasks import TASKS, find_task
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference.predict import PredictCall, predict
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

_INPUT = "image"


class PhotoModel:
    """A version that takes photos; raises StatusError (FAILED_PRECONDITION) if it does not."""

    def __init__(self, servable: Servable) -> None:
        self._servable = servable
        self.task, self.signature = find_photo_task(servable.name, servable.version, servable.signatures)

    def run(self, photos: Sequence[bytes], context: RequestContext) -> dict[str, Tensor]:
        """Run the signature on encoded photos and return its outputs by alias."""
        inputs = {alias: Tensor(array, dtypes.STRING) for alias, array in encode_images(photos).items()}
        return predict(self._servable, PredictCall(self.signature, inputs), context)

    def prediction(self, outputs: Mapping[str, Tensor]) -> Prediction:
        """Return the outputs of a run as the task reads them."""
        arrays = {alias: tensor.array for alias, tensor in outputs.items()}
        return Prediction(arrays, self._servable.name, self._servable.version, self.signature)


def find_photo_task(model: str, version: int, definitions: Mapping[str, Any]) -> tuple[Task[Any], str]:
    """Return the task of a version that takes photos, and the signature to run.

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
        if inputs.keys() == {_INPUT} and inputs[_INPUT].dtype is dtypes.STRING:
            return task, signature
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
