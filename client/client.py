"""The client: one object, the same answers over every transport. Must not know how a transport works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from savedmodel_bakery.client.calls import ModelSpec
from savedmodel_bakery.client.errors import ClientError
from savedmodel_bakery.client.flows import Conversation, Course, Result, follow
from savedmodel_bakery.client.images import CLASSIFY_SIGNATURE, DEFAULT_SIGNATURE
from savedmodel_bakery.client.results import Classification, Prediction, VersionStatus
from savedmodel_bakery.client.transports.transport import PreparedTransport, Transport, check_timeout, read_targets
from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE
from savedmodel_bakery.wire.features import Example, ScoredClass

if TYPE_CHECKING:
    from savedmodel_bakery.client.transports.amqp import AmqpTransport

_TRANSPORTS = ("grpc", "rest", "amqp")
DEFAULT_PORTS = {"grpc": 8500, "rest": 8501}


class Client:
    """Asks a server, or several that serve the same. A context manager; not to be shared between threads.

    A question that met no server, or one that said UNAVAILABLE, is put again up to three times, within `timeout_s`.

    Args:
        target: host, or host:port, whose port then wins over the two below; for gRPC also a list of addresses, or a
            name that stands for several, which are asked in turn; for AMQP also the URL of a broker, see
            `client.amqp_broker`.
        transport: `grpc`, `rest`, or `amqp`, which wants the extra `amqp`.
        port: where gRPC listens; 8500 by default.
        rest_api_port: where REST listens; 8501 by default.
        timeout_s: how long an answer may take, up to a day.
        model: name of the model.
        version: its version, by number; by default the newest.
        label: its version, by label.
        queue: where the workers of an AMQP broker take questions from.

    Raises:
        ValueError: for arguments that no server could be asked with. Connecting is left to the first ask.
    """

    def __init__(
        self,
        target: str | Sequence[str] = "127.0.0.1",
        *,
        transport: Literal["grpc", "rest", "amqp"] = "grpc",
        port: int | None = None,
        rest_api_port: int | None = None,
        timeout_s: float = 30.0,
        model: str = "efficientnet_lite0",
        version: int | None = None,
        label: str | None = None,
        queue: str = DEFAULT_QUEUE,
    ) -> None:
        check_timeout(timeout_s)
        self._conversation = Conversation(ModelSpec(model, version, label))
        if transport not in _TRANSPORTS:
            raise ValueError(f'transport "{transport}" was given; it is "grpc", "rest" or "amqp"')
        given = {"grpc": port, "rest": rest_api_port}
        chosen = given.get(transport)
        if chosen is None and any(given.values()):
            raise ValueError('port is that of transport "grpc", rest_api_port that of "rest"; the other one was given')
        self._closed = False
        self._amqp: AmqpTransport | None = None
        if transport == "amqp":
            self._amqp = _open_amqp(target, queue, timeout_s)
            self._transport: Transport = self._amqp
            return
        port = DEFAULT_PORTS[transport] if chosen is None else chosen
        self._transport = open_transport(transport, target, port=port, timeout_s=timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; asking afterwards is a RuntimeError."""
        self._closed = True
        self._transport.close()

    def predict(
        self,
        inputs: Mapping[str, Any],
        *,
        signature: str = DEFAULT_SIGNATURE,
        output_filter: Sequence[str] = (),
        model: str | None = None,
        version: int | None = None,
        label: str | None = None,
    ) -> Prediction:
        """Run a signature on arrays.

        What is sent is checked against the model's metadata, which are fetched once, and again when another version
        answers or what they allowed is refused.

        Args:
            inputs: name to array, of any layout and byte order, or to dicts and lists of arrays, which are named as
                `wire.trees` says. Plain numbers, bytes and str, alone or in lists, become the signature's type.
            signature: name of the signature.
            output_filter: aliases of the outputs wanted; all where empty.
            model: another model than the client's.
            version: its version, by number; where `model` or `label` is given, by default the newest.
            label: its version, by label.

        Raises:
            ClientError: see `client.errors`. RequestRefusedError, before anything is sent, where names, types or
                shapes are not the signature's, or where the request would be over 2 GiB.
            ValueError: where something is no array, or a version can't be one.
            TypeError: where `inputs` are no dict.
        """
        return self._follow(
            self._conversation.predict(
                inputs, signature=signature, output_filter=output_filter, model=model, version=version, label=label
            )
        )

    def classify_images(
        self,
        images: Sequence[bytes | str | PathLike[str]],
        *,
        signature: str = DEFAULT_SIGNATURE,
        top_k: int | None = None,
    ) -> list[Classification]:
        """Classify images in one request, in their order.

        Args:
            images: files as they are (JPEG, PNG, …) or base64 of them, as bytes; or paths, as str or Path.
            signature: `serving_default` for the label alone, `top_k` for scored labels.
            top_k: how many classes of each image are wanted, 1 or more; implies the signature `top_k`.

        Raises:
            ClientError: see `client.errors`. With `serving_default` one bad image fails the request; with
                `top_k` only its own Classification is not `ok`.
            OSError: where a file can't be read.
        """
        return self._follow(self._conversation.classify_images(images, signature=signature, top_k=top_k))

    def classify_examples(
        self, examples: Sequence[Example], *, signature: str = CLASSIFY_SIGNATURE
    ) -> list[list[ScoredClass]]:
        """Run a Classify signature on examples.

        Args:
            examples: of each, feature name to value or values: bytes and str, int, or float.
            signature: name of the signature.

        Returns:
            For each example its classes in the server's order, as (label, score).

        Raises:
            ClientError: see `client.errors`.
        """
        return self._follow(self._conversation.classify_examples(examples, signature=signature))

    def submit(
        self,
        inputs: Mapping[str, Any],
        *,
        result_queue: str,
        signature: str = DEFAULT_SIGNATURE,
        output_filter: Sequence[str] = (),
        expiration_s: float | None = None,
    ) -> str:
        """Run a signature on arrays some time, and have the answer sent to a queue; over AMQP only.

        No worker needs to be there, so nothing is checked against the model's metadata.

        Args:
            inputs: as for `predict`; plain numbers become what numpy makes of them.
            result_queue: a durable queue of `wire.amqp.QUORUM_ARGUMENTS`, made where there is none; see `results`.
            signature: name of the signature.
            output_filter: aliases of the outputs wanted; all where empty.
            expiration_s: how long the question may wait for a worker; None is for ever.

        Returns:
            The correlation id that its answer will bear, when the broker has the question.

        Raises:
            ClientError: see `client.errors`.
            ValueError: over another transport, or where something is no array.
        """
        question = self._conversation.unchecked(inputs, signature=signature, output_filter=output_filter)
        return self._over_amqp().submit(question, result_queue=result_queue, expiration_s=expiration_s)

    def results(self, result_queue: str, *, idle_s: float) -> Iterator[tuple[str, Prediction | ClientError]]:
        """Take out of a queue the answers to what was submitted, until no more came for `idle_s` seconds.

        Each is taken out when the next one is asked for, and comes again where that never happens; so the same answer
        may come twice.

        Returns:
            Correlation ids, and what `predict` would have returned or raised.

        Raises:
            ClientError: the broker is away, or refuses.
            ValueError: over another transport.
        """
        return self._over_amqp().results(result_queue, idle_s=idle_s)

    def metadata(self) -> dict[str, Any]:
        """The model's signatures as protobuf JSON, the same over every transport."""
        return self._follow(self._conversation.metadata())

    def status(self) -> list[VersionStatus]:
        """The state of every version the server has seen, newest first, or of the one asked for by number."""
        return self._follow(self._conversation.status())

    def _over_amqp(self) -> AmqpTransport:
        if self._closed:
            raise RuntimeError("the client has been closed")
        if self._amqp is None:
            raise ValueError('results are sent to a queue over transport "amqp" only')
        return self._amqp

    def _follow(self, course: Course[Result]) -> Result:
        if self._closed:
            raise RuntimeError("the client has been closed")
        return follow(course, self._transport.ask)


