"""Arrays of every dtype and shape make the round trip through a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import model_makers
import numpy as np
import pytest
from server_process import ServerProcess

from savedmodel_bakery import Client, RequestRefusedError

JSON_DTYPES = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool", "string"]
OTHER_DTYPES = ["float16", "bfloat16", "uint16", "complex64", "complex128", "float8_e5m2", "int4", "qint8", "quint16"]
NUMPY = {"string": np.dtype(object), "qint8": np.dtype(np.int8), "quint16": np.dtype(np.uint16)} | {
    name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e5m2", "int4")
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the model `echo`, which returns its input, and `add_ten`, a baked function that adds ten."""
    root = tmp_path_factory.mktemp("arrays")
    model_makers.echoing(root / "echo", JSON_DTYPES + OTHER_DTYPES)
    (root / "sums.py").write_text("def add_ten(x):\n    return x + 10\n")
    command = [sys.executable, "-m", "savedmodel_bakery.exporter", "function", "sums:add_ten"]
    options = ["--input", "x:float64[?,?,?]", "--out", "."]
    result = subprocess.run([*command, *options], cwd=root, check=True, capture_output=True, text=True, timeout=120)
    assert "add_ten/1\n" == result.stdout
    configs = (
        f'config {{ name: "{name}" base_path: "{root / name}" model_platform: "tensorflow" }}'
        for name in ("echo", "add_ten")
    )
    (root / "models.config").write_text(f"model_config_list {{ {' '.join(configs)} }}")
    with ServerProcess(f"--model_config_file={root / 'models.config'}", log=root / "log") as running:
        yield running


@pytest.fixture(params=["grpc", "rest", "v2", "v2-grpc"])
def client(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Client]:
    """A client over each transport."""
    with connect(server, request.param) as opened:
        yield opened


def connect(server: ServerProcess, transport: Any) -> Client:
    return Client(transport=transport, model="echo", port=server.port, rest_api_port=server.rest_api_port)


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape))
    if dtype == "string":
        flat = np.array([b"", b"a\0", "ü".encode(), b"\xff"] * count, object)[:count]
    else:
        flat = (np.arange(count) % 2 if dtype == "bool" else np.arange(count) % 7).astype(NUMPY.get(dtype, dtype))
    return flat.reshape(shape)


def same(expected: np.ndarray, actual: np.ndarray) -> bool:
    return (expected.dtype, expected.shape, expected.tolist()) == (actual.dtype, actual.shape, actual.tolist())


@pytest.mark.parametrize("shape", [(), (5,), (0,), (2, 3, 2), (3, 0), (1,) * 8], ids=str)
@pytest.mark.parametrize("dtype", JSON_DTYPES)
def test_dtypes_that_json_supports_make_the_round_trip(client: Client, dtype: str, shape: tuple[int, ...]) -> None:
    sent = values(dtype, shape)
    assert same(sent, client.predict({"x": sent}, signature=dtype).outputs["y"])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", OTHER_DTYPES)
def test_other_dtypes_make_the_round_trip_over_grpc(server: ServerProcess, dtype: str, shape: tuple[int, ...]) -> None:
    sent = values(dtype, shape)
    with Client(port=server.port, model="echo") as client:
        assert same(sent, client.predict({"x": sent}, signature=dtype).outputs["y"])


@pytest.mark.parametrize("transport", ["v2", "v2-grpc"])
def test_dtypes_of_v2_make_the_round_trip(server: ServerProcess, transport: str) -> None:
    with connect(server, transport) as client:
        for dtype in ("float16", "bfloat16", "uint16"):
            sent = values(dtype, (2, 3))
            assert same(sent, client.predict({"x": sent}, signature=dtype).outputs["y"])
        with pytest.raises(
            RequestRefusedError, match=r'^INVALID_ARGUMENT: input "x" is complex64, which the v2 protocol'
        ):
            client.predict({"x": values("complex64", (2,))}, signature="complex64")


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(np.arange(6, dtype=">i4").reshape(2, 3), id="big-endian"),
        pytest.param(np.arange(12, dtype=np.int32).reshape(3, 4).T[::-1, ::2], id="transposed and strided"),
        pytest.param(np.broadcast_to(np.int32(7), (2, 3)), id="broadcast"),
        pytest.param(np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)), id="column-major"),
    ],
)
def test_memory_layout_does_not_matter(client: Client, sent: np.ndarray) -> None:
    expected = np.ascontiguousarray(sent).astype(np.int32)
    assert same(expected, client.predict({"x": sent}, signature="int32").outputs["y"])


