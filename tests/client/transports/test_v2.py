"""What only the v2 transports do: signatures, servers without our extensions, and calls that the protocol lacks."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import canned_models
import canned_v2
import grpc
import numpy as np
import pytest
from canned_v2 import V2

from savedmodel_bakery import (
    AsyncClient,
    Client,
    ClientError,
    InvalidResponseError,
    RequestRefusedError,
    VersionStatus,
)
from savedmodel_bakery.client.calls import ModelSpec, Predict
from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.client.transports import create_transport
from savedmodel_bakery.wire.status import Code

Connect = Callable[..., Client]


@pytest.fixture(params=["v2", "v2-grpc"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def foreign(v2: V2) -> V2:
    """The server has none of our extensions."""
    v2.is_ours = False
    return v2


def test_the_parameter_for_the_signature_is_sent_only_if_needed(connect: Connect, v2: V2) -> None:
    """Other servers have no signatures."""
    client = connect("efficientnet_lite0")
    client.predict({"image": [b"horse"]})
    client.predict({"image": [b"horse"]}, signature="top_k")
    assert [None, "top_k"] == v2.signature_names


def test_images_are_classified_as_over_the_other_transports(connect: Connect) -> None:
    assert ["sorrel", "tabby"] == [each.label for each in connect("efficientnet_lite0").classify([b"horse", b"cat"])]


def test_signatures_and_extensions_are_requested_once(connect: Connect, v2: V2, transport: str) -> None:
    client = connect()
    for _ in range(2):
        client.predict({"x": [1]})
    model = "/v2/models/half_plus_two"
    expected = {
        "v2": [f"{model}/config", "/v2", f"{model}/infer", f"{model}/infer"],
        "v2-grpc": ["ModelConfig", "ModelInfer", "ModelInfer"],
    }
    assert expected[transport] == v2.requests


@pytest.mark.usefixtures("foreign")
def test_a_foreign_server_has_the_default_signature(connect: Connect) -> None:
    client = connect()
    prediction = client.predict({"x": [1, 2]})
    assert ([2.5, 3], np.float32, 3) == (
        prediction.arrays["y"].tolist(),
        prediction.arrays["y"].dtype,
        prediction.version,
    )
    vector = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}]}}
    assert {
        "model_spec": {"name": "half_plus_two", "version": "3"},
        "metadata": {
            "signature_def": {"signature_def": {"serving_default": {"inputs": {"x": vector}, "outputs": {"y": vector}}}}
        },
    } == client.metadata()
    with pytest.raises(RequestRefusedError, match=r'^FAILED_PRECONDITION: signature "top_k" not found in model'):
        client.predict({"x": [1]}, signature="top_k")


def test_metadata_without_versions_are_requested_once(
    connect: Connect, foreign: V2, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The responses to inference have one nevertheless."""
    metadata = canned_v2.metadata
    monkeypatch.setattr("canned_v2.metadata", lambda *call: {**metadata(*call), "versions": []})
    client = connect()
    assert [3, 3] == [client.predict({"x": [1]}).version for _ in range(2)]
    name = {"v2": "/v2/models/half_plus_two", "v2-grpc": "ModelMetadata"}[transport]
    assert 1 == foreign.requests.count(name)


@pytest.mark.usefixtures("foreign")
def test_a_foreign_server_checks_what_its_metadata_do_not_state(connect: Connect) -> None:
    """Which inputs may be left out, and whether [-1] is an unknown rank."""
    client = connect()
    assert [[2.5]] == client.predict({"x": [[1]]}).arrays["y"].tolist()
    with pytest.raises(RequestRefusedError, match=r'^INVALID_ARGUMENT: unknown input "z"'):
        client.predict({"z": [1]})
    with pytest.raises(RequestRefusedError, match=r'^INVALID_ARGUMENT: input "x" is int64\[1\]'):
        client.predict({"x": np.int64([1])})


