"""Spans for OpenTelemetry (extra `otel`). Unless its standard variables ask for them, nothing of it is imported.

A program that calls `configure` exports spans as the variables say. In another program, which uses the client as a
library, spans go where that program has configured them. Names of spans and attributes follow the semantic conventions
(opentelemetry.io/docs/specs/semconv), variables the specification
(opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables).
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from savedmodel_bakery.extras import MissingPackageError, install_command, naming_extras

_API = "opentelemetry.trace"
_LIBRARY = "savedmodel_bakery"
_OFF: AbstractContextManager[Any] = nullcontext()
_OTLP_ENTRY_POINTS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_FLUSH_S = 2.0

logger = logging.getLogger(__name__)


def configure() -> None:
    """Export the spans of this process, if the variables ask for it.

    OTEL_TRACES_EXPORTER lists exporters, or an OTLP endpoint is set; OTEL_SDK_DISABLED is not true. An exporter or a
    propagator that is not installed is ignored with a warning, as the specification requires.
    """
    names = _exporter_names()
    if is_on() or not names:
        return
    try:
        with naming_extras("OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT", "otel"):
            exporters = list(_make_exporters(names))
            if not exporters:
                return
            _ignore_unknown_propagators()
            from opentelemetry import trace
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except MissingPackageError as error:
        _warn(f"no spans are exported: {error}")
        return
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", "savedmodel-bakery")
    provider = TracerProvider(shutdown_on_exit=False)  # it would wait for a collector that does not respond
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    atexit.register(flush)


def _exporter_names() -> list[str]:
    """Return the names of the exporters that the variables ask for."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    names = _listed("OTEL_TRACES_EXPORTER")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not names and any(map(os.environ.get, endpoints)):
        names = ["otlp"]
    return [name for name in names if name != "none"]


def _make_exporters(names: list[str]) -> Iterator[Any]:
    """Yield those of the exporters that are installed."""
    from importlib.metadata import entry_points  # slow

    variables = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next(filter(None, map(os.environ.get, variables)), "http/protobuf")
    for name in names:
        description, entry_point = repr(name), name
        if name == "otlp":
            description, entry_point = f"{name!r} over {protocol!r}", _OTLP_ENTRY_POINTS.get(protocol, protocol)
        for found in entry_points(group="opentelemetry_traces_exporter", name=entry_point):
            yield found.load()(out=sys.stderr) if name == "console" else found.load()()
            break
        else:
            _warn(
                f"no spans are exported with {description}, which is unknown or not installed; to install 'otlp' over "
                f"'http/protobuf' and 'console', run: {install_command('otel')}"
            )


def _ignore_unknown_propagators() -> None:
    """Remove from OTEL_PROPAGATORS the names that would make the import of `opentelemetry.propagate` fail."""
    from importlib.metadata import entry_points

    names = _listed("OTEL_PROPAGATORS")
    installed = {"none", *entry_points(group="opentelemetry_propagator").names}
    for name in names:
        if name not in installed:
            _warn(f"OTEL_PROPAGATORS: {name!r} is unknown or not installed, and is ignored")
    if names:
        os.environ["OTEL_PROPAGATORS"] = ",".join(name for name in names if name in installed)


def _listed(variable: str) -> list[str]:
    """Return each entry of a comma-separated list once."""
    entries = map(str.strip, os.environ.get(variable, "").split(","))
    return list(dict.fromkeys(filter(None, entries)))


@cache
def _warn(message: str) -> None:
    """Log a warning once."""
    logger.warning(message)


def is_on() -> bool:
    """Return whether spans are made: OpenTelemetry has been imported."""
    return _API in sys.modules


def span(
    name: str, kind: str, attributes: Mapping[str, Any], *, parent: Mapping[str, str] | None = None
) -> AbstractContextManager[Any]:
    """Return a context manager that makes a span, which is the current one within it; it yields the span or None.

    The kind is `INTERNAL`, `SERVER`, `CLIENT`, `PRODUCER` or `CONSUMER`. `parent` are the headers that came with the
    request, in lower case; without them the parent is the current span.
    """
    if not is_on():
        return _OFF
    from opentelemetry import propagate, trace

    return trace.get_tracer(_LIBRARY).start_as_current_span(
        name, None if parent is None else propagate.extract(parent), kind=trace.SpanKind[kind], attributes=attributes
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
    """Export what has not been exported yet, before the process ends; returns after two seconds at most."""
    if is_on():
        from opentelemetry import trace

        force_flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if force_flush:
            # The SDK ignores the timeout of force_flush (opentelemetry-python, issue 4568).
            flushing = threading.Thread(target=force_flush, daemon=True)
            flushing.start()
            flushing.join(_FLUSH_S)
