"""The class that Ray's actors run: loads a version and turns photos into rows. Does not import Ray."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from savedmodel_bakery.answers import parquet
from savedmodel_bakery.answers.photo import Photo, unreadable_photo
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.rows import make_photo_rows
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference.photos import PhotoModel, find_photo_task
from savedmodel_bakery.serving.runtimes import import_tensorflow
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code, StatusError

PHOTOS = pa.schema([("image", pa.string()), ("content", pa.binary()), ("error", pa.string())])
"""Columns passed from the readers to the actors; a photo has either content or the error of reading it."""


def read_task(model: str, version: int, path: str) -> str:
    """Return the name of a version's task, from the signatures in its saved_model.pb; the version is not loaded."""
    file = Path(path) / "saved_model.pb"
    try:
        saved_model = schema.SavedModel.FromString(file.read_bytes())
        graph = next(graph for graph in saved_model.meta_graphs if "serve" in graph.meta_info_def.tags)
    except OSError as exc:
        raise StatusError(Code.FAILED_PRECONDITION, f"cannot read {file}: {exc.strerror}") from exc
    except (DecodeError, StopIteration) as exc:
        raise StatusError(Code.FAILED_PRECONDITION, f"{file} is damaged, or has no graph for serving") from exc
    task, _, others = find_photo_task(model, version, graph.signature_def)
    if others:
        raise StatusError(
            Code.FAILED_PRECONDITION,
            f"the model takes {', '.join(others)} beside the photo, which the engine ray does not pass: use the engine "
            "server",
        )
    return task.name


class Classifier:
    """Loads a version and runs it on photos; raises StatusError if it can't be loaded, or takes no photos."""

    def __init__(self, model: str, version: int, path: str) -> None:
        import_tensorflow()  # here, because only the actors need it
        from savedmodel_bakery.serving import warmup
        from savedmodel_bakery.serving.models.loading import LoadOptions, load

        self._name = model
        self._model = PhotoModel(load(model, version, Path(path), LoadOptions(warm_up=warmup.replay)))

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table with the columns `PHOTOS`, with the columns `answers.parquet.SCHEMAS`."""
        photos = [_photo(**row) for row in table.to_pylist()]
        model = self._model
        rows = make_photo_rows(photos, self._predict, task=model.task, model=self._name, signature=model.signature)
        return parquet.to_table(rows, model.task.name)

    def _predict(self, photos: list[tuple[bytes, Mapping[str, Any]]]) -> Prediction:
        try:
            return self._model.prediction(self._model.run(photos, RequestContext()))
        except StatusError as error:
            raise RequestRefusedError(error.code, error.text) from error


def _photo(image: str, content: bytes | None, error: str | None) -> Photo:
    return unreadable_photo(image, error or "") if content is None else Photo(image, len(content), lambda: content)
