"""Observes requests: each becomes a line of the access log and a span of OpenTelemetry, if these are on.

After an unexpected exception, the caller gets INTERNAL and a request id; the log gets the traceback with the same id.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime, timezone

from savedmodel_bakery import tracing
from savedmodel_bakery.log import EscapingFormatter
from savedmodel_bakery.wire.status import Code, StatusError

REQUEST_ID = "x-request-id"
"""The header, or the key of the metadata, with the id of a request."""

_NOTED_CHARACTERS = 256  # of a model's name, which a request may make as long as its largest message
_ID = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)
# The server's own fault (opentelemetry.io/docs/specs/semconv: "HTTP spans", "gRPC"), and a caller that has gone.
_FAILED = re.compile(r"5\d\d|UNKNOWN|DEADLINE_EXCEEDED|UNIMPLEMENTED|INTERNAL|UNAVAILABLE|DATA_LOSS")
_PLAIN = re.compile(r"[^\s\"=\\]+", re.ASCII)


class AccessLog:
    """Writes a line per request on stdout, when it has ended: no payloads, no tokens, no queries of URLs."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._logger = logging.Logger("access")  # not below the root, which has another format
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(EscapingFormatter("%(message)s"))
        self._logger.addHandler(handler)

    def write(self, fields: dict[str, str | float | None]) -> None:
        """Write a line."""
        present = {key: value for key, value in fields.items() if value is not None}
        if self._as_json:
            self._logger.info("%s", json.dumps(present))
        else:
            self._logger.info("%s", " ".join(f"{key}={_quote(value)}" for key, value in present.items()))


class Requests:
    """Observes the requests of a server. With an access log, responses have the ids of their requests."""

    def __init__(self, log: AccessLog | None) -> None:
        self._log = log

    def begin_http(self, method: str, path: str, peer: str, headers: Mapping[str, str]) -> Entry:
        """Return the entry of a request whose headers have arrived; see `Entry`."""
        attributes = {"http.request.method": method, "url.path": path, "client.address": peer}
        return Entry(self._log, "REST", f"{method} {path}", peer, headers, span_name=method, attributes=attributes)

    def begin_rpc(self, path: str, peer: str, metadata: Mapping[str, str]) -> Entry:
        """Return the entry of an RPC whose metadata have arrived; see `Entry`."""
        attributes = {**tracing.rpc_attributes(path), "client.address": peer}
        return Entry(self._log, "GRPC", path, peer, metadata, span_name=path.lstrip("/"), attributes=attributes)


class Entry:
    """One request.

    `entrypoint` is `GRPC` or `REST`; `call` is the path of an RPC, or method and path of an HTTP request; `headers` are
    by name in lower case. `request_id` is the id that the caller has sent, if it is of 1 to 128 letters, digits and
    `_.:+/=-`, else a new one; empty without an access log.
    """

    def __init__(
        self,
        log: AccessLog | None,
        entrypoint: str,
        call: str,
        peer: str,
        headers: Mapping[str, str],
        *,
        span_name: str,
        attributes: Mapping[str, str],
    ) -> None:
        self._log = log
        self._entrypoint = entrypoint
        self._call = call
        self._peer = peer
        self._time = datetime.now(timezone.utc)
        self._started_s = time.perf_counter()
        sent_id = headers.get(REQUEST_ID, "")
        self.request_id = "" if log is None else sent_id if _ID.fullmatch(sent_id) else uuid.uuid4().hex
        self.token_name: str | None = None
        self.model_name: str | None = None
        self.model_version: int | None = None
        self.received_bytes: int | None = None
        self._stack = ExitStack()
        self._span = self._stack.enter_context(tracing.span(span_name, "SERVER", attributes, parent=headers))

    def note_model(self, name: str) -> None:
        """Note the model that the request names. In URLs of TensorFlow Serving, a query is part of the name."""
        if self._entrypoint == "REST":
            name = name.partition("?")[0]
        self.model_name = name[:_NOTED_CHARACTERS] or None

    def end(self, status: str, sent_bytes: int) -> None:
        """Write the line and end the span; `status` is the HTTP status or the gRPC code."""
        if self._span is not None:
            self._end_span(status)
        self._stack.close()
        if self._log is None:
            return
        self._log.write(
            {
                "time": self._time.isoformat(timespec="milliseconds"),
                "request_id": self.request_id,
                "entrypoint": self._entrypoint,
                "call": self._call,
                "status": status,
                "duration_ms": round((time.perf_counter() - self._started_s) * 1000, 3),
                "received_bytes": self.received_bytes,
                "sent_bytes": sent_bytes,
                "model_name": self.model_name,
                "model_version": self.model_version,
                "token_name": self.token_name,
                "peer": self._peer,
            }
        )

    def _end_span(self, status: str) -> None:
        if self._entrypoint == "REST":
            self._span.set_attribute("http.response.status_code", int(status))
        else:
            self._span.set_attribute("rpc.response.status_code", status)
        for key, value in {
            "bakery.model.name": self.model_name,
            "bakery.model.version": self.model_version,
            "bakery.request.id": self.request_id or None,
        }.items():
            if value is not None:
                self._span.set_attribute(key, value)
        if _FAILED.fullmatch(status):
            tracing.fail(self._span, status)


def _quote(value: str | float) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def report_exception(logger: logging.Logger, operation: str, request_id: str = "") -> StatusError:
    """Log the exception that is being handled in an operation; return the error to send to the caller."""
    request_id = request_id or uuid.uuid4().hex
    logger.exception("%s failed with an unexpected exception (request id %s)", operation, request_id)
    return StatusError(Code.INTERNAL, f"internal error; see request id {request_id} in the server's log")
