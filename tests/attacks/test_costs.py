"""Requests take no more memory than they are charged: each kind grows until the budget ends it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import baked_tasks
import grpc
import numpy as np
import pytest
from attacked_server import CLASSIFIER, MB, TINY, AttackedServer
from grpc_calls import NO_LIMIT, request
from image_bombs import RGB, png
from PIL import Image
from small_fields import FIELDS, delimited
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

BUDGET_MB = 300
SLACK_MB = 150
"""What the C library keeps for each of the threads that ran operations."""
TINY_IMAGE = png(8, RGB, 8)
LARGE_IMAGE = png(2000, RGB, 2000)


def noise(side: int, **options: object) -> bytes:
    """A JPEG file, as large as one of its pixels can be."""
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def coefficients(side: int) -> bytes:
    """A progressive CMYK file, of which libjpeg keeps all coefficients."""
    file = io.BytesIO()
    Image.new("CMYK", (side, side)).save(file, "JPEG", progressive=True, quality=1)
    return file.getvalue()


def animation(side: int) -> bytes:
    """An animated WebP file of two frames."""
    file = io.BytesIO()
    frames = [Image.new("RGB", (side, side), colour) for colour in ("red", "blue")]
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], lossless=True, method=0, quality=0)
    return file.getvalue()


def plain(side: int, colour: str) -> bytes:
    """A PNG file of one colour."""
    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, "PNG")
    return file.getvalue()


def images(signature: str, *files: bytes, model: str = CLASSIFIER) -> predict_pb2.PredictRequest:
    return request(signature, model=model, image=np.array(files, object))


KINDS: dict[str, tuple[Callable[[int], predict_pb2.PredictRequest], list[int]]] = {
    "pixels of empty images": (lambda rows: images("preprocess", *[b""] * rows), [100, 400, 1600]),
    "pixels of tiny images": (lambda rows: images("preprocess", *[TINY_IMAGE] * rows), [100, 400, 1600]),
    "pictures": (lambda rows: images("preview", *[noise(224)] * rows), [20, 1000]),
    "maps": (lambda rows: images("serving_default", *[LARGE_IMAGE] * rows, model="segment"), [1, 8, 40]),
    "pictures of the size of photos": (
        lambda rows: images("serving_default", *[LARGE_IMAGE] * rows, model="image"),
        [1, 8, 40],
    ),
    "commas": (lambda size: images("top_k", b"data:" + b"," * (size * MB)), [10, 40, 90]),
    "lines": (lambda size: images("top_k", b"AAA\n" * (size * MB // 4)), [10, 40, 90]),
    "coefficients": (lambda side: images("top_k", coefficients(side)), [3000, 6000]),
    "animations": (lambda side: images("top_k", animation(side)), [2000, 4600, 6500]),
    "large arrays": (
        lambda rows: request("pixels", model=CLASSIFIER, pixels=np.zeros((rows, 224, 224, 3), np.uint8)),
        [8, 64, 512],
    ),
    "numbers": (lambda size: request(x=np.zeros(size * MB // 4, np.float32)), [10, 40, 90]),
}


@pytest.fixture(scope="module")
def small(
    half_plus_two: Path, lite0: Path, task_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AttackedServer]:
    """A server with little memory."""
    base_paths = {TINY: half_plus_two, CLASSIFIER: lite0}
    base_paths |= {name: task_models.with_name(name) for name in ("segment", "image")}
    budget = f"--memory_budget_bytes={BUDGET_MB * MB}"
    with AttackedServer(base_paths, budget, log=tmp_path_factory.mktemp("attacked") / "log") as running:
        with grpc.insecure_channel(running.target) as channel:  # the first run takes memory that stays
            call(channel, images("top_k", *[TINY_IMAGE] * 8))
        yield running


def call(channel: grpc.Channel, message: predict_pb2.PredictRequest) -> str:
    """Send a message in gzip; return the status."""
    try:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        stub.Predict(message, timeout=120, compression=grpc.Compression.Gzip)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_takes_no_more_than_the_budget(small: AttackedServer, kind: str) -> None:
    """Sent: larger and larger requests. Allowed: answers, and at last RESOURCE_EXHAUSTED."""
    make, sizes = KINDS[kind]
    messages = [make(size) for size in sizes]
    with (
        grpc.insecure_channel(small.target, options=NO_LIMIT) as channel,
        small.growing_at_most(BUDGET_MB + SLACK_MB, kept_mb=BUDGET_MB),
    ):
        outcomes = [call(channel, message) for message in messages]
    print(outcomes)
    assert ["OK", "RESOURCE_EXHAUSTED"] == [outcomes[0], outcomes[-1]], outcomes
    assert {"OK", "RESOURCE_EXHAUSTED"} == set(outcomes), outcomes


ROWS = [10, 100, 400, 1600, 6400]
FILES_OF_TASKS = {"tiny": TINY_IMAGE, "noise": noise(224), "large": plain(2000, "red")}
"""A red photo has a box with a mask, which cover it."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("task", baked_tasks.TASKS)
def test_no_signature_of_a_task_takes_more_than_it_is_charged(task_models: Path, tmp_path: Path, task: str) -> None:
    """Sent: more and more rows of images of several sizes, and of pixels, until there are too many."""
    budget = f"--memory_budget_bytes={BUDGET_MB * MB}"
    with (
        AttackedServer({task: task_models.with_name(task)}, budget, log=tmp_path / "log") as server,
        grpc.insecure_channel(server.target, options=NO_LIMIT) as channel,
    ):
        for signature, inputs in sorted(inputs_by_signature(channel, task).items()):
            for name, (alias, row) in single_rows(inputs).items():
                outcomes = []
                with server.growing_at_most(BUDGET_MB + SLACK_MB, kept_mb=BUDGET_MB):
                    for rows in ROWS:
                        array = np.repeat(row, rows, axis=0)
                        outcomes.append(call(channel, request(signature, model=task, **{alias: array})))
                        if outcomes[-1] != "OK":
                            break
                print(signature, name, outcomes)
                assert outcomes[-1] in ("OK", "RESOURCE_EXHAUSTED"), (signature, name, outcomes)


