"""What a request claims is checked and charged before it is used."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from savedmodel_bakery.serving.admission.budget import Cost, MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference import claims
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes, messages, schema
from savedmodel_bakery.wire.examples import ExamplesWithContext
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import Tensor, decode_tensor

FLOAT, STRING = dtypes.BY_NAME["float"], dtypes.STRING
MIB = 2**20
MEGAPIXEL = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII5B", 13, b"IHDR", 1000, 1000, 8, 2, 0, 0, 0)


class DeclaredRuntime:
    """Has a signature whose outputs declare 4000 bytes per row, a picture of 100 pixels, 20,000 bytes, and nothing."""

    def __init__(self) -> None:
        signature = schema.SignatureDef()
        for alias, dtype, shape in [
            ("row", FLOAT, [-1, 1000]),
            ("fixed", FLOAT, [5, 1000]),
            ("free", FLOAT, [-1, -1]),
            ("pixels", FLOAT, [-1, 10, 10, 3]),
            ("png_bytes", STRING, [-1]),
        ]:
            signature.outputs[alias].name, signature.outputs[alias].dtype = alias, dtype.number
            for size in shape:
                signature.outputs[alias].tensor_shape.dim.add(size=size)
        self.signatures = {"preprocess": signature}


ANY = Servable("m", 1, DeclaredRuntime())


def samples(count: int) -> dict[str, Tensor]:
    return {"x": Tensor(np.zeros(count, np.float32), FLOAT)}


@pytest.fixture
def context() -> RequestContext:
    return RequestContext(memory=MemoryBudget(100 * MIB), max_rows=1000)


def test_memory_for_a_shape_is_charged_before_its_values_are_filled_up(context: RequestContext) -> None:
    claims.take_declared(context, FLOAT, (1024, 1024))
    assert 8 * MIB == context.charged
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED: the request needs 800 MiB"):
        claims.take_declared(context, FLOAT, (100, 1024, 1024))


def test_rows_of_strings_are_limited_and_numbers_are_not(context: RequestContext) -> None:
    claims.take_declared(context, FLOAT, (5000,))
    claims.take_declared(context, STRING, (1000,))
    reason = r"RESOURCE_EXHAUSTED: the request has 1001 rows; at most 1000 are allowed \(--max_rows_per_request\)"
    with pytest.raises(StatusError, match=reason):
        claims.take_declared(context, STRING, (1001,))
    with pytest.raises(StatusError, match=reason):
        claims.take_tensors(context, ANY, {"x": Tensor(np.full(1001, b"", object), dtypes.STRING)}, ())
    with pytest.raises(StatusError, match=reason):
        claims.take_examples(context, ANY, [b""] * 1001, ())


def test_a_string_that_fills_up_a_shape_is_charged_each_time(context: RequestContext) -> None:
    proto = schema.TensorProto(dtype=STRING.number, string_val=[b"other", bytes(MIB // 10)])
    proto.tensor_shape.dim.add(size=101)
    claims.take_tensors(context, ANY, {"x": decode_tensor(proto)}, ())
    assert (2 * 99 + Cost.IMAGE_BYTE) * (MIB // 10) == context.charged
    proto.tensor_shape.dim[0].size = 1000
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED"):
        claims.take_tensors(context, ANY, {"x": decode_tensor(proto)}, ())


@pytest.mark.parametrize("shape", [(2**62,), (2**40, 2**40)])
def test_shapes_that_fit_no_machine_are_left_to_decoding(context: RequestContext, shape: tuple[int, ...]) -> None:
    claims.take_declared(context, FLOAT, shape)
    assert 0 == context.charged


def test_pixels_are_charged_up_to_those_that_a_model_decodes_at_one_time(context: RequestContext) -> None:
    photos = [MEGAPIXEL, b"no image", bytes(bytearray(MEGAPIXEL))]
    images = {"x": Tensor(np.array(photos, object), dtypes.STRING)}
    claims.take_tensors(context, replace(ANY, max_pixels=1_500_000), images, ())
    assert 1_500_000 * Cost.PIXEL == context.charged
    claims.take_tensors(context, ANY, images, ())
    assert 3_500_000 * Cost.PIXEL == context.charged


def test_the_longest_image_file_is_charged_for_its_conversion(context: RequestContext) -> None:
    claims.take_tensors(context, ANY, {"x": Tensor(np.array([bytes(MIB), b"A" * MIB, b""], object), dtypes.STRING)}, ())
    assert Cost.IMAGE_BYTE * MIB == context.charged


@pytest.mark.parametrize(
    ("fetches", "declared"),
    [
        (["row", "fixed", "free"], 100 * 4000 + 20_000),
        (["png_bytes"], 100 * (Cost.STRING + 300 + 1024)),
    ],
)
def test_outputs_are_charged_as_declared_before_the_run(
    context: RequestContext, fetches: list[str], declared: int
) -> None:
    servable = Servable("m", 1, DeclaredRuntime(), rows_per_run=8)
    assert (100, declared) == claims.take_tensors(context, servable, samples(100), fetches)
    assert Cost.OUTPUT * declared == context.charged
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED"):
        claims.take_tensors(context, servable, samples(100_000), fetches)


def test_rows_of_a_model_that_was_not_baked_may_not_be_those_of_its_outputs(context: RequestContext) -> None:
    """YAMNet takes samples of sound and returns scores for each half of a second."""
    assert (480_000, 20_000) == claims.take_tensors(context, ANY, samples(480_000), ["row", "fixed"])


def test_a_network_is_charged_for_the_rows_that_it_takes_at_one_time(context: RequestContext) -> None:
    servable = Servable("m", 1, DeclaredRuntime(), rows_per_run=8, row_bytes=MIB)
    claims.take_tensors(context, servable, samples(100), ["row"])
    assert 8 * MIB * Cost.NETWORK == context.charged


def test_what_outputs_did_not_declare_is_charged_after_the_run(context: RequestContext) -> None:
    claims.take_undeclared(context, [Tensor(np.zeros(30_000, np.float32), FLOAT)], declared=120_000)
    assert 0 == context.charged
    words = Tensor(np.array([bytes(100_000), b"a"], object), STRING)
    claims.take_undeclared(context, [words], declared=100)
    assert (100_001 + 2 * Cost.STRING - 100) * Cost.OUTPUT == context.charged


def test_a_request_waits_for_the_memory_of_its_images_last(context: RequestContext) -> None:
    """Otherwise one that holds that much could wait for a little more."""
    servable = replace(ANY, rows_per_run=8, row_bytes=MIB)
    photos = {"x": Tensor(np.array([MEGAPIXEL] * 30, object), dtypes.STRING)}
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED"):
        claims.take_tensors(context, servable, photos, ["row"])
    assert 8 * MIB * Cost.NETWORK == context.charged


def test_images_in_examples_are_charged(context: RequestContext) -> None:
    example = schema.Example()
    example.features.feature["image/encoded"].bytes_list.value.append(MEGAPIXEL)
    claims.take_examples(context, ANY, [example.SerializeToString(), b"\xff damaged"], ())
    assert 1_000_000 * Cost.PIXEL == context.charged


def test_a_context_is_charged_for_each_example_before_it_is_merged(context: RequestContext) -> None:
    parsed = messages.parse_request("Classify", message_with_context(1000))
    assert isinstance(parsed.examples, ExamplesWithContext)
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED: the request needs 2001 MiB"):
        claims.take_examples(context, ANY, parsed.examples, ())
    small = messages.parse_request("Classify", message_with_context(3))
    claims.take_examples(context, ANY, small.examples, ())
    longest = max(map(len, small.examples))
    assert 2 * sum(map(len, small.examples)) + Cost.IMAGE_BYTE * longest == context.charged


def message_with_context(count: int) -> bytes:
    """A ClassificationRequest with a context of 1 MiB and examples without features."""
    request = METHODS["Classify"].request()
    sent = request.input.example_list_with_context
    sent.context.features.feature["x"].bytes_list.value.append(bytes(MIB))
    for _ in range(count):
        sent.examples.add()
    return request.SerializeToString()
