"""The class that Ray's actors run: loads a version and turns photos into rows. Does not import Ray."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from savedmodel_bakery.client.bulk import parquet
from savedmodel_bakery.client.bulk.classify import classify_photos
from savedmodel_bakery.client.bulk.photos import Photo, unreadable_photo
from savedmodel_bakery.client.calls import Metadata, ModelSpec
from savedmodel_bakery.client.errors import RequestRefusedError
from savedmodel_bakery.client.images import encode_images
from savedmodel_bakery.client.results import Prediction
from savedmodel_bakery.client.signatures import read_signatures
from savedmodel_bakery.client.tasks import find_task
from savedmodel_bakery.client.transports import grpc_codec
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference.metadata import metadata
from savedmodel_bakery.serving.inference.predict import PredictCall, predict
from savedmodel_bakery.serving.runtimes.tensorflow_import import import_tensorflow
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.messages import make_metadata_response
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import Tensor

PHOTOS = pa.schema([("image", pa.string()), ("content", pa.binary()), ("error", pa.string())])
"""Columns passed from the readers to the actors; a photo has either content or the error of reading it."""


class Classifier:
    """Runs a version that it loads on photos.

    Args:
        model: name of the model.
        version: version number.
        path: version folder.

    Attributes:
        task: name of the version's task.

    Raises:
        StatusError: the version can't be loaded.
        ClientError: its signatures fit no task.
    """

    def __init__(self, model: str, version: int, path: str) -> None:
        import_tensorflow()  # here, because only the actors need it
        from savedmodel_bakery.serving import warmup
        from savedmodel_bakery.serving.models.loading import LoadOptions, load

        self._servable = load(model, version, Path(path), LoadOptions(warm_up=warmup.replay))
        response = make_metadata_response(*metadata(self._servable)).SerializeToString()
        document = grpc_codec.decode_response(Metadata(ModelSpec(model, version)), response)
        self._task, self._signature = find_task(read_signatures(document))
        self.task = self._task.name
        self._task.read(self._predict([b""]), batch=1)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table with the columns `PHOTOS`, with the columns `client.bulk.parquet.SCHEMAS`."""
        photos = [_photo(**row) for row in table.to_pylist()]
        name = self._servable.name
        rows = classify_photos(photos, self._predict, task=self._task, model=name, signature=self._signature)
        return parquet.to_table(rows, self.task)

    def _predict(self, images: list[bytes]) -> Prediction:
        try:
            inputs = {alias: Tensor(array, dtypes.STRING) for alias, array in encode_images(images).items()}
            outputs = predict(self._servable, PredictCall(self._signature, inputs), RequestContext())
        except StatusError as error:
            raise RequestRefusedError(error.code, error.text) from error
        arrays = {alias: tensor.array for alias, tensor in outputs.items()}
        return Prediction(arrays, self._servable.name, self._servable.version, self._signature)


def _photo(image: str, content: bytes | None, error: str | None) -> Photo:
    return unreadable_photo(image, error or "") if content is None else Photo(image, len(content), lambda: content)
