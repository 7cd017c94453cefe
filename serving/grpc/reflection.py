"""Server reflection: describes the services of the port to tools such as grpcurl.

Source of the rules: grpc.reflection.v1alpha in gRPC's `reflection.proto`; the messages of v1 are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from savedmodel_bakery.serving.admission.limits import SMALL_BYTES
from savedmodel_bakery.serving.grpc.codec import check_message_size, unpack
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.v2 import schema as v2_schema

PATHS = tuple(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha"))
"""The calls, each a stream of requests and a stream of responses."""


class Reflection:
    """Answers requests for descriptors."""

    def __init__(self, services: Collection[str]) -> None:
        names = {*services, reflection.SERVICE_NAME}
        self._servicer = reflection.ReflectionServicer(names, _joined(names))

    def answer(self, messages: Iterator[bytes], call: Any) -> Iterator[bytes]:
        """Yield the response to each message."""
        for response in self._servicer.ServerReflectionInfo(map(_parse, messages), call):
            yield response.SerializeToString()


def _parse(message: bytes) -> Any:
    check_message_size(message)
    return ServerReflectionRequest.FromString(unpack(message, SMALL_BYTES, lambda _size: None))


def _joined(services: Collection[str]) -> Any:
    """Return a descriptor pool with the files that define the services, of whichever pool has them."""
    joined = descriptor_pool.DescriptorPool()
    for pool in (schema.POOL, v2_schema.POOL, descriptor_pool.Default()):
        for service in services:
            with suppress(KeyError):
                _add(pool.FindServiceByName(service).file, joined)
    return joined


def _add(file: Any, pool: Any) -> None:
    for dependency in file.dependencies:
        _add(dependency, pool)
    pool.AddSerializedFile(file.serialized_pb)
