"""The client for asyncio. Its methods, results and errors are those of `client.client`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, overload

from savedmodel_bakery.answers.images import Image
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import CLASSIFY_SIGNATURE, DEFAULT_SIGNATURE, REGRESS_SIGNATURE
from savedmodel_bakery.answers.task import ImageResult
from savedmodel_bakery.answers.tasks.keypoints import KEYPOINTS, Keypoints
from savedmodel_bakery.answers.tasks.labels import MULTILABEL, Classification, Tags
from savedmodel_bakery.answers.tasks.numbers import EMBED, REGRESS, TENSORS, Embedding, Regression, Tensors
from savedmodel_bakery.answers.tasks.regions import DETECT, SEGMENT, TRANSFORM, Detections, Picture, Segmentation
from savedmodel_bakery.client.calls import (
    Call,
    FindModel,
    ModelSpec,
    Result,
    VersionStatus,
    first_cause,
    run_flow_async,
)
from savedmodel_bakery.client.client import Images
from savedmodel_bakery.client.credentials import Tls
from savedmodel_bakery.client.flows import Flow, Flows, Inputs
from savedmodel_bakery.client.servers import check_timeout, parse_server
from savedmodel_bakery.client.transports import find_model
from savedmodel_bakery.defaults import DEFAULT_MODEL
from savedmodel_bakery.errors import ClientError
from savedmodel_bakery.wire.examples import Example, ScoredClass

_Self = TypeVar("_Self", bound="BaseAsyncClient")


class AsyncTransport(Protocol):
    """The interface of `Transport` for asyncio."""

    async def send(self, call: Call) -> Any:
        """Send a call and return its result."""

    async def close(self) -> None:
        """Close the connection."""


class BaseAsyncClient:
    """The methods that `AsyncClient` and `AsyncAmqpClient` share."""

    def __init__(self, spec: ModelSpec, transport: AsyncTransport, find_model: Callable[[], str] | None = None) -> None:
        self._flows = Flows(spec, find_model)
        self._transport = transport
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # which the connection belongs to

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Later calls raise RuntimeError."""
        self._closed = True
        await self._transport.close()

    @overload
    async def classify(self, images: Image, *, top_k: int | None = None, inputs: Inputs = None) -> Classification: ...

    @overload
    async def classify(
        self, images: Images, *, top_k: int | None = None, inputs: Inputs = None
    ) -> list[Classification]: ...

    async def classify(
        self, images: Image | Images, *, top_k: int | None = None, inputs: Inputs = None
    ) -> Classification | list[Classification]:
        """See `Client.classify`."""
        return await self._run(self._flows.classify(images, top_k=top_k, inputs=inputs))

    @overload
    async def answer(self, images: Image, *, inputs: Inputs = None) -> ImageResult: ...

    @overload
    async def answer(self, images: Images, *, inputs: Inputs = None) -> list[ImageResult]: ...

    async def answer(self, images: Image | Images, *, inputs: Inputs = None) -> ImageResult | list[ImageResult]:
        """See `Client.answer`."""
        return await self._run(self._flows.answer(images, inputs))

    @overload
    async def tags(self, images: Image, *, inputs: Inputs = None) -> Tags: ...

    @overload
    async def tags(self, images: Images, *, inputs: Inputs = None) -> list[Tags]: ...

    async def tags(self, images: Image | Images, *, inputs: Inputs = None) -> Tags | list[Tags]:
        """See `Client.tags`."""
        return await self._run(self._flows.run_task(MULTILABEL, images, inputs))

    @overload
    async def embed(self, images: Image, *, inputs: Inputs = None) -> Embedding: ...

    @overload
    async def embed(self, images: Images, *, inputs: Inputs = None) -> list[Embedding]: ...

    async def embed(self, images: Image | Images, *, inputs: Inputs = None) -> Embedding | list[Embedding]:
        """See `Client.embed`."""
        return await self._run(self._flows.run_task(EMBED, images, inputs))

    @overload
    async def detect(self, images: Image, *, inputs: Inputs = None) -> Detections: ...

    @overload
    async def detect(self, images: Images, *, inputs: Inputs = None) -> list[Detections]: ...

    async def detect(self, images: Image | Images, *, inputs: Inputs = None) -> Detections | list[Detections]:
        """See `Client.detect`."""
        return await self._run(self._flows.run_task(DETECT, images, inputs))

    @overload
    async def segment(self, images: Image, *, inputs: Inputs = None) -> Segmentation: ...

    @overload
    async def segment(self, images: Images, *, inputs: Inputs = None) -> list[Segmentation]: ...

    async def segment(self, images: Image | Images, *, inputs: Inputs = None) -> Segmentation | list[Segmentation]:
        """See `Client.segment`."""
        return await self._run(self._flows.run_task(SEGMENT, images, inputs))

    @overload
    async def keypoints(self, images: Image, *, inputs: Inputs = None) -> Keypoints: ...

    @overload
    async def keypoints(self, images: Images, *, inputs: Inputs = None) -> list[Keypoints]: ...

    async def keypoints(self, images: Image | Images, *, inputs: Inputs = None) -> Keypoints | list[Keypoints]:
        """See `Client.keypoints`."""
        return await self._run(self._flows.run_task(KEYPOINTS, images, inputs))

    @overload
    async def transform(self, images: Image, *, inputs: Inputs = None) -> Picture: ...

    @overload
    async def transform(self, images: Images, *, inputs: Inputs = None) -> list[Picture]: ...

    async def transform(self, images: Image | Images, *, inputs: Inputs = None) -> Picture | list[Picture]:
        """See `Client.transform`."""
        return await self._run(self._flows.run_task(TRANSFORM, images, inputs))

    @overload
    async def regress(self, images: Image, *, inputs: Inputs = None) -> Regression: ...

    @overload
    async def regress(self, images: Images, *, inputs: Inputs = None) -> list[Regression]: ...

    async def regress(self, images: Image | Images, *, inputs: Inputs = None) -> Regression | list[Regression]:
        """See `Client.regress`."""
        return await self._run(self._flows.run_task(REGRESS, images, inputs))

    @overload
    async def tensors(self, images: Image, *, inputs: Inputs = None) -> Tensors: ...

    @overload
    async def tensors(self, images: Images, *, inputs: Inputs = None) -> list[Tensors]: ...

    async def tensors(self, images: Image | Images, *, inputs: Inputs = None) -> Tensors | list[Tensors]:
        """See `Client.tensors`."""
        return await self._run(self._flows.run_task(TENSORS, images, inputs))

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
        try:
            return await run_flow_async(flow, self._send)
        except ClientError as exc:
            raise exc.with_traceback(None) from first_cause(exc)

    async def _send(self, call: Call | FindModel) -> Any:
        if isinstance(call, FindModel):
            return await asyncio.to_thread(call.run)
        return await self._transport.send(call)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed")


