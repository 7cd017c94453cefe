"""Models that `bakery triton` writes answer on a real tritonserver, called with tritonclient over HTTP and gRPC."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import model_makers
import numpy as np
import pytest
from pages import blocks, commands, matches
from triton_server import ENVIRONMENT, TritonServer

from savedmodel_bakery.client.comparison import compare
from savedmodel_bakery.client.goldens import read_goldens
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.wire.examples import encode_example

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32"]
DTYPES += ["float64", "string"]
FUNCTIONS = """
def add_sub(a, b):
    return {"sum": a + b, "difference": a - b}

def mul(x, y):
    return {"product": x * y}
"""
PIPELINE = """
inputs = ["a", "b"]
outputs = ["product", "sum"]

[[steps]]
name = "add_sub"
model = "saved_model/add_sub"
input_map = { a = "a", b = "b" }
output_map = { sum = "sum", difference = "difference" }

[[steps]]
name = "mul"
model = "saved_model/mul"
input_map = { x = "sum", y = "difference" }
output_map = { product = "product" }
"""
PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc"])
CHELSEA = (resources.folder("examples") / "chelsea.png").read_bytes()
NOT_AN_IMAGE = b"<html>"


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run `bakery` in an empty folder and return what it prints."""
    folder = tmp_path_factory.mktemp("bakery")
    (folder / "functions.py").write_text(FUNCTIONS)
    (folder / "add_sub_mul.toml").write_text(PIPELINE)

    def bakery(*arguments: str) -> str:
        command = [sys.executable, "-m", "savedmodel_bakery", *arguments]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
        assert 0 == run.returncode, run.stderr
        return str(folder / run.stdout.splitlines()[-1])

    return bakery


@pytest.fixture(scope="module")
def repository(bakery: Callable[..., str], lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a classifier under two signatures, and models with other types and shapes."""
    base_path = tmp_path_factory.mktemp("copying") / "copying"
    model_makers.copying(base_path, DTYPES)
    bakery("triton", str(lite0))
    joining = ("--max-batch-size", "8", "--max-queue-delay-us", "500000")
    bakery("triton", str(lite0), "--signature-name", "classify", "--name", "classify", *joining)
    for name, inputs in (("add_sub", ("a", "b")), ("mul", ("x", "y"))):
        bakery("function", f"functions:{name}", *(f"--input={each}:float32[?,4]" for each in inputs))
    bakery("triton", "add_sub_mul.toml")
    bakery("triton", "add_sub_mul.toml", "--name", "batched", "--max-batch-size", "8", "--max-queue-delay-us", "500000")
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
    assert bad.startswith("assertion failed: [image 0 is neither base64 nor a supported image format: it starts with")
    assert 1 == int(after["execution_count"]) - int(before["execution_count"])


def arrays_of_all_types() -> dict[str, np.ndarray]:
    """Return the inputs of the model `copying`; an array of one element stands for a scalar."""
    arrays = {f"x_{dtype}": np.array([[0, 1], [1, 1], [1, 0]]).astype(dtype) for dtype in DTYPES if dtype != "string"}
    arrays["x_string"] = np.array([[b"", b"\x00\xff"], ["ß".encode(), b"a" * 70_000]], np.object_)
    return {**arrays, "x": np.array([-7], np.int32)}


@PROTOCOLS
def test_all_types_arrive_unchanged(server: TritonServer, protocol: str) -> None:
    arrays = arrays_of_all_types()
    (outputs,) = server.infer(protocol, "copying", [arrays])
    assert {name.replace("x", "y", 1) for name in arrays} == set(outputs)
    for name, array in arrays.items():
        output = outputs[name.replace("x", "y", 1)]
        assert (array.dtype, array.tolist()) == (output.dtype, output.tolist())


@PROTOCOLS
def test_a_wrong_shape_is_an_error(server: TritonServer, protocol: str) -> None:
    (error,) = server.infer(protocol, "copying", [{**arrays_of_all_types(), "x_bool": np.zeros([2, 3], bool)}])
    assert "unexpected shape for input 'x_bool' for model 'copying'. Expected [-1,2], got [2,3]" in error


@PROTOCOLS
@pytest.mark.parametrize("name", ["add_sub_mul", "batched"])
def test_an_ensemble_answers(server: TritonServer, name: str, protocol: str) -> None:
    generator = np.random.default_rng(0)
    pairs = [[generator.random([rows, 4], np.float32) for _ in "ab"] for rows in (1, 3, 2)]
    before = server.statistics(f"{name}.add_sub")
    answers = server.infer(protocol, name, [{"a": a, "b": b} for a, b in pairs])
    after = server.statistics(f"{name}.add_sub")
    for (a, b), answer in zip(pairs, answers, strict=True):
        assert {"product", "sum"} == set(answer)
        np.testing.assert_allclose((a + b) * (a - b), answer["product"], rtol=1e-6)
        np.testing.assert_allclose(a + b, answer["sum"], rtol=1e-6)
    runs = int(after["execution_count"]) - int(before["execution_count"])
    assert (1 if name == "batched" else 3) == runs


def test_the_page_shows_what_clients_print(server: TritonServer, clone: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(clone / "examples")
    page = (clone / "docs" / "how-to" / "triton.md").read_text()
    shown = blocks(page.replace("127.0.0.1:8000", f"127.0.0.1:{server.http_port}"))
    (script,) = (block.content for block in shown if block.title == "call.py")
    (tmp_path / "call.py").write_text(script)
    pairs = [pair for block in shown if block.language == "console" for pair in commands(block)]
    run = [(command, output) for command, output in pairs if command.startswith(("python call.py", "printf"))]
    assert 2 == len(run)
    environment = {**os.environ, "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}"}
    for command, output in run:
        script = f"exec 2>&1\n{command}"
        printed = subprocess.check_output(["bash", "-c", script], cwd=tmp_path, env=environment, text=True, timeout=60)
        assert matches(output, printed), printed
