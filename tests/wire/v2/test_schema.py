"""The message definitions of the v2 protocol."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool

from savedmodel_bakery.wire.v2 import schema


def test_all_methods_of_the_service_are_known() -> None:
    assert {
        "CudaSharedMemoryRegister",
        "CudaSharedMemoryStatus",
        "CudaSharedMemoryUnregister",
        "LogSettings",
        "ModelConfig",
        "ModelInfer",
        "ModelMetadata",
        "ModelReady",
        "ModelStatistics",
        "ModelStreamInfer",
        "RepositoryIndex",
        "RepositoryModelLoad",
        "RepositoryModelUnload",
        "ServerLive",
        "ServerMetadata",
        "ServerReady",
        "SystemSharedMemoryRegister",
        "SystemSharedMemoryStatus",
        "SystemSharedMemoryUnregister",
        "TraceSetting",
    } == set(schema.METHODS)
    assert schema.METHODS["ModelInfer"].path == "/inference.GRPCInferenceService/ModelInfer"
    assert schema.METHODS["ModelInfer"].request is schema.ModelInferRequest


def test_definitions_of_the_same_names_do_not_clash() -> None:
    """The packages of other clients register their messages in the default pool."""
    file = descriptor_pb2.FileDescriptorProto(name="grpc_service.proto", package="inference", syntax="proto3")
    file.message_type.add(name="ModelInferRequest")
    descriptor_pool.Default().Add(file)
    assert schema.ModelInferRequest(id="7").SerializeToString() == b"\x1a\x017"
