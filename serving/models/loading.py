"""Loads a version folder as a servable, with batching, and warms it up."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from savedmodel_bakery.files import parse_toml, read_small
from savedmodel_bakery.serving import process
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.options.config_files import (
    FILE_IN_VERSION,
    BatchingParameters,
    check_path,
    read_batching_parameters,
)
from savedmodel_bakery.serving.runtimes import Runtime
from savedmodel_bakery.serving.runtimes.batching import Batcher
from savedmodel_bakery.serving.runtimes.tf_session import SavedModel
from savedmodel_bakery.serving.telemetry.images import RowCounts, record_stages
from savedmodel_bakery.wire import version_folder
from savedmodel_bakery.wire.status import Code, StatusError

TF_LITE_FILE = "model.tflite"


@dataclass(frozen=True)
class Batching:
    """Selects the batching parameters of a version."""

    parameters: BatchingParameters  # the server's parameters
    per_model: bool  # whether parameters are read from the version folder; without a file there, batching is off
    slots: threading.Semaphore  # limits the number of batches that run at the same time

    def parameters_for(self, path: Path) -> BatchingParameters | None:
        """Return the parameters for the version in `path`; None if its requests aren't batched."""
        if not self.per_model:
            return self.parameters
        file = path / FILE_IN_VERSION
        if not file.is_file():
            return None
        return replace(
            read_batching_parameters(file),
            num_batch_threads=self.parameters.num_batch_threads,
            thread_pool_name=self.parameters.thread_pool_name,
        )


@dataclass(frozen=True)
class LoadOptions:
    """How versions are loaded; see the server's flags."""

    tags: Sequence[str] = ("serve",)  # of the graphs to load
    session_config: bytes | None = None  # a serialized ConfigProto; None for TensorFlow's defaults
    model_roots: Sequence[Path | str] = ()  # the folders that versions must be below
    prefer_tf_lite: bool = False  # whether `model.tflite` is served if a version has one
    tf_lite_interpreters: int = 0  # calls that a TF Lite model runs at the same time; 0 means one per CPU
    batching: Batching | None = None  # how requests are joined into batches; None if they aren't
    # replays the warm-up requests in a version folder; None for no warm-up
    warm_up: Callable[[Servable, Path], None] | None = None
    stage_sample_interval: int = 0  # runs from one whose stages are timed to the next; 0 to time none


class NotAFolderError(StatusError):
    """A version path is a file, not a folder; the load is not retried."""


def load(name: str, version: int, path: Path, options: LoadOptions) -> Servable:
    """Load the version in `path` and replay its warm-up requests; errors are worded as tensorflow_model_server's."""
    check_path(path, options.model_roots, f"version {version} of model {name}")
    if not path.is_dir():
        raise NotAFolderError(
            Code.FAILED_PRECONDITION,
            f"Error while attempting to reserve resources to load servable {{name: {name} version: {version}}}: "
            f"{path}; Not a directory",
        )
    try:
        return _load_and_warm_up(name, version, path, options)
    finally:
        process.release_memory()


def _load_and_warm_up(name: str, version: int, path: Path, options: LoadOptions) -> Servable:
    runtime: Runtime
    model = None
    row_bytes = 0
    if options.prefer_tf_lite and (path / TF_LITE_FILE).is_file():
        from savedmodel_bakery.serving.runtimes.tf_lite import TfLiteModel  # imported only if needed

        runtime = TfLiteModel(path / TF_LITE_FILE, interpreters=options.tf_lite_interpreters)
    else:
        runtime = model = SavedModel(path, tags=options.tags, config=options.session_config)
        row_bytes = model.row_bytes
    recipe = _read_recipe(path)
    try:
        parameters = options.batching.parameters_for(path) if options.batching else None
        if options.batching and parameters:
            runtime = Batcher(runtime, parameters, options.batching.slots)
        servable = Servable(name, version, runtime, *_images_at_one_time(recipe), row_bytes)
        if options.warm_up:
            options.warm_up(servable, path)
    except Exception:
        runtime.close()
        raise
    # The metrics don't count warm-up.
    if options.stage_sample_interval and model:
        model.sample_stages(options.stage_sample_interval, partial(record_stages, name, version))
    counts = RowCounts(name, version, servable.signatures, is_image_model=recipe is not None)
    return replace(servable, row_counts=counts)


def _read_recipe(path: Path) -> Mapping[str, Any] | None:
    """Return the recipe of a baked image model; None if the version has none, or it can't be read."""
    file = path / version_folder.RECIPE
    try:
        return parse_toml(read_small(file).decode()) if file.is_file() else None
    except (OSError, ValueError):
        return None


def _images_at_one_time(recipe: Mapping[str, Any] | None) -> tuple[int | None, int]:
    """Return how many pixels a baked version decodes, and how many images it computes, at one time; else None and 0.

    Versions without `rows_per_run` decode all images of a request at once.
    """
    try:
        if recipe is None:
            return None, 0
        rows, batch = int(recipe["rows_per_run"]), int(recipe.get("batch_max", 0)) or 1
        return int(recipe["max_pixels"]), math.ceil(rows / batch) * batch  # whole batches
    except (ValueError, KeyError, TypeError, OverflowError):
        return None, 0
