"""Our client and a real MLServer, over both transports of the v2 protocol. Its HTTP port does not take binary data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from mlserver import MLServer
from v2_values import VALUES

from savedmodel_bakery import AsyncClient, Client, RequestRefusedError, VersionStatus
from savedmodel_bakery.client.commands.cli import main
from savedmodel_bakery.wire.status import Code


@pytest.fixture(scope="module")
def mlserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MLServer]:
    with MLServer(tmp_path_factory.mktemp("mlserver") / "models") as running:
        yield running


@pytest.fixture(params=["v2", "v2-grpc"])
def target(mlserver: MLServer, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each transport, and the address of its port."""
    port = mlserver.port if request.param == "v2" else mlserver.grpc_port
    return request.param, f"127.0.0.1:{port}"


@pytest.fixture
def connect(target: tuple[str, str]) -> Iterator[Callable[[str], Client]]:
    """Create clients of a model; they are closed at the end."""
    clients = []

    def connect(model: str) -> Client:
        clients.append(Client(target[1], transport=target[0], model=model, timeout_s=30))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_numbers(connect: Callable[[str], Client]) -> None:
    """MLServer gives arrays of one dimension a second one."""
    prediction = connect("add_sub").predict({"a": [1, 2], "b": [3, 5]})
    assert {"sum": [[4], [7]], "difference": [[-2], [-3]]} == {n: a.tolist() for n, a in prediction.arrays.items()}
    assert {np.dtype(np.float32)} == {array.dtype for array in prediction.arrays.values()}
    assert ("add_sub", 3, "serving_default") == (prediction.model, prediction.version, prediction.signature)


def test_one_output_of_one_version(connect: Callable[[str], Client]) -> None:
    arrays = connect("add_sub").predict({"a": [1], "b": [3]}, output_filter=["difference"], version=3).arrays
    assert {"difference": [[-2]]} == {name: array.tolist() for name, array in arrays.items()}


@pytest.mark.parametrize("datatype", VALUES.keys() - {"BF16"})
def test_every_datatype(connect: Callable[[str], Client], target: tuple[str, str], datatype: str) -> None:
    array = VALUES[datatype]
    if target[0] == "v2" and datatype in ("FP16", "FP32"):  # half precision; an infinity
        with pytest.raises(RequestRefusedError, match=r'^INVALID_ARGUMENT: input "x" .* send it over gRPC$'):
            connect("echo").predict({"x": array})
        return
    echo = connect("echo").predict({"x": array}).arrays["x"]
    assert (array.dtype, array.shape) == (echo.dtype, echo.shape)
    np.testing.assert_array_equal(array, echo)


def test_strings_that_are_text_or_a_photo(connect: Callable[[str], Client]) -> None:
    prediction = connect("echo").predict({"text": ["a", "größer"], "photo": [b"\xff\xd8\xff"]})
    arrays = {name: array.ravel().tolist() for name, array in prediction.arrays.items()}
    assert {
        "text": [b"a", "größer".encode()],
        "text_bytes": [1, 8],
        "photo": [b"\xff\xd8\xff"],
        "photo_bytes": [3],
    } == (arrays)
    assert prediction.version is None


@pytest.mark.parametrize(
    ("model", "inputs", "options", "message"),
    [
        ("add_sub", {"a": [1, 2], "b": [3]}, {}, "INVALID_ARGUMENT: a has 2 values, b has 1"),
        (
            "add_sub",
            {"a": [1], "c": [3]},
            {},
            'INVALID_ARGUMENT: unknown input "c"; signature "serving_default" of model',
        ),
        ("add_sub", {"a": [1], "b": [3]}, {"version": 4}, "NOT_FOUND: Model add_sub with version 4 not found"),
        ("add_sub", {"a": [1], "b": [3]}, {"label": "stable"}, 'UNIMPLEMENTED: label "stable": the v2 protocol has no'),
        (
            "add_sub",
            {"a": [1], "b": [3]},
            {"signature": "top_k"},
            'FAILED_PRECONDITION: signature "top_k" not found in',
        ),
        (
            "echo",
            {"a": [1]},
            {"signature": "top_k"},
            'FAILED_PRECONDITION: signature "top_k" not found in model "echo"',
        ),
        ("none", {"a": [1]}, {}, "NOT_FOUND: Model none "),
    ],
    ids=["model's error", "input", "version", "label", "signature", "signature without metadata", "model"],
)
def test_errors(
    connect: Callable[[str], Client], model: str, inputs: dict[str, list[int]], options: dict[str, object], message: str
) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        connect(model).predict(inputs, **options)
    assert str(caught.value).startswith(message)


def test_metadata(connect: Callable[[str], Client]) -> None:
    signatures = connect("add_sub").metadata()["metadata"]["signature_def"]["signature_def"]
    vector = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}]}}
    expected = {"inputs": {"a": vector, "b": vector}, "outputs": {"sum": vector, "difference": vector}}
    assert {"serving_default": expected} == signatures
    assert {} == connect("echo").metadata()["metadata"]["signature_def"]["signature_def"]


def test_status(connect: Callable[[str], Client]) -> None:
    assert [VersionStatus(3, "AVAILABLE", Code.OK, "")] == connect("add_sub").status()
    assert [VersionStatus(None, "AVAILABLE", Code.OK, "")] == connect("echo").status()
    with pytest.raises(RequestRefusedError, match=r"^NOT_FOUND: Could not find any versions of model none$"):
        connect("none").status()


def test_with_asyncio(mlserver: MLServer) -> None:
    async def call() -> list[object]:
        async with AsyncClient(f"127.0.0.1:{mlserver.grpc_port}", transport="v2-grpc", model="add_sub") as client:
            prediction, status = await asyncio.gather(client.predict({"a": [1], "b": [3]}), client.status())
        return [prediction.arrays["sum"].tolist(), status[0].version]

    assert [[[4]], 3] == asyncio.run(call())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["predict", "-m", "add_sub", "--input", "FILE"], '{"sum": [[4.0]], "difference": [[-2.0]]}\n'),
        (["status", "-m", "add_sub"], "3\tAVAILABLE\n"),
        (["status", "-m", "echo"], "-\tAVAILABLE\n"),
        (["wait", "add_sub", "--version", "3"], "3\tAVAILABLE\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands(
    target: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    file = tmp_path / "inputs.json"
    file.write_text(json.dumps({"a": [1], "b": [3]}))
    arguments = [str(file) if argument == "FILE" else argument for argument in arguments]
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--format", target[0].upper(), "-t", target[1]])
    assert (None, expected) == (caught.value.code or None, capsys.readouterr().out)
