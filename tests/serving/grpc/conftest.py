"""Channels and stubs of TensorFlow Serving's official API."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from grpc_calls import NO_LIMIT
from server_process import ServerProcess
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target, options=NO_LIMIT) as opened:
        yield opened


@pytest.fixture(scope="module")
def prediction(channel: grpc.Channel) -> prediction_service_pb2_grpc.PredictionServiceStub:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(scope="module")
def models(channel: grpc.Channel) -> model_service_pb2_grpc.ModelServiceStub:
    return model_service_pb2_grpc.ModelServiceStub(channel)