class AsyncClient(BaseAsyncClient):
    """Calls a model server over gRPC, with any number of calls at the same time.

    An asynchronous context manager, for one event loop. For the arguments see `Client`; `transport` is `grpc`, the
    default, or `v2-grpc`.

    Examples:
        >>> import asyncio
        >>> from savedmodel_bakery import AsyncClient
        >>> async def name():
        ...     async with AsyncClient("127.0.0.1:8500", model="efficientnet_lite0") as client:
        ...         return (await client.metadata())["model_spec"]["name"]
        >>> asyncio.run(name())
        'efficientnet_lite0'
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
        model: str | None = None,
        version: int | None = None,
        label: str | None = None,
    ) -> None:
        check_timeout(timeout_s)
        spec = ModelSpec(DEFAULT_MODEL if model is None else model, version, label)
        server = parse_server(target, transport=transport, port=port, tls=tls, token=token)
        if not server.uses_grpc:
            raise ValueError(f'transport "{server.transport}": an asynchronous client takes "grpc" or "v2-grpc"')
        from savedmodel_bakery.client.transports.grpc import GrpcAioTransport

        find = None if model is not None else partial(find_model, server, timeout_s=timeout_s, argument="model=")
        super().__init__(spec, GrpcAioTransport(server, timeout_s=timeout_s), find)
