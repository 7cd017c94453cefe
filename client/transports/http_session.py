"""Sends HTTP requests and maps their errors to ClientError, for all APIs over HTTP. Must not import gRPC."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import requests
from urllib3.exceptions import InvalidHeader, NameResolutionError, ReadTimeoutError
from urllib3.util import Retry

from savedmodel_bakery import tracing
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports.failures import (
    OVERLOADED,
    connecting_failed,
    deadline_exceeded,
    name_not_resolved,
)
from savedmodel_bakery.client.transports.transport import refused
from savedmodel_bakery.errors import ClientError, ConnectionFailedError, DeadlineExceededError, InvalidResponseError
from savedmodel_bakery.wire.status import Code

# The inverse of tensorflow_model_server's table. If several codes share an HTTP status, the most common one is used.
# 422 is FastAPI's status for a body that it cannot validate, 502 a gateway's for a server that is down. Any other
# status is UNKNOWN.
_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ABORTED,
    422: Code.INVALID_ARGUMENT,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}

_PIECE_BYTES = 2**20
_MAX_BODY_BYTES = 2**31 - 1  # as over gRPC

# A gateway sends these without a body of this API.
_GATEWAY_STATUSES = (401, 403, 429, 502, 503, 504)


class HttpResponse(NamedTuple):
    """A response with status 200. The names of the headers may be in any case."""

    content: bytes
    headers: Mapping[str, str]


def read_object(content: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body; None if it is not one."""
    document = read_json(content)
    return document if isinstance(document, dict) else None


def read_json(content: bytes) -> Any:
    """Return the value in a body; None if it is not JSON."""
    try:
        return json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def read_error(document: Mapping[str, Any]) -> str | None:
    """Return the message in the body of an error, `{"error": …}`; None if it is not one."""
    message = document.get("error")
    return message if isinstance(message, str) else None


class HttpSession:
    """One session with one server; `timeout_s` limits the connecting, each wait for more, and the time of a body.

    `read_error` returns the message in the JSON object of an error; None if it is not an error of this API. `advice` is
    for a server that does not have this API.
    """

    def __init__(
        self,
        server: Server,
        *,
        timeout_s: float,
        read_error: Callable[[Mapping[str, Any]], str | None] = read_error,
        advice: str = "",
    ) -> None:
        [self._endpoint] = server.endpoints
        self._server = server
        self._timeout_s = timeout_s
        self._read_error = read_error
        self._advice = advice
        self._session = requests.Session()
        self._session.trust_env = not self._endpoint.is_loopback
        if server.tls is not None:
            self._session.verify = True if server.tls.ca is None else os.fspath(server.tls.ca)
            if server.tls.cert is not None:
                cert = os.fspath(server.tls.cert)
                self._session.cert = (cert, cert if server.tls.key is None else os.fspath(server.tls.key))
        if server.token is not None:
            token = f"Bearer {server.token}"  # RFC 6750

            def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
                request.headers["Authorization"] = token
                return request

            self._session.auth = authorize  # as a header of the session, an entry in ~/.netrc would replace it

    def url(self, path: str) -> str:
        """Return the URL of a path, which starts with a slash."""
        return f"{'http' if self._server.tls is None else 'https'}://{self._endpoint.address}{path}"

    def prepare(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Callable[[float], HttpResponse]:
        """Return the function that sends a request once, within a number of seconds; the response has status 200."""
        try:
            request = self._session.prepare_request(
                requests.Request(method, self.url(path), data=body, headers=headers)
            )
        except requests.RequestException as exc:
            raise self._client_error(exc) from exc

        def send(timeout_s: float) -> HttpResponse:
            attributes = {
                "http.request.method": method,
                "url.full": self.url(path),
                "server.address": self._endpoint.host,
                "server.port": self._endpoint.port,
            }
            with tracing.span(method, "CLIENT", attributes):
                request.headers.update(tracing.headers())
                try:
                    response = self._session.send(request, timeout=timeout_s, allow_redirects=False, stream=True)
                    content = self._read(response, time.monotonic() + timeout_s)
                except OSError as exc:  # also requests' plain OSError for a certificate file that was removed
                    raise self._client_error(exc) from exc
                if response.status_code != requests.codes.ok:
                    raise self._refusal(response, content)
                return HttpResponse(content, response.headers)

        return send

    def close(self) -> None:
        """Close the session's connections."""
        self._session.close()

    def _read(self, response: requests.Response, deadline: float) -> bytes:
        """Return the body of a response, which may be endless."""
        pieces: list[bytes] = []
        size = 0
        for piece in response.iter_content(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > _MAX_BODY_BYTES or time.monotonic() > deadline:
                response.close()
                if size <= _MAX_BODY_BYTES:
                    raise deadline_exceeded([self._endpoint], self._timeout_s)
                raise InvalidResponseError(
                    f"the response of {self._endpoint.address} has more than {_MAX_BODY_BYTES} bytes"
                )
        return b"".join(pieces)

    def _client_error(self, exc: OSError) -> ClientError:
        # requests raises a ConnectionError for a timeout while it reads the rest of a body.
        timed_out = exc.args and isinstance(exc.args[0], ReadTimeoutError)
        if isinstance(exc, requests.ReadTimeout) or timed_out:
            return deadline_exceeded([self._endpoint], self._timeout_s)
        reason = getattr(exc.args[0], "reason", None) if exc.args else None  # of urllib3's MaxRetryError
        if isinstance(reason, NameResolutionError):
            return name_not_resolved([self._endpoint])
        if isinstance(exc, (requests.ConnectionError, requests.exceptions.InvalidURL)):
            return connecting_failed(self._server, str(reason or exc))
        if not isinstance(exc, requests.RequestException):
            return ConnectionFailedError(
                f"cannot connect to {self._endpoint.address} over {self._endpoint.protocol}: {exc}"
            )
        return InvalidResponseError(f"{self._endpoint.address} sent an invalid HTTP response: {exc}")

    def _refusal(self, response: requests.Response, content: bytes) -> ClientError:
        code = _CODES.get(response.status_code, Code.UNKNOWN)
        message = self._read_error(read_object(content) or {})
        if message is None:
            content_type = response.headers.get("Content-Type", "no content type")
            message = (
                f"{response.url} responded HTTP {response.status_code} with {content_type}; "
                'a model server responds {"error": …}'
            )
            if response.status_code not in _GATEWAY_STATUSES:
                advice = self._advice if response.status_code == requests.codes.not_found else ""
                return InvalidResponseError("; ".join(filter(None, [message, advice])))
        if code is Code.DEADLINE_EXCEEDED:
            return DeadlineExceededError(message)
        return refused(code, message, retry_after_s=_retry_after_s(response) if code in OVERLOADED else None)


def _retry_after_s(response: requests.Response) -> float | None:
    """Return the seconds of the header Retry-After (RFC 9110, section 10.2.3), which may be a date; None without it."""
    try:
        return Retry().parse_retry_after(response.headers.get("Retry-After", ""))
    except (InvalidHeader, ValueError):
        return None