@pytest.mark.usefixtures("foreign")
def test_a_model_without_metadata_takes_what_the_caller_sends(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = canned_models.Model({"serving_default": {"inputs": {}, "outputs": {}}}, lambda _, inputs: dict(inputs))
    monkeypatch.setitem(canned_models.MODELS, "echo", model)
    client = connect("echo")
    assert {} == client.metadata()["metadata"]["signature_def"]["signature_def"]
    assert [1, 2] == client.predict({"x": np.int32([1, 2])}).arrays["x"].tolist()
    with pytest.raises(RequestRefusedError, match="the server does not describe the signatures of this model; only"):
        client.predict({"x": [1]}, signature="top_k")
    with pytest.raises(RequestRefusedError, match='signature "serving_default" not found in model "echo" version 3'):
        client.classify(b"horse")


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(
    ("name", "signature", "method"),
    [
        ("efficientnet_lite0", "top_k", "classify"),
        ("detector", "serving_default", "detect"),
        ("meter", "serving_default", "regress"),
    ],
)
def test_scalars_of_a_server_without_them_are_axes_of_one(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, name: str, signature: str, method: str
) -> None:
    """As in Triton's models with batching."""
    model = canned_models.MODELS[name]
    signatures = {"serving_default": model.signatures[signature]}
    flat = canned_models.Model(signatures, lambda _, inputs: model.run(signature, inputs))
    monkeypatch.setitem(canned_models.MODELS, "flat", flat)
    scalars = {
        alias
        for alias, array in model.run(signature, {"image": np.array([b"horse"], object)}).items()
        if array.ndim == 1
    }

    def run(_: str, inputs: Any) -> Any:
        assert (2, 1) == inputs["image"].shape
        outputs = model.run(signature, {"image": inputs["image"][:, 0]})
        return {alias: array[:, None] if alias in scalars else array for alias, array in outputs.items()}

    definition = copy.deepcopy(model.signatures[signature])
    for tensor in (definition["inputs"]["image"], *(definition["outputs"][alias] for alias in scalars)):
        tensor["tensor_shape"]["dim"] = [{"size": "-1"}, {"size": "1"}]
    monkeypatch.setitem(canned_models.MODELS, "rows", canned_models.Model({"serving_default": definition}, run))
    flat_result, result = (getattr(connect(name), method)([b"horse", b"bad"]) for name in ("flat", "rows"))
    assert flat_result == result


@pytest.mark.usefixtures("foreign")
def test_status_without_an_index_is_that_of_the_metadata(connect: Connect) -> None:
    assert [VersionStatus(3, "AVAILABLE", Code.OK, "")] == connect().status()
    assert [VersionStatus(2, "AVAILABLE", Code.OK, "")] == connect(version=2).status()
    with pytest.raises(RequestRefusedError, match=r"^NOT_FOUND: Servable not found for request: Latest\(pets\)"):
        connect("pets").status()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "pets"}, "Could not find any versions of model pets"),
        ({"version": 9}, "Could not find version 9 of model half_plus_two"),
    ],
    ids=["model", "version"],
)
def test_status_of_what_is_not_in_the_index_is_not_found(
    connect: Connect, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        connect(**options).status()
    assert (Code.NOT_FOUND, message) == (caught.value.code, caught.value.message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda client: client.classify_examples([{"x": 1}]),
            "the v2 protocol has no Classify: use the transport grpc",
        ),
        (lambda client: client.regress_examples([{"x": 1}]), "the v2 protocol has no Regress: use the transport grpc"),
        (
            lambda client: client.predict({"x": [1]}, label="stable"),
            'label "stable": the v2 protocol has no version la',
        ),
    ],
    ids=["classify", "regress", "label"],
)
def test_what_the_protocol_lacks_is_unimplemented(
    connect: Connect, v2: V2, call: Callable[[Client], object], message: str
) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        call(connect())
    assert Code.UNIMPLEMENTED is caught.value.code
    assert caught.value.message.startswith(message)
    assert [] == v2.requests


