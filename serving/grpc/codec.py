"""Decodes the requests of the gRPC services and encodes their responses. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from savedmodel_bakery.serving.prediction_service import Handler
from savedmodel_bakery.wire import messages, schema
from savedmodel_bakery.wire.schema import METHODS


class Rpc(NamedTuple):
    """A unary call.

    Attributes:
        decode: parses the serialized request; raises DecodeError.
        handle: makes the response message, whose SerializeToString may raise too; raises StatusError.
    """

    decode: Callable[[bytes], Any]
    handle: Handler


def rpcs(handlers: Mapping[str, Handler]) -> dict[str, Rpc]:
    """Return calls by path, of handlers by the name of their method in `schema.METHODS`."""
    return {METHODS[name].path: Rpc(partial(messages.parse_request, name), handle) for name, handle in handlers.items()}


def encode_reload(names: Iterable[str], before: Mapping[str, int], after: Mapping[str, int]) -> Any:
    """Make a ReloadConfigResponse that says by how much the named counters grew."""
    response = schema.ReloadConfigResponse()
    response.status.SetInParent()
    for name in sorted(set(names)):
        response.metric.add(name=name, int64_value_increase=after.get(name, 0) - before.get(name, 0))
    return response
