"""Spans for OpenTelemetry (extra `otel`). Unless its standard variables ask for them, nothing of it is imported.

A program that calls `configure` exports spans as the variables say. In another program, which uses the client as a
library, spans go where that program has configured them. Names of spans and attributes follow the semantic conventions
(opentelemetry.io/docs/specs/semconv), variables the specification
(opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.wire.status import invalid_argument

_API = "opentelemetry.trace"
_LIBRARY = "savedmodel_bakery"
_OFF: AbstractContextManager[Any] = nullcontext()
_EXPORTERS = ("otlp", "console", "none")
_PROTOCOL = "http/protobuf"
_FLUSH_MS = 2000


def is_requested() -> bool:
    """Return whether the standard variables ask for spans.

    OTEL_TRACES_EXPORTER names an exporter, or an OTLP endpoint is set; OTEL_SDK_DISABLED is not true.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return exporter != "none" if exporter else any(map(os.environ.get, endpoints))


def configure() -> None:
    """Export the spans of this process, if the variables ask for it.

    Raises:
        MissingPackageError: they do, and the extra `otel` is not installed.
        StatusError: INVALID_ARGUMENT: they ask for an exporter or a protocol that there is not.
    """
    if is_on() or not is_requested():
        return
    name = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if name not in _EXPORTERS:
        raise invalid_argument(f"invalid OTEL_TRACES_EXPORTER {name!r}: must be one of {', '.join(_EXPORTERS)}")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if name == "otlp" and protocol not in (None, "", _PROTOCOL):
        raise invalid_argument(f"invalid OTEL_EXPORTER_OTLP_PROTOCOL {protocol!r}: must be {_PROTOCOL}")
    with naming_extras("OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT", "otel"):
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", "savedmodel-bakery")
    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter() if name == "otlp" else ConsoleSpanExporter(out=sys.stderr))
    )
    trace.set_tracer_provider(provider)


def is_on() -> bool:
    """Return whether spans are made: OpenTelemetry has been imported."""
    return _API in sys.modules


def span(
    name: str, kind: str, attributes: Mapping[str, Any], *, parent: Mapping[str, str] | None = None
) -> AbstractContextManager[Any]:
    """Return a context manager that makes a span, which is the current one within it; it yields the span or None.

    Args:
        name: of the span.
        kind: `INTERNAL`, `SERVER`, `CLIENT`, `PRODUCER` or `CONSUMER`.
        attributes: by name.
        parent: headers that came with the request, in lower case; None if the parent is the current span.
    """
    if not is_on():
        return _OFF
    from opentelemetry import propagate, trace

    return trace.get_tracer(_LIBRARY).start_as_current_span(
        name,
        None if parent is None else propagate.extract(parent),
        kind=trace.SpanKind[kind],
        attributes=attributes,
    )


def rpc_attributes(path: str) -> dict[str, str]:
    """Return the attributes of the span of an RPC."""
    service, _, method = path.lstrip("/").rpartition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}


def headers() -> dict[str, str]:
    """Return the headers that carry the current span to a server (W3C Trace Context; OTEL_PROPAGATORS)."""
    carrier: dict[str, str] = {}
    if is_on():
        from opentelemetry import propagate

        propagate.inject(carrier)
    return carrier


def fail(span: Any, description: str) -> None:
    """Mark a span as failed."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, description))


def flush() -> None:
    """Export what has not been exported yet, before a process ends at once; for two seconds at most."""
    if is_on():
        from opentelemetry import trace

        force_flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if force_flush:
            force_flush(_FLUSH_MS)
