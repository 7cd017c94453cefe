"""Models that `bakery triton` writes answer on a real tritonserver, called with tritonclient over HTTP and gRPC."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import model_makers
import numpy as np
import pipeline_steps
import pytest
import shape_models
from pages import blocks, commands, matches
from triton_server import ENVIRONMENT, TritonServer

from savedmodel_bakery import Client
from savedmodel_bakery.client.goldens import compare, read_goldens
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.pipeline.check import check_pipeline
from savedmodel_bakery.exporter.pipeline.compose import compose
from savedmodel_bakery.exporter.pipeline.pipeline_file import read_pipeline_file
from savedmodel_bakery.wire.examples import encode_example
from savedmodel_bakery.wire.tensors import decode_array

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32"]
DTYPES += ["float64", "string"]
JOINING = ("--max-batch-size", "8", "--max-queue-delay-us", "500000")
PIPELINES = {"add_sub_mul": (), "shape_colours": (), "two_classifiers": JOINING}
PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc"])
CHELSEA = (resources.folder("examples") / "chelsea.png").read_bytes()
NOT_AN_IMAGE = b"<html>"


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run `bakery` in an empty folder and return what it prints."""
    folder = tmp_path_factory.mktemp("bakery")

    def bakery(*arguments: str) -> str:
        command = [sys.executable, "-m", "savedmodel_bakery", *arguments]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
        assert 0 == run.returncode, run.stderr
        return str(folder / run.stdout.splitlines()[-1])

    return bakery


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example pipelines, in a folder each, composed too."""
    folder = tmp_path_factory.mktemp("pipelines")
    shapes = {"red": (0.1, 0.2, 0.3, 0.6), "blue": (0.5, 0.5, 0.9, 0.75)}
    for number, shown in enumerate((shapes, {})):
        shape_models.draw((200, 400), shown).save(folder / f"{number}.png")
    photos = sorted(folder.glob("*.png"))
    for name in PIPELINES:
        with pipeline_steps.example(name, folder):
            getattr(pipeline_steps, name)()
            checked = check_pipeline(read_pipeline_file(Path(f"{name}.toml")))
            compose(checked, base_path=Path("composed"), photos=photos)
    return folder


@pytest.fixture(scope="module")
def repository(
    bakery: Callable[..., str], lite0: Path, pipelines: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A repository with a classifier under two signatures, a model with tensors of all types, and the pipelines."""
    base_path = tmp_path_factory.mktemp("copying") / "copying"
    model_makers.copying(base_path, DTYPES)
    bakery("triton", str(lite0))
    bakery("triton", str(lite0), "--signature-name", "classify", "--name", "classify", *JOINING)
    for name, options in PIPELINES.items():
        bakery("triton", str(pipelines / name / f"{name}.toml"), *options)
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
@pytest.mark.parametrize("name", PIPELINES)
def test_an_ensemble_answers_as_the_pipeline_in_one_graph(
    server: TritonServer, pipelines: Path, name: str, protocol: str
) -> None:
    """Among the goldens are photos with several crops, without any, and a bad one."""
    goldens = read_goldens(pipelines / name / "composed" / "1")
    calls = [
        {alias: decode_array(tensor) for alias, tensor in golden.request.inputs.items()} for golden in goldens.requests
    ]
    is_batched = bool(PIPELINES[name])
    if is_batched:
        calls = [{alias: array[:, np.newaxis] for alias, array in call.items()} for call in calls]
    for golden, outputs in zip(goldens.requests, server.infer(protocol, name, calls), strict=True):
        assert not isinstance(outputs, str), outputs
        if is_batched:
            outputs |= {alias: outputs[alias][:, 0] for alias in ("ok", "error")}
        assert [] == compare(golden.expected, outputs, lambda alias: goldens.tolerances.get(alias, 0.0))


@PROTOCOLS
def test_steps_of_a_batched_ensemble_answer_joined_requests(
    server: TritonServer, pipelines: Path, protocol: str
) -> None:
    image = np.array([[(pipelines / "0.png").read_bytes()]], np.object_)
    before = server.statistics("two_classifiers.average")
    answers = server.infer(protocol, "two_classifiers", [{"image": image}] * 3)
    after = server.statistics("two_classifiers.average")
    assert [True] * 3 == [answer["ok"].all() for answer in answers]
    assert 1 == int(after["execution_count"]) - int(before["execution_count"])


@PROTOCOLS
def test_our_client_calls_models_with_and_without_batching(
    server: TritonServer, clone: Path, pipelines: Path, protocol: str
) -> None:
    transport, port = {"http": ("v2", server.http_port), "grpc": ("v2-grpc", server.grpc_port)}[protocol]
    with Client(f"127.0.0.1:{port}", transport=transport, model="efficientnet_lite0", timeout_s=120) as client:
        coffee, readme = client.classify([clone / "examples" / "coffee.png", clone / "examples" / "README.md"])
    assert ("espresso", False) == (coffee.label, readme.ok)
    with Client(f"127.0.0.1:{port}", transport=transport, model="shape_colours", timeout_s=120) as client:
        found, empty = client.detect([pipelines / "0.png", pipelines / "1.png"])
    assert ["blue blue", "red red"] == sorted(box.label for box in found.boxes)
    assert (True, []) == (empty.ok, list(empty.boxes))


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
