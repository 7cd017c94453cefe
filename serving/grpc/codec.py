"""Decodes the requests of the gRPC services and encodes their responses. Does no I/O."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from savedmodel_bakery.serving.admission import costs
from savedmodel_bakery.serving.admission.context import Handler
from savedmodel_bakery.serving.admission.limits import SMALL_BYTES, check_size
from savedmodel_bakery.serving.admission.unpacking import unpack_all
from savedmodel_bakery.serving.rpc import Rpc
from savedmodel_bakery.wire import messages, schema
from savedmodel_bakery.wire.schema import METHODS

_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


_RUN_MODELS = {"Predict", "Classify", "Regress", "MultiInference"}


def rpcs(handlers: Mapping[str, Handler]) -> dict[str, Rpc]:
    """Return calls by path, of handlers by the name of their method in `schema.METHODS`."""
    return {
        METHODS[name].path: Rpc(
            partial(messages.parse_request, name), handle, METHODS[name].request, runs_model=name in _RUN_MODELS
        )
        for name, handle in handlers.items()
    }


def check_message_size(message: bytes, maximum: int = SMALL_BYTES) -> None:
    """Check the size of a message that runs no model; callers without a token may send a small one.

    Raises:
        OverloadError: it is too large.
    """
    check_size(len(message), maximum, "bytes", limit="max_message_bytes", condition="for this call")


def unpack(message: bytes, limit: int, charge: Callable[[int], None]) -> bytes:
    """Return a message, unpacked if it is compressed with gzip or deflate.

    gRPC passes compressed messages on as they are, because it would unpack them without a limit, and does not tell
    which are. No request of these services begins as gzip and deflate (RFC 1952, 2.3.1; RFC 1950, 2.2) do.

    Args:
        message: as received.
        limit: bytes of the unpacked message.
        charge: is called with the bytes of memory that are used next; may raise StatusError.

    Raises:
        OverloadError: the unpacked message has more bytes.
        DecodeError: the compressed message is damaged.
    """
    if not message.startswith(_COMPRESSED):
        return message
    try:
        return unpack_all(message, limit=limit, before_step=lambda size: charge(costs.UNPACKED_MESSAGE * size))
    except zlib.error as error:
        raise DecodeError(str(error)) from error


def encode_reload(names: Iterable[str], before: Mapping[str, int], after: Mapping[str, int]) -> Any:
    """Make a ReloadConfigResponse that says by how much the named counters grew."""
    response = schema.ReloadConfigResponse()
    response.status.SetInParent()
    for name in sorted(set(names)):
        response.metric.add(name=name, int64_value_increase=after.get(name, 0) - before.get(name, 0))
    return response
