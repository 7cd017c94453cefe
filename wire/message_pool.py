"""Message classes in a descriptor pool of their own, from a file of descriptors in this package.

So the packages that define the messages officially are not required, and if one of them is in the same process, its
classes of the same names don't clash with these.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


@dataclass(frozen=True)
class Method:
    """A method of a service."""

    path: str  # such as `/tensorflow.serving.PredictionService/Predict`
    request: Any  # class of the message
    response: Any  # class of the message


class MessagePool:
    """The messages of a file in `wire`: a serialized FileDescriptorSet, dependencies first."""

    def __init__(self, file: str) -> None:
        self.descriptors = descriptor_pool.DescriptorPool()
        content = resources.files("savedmodel_bakery.wire").joinpath(file).read_bytes()
        for descriptor in descriptor_pb2.FileDescriptorSet.FromString(content).file:
            self.descriptors.Add(descriptor)

    def message(self, full_name: str) -> Any:
        """Return the class of a message."""
        return message_factory.GetMessageClass(self.descriptors.FindMessageTypeByName(full_name))

    def methods(self, *services: str) -> dict[str, Method]:
        """Return the methods of services by name."""
        return {
            method.name: Method(
                f"/{service}/{method.name}",
                self.message(method.input_type.full_name),
                self.message(method.output_type.full_name),
            )
            for service in services
            for method in self.descriptors.FindServiceByName(service).methods
        }
