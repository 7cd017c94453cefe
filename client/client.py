"""The synchronous clients. The calls behind their methods are in `client.flows`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import CLASSIFY_SIGNATURE, DEFAULT_SIGNATURE, REGRESS_SIGNATURE
from savedmodel_bakery.client.calls import ModelSpec
from savedmodel_bakery.client.credentials import Tls
from savedmodel_bakery.client.endpoints import check_timeout
from savedmodel_bakery.client.flow_runners import Result, run_flow
from savedmodel_bakery.client.flows import Flow, Flows
from savedmodel_bakery.client.image_methods import ImageMethods
from savedmodel_bakery.client.servers import TransportName, parse_server
from savedmodel_bakery.client.transports.factory import create_amqp_transport, create_transport
from savedmodel_bakery.client.transports.transport import ModelTransport, Transport
from savedmodel_bakery.client.version_status import VersionStatus
from savedmodel_bakery.defaults import DEFAULT_MODEL
from savedmodel_bakery.errors import ClientError
from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE
from savedmodel_bakery.wire.features import Example, ScoredClass

_Self = TypeVar("_Self", bound="BaseClient")


class BaseClient(ImageMethods):
    """The methods that `Client` and `AmqpClient` share."""

    def __init__(self, spec: ModelSpec, transport: Transport) -> None:
        self._flows = Flows(spec)
        self._transport = transport
        self._closed = False

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Later calls raise RuntimeError."""
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

        The inputs are checked against the model's metadata before they are sent. The metadata are fetched once, and
        again if another version responds or if the server refuses inputs that they allowed.

        Args:
            inputs: name to array, of any memory layout and byte order, or to nested dicts and lists of arrays: their
                names are keys and positions joined by `/`, such as `a/0/b` for `{"a": [{"b": array}]}`. Python
                numbers, bytes and str, alone or in lists, are converted to the signature's element type.
            signature: name of the signature.
            output_filter: aliases of the outputs to return; empty for all.
            model: another model than the client's.
            version: version number; if `model` or `label` is set, the default is the newest.
            label: version label.

        Returns:
            The outputs, as arrays of the signature's dtypes and shapes.

        Raises:
            ClientError: the call failed. RequestRefusedError is also raised before anything is sent, if names, types
                or shapes do not match the signature, or if the request would be larger than 2 GiB.
            ValueError: an input is not an array, or the version is invalid.
            TypeError: `inputs` is not a dict.
        """
        return self._run(
            self._flows.predict(
                inputs, signature=signature, output_filter=output_filter, model=model, version=version, label=label
            )
        )

    def classify_examples(
        self, examples: Sequence[Example], *, signature: str = CLASSIFY_SIGNATURE
    ) -> list[list[ScoredClass]]:
        """Run a Classify signature on examples.

        Args:
            examples: for each, feature name to a value or a list of values: bytes, str, int or float.
            signature: name of the signature.

        Returns:
            For each example its classes as (label, score), in the server's order.

        Raises:
            ClientError: the call failed.
        """
        return self._run(self._flows.classify_examples(examples, signature=signature))

    def regress_examples(self, examples: Sequence[Example], *, signature: str = REGRESS_SIGNATURE) -> list[float]:
        """Run a Regress signature on examples, and return a number for each; see `classify_examples`."""
        return self._run(self._flows.regress_examples(examples, signature=signature))

    def metadata(self) -> dict[str, Any]:
        """Return the model's signatures as protobuf JSON, the same over every transport.

        Other servers of the v2 protocol only state names, dtypes and shapes of `serving_default`.

        Raises:
            ClientError: the call failed.
        """
        return self._run(self._flows.metadata())

    def status(self) -> list[VersionStatus]:
        """Return the state of the client's version, or of all versions that the server knows, newest first.

        Raises:
            ClientError: the call failed.
        """
        return self._run(self._flows.status())

    def _run(self, flow: Flow[Result]) -> Result:
        self._check_open()
        return run_flow(flow, self._transport.send)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed")


class Client(BaseClient):
    """Calls a model server over gRPC, REST or v2. A context manager; not for use by several threads at once.

    A call that cannot reach a server, or gets UNAVAILABLE, is retried up to three times within `timeout_s`. If an
    overloaded server says when to try again, the client does so, unless that is after `timeout_s`. Nothing is connected
    before the first call.

    Args:
        target: HOST or HOST:PORT, whose port overrides the two below. A scheme selects transport and TLS: `grpc://`,
            `grpcs://`, `http://` or `https://`. Over gRPC without TLS also a list of targets. gRPC balances calls over
            the list, and over the addresses to which a name resolves.
        transport: `grpc` or `rest`, the TensorFlow Serving API; or `v2` (HTTP) or `v2-grpc`, the v2 protocol (Open
            Inference Protocol), for any server that has it. By default that of the target, or `grpc`. For AMQP use
            `AmqpClient`. Or a `LocalTransport`, which needs no server: then the target, its ports, `tls`, `token` and
            `timeout_s` do not apply.
        port: gRPC port, for `grpc` and `v2-grpc`; 8500 by default.
        rest_api_port: HTTP port, for `rest` and `v2`; 8501 by default.
        tls: encrypt the connection; `Tls()` by default if the target begins with `grpcs://` or `https://`.
        token: bearer token to send with each call. Use TLS, or others may read it.
        timeout_s: time limit of a call in seconds, above 0 and at most a day.
        model: name of the model; by default that of a `LocalTransport`, or `efficientnet_lite0`, the demo's.
        version: version number; the newest by default.
        label: version label.

    Raises:
        ValueError: an argument is invalid.
    """

    def __init__(
        self,
        target: str | Sequence[str] = "127.0.0.1",
        *,
        transport: TransportName | ModelTransport | None = None,
        port: int | None = None,
        rest_api_port: int | None = None,
        tls: Tls | None = None,
        token: str | None = None,
        timeout_s: float = 30.0,
        model: str | None = None,
        version: int | None = None,
        label: str | None = None,
    ) -> None:
        check_timeout(timeout_s)
        if transport is not None and not isinstance(transport, str):
            super().__init__(ModelSpec(transport.model if model is None else model, version, label), transport)
            return
        spec = ModelSpec(DEFAULT_MODEL if model is None else model, version, label)
        server = parse_server(target, transport=transport, port=port, rest_api_port=rest_api_port, tls=tls, token=token)
        super().__init__(spec, create_transport(server, timeout_s=timeout_s))


class AmqpClient(BaseClient):
    """Calls workers through a RabbitMQ broker. A context manager; not for use by several threads at once.

    Needs the extra `amqp`. A call that cannot reach the broker, or that a full queue rejects, is retried up to three
    times within `timeout_s`. Nothing is connected before the first call.

    Args:
        target: HOST or HOST:PORT of the broker, or its URL, `amqp[s]://USER:PASSWORD@HOST:PORT/VHOST`, for TLS with
            `?cafile=…&certfile=…&keyfile=…` if needed.
        queue: the queue from which the workers consume.
        timeout_s: time limit of a call in seconds, above 0 and at most a day.
        model: name of the model; by default `efficientnet_lite0`, the demo's.
        version: version number; the newest by default.
        label: version label.

    Raises:
        ModuleNotFoundError: the extra `amqp` is not installed.
        ValueError: an argument is invalid.
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
        self._amqp = create_amqp_transport(target, queue=queue, timeout_s=timeout_s)
        super().__init__(spec, self._amqp)

    def submit(
        self,
        inputs: Mapping[str, Any],
        *,
        result_queue: str,
        signature: str = DEFAULT_SIGNATURE,
        output_filter: Sequence[str] = (),
        expiration_s: float | None = None,
    ) -> str:
        """Publish a request to run a signature on arrays, and have its reply sent to a queue.

        Returns when the broker has confirmed the request. It does not need a running worker, so the inputs are not
        checked against the model's metadata.

        Args:
            inputs: as for `predict`, but numbers are converted to numpy's default types.
            result_queue: name of a durable quorum queue, which is created if it does not exist; see `results`.
                The workers must allow it (`--result-queue`, by default all names that start with `results`).
            signature: name of the signature.
            output_filter: aliases of the outputs to return; empty for all.
            expiration_s: seconds that the request may wait for a worker; None for no limit.

        Returns:
            The correlation id, which the reply will have too.

        Raises:
            ClientError: the call failed.
            ValueError: an input is not an array.
        """
        self._check_open()
        call = self._flows.unchecked_predict(inputs, signature=signature, output_filter=output_filter)
        return self._amqp.submit(call, result_queue=result_queue, expiration_s=expiration_s)

    def results(self, result_queue: str, *, idle_s: float) -> Iterator[tuple[str, Prediction | ClientError]]:
        """Consume the replies to submitted requests until none arrives for `idle_s` seconds.

        A reply is acknowledged when the next one is requested. A reply that is not acknowledged is delivered again, so
        the same reply may be returned twice.

        Args:
            result_queue: the queue that `submit` named.
            idle_s: seconds to wait for another reply.

        Returns:
            For each reply, the correlation id and what `predict` would have returned or raised.

        Raises:
            ClientError: the broker cannot be reached, or refuses.
        """
        self._check_open()
        return self._amqp.results(result_queue, idle_s=idle_s)