def test_an_element_type_that_the_protocol_lacks_is_not_sent(
    connect: Connect, v2: V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    signatures = {"serving_default": canned_models.signature_of({"x": "DT_COMPLEX64"}, {"y": "DT_FLOAT"})}
    monkeypatch.setitem(canned_models.MODELS, "complex", canned_models.Model(signatures, None))
    with pytest.raises(
        RequestRefusedError, match=r'^INVALID_ARGUMENT: input "x" is complex64, which the v2 protocol can'
    ):
        connect("complex").predict({"x": np.complex64([1])})
    assert [] == v2.signature_names


def test_a_load_test_sends_one_request_per_call(peer: Any, transport: str, v2: V2) -> None:
    ports = {"rest_api_port": peer.rest_port} if transport == "v2" else {"port": peer.grpc_port}
    prepared = create_transport(parse_server("127.0.0.1", transport=transport, **ports), timeout_s=10, for_load=True)
    call = Predict(ModelSpec("half_plus_two"), "serving_default", {"x": np.float32([1])}, (), None)
    send = prepared.prepare(call)
    v2.requests.clear()
    first, second = send(), send()
    assert first == second
    assert 2 == len(v2.requests)
    assert [2.5] == prepared.decode(call, first).arrays["y"].tolist()
    prepared.close()


def test_an_async_client_calls_it_over_grpc(peer: Any) -> None:
    async def call() -> list[object]:
        async with AsyncClient(port=peer.grpc_port, transport="v2-grpc", model="efficientnet_lite0") as client:
            result, status = await asyncio.gather(client.classify(b"horse"), client.status())
        return [result.label, status[0].version]

    assert ["sorrel", 3] == asyncio.run(call())
    with pytest.raises(ValueError, match=r'^transport "v2": an asynchronous client takes "grpc" or "v2-grpc"$'):
        AsyncClient(transport="v2")


@pytest.mark.parametrize(
    ("scheme", "transport"), [("http", "v2"), ("https", "v2"), ("grpc", "v2-grpc"), ("grpcs", "v2-grpc")]
)
def test_schemes_select_the_port_and_tls(scheme: str, transport: str) -> None:
    server = parse_server(f"{scheme}://models.example", transport=transport)
    port = 8501 if transport == "v2" else 8500
    assert (f"models.example:{port}", scheme.endswith("s")) == (server.endpoints[0].address, server.tls is not None)
    other = "v2-grpc" if transport == "v2" else "v2"
    with pytest.raises(ValueError, match=r"the target's scheme is for \w+, not for v2 \("):
        parse_server(f"{scheme}://models.example", transport=other)


def _response(status: str, body: object) -> str:
    text = body if isinstance(body, str) else json.dumps(body)
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"


@pytest.mark.parametrize(
    ("response", "error", "message"),
    [
        pytest.param(
            _response("422 No", {"detail": [{"msg": "Input should be 'BOOL'"}]}),
            RequestRefusedError,
            "INVALID_ARGUMENT: Input should be 'BOOL'",
            id="FastAPI's error",
        ),
        pytest.param(_response("400 No", {"detail": "no"}), RequestRefusedError, "INVALID_ARGUMENT: no", id="its text"),
        pytest.param(
            _response("500 No", "Traceback"),
            InvalidResponseError,
            '/v2/models/m responded HTTP 500 with application/json; a model server responds {"error": …}',
            id="no error of the API",
        ),
        pytest.param(
            _response("200 OK", []), InvalidResponseError, "/v2/models/m, 2 bytes, is not a JSON object", id="no object"
        ),
        pytest.param(
            _response("200 OK", {"inputs": [{}]}),
            InvalidResponseError,
            "the metadata are not valid metadata of the v2 protocol: KeyError('name')",
            id="no metadata",
        ),
    ],
)
def test_http_responses_of_other_servers(
    respond_with: Callable[[str], int], response: str, error: type[ClientError], message: str
) -> None:
    with (
        Client(transport="v2", rest_api_port=respond_with(response), model="m") as client,
        pytest.raises(ClientError) as caught,
    ):
        client.metadata()
    assert error is caught.type
    assert str(caught.value).endswith(message)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Any]], None]:
    """Set the rows of the index."""
    return lambda rows: monkeypatch.setattr("canned_v2.index", lambda _: rows)


def test_the_index_of_other_servers_is_read(connect: Connect, index: Callable[[list[Any]], None]) -> None:
    """MLServer writes "State.READY", and its versions may be missing or names."""
    rows = [("", "State.READY"), ("5", "LOADING"), ("v1", "UNKNOWN"), ("10", "UNAVAILABLE")]
    index([{"name": "half_plus_two", "version": version, "state": state} for version, state in rows])
    assert [(10, "END"), (5, "LOADING"), (None, "AVAILABLE"), (None, "UNKNOWN")] == [
        (status.version, status.state) for status in connect().status()
    ]


def test_models_without_a_state_or_a_version_are_not_loaded(
    connect: Connect, index: Callable[[list[Any]], None]
) -> None:
    """As in Triton's index with --model-control-mode=explicit."""
    index([{"name": "half_plus_two"}])
    assert [VersionStatus(None, "END", Code.OK, "")] == connect().status()


def test_long_versions_are_names(connect: Connect, index: Callable[[list[Any]], None]) -> None:
    index([{"name": "half_plus_two", "version": version, "state": "READY"} for version in ("9" * 18, "1" * 5000)])
    assert [int("9" * 18), None] == [status.version for status in connect().status()]


def test_a_gateway_may_route_the_models_only(connect: Connect, v2: V2) -> None:
    """Its response to GET /v2 is an error page; tensors are then sent as JSON."""
    v2.is_routed = False
    assert [2.5] == connect().predict({"x": [1]}).arrays["y"].tolist()


def test_binary_data_that_does_not_fit_is_an_invalid_response(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canned_v2.pack", lambda _: b"123")
    with pytest.raises(
        InvalidResponseError, match=re.escape('output "y" has 3 bytes of data; 1 values of FP32 need 4')
    ):
        connect().predict({"x": [1]})


@pytest.fixture
def without_v2(transport: str, respond_with: Callable[[str], int]) -> Iterator[Client]:
    """A client of a server that has no v2 protocol."""
    if transport == "v2":
        page = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        with Client(transport=transport, rest_api_port=respond_with(page), model="m") as client:
            yield client
        return
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Client(transport=transport, port=port, model="m") as client:
        yield client
    server.stop(None).wait()


@pytest.mark.parametrize("method", ["status", "metadata", "predict"])
def test_a_server_without_v2_gets_advice(without_v2: Client, method: str) -> None:
    with pytest.raises(ClientError, match=r"; tensorflow_model_server has no v2 protocol: use the transport .* rest$"):
        getattr(without_v2, method)(*([{"x": [1]}] if method == "predict" else []))
