"""Spans of real servers and commands, which an OTLP receiver gets; and that nothing of it is imported without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import model_makers
import pytest
import requests
from bulk_files import write_photos
from otlp_receiver import OtlpReceiver, otlp_receiver
from server_process import ServerProcess

MODEL = "sizing"
STATUS = "tensorflow.serving.ModelService/GetModelStatus"

LIBRARY = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from savedmodel_bakery.client import AsyncClient, Client

exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))

async def call(port):
    async with AsyncClient(port=port, model="sizing") as client:
        await client.status()

with trace.get_tracer("shop").start_as_current_span("order"):
    with Client(port=int(sys.argv[1]), model="sizing") as client:
        client.status()
    asyncio.run(call(int(sys.argv[1])))
[*calls, order] = exporter.get_finished_spans()
print(json.dumps([[span.name, span.kind.name, span.parent.span_id == order.context.span_id] for span in calls]))
"""

WITHOUT = """
import sys
from savedmodel_bakery import tracing
from savedmodel_bakery.client import Client

tracing.configure()
for transport in ("grpc", "rest"):
    with Client(transport=transport, port=int(sys.argv[1]), rest_api_port=int(sys.argv[2]), model="sizing") as client:
        client.status()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    """An OTLP receiver."""
    with otlp_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def server(receiver: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that exports spans, of a model whose label is the number of bytes of the image."""
    base_path = tmp_path_factory.mktemp("tracing") / MODEL
    model_makers.sizing(base_path)
    flags = (f"--model_name={MODEL}", f"--model_base_path={base_path}")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**receiver.variables, "OTEL_SERVICE_NAME": "models"}.items():
            patch.setenv(name, value)
        running = ServerProcess(*flags, log=base_path.with_name("log"))
    with running:
        yield running


def bakery(*arguments: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command with further variables."""
    command = [sys.executable, "-m", "savedmodel_bakery", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def ports(server: ServerProcess) -> tuple[str, ...]:
    return ("--port", str(server.port), "--rest-api-port", str(server.rest_api_port))


@pytest.mark.parametrize(
    ("transport", "name"),
    [
        ("GRPC", STATUS),
        ("REST", "GET"),
        ("V2", "POST"),
        ("V2-GRPC", "inference.GRPCInferenceService/RepositoryIndex"),
    ],
)
def test_a_command_and_its_server_share_a_trace(
    receiver: OtlpReceiver, server: ServerProcess, transport: str, name: str
) -> None:
    receiver.spans.clear()
    done = bakery("status", "-m", MODEL, "--format", transport, *ports(server), variables=receiver.variables)
    assert 0 == done.returncode, done.stderr
    sent = receiver.wait_for(name, "CLIENT")
    handled = receiver.wait_for(name, "SERVER", parent=sent)
    assert ("savedmodel-bakery", "models") == (sent.service, handled.service)
    assert not sent.is_error
    assert not handled.is_error


def test_a_bulk_job_is_the_parent_of_its_requests(
    receiver: OtlpReceiver, server: ServerProcess, tmp_path: Path
) -> None:
    photos = write_photos(tmp_path / "photos", **{f"p{size}": b"x" * size for size in range(1, 30)})
    options = ("-m", MODEL, "--out", str(tmp_path / "rows.jsonl"), *ports(server))
    done = bakery("bulk", str(photos), *options, variables=receiver.variables)
    assert 0 == done.returncode, done.stderr
    job = receiver.wait_for("bulk", "INTERNAL")
    sent = receiver.wait_for("tensorflow.serving.PredictionService/Predict", "CLIENT", parent=job)
    handled = receiver.wait_for("tensorflow.serving.PredictionService/Predict", "SERVER", parent=sent)
    assert (MODEL, 1) == (handled.attributes["bakery.model.name"], handled.attributes["bakery.model.version"])


def test_a_caller_s_own_context_is_used_and_errors_are_marked(receiver: OtlpReceiver, server: ServerProcess) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    headers = {"traceparent": f"00-{trace_id}-{span_id}-01"}
    url = f"{server.url}/v1/models/{MODEL}:predict"
    response = requests.post(url, data="{", headers=headers, timeout=60)
    assert 400 == response.status_code
    assert "x-request-id" not in response.headers
    handled = receiver.wait_for("POST", "SERVER", attributes={"http.response.status_code": 400})
    assert (trace_id, span_id, False) == (handled.trace_id.hex(), handled.parent_id.hex(), handled.is_error)
    done = bakery("status", "-m", "none", "--port", str(server.port), variables=receiver.variables)
    assert 1 == done.returncode
    receiver.wait_for(STATUS, "SERVER")
    assert [True] == [span.is_error for span in receiver.spans if (span.name, span.kind) == (STATUS, "CLIENT")][-1:]


def test_spans_of_the_library_go_where_its_program_has_configured_them(server: ServerProcess) -> None:
    command = [sys.executable, "-c", LIBRARY, str(server.port)]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert [[STATUS, "CLIENT", True]] * 2 == json.loads(printed)


def test_without_the_variables_nothing_is_imported(server: ServerProcess) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", WITHOUT, str(server.port), str(server.rest_api_port)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert "[]\n" == done.stdout


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            "error: INVALID_ARGUMENT: invalid OTEL_TRACES_EXPORTER 'zipkin': must be one of otlp, console, none\n",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "error: INVALID_ARGUMENT: invalid OTEL_EXPORTER_OTLP_PROTOCOL 'grpc': must be http/protobuf\n",
        ),
    ],
)
def test_wrong_variables(variables: dict[str, str], message: str) -> None:
    done = bakery("status", "-m", MODEL, variables=variables)
    assert (1, message) == (done.returncode, done.stderr)


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    package = tmp_path / "opentelemetry"
    package.mkdir()
    (package / "__init__.py").write_text("raise ModuleNotFoundError('no', name='opentelemetry')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = bakery("status", "-m", MODEL, variables={"OTEL_TRACES_EXPORTER": "otlp", "PYTHONPATH": path})
    assert 1 == done.returncode
    assert "needs opentelemetry, which is not installed; try: pip install" in done.stderr
    assert "[otel]" in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_disabled_variables_need_no_extra(server: ServerProcess) -> None:
    variables = {"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_SDK_DISABLED": "true"}
    assert 0 == bakery("status", "-m", MODEL, *ports(server), variables=variables).returncode
