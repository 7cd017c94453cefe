"""Write wire/descriptors.binpb, the message definitions from the official tensorflow-serving-api package.

    python tools/make_descriptors.py [OUT]

Needs the extra `dev`. With the file, the client does not need that package or TensorFlow, which it depends on.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

ROOTS = (
    "tensorflow.core.example.example_pb2",
    "tensorflow.core.protobuf.config_pb2",
    "tensorflow.core.protobuf.saved_model_pb2",
    "tensorflow_serving.apis.get_model_metadata_pb2",
    "tensorflow_serving.apis.model_service_pb2",
    "tensorflow_serving.apis.prediction_log_pb2",
    "tensorflow_serving.apis.prediction_service_pb2",
    "tensorflow_serving.config.model_server_config_pb2",
)

# Messages of configuration files that the package lacks (tensorflow_serving/config/*.proto,
# tensorflow_serving/servables/tensorflow/session_bundle_config.proto): types of fields by message. They are read as
# text only, so field numbers don't matter.
TEXT_FILES = {
    "SSLConfig": {"server_key": "string", "server_cert": "string", "custom_ca": "string", "client_verify": "bool"},
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": ".tensorflow.serving.PrometheusConfig"},
    "BatchingParameters": {
        "max_batch_size": ".google.protobuf.Int64Value",
        "batch_timeout_micros": ".google.protobuf.Int64Value",
        "max_enqueued_batches": ".google.protobuf.Int64Value",
        "num_batch_threads": ".google.protobuf.Int64Value",
        "thread_pool_name": ".google.protobuf.StringValue",
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
        "enable_large_batch_splitting": ".google.protobuf.BoolValue",
        "max_execution_batch_size": ".google.protobuf.Int64Value",
    },
}

# Messages of tensorflow.ProfilerService (tsl/profiler/protobuf/profiler_service.proto, xplane.proto), with the fields
# that the server uses: types and numbers of fields by message. Messages that it doesn't decode have the type bytes.
PROFILER = {
    "ProfileRequest": {
        "duration_ms": ("uint64", 1),
        "repository_root": ("string", 5),
        "session_id": ("string", 6),
        "host_name": ("string", 7),
        "emit_xspace": ("bool", 9),
    },
    "ProfileResponse": {"empty_trace": ("bool", 7), "xspace": ("bytes", 8)},
    "TerminateRequest": {"session_id": ("string", 1)},
    "TerminateResponse": {},
    "XSpace": {"planes": ("repeated .tensorflow.XPlane", 1)},
    "XPlane": {"lines": ("repeated .tensorflow.XLine", 3)},
    "XLine": {"events": ("repeated bytes", 4)},
}


def collect() -> descriptor_pb2.FileDescriptorSet:
    """Return all files that the roots need, dependencies first."""
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
    numbered = {
        name: {field: (type_name, number) for number, (field, type_name) in enumerate(fields.items(), start=1)}
        for name, fields in TEXT_FILES.items()
    }
    text_files = files.file.add(name="savedmodel_bakery/text_files.proto", package="tensorflow.serving")
    text_files.dependency.append("google/protobuf/wrappers.proto")
    _add_messages(text_files, numbered)
    _add_messages(files.file.add(name="savedmodel_bakery/profiler.proto", package="tensorflow"), PROFILER)
    return files


def _add_messages(
    file: descriptor_pb2.FileDescriptorProto, messages: Mapping[str, Mapping[str, tuple[str, int]]]
) -> None:
    file.syntax = "proto3"
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field_name, (label_and_type, number) in fields.items():
            field = message.field.add(name=field_name, number=number)
            *repeated, type_name = label_and_type.split()
            field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if type_name.startswith("."):
                field.type, field.type_name = field.TYPE_MESSAGE, type_name
            else:
                field.type = getattr(field, f"TYPE_{type_name.upper()}")


def main() -> None:
    """Write the descriptor set to OUT, by default wire/descriptors.binpb."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "wire" / "descriptors.binpb"
    out.write_bytes(collect().SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
