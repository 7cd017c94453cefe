"""Spans of real servers and commands, which an OTLP receiver gets; and that nothing of it is imported without them."""

from __future__ import annotations

import json
import os
import socket
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
from savedmodel_bakery import AsyncClient, Client

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
from savedmodel_bakery import Client

tracing.configure()
for transport in ("grpc", "rest"):
    with Client(transport=transport, port=int(sys.argv[1]), rest_api_port=int(sys.argv[2]), model="sizing") as client:
        client.status()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""

FLUSH = """
import os
from savedmodel_bakery import tracing

tracing.configure()
with tracing.span("job", "INTERNAL", {}):
    pass
tracing.flush()
os._exit(0)
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


def bakery(*arguments: str, variables: Mapping[str, str], timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command with further variables."""
    command = [sys.executable, "-m", "savedmodel_bakery", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)


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
    ("variables", "warning"),
    [
        ({"OTEL_TRACES_EXPORTER": "otlp,zipkin,otlp"}, "no spans are exported with 'zipkin', which is unknown or"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp,console,none", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "no spans are exported with 'otlp' over 'grpc', which is unknown or not installed; to install 'otlp' over "
            "'http/protobuf' and 'console', run: pip install ",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_PROPAGATORS": "b3,tracecontext"},
            "OTEL_PROPAGATORS: 'b3' is unknown or not installed, and is ignored",
        ),
    ],
    ids=["exporter", "protocol", "propagator"],
)
def test_what_is_not_installed_is_ignored_with_a_warning(
    receiver: OtlpReceiver, server: ServerProcess, variables: dict[str, str], warning: str
) -> None:
    """The other exporters of the list get the spans."""
    receiver.spans.clear()
    done = bakery("status", "-m", MODEL, *ports(server), variables={**receiver.variables, **variables})
    assert (0, 1) == (done.returncode, done.stderr.count("unknown or not installed")), done.stderr
    assert warning in done.stderr
    if "console" in variables["OTEL_TRACES_EXPORTER"]:
        assert f'"name": "{STATUS}"' in done.stderr
    else:
        receiver.wait_for(STATUS, "CLIENT")


def test_a_missing_extra_is_named_in_a_warning(server: ServerProcess, tmp_path: Path) -> None:
    replace_opentelemetry(tmp_path, "raise ModuleNotFoundError('no', name='opentelemetry')")
    variables = {"OTEL_TRACES_EXPORTER": "otlp", "PYTHONPATH": first_path(tmp_path)}
    done = bakery("status", "-m", MODEL, *ports(server), variables=variables)
    assert (0, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert "needs opentelemetry, which is not installed; try: pip install" in done.stderr
    assert "[otel]" in done.stderr


def replace_opentelemetry(folder: Path, program: str) -> None:
    """Write a package `opentelemetry` that runs a program when it is imported."""
    (folder / "opentelemetry").mkdir()
    (folder / "opentelemetry" / "__init__.py").write_text(program)


def first_path(folder: Path) -> str:
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


@pytest.mark.parametrize(
    ("variables", "is_imported"), [({}, False), ({"OTEL_TRACES_EXPORTER": "console"}, True)], ids=["off", "on"]
)
def test_a_server_imports_nothing_unless_the_variables_ask_for_spans(
    half_plus_two: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    is_imported: bool,
) -> None:
    replace_opentelemetry(tmp_path, f"open({str(tmp_path / 'imported')!r}, 'w'); raise ModuleNotFoundError")
    for name, value in {"PYTHONPATH": first_path(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value)
    flags = ("--model_name=m", f"--model_base_path={half_plus_two}", "--access_log")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        for transport in ("GRPC", "REST"):
            bakery("status", "-m", "m", "--format", transport, *ports(server), variables={"OTEL_SDK_DISABLED": "true"})
    assert 2 == (tmp_path / "log").read_text().count("request_id=")
    assert is_imported == (tmp_path / "imported").exists()


@pytest.fixture
def unresponsive_collector() -> Iterator[dict[str, str]]:
    """The variables for a collector that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        yield {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
        }


def test_a_command_does_not_wait_for_a_collector_that_does_not_respond(
    server: ServerProcess, unresponsive_collector: dict[str, str]
) -> None:
    done = bakery("status", "-m", MODEL, *ports(server), variables=unresponsive_collector, timeout_s=25)
    assert 0 == done.returncode, done.stderr


def test_a_flush_does_not_wait_for_a_collector_that_does_not_respond(unresponsive_collector: dict[str, str]) -> None:
    environment = {**os.environ, **unresponsive_collector}
    subprocess.run([sys.executable, "-c", FLUSH], env=environment, timeout=25, check=True)


def test_disabled_variables_need_no_extra(server: ServerProcess) -> None:
    variables = {"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_SDK_DISABLED": "true"}
    assert 0 == bakery("status", "-m", MODEL, *ports(server), variables=variables).returncode