def inputs_by_signature(channel: grpc.Channel, model: str) -> dict[str, Mapping[str, Any]]:
    """Return the TensorInfo of each input of the signatures."""
    query = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    query.model_spec.name = model
    response = prediction_service_pb2_grpc.PredictionServiceStub(channel).GetModelMetadata(query)
    definitions = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(definitions)
    return {name: definition.inputs for name, definition in definitions.signature_def.items()}


def single_rows(inputs: Mapping[str, Any]) -> dict[str, tuple[str, np.ndarray]]:
    """Return rows for a signature by what they are, each with its alias; none if it takes neither images nor pixels."""
    if "image" in inputs:
        return {name: ("image", np.array([file], object)) for name, file in FILES_OF_TASKS.items()}
    if "pixels" in inputs:
        _, *shape = (dim.size for dim in inputs["pixels"].tensor_shape.dim)
        return {"pixels": ("pixels", np.zeros([1, *shape], np.uint8))}
    return {}


SPEC = delimited(1, delimited(1, TINY.encode()))


@pytest.mark.parametrize(
    "kind", ["tasks", "inputs", "names of outputs", "texts", "sizes", "handles", "integers", "examples"]
)
def test_a_message_of_small_fields_takes_no_more_than_the_budget(small: AttackedServer, kind: str) -> None:
    """Sent: larger and larger messages. Allowed: answers or errors of the request, and at last RESOURCE_EXHAUSTED."""
    method, make = FIELDS[kind]
    spec = b"" if kind == "tasks" else SPEC
    outcomes = []
    with (
        grpc.insecure_channel(small.target, options=NO_LIMIT) as channel,
        small.growing_at_most(BUDGET_MB + SLACK_MB, kept_mb=BUDGET_MB),
    ):
        send = channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")
        for size in (1, 2, 4, 20):
            try:
                send(spec + make(size * MB), timeout=120, compression=grpc.Compression.Gzip)
                outcomes.append("OK")
            except grpc.RpcError as error:
                outcomes.append(error.code().name)
    assert outcomes[0] in ("OK", "INVALID_ARGUMENT"), outcomes
    assert "RESOURCE_EXHAUSTED" == outcomes[-1], outcomes
