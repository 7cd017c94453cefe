"""One model in this process, without a server: loaded, warmed up, and called with the messages of the gRPC API."""

from __future__ import annotations

from functools import partial

from savedmodel_bakery.serving import warmup
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models.lifecycle import Lifecycle
from savedmodel_bakery.serving.models.loading import LoadOptions, load
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.models.version_threads import LifecycleOptions
from savedmodel_bakery.serving.prediction_service import PredictionService
from savedmodel_bakery.wire.encoding import parsed_size
from savedmodel_bakery.wire.messages import parse_request
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.schema import METHODS

_END_S = 10.0  # of a thread that may be loading a version


class LoadedModel:
    """The versions that a configuration selects, and new ones as they appear, as the model server loads them.

    `LocalTransport` calls it, and an AMQP worker that has its own model; see `amqp.backends.Backend`.
    """

    def __init__(self, config: ModelConfig) -> None:
        registry = Registry()
        self._lifecycle = Lifecycle(
            registry,
            partial(load, options=LoadOptions(warm_up=warmup.replay)),
            LifecycleOptions(max_load_retries=0),
        )
        try:
            self._lifecycle.start({config.name: config})
        except BaseException:
            self.close()
            raise
        service = PredictionService(registry)
        self._handlers = service.handlers()
        self.predict = service.predict
        self.signatures = service.signatures

    def call(self, method: str, content: bytes, context: RequestContext) -> bytes:
        """Run a method of `schema.METHODS` and return its serialized response.

        Raises:
            DecodeError: `content` is not a request of this method.
            StatusError: the request was refused, or the run failed.
        """
        context.charge(parsed_size(METHODS[method].request, content))
        request = parse_request(method, content)
        response: bytes = self._handlers[method](request, context).SerializeToString()
        return response

    def check(self) -> None:
        """Return None: a loaded model can always be called."""

    def close(self) -> None:
        """Stop looking for new versions; no call may be running."""
        self._lifecycle.stop()
        self._lifecycle.join(_END_S)
