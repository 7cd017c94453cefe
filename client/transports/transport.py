"""The interface of all transports; the errors and the output filter that they share. Must not import gRPC or HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from savedmodel_bakery.errors import AccessDeniedError, InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire.status import Code, StatusError

if TYPE_CHECKING:
    import numpy as np

    from savedmodel_bakery.client.calls import Call


class Transport(Protocol):
    """A connection to a model server. Its methods raise only ClientError."""

    def send(self, call: Call) -> Any:
        """Send a call and return its result; `client.calls` lists the type of each."""

    def close(self) -> None:
        """Close the connection."""


class ModelTransport(Transport, Protocol):
    """A transport to a single model.

    Attributes:
        model: name of the model.
    """

    model: str


class PreparedTransport(Transport, Protocol):
    """A transport that can send the same call many times but encodes it once; used by load tests."""

    def prepare(self, call: Call) -> Callable[[], Any]:
        """Encode a call; each run of the returned function sends it and returns the undecoded response.

        Equal responses compare equal.
        """

    def decode(self, call: Call, content: Any) -> Any:
        """Decode a response to a call. The result may share the memory of `content`."""


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
    """Return the outputs of a call's output filter, for APIs without one. All if it is empty.

    Raises:
        RequestRefusedError: the errors that a server sends over gRPC.
    """
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
