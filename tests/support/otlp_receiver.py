"""An OTLP receiver on loopback: keeps the spans that processes export over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from waiting import wait_until


class Span(NamedTuple):
    """A span that has ended."""

    service: str
    name: str
    kind: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    attributes: dict[str, Any]
    is_error: bool


class OtlpReceiver:
    """The received spans.

    Attributes:
        variables: the environment of a process that exports to it.
        spans: in the order in which they arrived.
    """

    def __init__(self, port: int) -> None:
        self.variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        self.spans: list[Span] = []

    def add(self, content: bytes) -> None:
        """Keep the spans of a request."""
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            service = _values(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    kind = SpanMessage.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
                    ids = span.trace_id, span.span_id, span.parent_span_id
                    attributes = _values(span.attributes)
                    self.spans.append(Span(service, span.name, kind, *ids, attributes, span.status.code == 2))

    def wait_for(
        self, name: str, kind: str, *, parent: Span | None = None, attributes: Mapping[str, Any] | None = None
    ) -> Span:
        """Return the newest span with this name, kind, parent and attributes."""
        found: list[Span] = []

        def is_there() -> bool:
            found[:] = [
                span
                for span in self.spans
                if (name, kind) == (span.name, span.kind)
                and (attributes or {}).items() <= span.attributes.items()
                and (parent is None or (parent.trace_id, parent.span_id) == (span.trace_id, span.parent_id))
            ]
            return bool(found)

        wait_until(is_there, describe=lambda: f"no {kind} span {name} {attributes} in {self.spans}")
        return found[-1]


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Receive spans until the end of the `with` block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.add(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = OtlpReceiver(server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield receiver
        server.shutdown()


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
