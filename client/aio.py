"""The clients for asyncio. Their methods, results and errors are those of `client.client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar

from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import CLASSIFY_SIGNATURE, DEFAULT_SIGNATURE, REGRESS_SIGNATURE
from savedmodel_bakery.client.calls import Call, ModelSpec
from savedmodel_bakery.client.credentials import Tls
from savedmodel_bakery.client.endpoints import check_timeout
from savedmodel_bakery.client.flow_runners import Result, run_flow_async
from savedmodel_bakery.client.flows import Flow, Flows
from savedmodel_bakery.client.image_methods_aio import AsyncImageMethods
from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.client.transports.factory import create_async_amqp_transport, create_async_transport
from savedmodel_bakery.client.version_status import VersionStatus
from savedmodel_bakery.defaults import DEFAULT_MODEL
from savedmodel_bakery.errors import ClientError
from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE
from savedmodel_bakery.wire.features import Example, ScoredClass

_Self = TypeVar("_Self", bound="BaseAsyncClient")


class AsyncTransport(Protocol):
    """The interface of `Transport` for asyncio."""

    async def send(self, call: Call) -> Any:
        """Send a call and return its result."""

    async def close(self) -> None:
        """Close the connection."""


class BaseAsyncClient(AsyncImageMethods):
    """The methods that `AsyncClient` and `AsyncAmqpClient` share."""

    def __init__(self, spec: ModelSpec, transport: AsyncTransport) -> None:
        self._flows = Flows(spec)
        self._transport = transport
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # which the connection belongs to

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Later calls raise RuntimeError."""
        self._closed = True
        await self._transport.close()

    async def predict(
        self,
        inputs: Mapping[str, Any],
        *,
        signature: str = DEFAULT_SIGNATURE,
        output_filter: Sequence[str] = (),
        model: str | None = None,
        version: int | None = None,
        label: str | None = None,
    ) -> Prediction:
        """Run a signature on arrays; see `Client.predict`."""
        return await self._run(
            self._flows.predict(
                inputs, signature=signature, output_filter=output_filter, model=model, version=version, label=label
            )
        )

    async def classify_examples(
        self, examples: Sequence[Example], *, signature: str = CLASSIFY_SIGNATURE
    ) -> list[list[ScoredClass]]:
        """Run a Classify signature on examples; see `Client.classify_examples`."""
        return await self._run(self._flows.classify_examples(examples, signature=signature))

    async def regress_examples(self, examples: Sequence[Example], *, signature: str = REGRESS_SIGNATURE) -> list[float]:
        """Run a Regress signature on examples; see `Client.regress_examples`."""
        return await self._run(self._flows.regress_examples(examples, signature=signature))

    async def metadata(self) -> dict[str, Any]:
        """Return the model's signatures as protobuf JSON; see `Client.metadata`."""
        return await self._run(self._flows.metadata())

    async def status(self) -> list[VersionStatus]:
        """Return the state of the model's versions; see `Client.status`."""
        return await self._run(self._flows.status())

    async def _run(self, flow: Flow[Result]) -> Result:
        self._check_open()
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise RuntimeError("the client has been used in another event loop: each loop needs a client of its own")
        return await run_flow_async(flow, self._transport.send)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed")


class AsyncClient(BaseAsyncClient):
    """Calls a model server over gRPC, with any number of calls at the same time.

    An asynchronous context manager, for one event loop. For the arguments see `Client`; `transport` is `grpc`, the
    default, or `v2-grpc`.
    """

    def __init__(
        self,
        target: str | Sequence[str] = "127.0.0.1",
        *,
        transport: Literal["grpc", "v2-grpc"] = "grpc",
        port: int | None = None,
        tls: Tls | None = None,
        token: str | None = None,
        timeout_s: float = 30.0,
        model: str = DEFAULT_MODEL,
        version: int | None = None,
        label: str | None = None,
    ) -> None:
        check_timeout(timeout_s)
        spec = ModelSpec(model, version, label)
        server = parse_server(target, transport=transport, port=port, tls=tls, token=token)
        super().__init__(spec, create_async_transport(server, timeout_s=timeout_s))


class AsyncAmqpClient(BaseAsyncClient):
    """Calls workers through a RabbitMQ broker, with any number of calls at the same time.

    An asynchronous context manager, for one event loop. For the arguments see `AmqpClient`.
    """

    def __init__(
        self,
        target: str = "127.0.0.1",
        *,
        queue: str = DEFAULT_QUEUE,
        timeout_s: float = 30.0,
        model: str = DEFAULT_MODEL,
        version: int | None = None,
        label: str | None = None,
    ) -> None:
        check_timeout(timeout_s)
        spec = ModelSpec(model, version, label)
        self._amqp = create_async_amqp_transport(target, queue=queue, timeout_s=timeout_s)
        super().__init__(spec, self._amqp)

    async def submit(
        self,
        inputs: Mapping[str, Any],
        *,
        result_queue: str,
        signature: str = DEFAULT_SIGNATURE,
        output_filter: Sequence[str] = (),
        expiration_s: float | None = None,
    ) -> str:
        """Publish a request whose reply is sent to a queue; see `AmqpClient.submit`."""
        self._check_open()
        call = self._flows.unchecked_predict(inputs, signature=signature, output_filter=output_filter)
        return await self._amqp.submit(call, result_queue=result_queue, expiration_s=expiration_s)

    def results(self, result_queue: str, *, idle_s: float) -> AsyncIterator[tuple[str, Prediction | ClientError]]:
        """Consume the replies to submitted requests; see `AmqpClient.results`."""
        self._check_open()
        return self._amqp.results(result_queue, idle_s=idle_s)
