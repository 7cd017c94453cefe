"""Write wire/descriptors.binpb: the message definitions of the official tensorflow-serving-api package.

    python tools/make_descriptors.py [OUT]

Needs the extra `dev`. The client then needs neither that package nor the TensorFlow that it depends on.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

ROOTS = (
    "tensorflow.core.example.example_pb2",
    "tensorflow.core.protobuf.saved_model_pb2",
    "tensorflow_serving.apis.get_model_metadata_pb2",
    "tensorflow_serving.apis.model_service_pb2",
    "tensorflow_serving.apis.prediction_log_pb2",
    "tensorflow_serving.apis.prediction_service_pb2",
    "tensorflow_serving.config.model_server_config_pb2",
)


def collect() -> descriptor_pb2.FileDescriptorSet:
    """Every file that the roots need, dependencies first."""
    files = descriptor_pb2.FileDescriptorSet()
    seen: set[str] = set()

    def visit(descriptor: FileDescriptor) -> None:
        if descriptor.name in seen:
            return
        seen.add(descriptor.name)
        for dependency in descriptor.dependencies:
            visit(dependency)
        descriptor.CopyToProto(files.file.add())

    for root in ROOTS:
        visit(importlib.import_module(root).DESCRIPTOR)
    return files


def main() -> None:
    """Write the set to the path given, or into the package."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "wire" / "descriptors.binpb"
    out.write_bytes(collect().SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
