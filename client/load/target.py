"""Calls to a model server for load tests: each request is encoded once, and each response is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from savedmodel_bakery.answers.other_inputs import Specs, other_inputs
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import read_signatures
from savedmodel_bakery.client.calls import ModelSpec, Predict, run_flow
from savedmodel_bakery.client.flows import Flows
from savedmodel_bakery.client.goldens import compare
from savedmodel_bakery.client.load.generator import CallFailedError, SendCall
from savedmodel_bakery.client.transports.transport import ServerTransport
from savedmodel_bakery.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
    TlsHandshakeError,
)
from savedmodel_bakery.wire.status import Code

_STATUSES: dict[type[ClientError], str] = {
    ConnectionFailedError: "cannot connect",
    TlsHandshakeError: "cannot connect",
    DeadlineExceededError: "DEADLINE_EXCEEDED",
    InvalidResponseError: "invalid response",
}
WRONG = "wrong response"


@dataclass(frozen=True)
class Exchange:
    """A call, the undecoded content of its first response, and the expected outputs by alias."""

    call: Predict
    content: bytes
    expected: Mapping[str, np.ndarray]


class Target:
    """One signature of a model on a server, and the requests to send to it in turn; each caller has its own connection.

    `atol` is the absolute tolerance of numbers with a fraction; a server with batching rounds differently each time.
    """

    def __init__(self, connect: Callable[[], ServerTransport], spec: ModelSpec, *, signature: str, atol: float) -> None:
        self._connect = connect
        self._flows = Flows(spec)
        self._signature = signature
        self._atol = atol
        self._exchanges: list[Exchange] = []

    def other_inputs(self) -> Specs:
        """Return the inputs of the signature beside the image, which the server's metadata state."""
        with closing(self._connect()) as transport:
            send: Callable[[Any], Any] = transport.send
            signatures = read_signatures(run_flow(self._flows.metadata(), send))
        return other_inputs(signatures.find(self._signature).inputs)

    def add(self, inputs: Mapping[str, Any], expected: Mapping[str, Any] | None = None) -> Prediction:
        """Add a request; it is sent once. Later responses must equal `expected`, or this first response."""
        sent: list[tuple[Predict, bytes]] = []
        transport = self._connect()

        def send(call: Any) -> Any:
            if not isinstance(call, Predict):
                return transport.send(call)
            content = transport.prepare(call)()
            sent.append((call, content))
            return transport.decode(call, content)

        try:
            prediction = run_flow(self._flows.predict(inputs, signature=self._signature, output_filter=()), send)
        finally:
            transport.close()
        call, content = sent[-1]
        arrays = prediction.arrays if expected is None else _convert(expected, prediction.arrays)
        exchange = Exchange(call, content, arrays)
        self._check(exchange, prediction)
        self._exchanges.append(exchange)
        return prediction

    def add_images(self, inputs: Mapping[str, Any], expected: Sequence[str] | None = None) -> None:
        """Add a request with encoded images. Each must have its expected label, or that of the first response."""
        outputs = self.add(inputs).arrays
        for number, ok in enumerate(outputs.get("ok", ())):
            if not ok:
                reason = outputs["error"][number].decode("utf-8", "replace")
                raise RequestRefusedError(Code.INVALID_ARGUMENT, f"photo {number}: {reason}")
        for number, label in enumerate(expected or ()):
            actual = _label(outputs, number)
            if actual != label:
                raise CallFailedError(WRONG, f'photo {number} is "{actual}"; expected "{label}"')

    @contextmanager
    def open_caller(self) -> Iterator[SendCall]:
        """Open a connection and yield a function that sends request N, starting over after the last request."""
        transport = self._connect()
        senders = [transport.prepare(exchange.call) for exchange in self._exchanges]

        def send(number: int) -> None:
            place = number % len(senders)
            exchange = self._exchanges[place]
            try:
                content = senders[place]()
                if content != exchange.content:
                    self._check(exchange, transport.decode(exchange.call, content))
            except ClientError as exc:
                status = exc.code.name if isinstance(exc, RequestRefusedError) else _STATUSES[type(exc)]
                raise CallFailedError(status, str(exc)) from exc

        try:
            yield send
        finally:
            transport.close()

    def _check(self, exchange: Exchange, prediction: Prediction) -> None:
        differences = compare(exchange.expected, prediction.arrays, lambda _: self._atol)
        if differences:
            raise CallFailedError(WRONG, "; ".join(differences))


def _label(outputs: Mapping[str, np.ndarray], number: int) -> str:
    """Return the label of an image, or the best one of several."""
    labels = outputs.get("output_0", outputs.get("labels"))
    if labels is None:
        names = ", ".join(f'"{alias}"' for alias in outputs)
        raise CallFailedError(WRONG, f"the response has no labels to compare; it has {names}")
    label: bytes = labels[number].ravel()[0] if isinstance(labels[number], np.ndarray) else labels[number]
    return label.decode("utf-8", "replace")


def _convert(expected: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return expected values from a file in the element types of the outputs, which JSON does not state."""
    arrays = {}
    for alias, value in expected.items():
        array = np.asarray(value)
        if alias in outputs and outputs[alias].dtype.kind == "O":
            array = np.array([item.encode() if isinstance(item, str) else item for item in array.ravel()], object)
            array = array.reshape(np.shape(value))
        elif alias in outputs:
            array = array.astype(outputs[alias].dtype)
        arrays[alias] = array
    return arrays
