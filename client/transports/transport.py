"""The interface of all transports, and what they share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from savedmodel_bakery.client.calls import Call, Result, run_flow
from savedmodel_bakery.client.transports.failures import send_with_retries
from savedmodel_bakery.errors import AccessDeniedError, InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire.status import Code, StatusError


class Transport(Protocol):
    """A connection to a model server. Its methods raise only ClientError."""

    def send(self, call: Call) -> Any:
        """Send a call and return its result; `client.calls` lists the type of each."""

    def close(self) -> None:
        """Close the connection."""


class ModelTransport(Transport, Protocol):
    """A transport to a single model, and the name of that model."""

    model: str


class ServerTransport(ABC):
    """Sends calls to a model server. A subclass knows the server's API: the requests of a call, and their encoding."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def send(self, call: Call) -> Any:
        """Send a call, with retries; see `Transport.send`."""
        return self.run(self._exchange(call))

    def run(self, flow: Generator[Any, Any, Result]) -> Result:
        """Send the requests of a flow, with retries, and return its result."""
        end_s = time.monotonic() + self._timeout_s

        def send(request: Any) -> Any:
            return self._decode(request, send_with_retries(self._prepare(request, end_s), end_s=end_s))

        return run_flow(flow, send)

    def prepare(self, call: Call) -> Callable[[], Any]:
        """Encode a call for a load test, which sends it many times; over v2 only Predict is a single request.

        Each run of the returned function sends it once and returns the undecoded response; equal ones compare equal.
        """
        send = self._prepare(next(self._exchange(call)), time.monotonic() + self._timeout_s)
        return lambda: send(self._timeout_s)

    def decode(self, call: Call, content: Any) -> Any:
        """Return the result of a prepared call. It may share the memory of the response's content."""
        return run_flow(self._exchange(call), lambda request: self._decode(request, content))

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def _exchange(self, call: Call) -> Generator[Any, Any, Any]:
        """Return the flow of a call's requests; by default the call itself is the only one."""
        return (yield call)

    @abstractmethod
    def _prepare(self, request: Any, end_s: float) -> Callable[[float], Any]:
        """Encode a request and return the function that sends it once, within a number of seconds.

        If that needs another request, it is sent until `end_s` of the monotonic clock.
        """

    @abstractmethod
    def _decode(self, request: Any, content: Any) -> Any:
        """Decode the response to a request."""


@contextmanager
def encoding_request() -> Iterator[None]:
    """Raise RequestRefusedError for values that the codecs cannot encode."""
    try:
        yield
    except StatusError as exc:
        raise RequestRefusedError(exc.code, exc.message) from exc
    except UnicodeEncodeError as exc:
        raise RequestRefusedError(Code.INVALID_ARGUMENT, f"a name or text cannot be sent as UTF-8: {exc}") from exc


@contextmanager
def decoding_response() -> Iterator[None]:
    """Raise InvalidResponseError for content that the codecs cannot decode."""
    try:
        yield
    except StatusError as exc:
        raise InvalidResponseError(exc.message) from exc


def refused(code: Code, message: str, *, retry_after_s: float | None = None) -> RequestRefusedError:
    """Return the error for a call that a model server refused; see RequestRefusedError."""
    if code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
        return AccessDeniedError(code, message)
    return RequestRefusedError(code, message, retry_after_s=retry_after_s)


def filter_outputs(outputs: Mapping[str, np.ndarray], output_filter: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the outputs that a filter names, all if it is empty, for APIs without one. Errors are those of gRPC."""
    for place, alias in enumerate(output_filter):
        if alias not in outputs:
            names = ",".join(sorted(outputs))
            raise RequestRefusedError(
                Code.INVALID_ARGUMENT,
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set {{{names}}}.",
            )
        if alias in output_filter[:place]:
            raise RequestRefusedError(Code.INVALID_ARGUMENT, f"duplicate output tensor alias: {alias}")
    return {alias: outputs[alias] for alias in output_filter or outputs}


def detach(array: np.ndarray) -> np.ndarray:
    """Return an array that shares no memory with a response: a copy if the array is read-only."""
    if array.flags.writeable:
        return array
    # Copied into a bytearray: numpy would request huge pages, which took three times as long for 512 MiB.
    values = bytearray(array.reshape(-1).view(np.uint8))
    return np.frombuffer(values, np.uint8).view(array.dtype).reshape(array.shape)
