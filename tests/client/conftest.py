"""A peer that speaks the TensorFlow Serving API over gRPC and REST, with canned models and no TensorFlow.

What the API says is written down here by hand or through plain protobuf, never through the code under test,
save the tensor codec that `tests/wire` covers.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import grpc
import numpy as np
import pytest
from google.protobuf.json_format import ParseDict

from savedmodel_bakery.client import Client
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import decode_array, encode_tensor

HTTP_STATUS = {
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}

HORSE = [(b"sorrel", 0.75, 339), (b"zebra", 0.125, 340), (b"ox", 0.0625, 345)]
PHOTOS = {b"horse": HORSE, b"cat": [(b"tabby", 0.5, 281), (b"lynx", 0.25, 287), (b"ox", 0.125, 345)]}

TYPES = {
    "b": np.array([True, False]),
    "d": np.array([0.1, -0.0, np.inf]),
    "f": np.array([[0.1], [np.nan]], np.float32),
    "i8": np.array([-128, 127], np.int8),
    "i64": np.array(-(2**63), np.int64),
    "s": np.array([b"plain", "größer".encode()], object),
    "s_bytes": np.array([b"\x00\xff\x00"], object),
    "u64": np.array([1, 2**64 - 1], np.uint64),
    "u8": np.zeros((3, 0), np.uint8),
}

Outputs = dict[str, np.ndarray]


def signature_of(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, Any]:
    """A SignatureDef as REST's metadata spell it; alias to DT_ name."""

    def tensors(names: Mapping[str, str]) -> dict[str, Any]:
        shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
        return {alias: {"dtype": dtype, "tensor_shape": shape, "name": f"{alias}:0"} for alias, dtype in names.items()}

    return {
        "inputs": tensors(inputs),
        "outputs": tensors(outputs),
        "method_name": "tensorflow/serving/predict",
        "defaults": {},
    }


@dataclass
class Model:
    """A canned model: its signatures as metadata spell them, and what runs them."""

    signatures: dict[str, Any]
    run: Callable[[str, Outputs], Outputs]
    labels: dict[str, int] = field(default_factory=dict)


def run_half_plus_two(_: str, inputs: Outputs) -> Outputs:
    return {"y": inputs["x"] / np.float32(2) + np.float32(2)}


def run_photos(signature: str, inputs: Outputs) -> Outputs:
    images = inputs["image"].tolist()
    if signature == "serving_default":
        for row, image in enumerate(images):
            if image not in PHOTOS:
                raise invalid_argument(f"row {row} is no image:\n\t bytes of no known kind")
        return {"output_0": np.array([PHOTOS[image][0][0] for image in images], object)}
    rows = [PHOTOS.get(image, [(b"", 0.0, 0)] * 3) for image in images]
    return {
        "labels": np.array([[label for label, _, _ in row] for row in rows], object),
        "scores": np.array([[score for _, score, _ in row] for row in rows], np.float32),
        "class_ids": np.array([[class_id for _, _, class_id in row] for row in rows], np.int32),
        "ok": np.array([image in PHOTOS for image in images]),
        "error": np.array([b"" if image in PHOTOS else b"no image" for image in images], object),
    }


def run_types(_: str, __: Outputs) -> Outputs:
    return TYPES


