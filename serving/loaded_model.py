"""One model in this process, without a server: loaded, warmed up, and called with the requests of the gRPC API."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from savedmodel_bakery.serving import warmup
from savedmodel_bakery.serving.models.lifecycle import Lifecycle, LifecycleOptions
from savedmodel_bakery.serving.models.loading import LoadOptions, load
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.options.model_config import single_model
from savedmodel_bakery.serving.prediction_service import PredictionService

_END_S = 10.0  # of a thread that may be loading a version


class LoadedModel:
    """The newest version of a model, and new versions as they appear, as the model server loads them.

    Args:
        name: of the model.
        base_path: the folder with its version folders.

    Attributes:
        registry: has the loaded version.
        handlers: by the name of their method in `schema.METHODS`.

    Raises:
        StatusError: the model cannot be loaded.
    """

    def __init__(self, name: str, base_path: Path) -> None:
        self.registry = Registry()
        self._lifecycle = Lifecycle(
            self.registry,
            partial(load, options=LoadOptions(warm_up=warmup.replay)),
            LifecycleOptions(max_load_retries=0),
        )
        try:
            self._lifecycle.start(single_model(name, str(base_path.absolute())))
        except BaseException:
            self.close()
            raise
        self.handlers = PredictionService(self.registry).handlers()

    def close(self) -> None:
        """Stop looking for new versions; no call may be running."""
        self._lifecycle.stop()
        self._lifecycle.join(_END_S)
