"""Runs a baked model on photos: recognises its task as the client does, and reads the results of its signature."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from savedmodel_bakery.client.bulk.rows import task_cells
from savedmodel_bakery.client.errors import ClientError, RequestRefusedError
from savedmodel_bakery.client.image_results import ImageResult, Segmentation
from savedmodel_bakery.client.images import encode_images
from savedmodel_bakery.client.results import Prediction
from savedmodel_bakery.client.signatures import Signature, Signatures, TensorSpec
from savedmodel_bakery.client.tasks import TASKS, Task, find_task
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference.predict import PredictCall, predict
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.json.predict import response_size
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

_INPUT = "image"


class Results(NamedTuple):
    """The results of the photos of a request, in their order, and the task and signature that made them."""

    task: Task[Any]
    signature: str
    rows: list[ImageResult]


def run(servable: Servable, photos: Sequence[bytes], context: RequestContext) -> Results:
    """Run a model on photos.

    Raises:
        StatusError: FAILED_PRECONDITION if the model takes no photos; or the run failed.
    """
    task, name = _find_task(servable)
    inputs = {alias: Tensor(array, dtypes.STRING) for alias, array in encode_images(photos).items()}
    outputs = predict(servable, PredictCall(name, inputs), context)
    context.charge(response_size(outputs))
    arrays = {alias: tensor.array for alias, tensor in outputs.items()}
    try:
        rows = task.read(Prediction(arrays, servable.name, servable.version, name), batch=len(photos))
    except ClientError as error:
        raise StatusError(Code.INTERNAL, str(error)) from error
    return Results(task, name, rows)


def row_document(result: ImageResult) -> dict[str, Any]:
    """Return the JSON object of a photo's result: the columns of bulk jobs (see `client.bulk.rows`).

    That of task segment also has the labels by class id, and its map is plain base64.
    """
    cells = {"ok": result.ok, **task_cells(result)}
    if isinstance(result, Segmentation):
        cells |= {"labels": list(result.labels), "map_png": b64encode(result.map_png).decode()}
    return cells


def _find_task(servable: Servable) -> tuple[Task[Any], str]:
    signatures = _read_signatures(servable)
    try:
        task, name = find_task(signatures)
    except RequestRefusedError:
        pass
    else:
        inputs = signatures.by_name[name].inputs
        if inputs.keys() == {_INPUT} and inputs[_INPUT].dtype is dtypes.STRING:
            return task, name
    raise StatusError(
        Code.FAILED_PRECONDITION,
        f'{signatures.title} does not take photos: none of its signatures has the input "image" and the outputs of a '
        f"task ({', '.join(task.title for task in TASKS)}); call it with /v1/models or /v2/models",
    )


def _read_signatures(servable: Servable) -> Signatures:
    title = f'model "{servable.name}" version {servable.version}'
    by_name = {
        name: Signature(
            f'signature "{name}" of {title}',
            _read_specs(definition.inputs),
            _read_specs(definition.outputs),
            frozenset(),
        )
        for name, definition in servable.signatures.items()
    }
    return Signatures(title, servable.version, by_name)


def _read_specs(tensors: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {
        alias: TensorSpec(
            dtypes.BY_NUMBER.get(info.dtype),
            None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim),
        )
        for alias, info in tensors.items()
    }
