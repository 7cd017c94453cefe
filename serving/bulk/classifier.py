"""The actor: a loaded servable that makes rows of photos. Must not know Ray."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from savedmodel_bakery.client.bulk import parquet
from savedmodel_bakery.client.bulk.classify import classify_photos
from savedmodel_bakery.client.bulk.photos import Photo, unreadable
from savedmodel_bakery.client.errors import RequestRefusedError
from savedmodel_bakery.client.images import TOP_K_SIGNATURE, encode_images, read_classifications
from savedmodel_bakery.client.results import Prediction
from savedmodel_bakery.serving.inference import predict
from savedmodel_bakery.serving.runtimes import tensorflow_import as without_keras
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import Tensor

# What goes from the readers to the actors; a photo has content, or the reason why it can't be read.
PHOTOS = pa.schema([("image", pa.string()), ("content", pa.binary()), ("error", pa.string())])


class Classifier:
    """Loads a version and classifies photos with its signature `top_k`.

    Args:
        model: name of the model.
        version: its number.
        path: its folder.

    Raises:
        StatusError: it can't be loaded, or has no such signature.
        ClientError: the signature is another one.
    """

    def __init__(self, model: str, version: int, path: str) -> None:
        without_keras.import_tensorflow()  # which only the actors need
        from savedmodel_bakery.serving.models.loading import LoadOptions, load

        self._servable = load(model, version, Path(path), LoadOptions())
        self._signature = predict.find_signature(self._servable, TOP_K_SIGNATURE)
        self._outputs = predict.choose_outputs(self._signature, ())
        read_classifications(self._predict([b""]), batch=1, top_k=None)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Make rows, as `client.bulk.parquet.SCHEMA` has them, of photos as `PHOTOS` has them."""
        photos = [_photo(**row) for row in table.to_pylist()]
        rows = classify_photos(photos, self._predict, model=self._servable.name, signature=TOP_K_SIGNATURE)
        return pa.Table.from_pylist(rows, parquet.SCHEMA)

    def _predict(self, images: list[bytes]) -> Prediction:
        try:
            feeds = predict.read_inputs(self._signature, encode_images(images), _as_strings)
            found = predict.run(self._servable, self._signature, feeds, self._outputs, None)
        except StatusError as error:
            raise RequestRefusedError(error.code, error.message) from error
        arrays = {alias: tensor.array for alias, tensor in found.items()}
        return Prediction(arrays, self._servable.name, self._servable.version, TOP_K_SIGNATURE)


def _as_strings(array: np.ndarray) -> Tensor:
    return Tensor(array, dtypes.STRING)


def _photo(image: str, content: bytes | None, error: str | None) -> Photo:
    return unreadable(image, error or "") if content is None else Photo(image, len(content), lambda: content)
