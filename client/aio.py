"""The client for asyncio: the same answers as `Client`, over gRPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any

from savedmodel_bakery.client.calls import ModelSpec
from savedmodel_bakery.client.client import DEFAULT_PORTS
from savedmodel_bakery.client.flows import Conversation, Course, Result, follow_async
from savedmodel_bakery.client.images import CLASSIFY_SIGNATURE, DEFAULT_SIGNATURE
from savedmodel_bakery.client.results import Classification, Prediction, VersionStatus
from savedmodel_bakery.client.transports.grpc_aio import GrpcAioTransport
from savedmodel_bakery.client.transports.transport import check_timeout, read_targets
from savedmodel_bakery.wire.features import Example, ScoredClass


class AsyncClient:
    """Asks as `Client` does, without standing in others' way; any number of questions may be open at once.

    An asynchronous context manager, for one event loop. Arguments, answers and errors are those of `Client`.
    """

    def __init__(
        self,
        target: str | Sequence[str] = "127.0.0.1",
        *,
        port: int = DEFAULT_PORTS["grpc"],
        timeout_s: float = 30.0,
        model: str = "efficientnet_lite0",
        version: int | None = None,
        label: str | None = None,
    ) -> None:
        check_timeout(timeout_s)
        self._conversation = Conversation(ModelSpec(model, version, label))
        self._closed = False
        self._transport = GrpcAioTransport(read_targets(target, port, "gRPC"), timeout_s=timeout_s)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; asking afterwards is a RuntimeError."""
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
        return await self._follow(
            self._conversation.predict(
                inputs, signature=signature, output_filter=output_filter, model=model, version=version, label=label
            )
        )

    async def classify_images(
        self,
        images: Sequence[bytes | str | PathLike[str]],
        *,
        signature: str = DEFAULT_SIGNATURE,
        top_k: int | None = None,
    ) -> list[Classification]:
        """Classify images in one request; see `Client.classify_images`."""
        return await self._follow(self._conversation.classify_images(images, signature=signature, top_k=top_k))

    async def classify_examples(
        self, examples: Sequence[Example], *, signature: str = CLASSIFY_SIGNATURE
    ) -> list[list[ScoredClass]]:
        """Run a Classify signature on examples; see `Client.classify_examples`."""
        return await self._follow(self._conversation.classify_examples(examples, signature=signature))

    async def metadata(self) -> dict[str, Any]:
        """The model's signatures as protobuf JSON."""
        return await self._follow(self._conversation.metadata())

    async def status(self) -> list[VersionStatus]:
        """The state of every version the server has seen, newest first, or of the one asked for by number."""
        return await self._follow(self._conversation.status())

    async def _follow(self, course: Course[Result]) -> Result:
        if self._closed:
            raise RuntimeError("the client has been closed")
        return await follow_async(course, self._transport.ask)
