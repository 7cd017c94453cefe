"""What a request claims before it is run: rows, and memory for its tensors, its images and what it returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from savedmodel_bakery.serving.admission import images
from savedmodel_bakery.serving.admission.budget import Cost
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.examples import ExamplesWithContext
from savedmodel_bakery.wire.tensors import Tensor

_ADDRESSABLE_BYTES = 2**45  # a larger tensor fits no machine


def take_declared(context: RequestContext, dtype: DType, shape: tuple[int, ...]) -> None:
    """Charge a request for a tensor as it declares it, before its values are filled up to its shape."""
    count = math.prod(shape)
    size = count * dtype.numpy.itemsize
    if size > _ADDRESSABLE_BYTES:
        return  # decoding reports the error
    if dtype is dtypes.STRING:
        context.check_rows(count)
    context.charge(Cost.TENSOR * size)


class Charged(NamedTuple):
    """What a request was charged for."""

    rows: int  # of its inputs
    declared: int  # bytes of its outputs, as far as the model declares their sizes


def take_tensors(
    context: RequestContext, servable: Servable, feeds: Mapping[str, Tensor], fetches: Iterable[str]
) -> Charged:
    """Count the rows of a request, and charge it for repeated strings, its run and its images.

    Images come last, because they take most: a request that waits for memory for them holds little.
    """
    strings, lengths = [], []
    for tensor in feeds.values():
        if tensor.dtype is dtypes.STRING:
            values = tensor.array.ravel().tolist()
            context.check_rows(len(values))
            context.charge(Cost.TENSOR * _repeated_bytes(values))
            strings.append(values)
        # Handles, of which any number takes no memory, are rejected by the run.
        if tensor.dtype.number not in dtypes.HANDLES and tensor.array.ndim:
            lengths.append(len(tensor.array))
    rows = max(lengths, default=1)
    context.take_rows(rows)
    declared = _take_run(context, servable, fetches, rows)
    for values in strings:
        _take_images(context, values, max(map(len, values), default=0), servable.max_pixels)
    return Charged(rows, declared)


def take_examples(
    context: RequestContext, servable: Servable, examples: Sequence[bytes], fetches: Iterable[str]
) -> Charged:
    """Count a request's serialized tf.Examples, and charge it for what they need; see `take_tensors`."""
    context.check_rows(len(examples))
    if isinstance(examples, ExamplesWithContext):  # others are no larger than the message
        context.charge(Cost.TENSOR * examples.size)
    context.take_rows(len(examples))
    declared = _take_run(context, servable, fetches, len(examples))
    values = (value for example in examples for value in _strings(example))
    _take_images(context, values, max(map(len, examples), default=0), servable.max_pixels)
    return Charged(len(examples), declared)


def take_undeclared(context: RequestContext, outputs: Iterable[Tensor], declared: int) -> None:
    """Charge a request for what its outputs have beyond the `declared` bytes, before they are encoded."""
    context.charge(Cost.OUTPUT * max(0, sum(map(size, outputs)) - declared))


def _repeated_bytes(strings: Sequence[bytes]) -> int:
    """Return the size of the strings that are the same object as an earlier one: the message has them once."""
    sent = {id(string): len(string) for string in strings}
    return sum(map(len, strings)) - sum(sent.values())


def size(tensor: Tensor) -> int:
    """Return the bytes of memory that a tensor takes."""
    if tensor.dtype is dtypes.STRING:
        return sum(map(len, tensor.array.ravel().tolist())) + Cost.STRING * tensor.array.size
    return tensor.array.nbytes


def _take_run(context: RequestContext, servable: Servable, fetches: Iterable[str], rows: int) -> int:
    """Charge a request for the network of a baked model, and for outputs; return the bytes that outputs declare.

    Of other models, an output may have other rows than the request, such as one per second of sound.
    """
    declared = 0
    for name in fetches:
        output = servable.output_sizes[name]
        declared += output.fixed + output.per_row * (rows if servable.rows_per_run else 0)
    network = servable.row_bytes * min(rows, servable.rows_per_run)
    context.charge(max(Cost.NETWORK * network, Cost.OUTPUT * declared))  # the network has ended before all is there
    return declared


def _take_images(context: RequestContext, values: Iterable[bytes], longest: int, max_pixels: int | None) -> None:
    """Charge for images, of which the longest has `longest` bytes, and `max_pixels` are decoded at a time."""
    context.charge(Cost.IMAGE_BYTE * longest)  # they are converted one after the other, also to see what they claim
    claims = [images.claim(value) for value in values]
    pixels = sum(claimed.pixels for claimed in claims)
    bytes_per_pixel = max((claimed.bytes_per_pixel for claimed in claims), default=0)
    context.charge(bytes_per_pixel * (pixels if max_pixels is None else min(pixels, max_pixels)))


def _strings(example: bytes) -> Iterable[bytes]:
    try:
        features = schema.Example.FromString(example).features.feature
    except DecodeError:
        return ()  # the model reports the error
    return (value for name in features for value in features[name].bytes_list.value)
