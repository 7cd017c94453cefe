"""half_plus_two as a worker's backend: in this process, and on a model server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import model_makers
import pytest
from server_process import ServerProcess

from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.amqp.backends import Backend, RemoteServer
from savedmodel_bakery.serving.amqp.handlers import CallLimits, Handlers
from savedmodel_bakery.serving.loaded_model import LoadedModel
from savedmodel_bakery.wire.messages import ModelSpec, Prediction, PredictRequest
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import StatusError


class RecordingBackend:
    """Passes calls on to a backend.

    Attributes:
        calls: the methods called.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.calls: list[str] = []

    def call(self, method: str, content: bytes, context: RequestContext) -> bytes:
        self.calls.append(method)
        return self._backend.call(method, content, context)

    def predict(self, request: PredictRequest, context: RequestContext) -> Prediction:
        self.calls.append("Predict")
        return self._backend.predict(request, context)

    def signatures(self, spec: ModelSpec, context: RequestContext) -> Mapping[str, Any]:
        self.calls.append("signatures")
        return self._backend.signatures(spec, context)

    def check(self) -> StatusError | None:
        return self._backend.check()

    def close(self) -> None:
        self._backend.close()


@pytest.fixture(scope="module", params=["local model", "remote server"])
def shared_backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    base_path = tmp_path_factory.mktemp("models") / "half_plus_two"
    model_makers.half_plus(base_path, 1)
    if request.param == "local model":
        local = LoadedModel(ModelConfig("half_plus_two", str(base_path)))
        yield local
        local.close()
        return
    flags = ("--model_name=half_plus_two", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=base_path.parent / "log") as running:
        remote = RemoteServer(parse_server(f"127.0.0.1:{running.port}"))
        yield remote
        remote.close()


@pytest.fixture
def backend(shared_backend: Backend) -> RecordingBackend:
    return RecordingBackend(shared_backend)


@pytest.fixture
def handlers(backend: RecordingBackend) -> Handlers:
    return Handlers(backend, model_name="half_plus_two", limits=CallLimits(timeout_s=30))
