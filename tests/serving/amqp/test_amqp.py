"""What messages mean and how they are joined, without a broker: the handlers, before a real server and a real model."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import model_makers
import numpy as np
import pytest
from server_process import ServerProcess, free_port

from savedmodel_bakery.client.endpoints import Endpoint
from savedmodel_bakery.client.transports.amqp_broker import Broker
from savedmodel_bakery.serving.amqp.backends import Backend, ModelServer, OwnModel
from savedmodel_bakery.serving.amqp.decoding import Message
from savedmodel_bakery.serving.amqp.errors import delivery_limit_reached, error_response
from savedmodel_bakery.serving.amqp.handlers import Handlers
from savedmodel_bakery.wire import amqp, schema
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import decode_array, encode_tensor


class Counting:
    """A backend that notes the calls that pass through to another."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.calls: list[str] = []

    def call(self, name: str, request: bytes) -> bytes:
        self.calls.append(name)
        return self.backend.call(name, request)


@pytest.fixture(scope="module", params=["own model", "model server"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """half_plus_two, here and there."""
    base_path = tmp_path_factory.mktemp("models") / "half_plus_two"
    model_makers.half_plus(base_path, 1)
    if request.param == "own model":
        own = OwnModel("half_plus_two", base_path, timeout_s=30)
        yield own
        own.close()
        return
    flags = ("--model_name=half_plus_two", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=base_path.parent / "log") as running:
        elsewhere = ModelServer(Endpoint("127.0.0.1", running.port, "gRPC"), timeout_s=30)
        yield elsewhere
        elsewhere.close()


@pytest.fixture
def counting(backend: Backend) -> Counting:
    return Counting(backend)


@pytest.fixture
def handlers(counting: Counting) -> Handlers:
    return Handlers(counting, model="half_plus_two")


def predict(
    signature: str = "", version: int | None = None, filter_: tuple[str, ...] = (), **inputs: np.ndarray
) -> Message:
    request = schema.PredictRequest(output_filter=filter_)
    request.model_spec.name = "half_plus_two"
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    for alias, array in inputs.items():
        encode_tensor(array, into=request.inputs[alias])
    return Message(request.SerializeToString(), amqp.PROTOBUF)


def outputs(answer: Any) -> dict[str, list[Any]]:
    assert answer.error is None, answer.error
    found = schema.PredictResponse.FromString(answer.body).outputs
    return {alias: decode_array(found[alias]).tolist() for alias in found}


X = np.float32([1, 2])
LARGE = np.zeros(1 << 19, np.float32)


def test_every_call_of_the_api_is_answered_by_its_type(handlers: Handlers) -> None:
    status = schema.GetModelStatusRequest()
    status.model_spec.name = "half_plus_two"
    kind = "tensorflow.serving.GetModelStatusRequest"
    (answer,) = handlers.handle([Message(status.SerializeToString(), amqp.PROTOBUF, kind)])
    assert "tensorflow.serving.GetModelStatusResponse" == answer.type
    assert 30 == schema.GetModelStatusResponse.FromString(answer.body).model_version_status[0].state
    assert {"y": [2.5, 3.0]} == outputs(handlers.handle([predict(x=X)])[0])
    assert [2.0] * LARGE.size == outputs(handlers.handle([predict(x=LARGE)])[0])["y"]


JSON_BODIES = {
    "rows": (b'{"instances": [1.0, 2.0]}', {}, {"predictions": [2.5, 3.0]}),
    "columns": (b'{"inputs": {"x": [1.0]}}', {}, {"outputs": [2.5]}),
    "signature in the body": (
        b'{"signature_name": "two", "inputs": {"a": [3], "b": [1]}}',
        {},
        {"outputs": {"diff": [2.0], "sum": [4.0]}},
    ),
    "signature in a header": (
        b'{"inputs": {"a": [3], "b": [1]}}',
        {"signature": "two", "version": 1},
        {"outputs": {"diff": [2.0], "sum": [4.0]}},
    ),
}


@pytest.mark.parametrize(("body", "headers", "expected"), JSON_BODIES.values(), ids=JSON_BODIES)
def test_json_is_answered_as_rest_would(
    handlers: Handlers, body: bytes, headers: dict[str, Any], expected: dict[str, Any]
) -> None:
    (answer,) = handlers.handle([Message(body, amqp.JSON, headers=headers)])
    assert (amqp.JSON, None) == (answer.content_type, answer.error)
    assert expected == json.loads(answer.body)


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/JSON"])
def test_parameters_of_a_content_type_are_passed_over(handlers: Handlers, content_type: str) -> None:
    (answer,) = handlers.handle([Message(b'{"instances": [1.0]}', content_type)])
    assert {"predictions": [2.5]} == json.loads(answer.body)
    wrong = Message(b"", f"{amqp.PROTOBUF};x=1", "tensorflow.serving.PredictRequest")
    assert (amqp.PROTOBUF, b"") == (handlers.handle([wrong])[0].content_type, handlers.handle([wrong])[0].body)


def test_an_image_is_one_row_of_the_input_that_takes_it(handlers: Handlers) -> None:
    headers = {"signature": "text", "input": "s"}
    (answer,) = handlers.handle([Message(b"plain\0", "image/png", headers=headers)])
    assert {"predictions": [{"t": "plain\0", "t_bytes": {"b64": "cGxhaW4A"}}]} == json.loads(answer.body)


UNREADABLE = {
    "content type": (Message(b"x", "text/plain"), 'content type "text/plain" is none that is read'),
    "no content type": (Message(b"x", ""), 'content type "" is none that is read'),
    "type": (Message(b"", amqp.PROTOBUF, "os.system"), 'type "os.system" is none that is read'),
    "protobuf": (Message(b"\xff", amqp.PROTOBUF), "1 bytes came that are no tensorflow.serving.PredictRequest"),
    "JSON": (Message(b"{", amqp.JSON), "JSON Parse error"),
    "pickle": (Message(b"\x80\x04N.", amqp.JSON), "JSON Parse error"),
}


@pytest.mark.parametrize(("message", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_nobody_can_read_is_refused_and_a_dead_letter(handlers: Handlers, message: Message, reason: str) -> None:
    (answer,) = handlers.handle([message])
    assert (Code.INVALID_ARGUMENT, True) == (answer.error.code, answer.dead_letter)
    assert reason in answer.error.message


NO_VERSION = 'version "-1" is none; versions are 0 to 9223372036854775807'
MISTAKES = {
    "signature": (predict("nope", x=X), Code.FAILED_PRECONDITION, 'Serving signature key "nope" not found.'),
    "version": (predict(version=9, x=X), Code.NOT_FOUND, "Servable not found for request: Specific(half_plus_two, 9)"),
    "JSON signature": (
        Message(b'{"signature_name": "nope", "instances": [1]}', amqp.JSON),
        Code.INVALID_ARGUMENT,
        'Serving signature name: "nope" not found in signature def',
    ),
    "model in a header": (
        Message(b"x", "image/png", headers={"model": "cats"}),
        Code.NOT_FOUND,
        "Servable not found for request: Latest(cats)",
    ),
    "version in a header": (Message(b"x", "image/png", headers={"version": -1}), Code.INVALID_ARGUMENT, NO_VERSION),
    "two versions": (
        Message(b"x", "image/png", headers={"version": 1, "label": "stable"}),
        Code.INVALID_ARGUMENT,
        "version and label are given; give one of them",
    ),
}


@pytest.mark.parametrize(("message", "code", "reason"), MISTAKES.values(), ids=MISTAKES)
def test_a_callers_mistake_is_answered_in_the_servers_words(
    handlers: Handlers, message: Message, code: Code, reason: str
) -> None:
    (answer,) = handlers.handle([message])
    assert (code, reason, False) == (answer.error.code, answer.error.message, answer.dead_letter)
    if message.content_type != amqp.PROTOBUF:
        assert {"error": reason} == json.loads(answer.body)


def test_what_fits_is_one_call_and_everyone_has_his_own_rows(handlers: Handlers, counting: Counting) -> None:
    messages = [predict(x=np.float32([number] * rows)) for number, rows in ((0, 1), (2, 3), (4, 2))]
    messages.append(Message(b'{"instances": [6.0]}', amqp.JSON))
    found = handlers.handle(messages)
    assert [[2.0], [3.0, 3.0, 3.0], [4.0, 4.0]] == [outputs(answer)["y"] for answer in found[:3]]
    assert {"predictions": [5.0]} == json.loads(found[3].body)
    assert 1 == schema.PredictResponse.FromString(found[0].body).model_spec.version.value
    # JSON names its signature, the others leave it to the server: that is another one for all we know.
    assert ["GetModelMetadata", "Predict", "Predict"] == counting.calls


def test_only_what_fits_is_joined(handlers: Handlers, counting: Counting) -> None:
    two = {"a": X, "b": X}
    messages = [predict("two", **two), predict("two", filter_=("sum",), **two), predict("two", version=1, **two)]
    messages += [predict(x=X), predict("slow", n=np.int32(3)), predict("slow", n=np.int32(4)), predict("none")]
    found = [outputs(answer) for answer in handlers.handle(messages)]
    assert [
        {"diff": [0, 0], "sum": [2, 4]}, {"sum": [2, 4]}, {"diff": [0, 0], "sum": [2, 4]},
        {"y": [2.5, 3.0]}, {"v": 3}, {"v": 4}, {"c": [1.5]},
    ] == found  # fmt: skip
    assert ["Predict"] * 7 == counting.calls


def test_one_bad_message_harms_no_other(handlers: Handlers, counting: Counting) -> None:
    """It fits by its head, but its values are not as many as its shape says."""
    lying = schema.PredictRequest.FromString(predict(x=X).body)
    lying.inputs["x"].tensor_content = b"\0"
    messages = [predict(x=X), Message(lying.SerializeToString(), amqp.PROTOBUF), predict(x=X), Message(b"{", amqp.JSON)]
    good, bad, other, unreadable = handlers.handle(messages)
    assert [{"y": [2.5, 3.0]}] * 2 == [outputs(good), outputs(other)]
    assert [Code.INVALID_ARGUMENT] * 2 == [bad.error.code, unreadable.error.code]
    assert ["Predict"] * 3 == counting.calls


def test_a_shape_that_is_none_harms_no_other(handlers: Handlers) -> None:
    shapeless = schema.PredictRequest.FromString(predict(x=X).body)
    shapeless.inputs["x"].tensor_shape.dim[0].size = -1
    bad, good = handlers.handle([Message(shapeless.SerializeToString(), amqp.PROTOBUF), predict(x=X)])
    assert Code.INVALID_ARGUMENT == bad.error.code
    assert {"y": [2.5, 3.0]} == outputs(good)


def test_a_response_that_is_none_harms_no_other(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is before a server reads what that says to questions in JSON."""
    call = counting.call
    monkeypatch.setattr(counting, "call", lambda name, request: b"\xff" if name == "Predict" else call(name, request))
    body = Message(b'{"instances": [1.0]}', amqp.JSON)
    found = Handlers(counting, model="half_plus_two").handle([body, body, Message(b"{", amqp.JSON)])
    assert [Code.INTERNAL, Code.INTERNAL, Code.INVALID_ARGUMENT] == [answer.error.code for answer in found]


def test_outputs_without_rows_are_asked_for_one_by_one(tmp_path: Path) -> None:
    model_makers.batched(tmp_path / "batched")
    own = OwnModel("batched", tmp_path / "batched", timeout_s=30)
    counting = Counting(own)
    messages = [Message(b'{"signature_name": "total", "inputs": [1, %d]}' % number, amqp.JSON) for number in (2, 3)]
    found = Handlers(counting, model="batched").handle(messages)
    assert [{"outputs": 3.0}, {"outputs": 4.0}] == [json.loads(answer.body) for answer in found]
    assert ["Predict"] * 3 == counting.calls[2:]
    own.close()


def test_a_server_that_is_away_makes_no_answer_of_any() -> None:
    away = ModelServer(Endpoint("127.0.0.1", free_port(), "gRPC"), timeout_s=30)
    found = Handlers(away, model="half_plus_two").handle([predict(x=X), predict(x=X)])
    assert [Code.UNAVAILABLE] * 2 == [answer.error.code for answer in found]
    away.close()


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK], ids=lambda code: code.name)
def test_every_code_travels_in_headers(code: Code) -> None:
    headers = amqp.status_headers(error_response(StatusError(code, "größer"), amqp.JSON).error)
    found = amqp.read_status(headers)
    assert (code, "größer") == (found.code, found.message)
    assert amqp.read_status({amqp.STATUS: 0}) is None


def test_a_long_reason_is_cut_where_headers_end() -> None:
    answer = error_response(StatusError(Code.INTERNAL, "x" * 200_000), amqp.JSON)
    assert len(answer.error.message) < 2000
    assert {"error": "x" * 200_000} == json.loads(answer.body)
    assert "delivered 5 times" in delivery_limit_reached(5).message


def test_an_answer_that_no_message_holds_is_refused(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp, "MAX_MESSAGE_BYTES", 100)
    assert handlers.handle([predict(x=X)])[0].error is None
    (large,) = handlers.handle([predict(x=LARGE)])
    assert (Code.RESOURCE_EXHAUSTED, b"") == (large.error.code, large.body)
    assert "a RabbitMQ message may have at most 100" in large.error.message


URLS = [
    "http://guest:correct-horse@host/",
    "amqp://:correct-horse@/",
    "correct-horse@host:x",
    "amqp://u:correct-horse@h:70000/",
]


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid broker address: must be HOST\[:PORT\] or amqp") as caught:
        Broker.parse(url)
    assert "horse" not in str(caught.value)


def test_a_broker_is_shown_without_its_password() -> None:
    found = Broker.parse("amqps://worker:correct-horse@broker.example/vhost")
    assert ("broker.example:5671", "amqps") == (found.endpoint.address, found.url.scheme)
    assert "horse" not in repr(found)
    assert "127.0.0.1:5673" == Broker.parse("127.0.0.1:5673").endpoint.address
    with pytest.raises(ValueError, match=r"^cafile not found: missing.pem$"):
        Broker.parse("amqps://worker@broker.example/?cafile=missing.pem")


def run(*arguments: str, code: str = "from savedmodel_bakery.serving.cli import main; main()") -> tuple[int, str, str]:
    program = f"import sys; sys.argv[1:] = {['amqp', *arguments]!r}; {code}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stdout, ended.stderr


WRONG = {
    "no model": ([], "give --model_base_path to load a model here, or --server to ask one; one of them"),
    "two models": (["--server", "host", "--model_base_path", "."], "one of them"),
    "batch": (["--server", "host", "--batch", "17"], "--batch 17 is more than --prefetch 16"),
    "server": (["--server", "http://host"], 'invalid target "http://host"'),
    "url": (["status", "--url", "ftp://x:correct-horse@y/"], "invalid broker address"),
    "options before a subcommand": (["--server", "host", "purge"], "unexpected extra argument (purge)"),
}


@pytest.mark.parametrize(("arguments", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_usage_is_one_line(arguments: list[str], reason: str) -> None:
    code, printed, complaint = run(*arguments)
    assert (2, "", 1) == (code, printed, complaint.count("\n")), complaint
    assert reason in complaint
    assert "horse" not in complaint


def test_no_broker_is_no_connection() -> None:
    port = free_port()
    code, _, complaint = run("status", "--url", f"amqp://worker:correct-horse@127.0.0.1:{port}/")
    assert 3 == code
    assert f"cannot connect to 127.0.0.1:{port} over AMQP; is a broker running there?\n" == complaint


def test_help_is_there_without_the_library_and_work_names_the_extra() -> None:
    hidden = "sys.modules['aio_pika'] = None; from savedmodel_bakery.serving.cli import main; main()"
    code, printed, _ = run("--help", code=hidden)
    assert (0, True) == (code, "python -m serving amqp purge" in printed)
    code, _, complaint = run("--server", "host", code=hidden)
    assert (1, True) == (code, "pip install 'savedmodel-bakery[amqp]'" in complaint), complaint


ENDINGS = {
    "an operator's Ctrl-C": (["status"], signal.SIGINT, 130),
    "SIGTERM for a worker": (["--server", "127.0.0.1:1"], signal.SIGTERM, 0),
}


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """SIGINT as at a terminal: what a shell's background job starts would inherit that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
@pytest.mark.parametrize(("arguments", "number", "code"), ENDINGS.values(), ids=ENDINGS)
def test_who_waits_for_a_silent_broker_can_be_ended(arguments: list[str], number: int, code: int) -> None:
    """Connecting alone may take 30 s."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}/"
        command = [sys.executable, "-m", "savedmodel_bakery.serving", "amqp", *arguments, "--url", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as waiting:
            connection, _ = silent.accept()
            with connection:
                waiting.send_signal(number)
                printed, _ = waiting.communicate(timeout=20)
    assert (code, b"") == (waiting.returncode, printed.strip())