def _open_amqp(target: str | Sequence[str], queue: str, timeout_s: float) -> AmqpTransport:
    try:
        from savedmodel_bakery.client.transports.amqp import AmqpTransport
        from savedmodel_bakery.client.transports.amqp_broker import Broker
    except ModuleNotFoundError as exc:
        raise ValueError(
            f"transport \"amqp\" needs {exc.name}, which is not installed; try: pip install 'savedmodel-bakery[amqp]'"
        ) from exc
    if not isinstance(target, str):
        raise ValueError(f'{len(target)} targets were given; transport "amqp" takes one, "grpc" several')
    return AmqpTransport(Broker.parse(target), queue=queue, timeout_s=timeout_s)


def open_transport(
    transport: str, target: str | Sequence[str], *, port: int, timeout_s: float, for_load: bool = False
) -> PreparedTransport:
    """Make a connection, over which nothing has been sent yet.

    Args:
        transport: `grpc` or `rest`.
        target: see `Client`.
        port: of targets that name none.
        timeout_s: how long an answer may take.
        for_load: share it with nobody, and try nothing again.

    Raises:
        ValueError: the target is no address, or one too many.
    """
    # Each transport brings a library that is slow to import and that the other does without.
    if transport == "rest":
        from savedmodel_bakery.client.transports.rest import RestTransport

        endpoints = read_targets(target, port, "REST")
        if len(endpoints) > 1:
            raise ValueError(f'{len(endpoints)} targets were given; transport "rest" takes one, "grpc" several')
        return RestTransport(endpoints[0], timeout_s=timeout_s, for_load=for_load)

    from savedmodel_bakery.client.transports.grpc import GrpcTransport

    return GrpcTransport(read_targets(target, port, "gRPC"), timeout_s=timeout_s, for_load=for_load)