def test_trees_of_arrays_make_the_round_trip(client: Client) -> None:
    tree = {"a": [{"b": np.float32([[1, 2]])}, {"b": np.float32([3, 4])}], "k/e~y": np.array(5, np.int32)}
    outputs = client.predict(tree, signature="tree").outputs
    assert ["a", "k/e~y"] == sorted(outputs)
    first, second = outputs["a"]
    assert [[[1, 2]], [3, 4], 5] == [first["b"].tolist(), second["b"].tolist(), outputs["k/e~y"]]


def test_inputs_of_another_shape_are_rejected_with_the_expected_inputs(client: Client) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        client.predict({"x": np.zeros((2, 2), np.int32)}, signature="fixed")
    assert (
        'INVALID_ARGUMENT: input "x" is int32[2,2]; signature "fixed" of model "echo" version 1 takes x: int32[?,3]'
        == str(caught.value)
    )


def test_a_call_can_select_another_model_and_version(client: Client) -> None:
    x = {"x": np.zeros((1, 3), np.int32)}
    assert 1 == client.predict(x, signature="fixed", model="echo", version=1).version
    with pytest.raises(RequestRefusedError, match=r"Specific\(echo, 9\)"):
        client.predict(x, signature="fixed", version=9)
    with pytest.raises(RequestRefusedError, match=r"Latest\(other\)"):
        client.predict(x, signature="fixed", model="other")


def test_a_request_beyond_the_limit_of_protobuf_is_rejected_before_it_is_sent(server: ServerProcess) -> None:
    """The array of zeros takes no memory until it is read."""
    with (
        Client(port=server.port, model="add_ten") as client,
        pytest.raises(RequestRefusedError, match="a protobuf message has at most 2147483647"),
    ):
        client.predict({"x": np.zeros((1, 1, 1 << 28))})


def test_an_array_of_19_megabytes_makes_the_round_trip(server: ServerProcess) -> None:
    sent = np.arange(784 * 256 * 12, dtype=np.float64).reshape(784, 256, 12)
    with Client(port=server.port, model="add_ten") as client:
        result = client.predict({"x": sent}).outputs["output_0"]
    assert same(sent + 10, result)


def test_the_command_line_reads_and_writes_files(server: ServerProcess, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.float64([[[1, 2]]]))

    def predict(*arguments: str, stdin: bytes = b"", code: int = 0) -> tuple[str, str]:
        command = [sys.executable, "-m", "savedmodel_bakery.client", "predict", "--port", str(server.port), *arguments]
        result = subprocess.run(command, cwd=tmp_path, input=stdin, capture_output=True, timeout=60, check=False)
        assert code == result.returncode, result.stderr
        return result.stdout.decode(), result.stderr.decode()

    printed, _ = predict("-m", "add_ten", "--input", "x=array.npy", "--output-dir", "out")
    assert "out/output_0.npy\n" == printed
    assert [[[11, 12]]] == np.load(tmp_path / "out" / "output_0.npy").tolist()
    tree = b'{"a": [{"b": 1}, {"b": [2, 3]}], "k/e~y": 4}'
    printed, _ = predict("-m", "echo", "-n", "tree", "--input", "-", stdin=tree)
    assert {"a": [{"b": 1.0}, {"b": [2.0, 3.0]}], "k/e~y": 4} == json.loads(printed)
    _, stderr = predict("-m", "add_ten", "--input", "x=-", stdin=b"[1, 2]", code=1)
    assert (
        'error: INVALID_ARGUMENT: input "x" is float64[2]; signature "serving_default" of model "add_ten" version 1 '
        "takes x: float64[?,?,?]\n"
    ) == stderr
    _, stderr = predict("-m", "add_ten", "--input", "array.npy", code=2)
    assert "Error: array.npy contains one array without a name: pass it as NAME=array.npy" == stderr.splitlines()[-1]
