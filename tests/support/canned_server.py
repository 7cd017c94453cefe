"""A server of the TensorFlow Serving API and the v2 protocol, with canned models and without TensorFlow.

Messages are written by hand or with plain protobuf, not with the code under test. The exception is the tensor codec,
which tests/wire covers.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import canned_models
import canned_v2
import grpc
import numpy as np
from google.protobuf.json_format import ParseDict

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.schema import Method
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import decode_array, encode_tensor
from savedmodel_bakery.wire.v2 import schema as v2_schema

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


class _HttpServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # the client aborted a TLS handshake


class Peer:
    """Serves the canned models over both protocols.

    Attributes:
        released: set it to end the calls of the model `slow`.
        requests: number of requests so far.
        authorizations: the metadata or headers `authorization` of the requests.
        error_headers: the trailing metadata or headers of errors.
        v2: how it speaks v2.
    """

    def __init__(self) -> None:
        self.v2 = canned_v2.V2()
        self.released = threading.Event()
        self.requests = 0
        self.authorizations: list[str | None] = []
        self.error_headers: dict[str, str] = {}
        self.grpc_port = self.rest_port = 0

    @contextmanager
    def serve_grpc(
        self, port: int = 0, interceptors: Sequence[Any] = (), *, credentials: grpc.ServerCredentials | None = None
    ) -> Iterator[int]:
        with ThreadPoolExecutor(8) as pool:
            options = [("grpc.max_receive_message_length", -1)]
            server = grpc.server(pool, options=options, interceptors=interceptors)
            server.add_generic_rpc_handlers(grpc_handlers(self))
            if credentials is None:
                bound = server.add_insecure_port(f"127.0.0.1:{port}")
            else:
                bound = server.add_secure_port(f"127.0.0.1:{port}", credentials)
            server.start()
            yield bound
            server.stop(0).wait()

    @contextmanager
    def serve_rest(self, *, tls: ssl.SSLContext | None = None) -> Iterator[int]:
        with _HttpServer(("127.0.0.1", 0), rest_handler(self)) as server:
            if tls is not None:
                server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            yield server.server_address[1]
            server.shutdown()
            thread.join()

    def find(self, name: str, version: int | None, label: str | None) -> tuple[canned_models.Model, int]:
        if name == "slow":
            self.released.wait(10)
        refusal = re.fullmatch(r"refuse_(\w+)", name)
        if refusal:
            raise StatusError(Code[refusal[1]], f"refused: {refusal[1]}")
        if name not in canned_models.MODELS:
            raise StatusError(Code.NOT_FOUND, f"Servable not found for request: Latest({name})")
        model = canned_models.MODELS[name]
        if label is not None and label not in model.labels:
            raise invalid_argument(f"Unrecognized servable version label: {label}")
        wanted = model.labels[label] if label is not None else version
        if wanted not in (None, *canned_models.VERSIONS):
            raise StatusError(Code.NOT_FOUND, f"Servable not found for request: Specific({name}, {wanted})")
        return model, canned_models.VERSIONS[0] if wanted is None else wanted

    def metadata(self, name: str, version: int | None, label: str | None) -> dict[str, Any]:
        model, found = self.find(name, version, label)
        return {
            "model_spec": {"name": name, "signature_name": "", "version": str(found)},
            "metadata": {"signature_def": {"signature_def": model.signatures}},
        }

    def model_names(self) -> list[str]:
        return list(canned_models.MODELS)

    def status(self, name: str, version: int | None) -> dict[str, Any]:
        self.find(name, None, None)
        rows = canned_models.STATUS["model_version_status"]
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

    def handler(request_type: Any, answer: Callable[[Any], Any]) -> grpc.RpcMethodHandler:
        def call(content: bytes, context: grpc.ServicerContext) -> bytes:
            peer.requests += 1
            peer.authorizations.append(dict(context.invocation_metadata()).get("authorization"))
            try:
                return answer(request_type.FromString(content)).SerializeToString()
            except StatusError as exc:
                context.set_trailing_metadata(tuple(peer.error_headers.items()))
                by_number = {status.value[0]: status for status in grpc.StatusCode}
                context.abort(by_number[int(exc.code)], exc.message)

        return grpc.unary_unary_rpc_method_handler(call)

    def service(name: str, methods: Mapping[str, Method], answers: Mapping[str, Any]) -> grpc.GenericRpcHandler:
        handlers = {method: handler(methods[method].request, answer) for method, answer in answers.items()}
        return grpc.method_handlers_generic_handler(name, handlers)

    prediction = {"Predict": predict, "GetModelMetadata": metadata}
    return [
        service("tensorflow.serving.PredictionService", schema.METHODS, prediction),
        service("tensorflow.serving.ModelService", schema.METHODS, {"GetModelStatus": status}),
        service("inference.GRPCInferenceService", v2_schema.METHODS, canned_v2.grpc_methods(peer)),
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
    return np.array(value, np.uint8 if dtype == "DT_UINT8" else np.float32)


def rest_handler(peer: Peer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(b"")

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers["Content-Length"])))

        def answer(self, body: bytes) -> None:
            peer.requests += 1
            peer.authorizations.append(self.headers["Authorization"])
            status, headers = 200, {"Content-Type": "application/json"}
            try:
                if self.path.startswith("/v2"):
                    header_length = self.headers[canned_v2.HEADER_LENGTH]
                    content, headers = canned_v2.http_answer(peer, self.path, header_length, body)
                else:
                    content = json.dumps(self.document(body)).encode()
            except StatusError as exc:
                content, status = json.dumps({"error": exc.message}).encode(), HTTP_STATUS[exc.code]
                headers |= peer.error_headers
            except canned_v2.NotRoutedError:
                content, status, headers = b"<html></html>", 404, {"Content-Type": "text/html"}
            try:
                self.send_response(status)
                for name, value in (*headers.items(), ("Content-Length", str(len(content)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
            except ConnectionError:
                pass  # the client did not wait for it

        def document(self, body: bytes) -> dict[str, Any]:
            match = URL.fullmatch(self.path)
            if match is None:
                raise invalid_argument(f"Malformed request: {self.command} {self.path}")
            name, label, verb = unquote(match[1]), match[3] and unquote(match[3]), match[4]
            version = int(match[2]) if match[2] else None
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
