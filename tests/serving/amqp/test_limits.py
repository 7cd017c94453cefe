"""How much a worker takes on at a time."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import model_makers
import numpy as np
import pytest

from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.amqp.codec import Message, Response
from savedmodel_bakery.serving.amqp.handlers import CallLimits, Handlers, divide_memory
from savedmodel_bakery.serving.loaded_model import LoadedModel
from savedmodel_bakery.wire import amqp, schema
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import Code, StatusError

GIB, MIB = 2**30, 2**20


@pytest.mark.parametrize(
    ("budget", "prefetch", "memory"),
    [(8 * GIB, 16, 8 * GIB - 17 * 128 * MIB), (2 * GIB, 7, GIB), (64 * MIB, 1, 32 * MIB)],
    ids=["large", "medium", "small"],
)
def test_delivered_messages_fit_into_half_of_the_memory(
    caplog: pytest.LogCaptureFixture, budget: int, prefetch: int, memory: int
) -> None:
    with caplog.at_level(logging.WARNING):
        reduced, calls = divide_memory(budget, prefetch=16, max_message_bytes=128 * MIB)
    assert (prefetch, memory) == (reduced, calls.size)
    assert (prefetch < 16) == (len(caplog.messages) == 1)


def test_smaller_messages_need_no_smaller_prefetch() -> None:
    assert 16 == divide_memory(64 * MIB, prefetch=16, max_message_bytes=MIB)[0]


@pytest.fixture(scope="module")
def half_plus_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base_path = tmp_path_factory.mktemp("models") / "half_plus_two"
    model_makers.half_plus(base_path, 1)
    return base_path


def handle(half_plus_two: Path, limits: CallLimits, *messages: Message) -> list[Response]:
    local = LoadedModel(ModelConfig("half_plus_two", str(half_plus_two)))
    try:
        return Handlers(local, model_name="half_plus_two", limits=limits).handle(messages)
    finally:
        local.close()


def strings(count: int) -> Message:
    body = {"signature_name": "text", "instances": ["a"] * count}
    return Message(json.dumps(body).encode(), amqp.JSON)


def test_rows_are_limited_for_each_message_and_not_for_those_that_are_joined(half_plus_two: Path) -> None:
    limits = CallLimits(30, MemoryBudget(GIB), max_rows=4)
    responses = handle(half_plus_two, limits, strings(3), strings(3), strings(5))
    assert [None, None] == [response.error for response in responses[:2]]
    error = responses[2].error
    assert error is not None
    expected = "the request has 5 rows; at most 4 are allowed (--max_rows_per_request)"
    assert (Code.RESOURCE_EXHAUSTED, expected) == (error.code, error.message)


def nested(levels: int) -> Message:
    return Message(b'{"instances": [1.0], "ignored": %s%s}' % (b"[" * levels, b"]" * levels), amqp.JSON)


def test_json_beyond_the_nesting_limit_is_rejected(half_plus_two: Path) -> None:
    accepted, rejected = handle(half_plus_two, CallLimits(30, MemoryBudget(GIB)), nested(999), nested(1000))
    assert accepted.error is None
    assert rejected.error is not None
    expected = "the request nests more than 1000 JSON arrays and objects"
    assert (Code.INVALID_ARGUMENT, expected) == (rejected.error.code, rejected.error.message)


def test_json_is_charged_for_what_parsing_it_takes(half_plus_two: Path) -> None:
    body = json.dumps({"instances": [1.0] * 100_000}).encode()
    assert len(body) < MIB
    for size, is_accepted in ((100 * MIB, True), (2 * MIB, False)):
        (response,) = handle(half_plus_two, CallLimits(30, MemoryBudget(size)), Message(body, amqp.JSON))
        assert is_accepted == (response.error is None)
    assert response.error is not None
    assert Code.RESOURCE_EXHAUSTED is response.error.code


def declared(size: int) -> Message:
    """Return a message of some bytes that declares a tensor of `size` float32 values."""
    request = schema.PredictRequest()
    request.model_spec.name = "half_plus_two"
    request.inputs["x"].CopyFrom(schema.TensorProto(dtype=1, float_val=[1]))
    request.inputs["x"].tensor_shape.dim.add(size=size)
    return Message(request.SerializeToString(), amqp.PROTOBUF)


def test_messages_that_need_more_memory_than_all_calls_have_are_rejected_and_others_answered(
    half_plus_two: Path,
) -> None:
    limits = CallLimits(30, MemoryBudget(MIB))
    many_values = Message(b'{"instances":[' + b"1," * 20_000 + b"1]}", amqp.JSON)
    responses = handle(half_plus_two, limits, declared(10**9), many_values, declared(2))
    errors = [response.error for response in responses]
    assert errors[2] is None
    assert [2.5, 2.5] == list(np.float32(schema.PredictResponse.FromString(responses[2].body).outputs["y"].float_val))
    for error in errors[:2]:
        assert isinstance(error, StatusError)
        assert Code.RESOURCE_EXHAUSTED == error.code
        assert "--memory_budget_bytes" in error.message
    assert limits.memory is not None
    assert 0 == limits.memory.held
