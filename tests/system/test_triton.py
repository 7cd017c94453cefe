"""Models that `bakery triton` writes answer on a real tritonserver, called with tritonclient over HTTP and gRPC."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import model_makers
import numpy as np
import pytest
from triton_server import TritonServer

from savedmodel_bakery.client.comparison import compare
from savedmodel_bakery.client.goldens import read_goldens
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.wire.examples import encode_example

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32"]
DTYPES += ["float64", "string"]
FUNCTIONS = """
import tensorflow as tf

def largest(numbers, scale):
    return tf.reduce_max(numbers) * scale
"""
PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc"])
CHELSEA = (resources.folder("examples") / "chelsea.png").read_bytes()
NOT_AN_IMAGE = b"<html>"


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run `bakery` in an empty folder and return what it prints."""
    folder = tmp_path_factory.mktemp("bakery")
    (folder / "functions.py").write_text(FUNCTIONS)

    def bakery(*arguments: str) -> str:
        command = [sys.executable, "-m", "savedmodel_bakery", *arguments]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
        assert 0 == run.returncode, run.stderr
        return str(folder / run.stdout.strip())

    return bakery


@pytest.fixture(scope="module")
def repository(bakery: Callable[..., str], lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a classifier under two signatures, and models with other types and shapes."""
    base_path = tmp_path_factory.mktemp("copying") / "copying"
    model_makers.copying(base_path, DTYPES)
    bakery("triton", str(lite0))
    joining = ("--max-batch-size", "8", "--max-queue-delay-us", "500000")
    bakery("triton", str(lite0), "--signature-name", "classify", "--name", "classify", *joining)
    bakery("triton", bakery("function", "functions:largest", "--input", "numbers:int32[?]", "--input", "scale:int32[]"))
    return Path(bakery("triton", str(base_path))).parent.parent


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with TritonServer(repository, tmp_path_factory.mktemp("triton")) as running:
        yield running


@PROTOCOLS
def test_a_classifier_answers_as_when_it_was_baked(server: TritonServer, lite0: Path, protocol: str) -> None:
    """The first golden has a bad image, which gets its error row."""
    goldens = read_goldens(lite0 / "1")
    exchanges = [golden for golden in goldens.requests if golden.signature == "top_k"]
    calls = [{"image": np.array([[*golden.request.inputs["image"].string_val]], np.object_).T} for golden in exchanges]
    for golden, outputs in zip(exchanges, server.infer(protocol, lite0.name, calls), strict=True):
        assert not isinstance(outputs, str), outputs
        assert outputs["labels"].shape == golden.expected["labels"].shape
        outputs |= {name: outputs[name][:, 0] for name in ("ok", "error")}
        assert [] == compare(golden.expected, outputs, lambda alias: goldens.tolerances.get(alias, 0.0))
    assert [True, False] == exchanges[0].expected["ok"].tolist()


@PROTOCOLS
def test_a_bad_image_fails_only_its_own_of_the_joined_requests(server: TritonServer, protocol: str) -> None:
    """The signature `classify` rejects all rows of a run if it can't read one."""
    images = [CHELSEA, NOT_AN_IMAGE, CHELSEA]
    examples = [encode_example({"image/encoded": image}).SerializeToString() for image in images]
    calls = [{"inputs": np.array([[example]], np.object_)} for example in examples]
    before = server.statistics("classify")
    first, bad, last = server.infer(protocol, "classify", calls, outputs=["classes"])
    after = server.statistics("classify")
    assert [[b"tiger cat", b"Egyptian cat"]] == first["classes"][:, :2].tolist()
    assert (["classes"], first["classes"].tolist()) == (list(last), last["classes"].tolist())
    assert "image 0 is neither base64 nor a supported image format: it starts with 3c68746d6c3e" in bad
    answered, runs = (int(after[count]) - int(before.get(count, 0)) for count in ("inference_count", "execution_count"))
    assert (2, 1) == (answered, runs)


@PROTOCOLS
def test_all_types_arrive_unchanged(server: TritonServer, protocol: str) -> None:
    arrays = {f"x_{dtype}": np.array([[0, 1], [1, 1], [1, 0]]).astype(dtype) for dtype in DTYPES if dtype != "string"}
    arrays["x_string"] = np.array([[b"", b"\x00\xff"], ["ß".encode(), b"a" * 70_000]], np.object_)
    (outputs,) = server.infer(protocol, "copying", [arrays])
    assert {name.replace("x", "y", 1) for name in arrays} == set(outputs)
    for name, array in arrays.items():
        output = outputs[name.replace("x", "y", 1)]
        assert (array.dtype, array.tolist()) == (output.dtype, output.tolist())


@PROTOCOLS
def test_a_function_takes_and_returns_arrays_of_one_element_as_scalars(server: TritonServer, protocol: str) -> None:
    call = {"numbers": np.array([3, 9, 4], np.int32), "scale": np.array([2], np.int32)}
    ((_, output),) = server.infer(protocol, "largest", [call])[0].items()
    assert [18] == output.tolist()


@PROTOCOLS
def test_a_wrong_shape_is_an_error(server: TritonServer, protocol: str) -> None:
    (error,) = server.infer(protocol, "copying", [{"x_bool": np.zeros([2, 3], bool)}])
    assert "[2,3]" in error
