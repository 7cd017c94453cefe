"""Tools that know none of the messages get them from the server."""

from __future__ import annotations

import threading
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from savedmodel_bakery.serving.access.access import Access
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.call.call import Entrypoint
from savedmodel_bakery.serving.grpc.server import GrpcServer

V1 = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
SERVICES = {
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
}


def test_every_listed_service_is_described(channel: grpc.Channel) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert SERVICES == set(database.get_services())
    for service in SERVICES:
        descriptor_pool.DescriptorPool(database).FindServiceByName(service)


@pytest.mark.parametrize(
    ("service", "method", "request_json"),
    [
        ("tensorflow.serving.ModelService", "GetModelStatus", {"model_spec": {"name": "half_plus_two"}}),
        ("inference.GRPCInferenceService", "ModelReady", {"name": "half_plus_two"}),
    ],
)
def test_a_call_is_made_from_what_the_server_describes(
    channel: grpc.Channel, service: str, method: str, request_json: dict[str, object]
) -> None:
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    described = pool.FindServiceByName(service).FindMethodByName(method)
    request, response = (
        message_factory.GetMessageClass(descriptor) for descriptor in (described.input_type, described.output_type)
    )
    call = channel.unary_unary(f"/{service}/{method}")
    received = response.FromString(call(request(**request_json).SerializeToString(), timeout=30))
    assert received.ByteSize()


def test_v1_has_the_messages_of_v1alpha(channel: grpc.Channel) -> None:
    """Each message has an answer, also the one that names nothing."""
    stream = channel.stream_stream(
        V1,
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    wanted = (
        {"list_services": ""},
        {"file_by_filename": "tensorflow_serving/apis/model.proto"},
        {"file_containing_symbol": "tensorflow.serving.PredictRequest"},
        {"file_containing_symbol": "no.such.Message"},
        {},
    )
    responses = list(stream((reflection_pb2.ServerReflectionRequest(**fields) for fields in wanted), timeout=30))
    kinds = [response.WhichOneof("message_response") for response in responses]
    assert ["list_services_response", *["file_descriptor_response"] * 2, *["error_response"] * 2] == kinds
    assert [5, 3] == [response.error_response.error_code for response in responses[3:]]


def test_a_damaged_message_ends_the_stream_with_a_status(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as error:
        list(channel.stream_stream(V1)(iter([b"\xff"]), timeout=30))
    assert ("INTERNAL", "") == (error.value.code().name, error.value.details())
    with pytest.raises(grpc.RpcError) as error:
        list(channel.stream_stream(V1)(iter([bytes(70_000)]), timeout=30))
    assert "RESOURCE_EXHAUSTED" == error.value.code().name


def test_a_stream_ends_when_a_message_would_be_late(tmp_path: Path) -> None:
    """Its place is for other calls."""
    admission = Admission(Limits(header_timeout_s=1), MemoryBudget(), turns=1)
    address, is_over = f"unix:{tmp_path / 'socket'}", threading.Event()
    running = GrpcServer({}, [address], Entrypoint("GRPC", str), access=Access(), admission=admission)
    running.start()
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as error:
        list(channel.stream_stream(V1)(iter(is_over.wait, True), timeout=30))  # sends nothing
    is_over.set()
    running.stop(0)
    assert grpc.StatusCode.CANCELLED is error.value.code()