TOP_K = {
    "labels": "DT_STRING",
    "scores": "DT_FLOAT",
    "class_ids": "DT_INT32",
    "ok": "DT_BOOL",
    "error": "DT_STRING",
}
TYPE_NAMES = {
    "b": "DT_BOOL",
    "d": "DT_DOUBLE",
    "f": "DT_FLOAT",
    "i8": "DT_INT8",
    "i64": "DT_INT64",
    "s": "DT_STRING",
    "s_bytes": "DT_STRING",
    "u64": "DT_UINT64",
    "u8": "DT_UINT8",
}
MODELS = {
    "half_plus_two": Model(
        {"serving_default": signature_of({"x": "DT_FLOAT"}, {"y": "DT_FLOAT"})},
        run_half_plus_two,
        {"stable": 2, "a b": 3},
    ),
    "a/b:c": Model({"serving_default": signature_of({"x": "DT_FLOAT"}, {"y": "DT_FLOAT"})}, run_half_plus_two),
    "efficientnet_lite0": Model(
        {
            "serving_default": signature_of({"image": "DT_STRING"}, {"output_0": "DT_STRING"}),
            "top_k": signature_of({"image": "DT_STRING"}, TOP_K),
        },
        run_photos,
    ),
    "types": Model({"serving_default": signature_of({"x": "DT_FLOAT"}, TYPE_NAMES)}, run_types),
}
VERSIONS = (3, 2)
STATUS = {
    "model_version_status": [
        {"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}},
        {
            "version": "2",
            "state": "END",
            "status": {"error_code": "NOT_FOUND", "error_message": "no\nsaved_model.pb"},
        },
    ]
}


class Peer:
    """The models behind both protocols.

    Attributes:
        released: set to end what is slow.
        requests: how many came so far.
    """

    def __init__(self) -> None:
        self.released = threading.Event()
        self.requests = 0
        self.grpc_port = self.rest_port = 0

    @contextmanager
    def serve_grpc(self, port: int = 0, interceptors: Sequence[Any] = ()) -> Iterator[int]:
        with ThreadPoolExecutor(8) as pool:
            options = [("grpc.max_receive_message_length", -1)]
            server = grpc.server(pool, options=options, interceptors=interceptors)
            server.add_generic_rpc_handlers(grpc_handlers(self))
            bound = server.add_insecure_port(f"127.0.0.1:{port}")
            server.start()
            yield bound
            server.stop(0).wait()

    @contextmanager
    def serve_rest(self) -> Iterator[int]:
        with ThreadingHTTPServer(("127.0.0.1", 0), rest_handler(self)) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            yield server.server_address[1]
            server.shutdown()
            thread.join()

    def find(self, name: str, version: int | None, label: str | None) -> tuple[Model, int]:
        if name == "slow":
            self.released.wait(10)
        refusal = re.fullmatch(r"refuse_(\w+)", name)
        if refusal:
            raise StatusError(Code[refusal[1]], f"refused: {refusal[1]}")
        if name not in MODELS:
            raise StatusError(Code.NOT_FOUND, f"Servable not found for request: Latest({name})")
        model = MODELS[name]
        if label is not None and label not in model.labels:
            raise invalid_argument(f"Unrecognized servable version label: {label}")
        wanted = model.labels[label] if label is not None else version
        if wanted not in (None, *VERSIONS):
            raise StatusError(Code.NOT_FOUND, f"Servable not found for request: Specific({name}, {wanted})")
        return model, VERSIONS[0] if wanted is None else wanted

    def metadata(self, name: str, version: int | None, label: str | None) -> dict[str, Any]:
        model, found = self.find(name, version, label)
        return {
            "model_spec": {"name": name, "signature_name": "", "version": str(found)},
            "metadata": {"signature_def": {"signature_def": model.signatures}},
        }

    def status(self, name: str, version: int | None) -> dict[str, Any]:
        self.find(name, None, None)
        rows = STATUS["model_version_status"]
        return {"model_version_status": [row for row in rows if version is None or int(row["version"]) == version]}


def grpc_handlers(peer: Peer) -> list[grpc.GenericRpcHandler]:
    def spec_of(request: Any) -> tuple[str, int | None, str | None]:
        spec = request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        return spec.name, version, spec.version_label if spec.HasField("version_label") else None

    def predict(request: Any) -> Any:
        model, version = peer.find(*spec_of(request))
        signature = request.model_spec.signature_name or "serving_default"
        if signature not in model.signatures:
            raise StatusError(Code.FAILED_PRECONDITION, f'Serving signature key "{signature}" not found.')
        outputs = model.run(signature, {alias: decode_array(proto) for alias, proto in request.inputs.items()})
        wanted = list(request.output_filter)
        for place, alias in enumerate(wanted):
            if alias not in outputs:
                names = ",".join(sorted(outputs))
                raise invalid_argument(
                    f"output tensor alias not found in signature: {alias} "
                    f"Outputs expected to be in the set {{{names}}}."
                )
            if alias in wanted[:place]:
                raise invalid_argument(f"duplicate output tensor alias: {alias}")
        response = schema.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.signature_name = signature
        response.model_spec.version.value = version
        for alias in wanted or outputs:
            response.outputs[alias].CopyFrom(encode_tensor(outputs[alias], packed=False))
        return response

    def metadata(request: Any) -> Any:
        document = peer.metadata(*spec_of(request))
        response = schema.GetModelMetadataResponse()
        ParseDict(document["model_spec"], response.model_spec, descriptor_pool=schema.POOL)
        signatures = ParseDict(document["metadata"]["signature_def"], schema.SignatureDefMap())
        packed = response.metadata["signature_def"]
        packed.type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        packed.value = signatures.SerializeToString()
        return response

    def status(request: Any) -> Any:
        name, version, _ = spec_of(request)
        return ParseDict(peer.status(name, version), schema.GetModelStatusResponse())

    def handler(name: str, answer: Callable[[Any], Any]) -> grpc.RpcMethodHandler:
        def call(content: bytes, context: grpc.ServicerContext) -> bytes:
            peer.requests += 1
            try:
                return answer(schema.METHODS[name].request.FromString(content)).SerializeToString()
            except StatusError as exc:
                by_number = {status.value[0]: status for status in grpc.StatusCode}
                context.abort(by_number[int(exc.code)], exc.message)

        return grpc.unary_unary_rpc_method_handler(call)

    return [
        grpc.method_handlers_generic_handler(
            "tensorflow.serving.PredictionService",
            {
                "Predict": handler("Predict", predict),
                "GetModelMetadata": handler("GetModelMetadata", metadata),
            },
        ),
        grpc.method_handlers_generic_handler(
            "tensorflow.serving.ModelService", {"GetModelStatus": handler("GetModelStatus", status)}
        ),
    ]


URL = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?(:predict|/metadata|)")


def json_of(array: np.ndarray, alias: str) -> Any:
    if array.dtype != object:
        return array.tolist()
    if alias.endswith("_bytes"):
        return [{"b64": base64.b64encode(item).decode()} for item in array.tolist()]
    return np.vectorize(lambda item: item.decode(), otypes=[object])(array).tolist()


def array_of(value: Any, dtype: str) -> np.ndarray:
    if dtype == "DT_STRING":
        return np.array([base64.b64decode(item["b64"]) for item in value] + [None], object)[:-1]
    return np.array(value, np.float32)


def rest_handler(peer: Peer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(b"")

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers["Content-Length"])))

        def answer(self, body: bytes) -> None:
            peer.requests += 1
            match = URL.fullmatch(self.path)
            try:
                if match is None:
                    raise invalid_argument(f"Malformed request: {self.command} {self.path}")
                name, label = unquote(match[1]), match[3] and unquote(match[3])
                version = int(match[2]) if match[2] else None
                document, status = self.document(match[4], body, name, version, label), 200
            except StatusError as exc:
                document, status = {"error": exc.message}, HTTP_STATUS[exc.code]
            content = json.dumps(document).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except ConnectionError:
                pass  # the client did not wait for it

        def document(self, verb: str, body: bytes, name: str, version: int | None, label: str | None) -> dict[str, Any]:
            if verb == "/metadata":
                return peer.metadata(name, version, label)
            if not verb:
                return peer.status(name, version)
            model, _ = peer.find(name, version, label)
            request = json.loads(body)
            signature = request["signature_name"]
            if signature not in model.signatures:
                raise invalid_argument(f'Serving signature name: "{signature}" not found in signature def')
            wanted = model.signatures[signature]["inputs"]
            inputs = {alias: array_of(request["inputs"][alias], wanted[alias]["dtype"]) for alias in wanted}
            outputs = {a: json_of(array, a) for a, array in model.run(signature, inputs).items()}
            return {"outputs": next(iter(outputs.values())) if len(outputs) == 1 else outputs}

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """The running peer, at `grpc_port` and `rest_port`."""
    peer = Peer()
    with peer.serve_grpc() as peer.grpc_port, peer.serve_rest() as peer.rest_port:
        yield peer
        peer.released.set()


@pytest.fixture(params=["grpc", "rest"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport in turn."""
    return request.param


@pytest.fixture
def connect(peer: Any, transport: str) -> Iterator[Callable[..., Client]]:
    """Make clients of the peer over the transport, which are closed at the end."""
    clients = []

    def connect(model: str = "half_plus_two", **options: Any) -> Client:
        settings = {"port": peer.grpc_port, "rest_api_port": peer.rest_port, "timeout_s": 10.0, **options}
        clients.append(Client(transport=transport, model=model, **settings))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def closed_port() -> int:
    """A port where nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def canned() -> SimpleNamespace:
    """What the peer answers with."""
    return SimpleNamespace(TYPES=TYPES, MODELS=MODELS, HTTP_STATUS=HTTP_STATUS, Model=Model, signature_of=signature_of)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no setting of the developer's own takes part."""
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith("BAKERY_CLIENT_"):
            monkeypatch.delenv(name)
