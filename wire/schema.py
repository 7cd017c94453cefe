"""Message classes of the TensorFlow Serving API, in a separate descriptor pool.

The pool is loaded from `descriptors.binpb`, which `tools/make_descriptors.py` generates from the official package
`tensorflow-serving-api`. So TensorFlow is not required, and if it is in the same process, its classes of the same names
don't clash with these.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

POOL = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(
    resources.files("savedmodel_bakery.wire").joinpath("descriptors.binpb").read_bytes()
).file:
    POOL.Add(_file)


def _message(full_name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(full_name))


ConfigProto = _message("tensorflow.ConfigProto")
Example = _message("tensorflow.Example")
Feature = _message("tensorflow.Feature")
RewriterConfig = _message("tensorflow.RewriterConfig")
ResourceHandleProto = _message("tensorflow.ResourceHandleProto")
SavedModel = _message("tensorflow.SavedModel")
SignatureDef = _message("tensorflow.SignatureDef")
TensorProto = _message("tensorflow.TensorProto")

BatchingParameters = _message("tensorflow.serving.BatchingParameters")
ClassificationRequest = _message("tensorflow.serving.ClassificationRequest")
ClassificationResponse = _message("tensorflow.serving.ClassificationResponse")
GetModelMetadataRequest = _message("tensorflow.serving.GetModelMetadataRequest")
GetModelMetadataResponse = _message("tensorflow.serving.GetModelMetadataResponse")
GetModelStatusRequest = _message("tensorflow.serving.GetModelStatusRequest")
GetModelStatusResponse = _message("tensorflow.serving.GetModelStatusResponse")
ModelServerConfig = _message("tensorflow.serving.ModelServerConfig")
ModelSpec = _message("tensorflow.serving.ModelSpec")
MonitoringConfig = _message("tensorflow.serving.MonitoringConfig")
MultiInferenceResponse = _message("tensorflow.serving.MultiInferenceResponse")
PredictRequest = _message("tensorflow.serving.PredictRequest")
PredictResponse = _message("tensorflow.serving.PredictResponse")
PredictionLog = _message("tensorflow.serving.PredictionLog")
ProfileRequest = _message("tensorflow.ProfileRequest")
ProfileResponse = _message("tensorflow.ProfileResponse")
ReloadConfigResponse = _message("tensorflow.serving.ReloadConfigResponse")
RegressionRequest = _message("tensorflow.serving.RegressionRequest")
RegressionResponse = _message("tensorflow.serving.RegressionResponse")
SSLConfig = _message("tensorflow.serving.SSLConfig")
SignatureDefMap = _message("tensorflow.serving.SignatureDefMap")
TerminateRequest = _message("tensorflow.TerminateRequest")
TerminateResponse = _message("tensorflow.TerminateResponse")
XSpace = _message("tensorflow.XSpace")


@dataclass(frozen=True)
class Method:
    """A unary method of a service.

    Attributes:
        path: its name in gRPC, such as `/tensorflow.serving.PredictionService/Predict`.
        request: the class of the request message.
        response: the class of the response message.
    """

    path: str
    request: Any
    response: Any


def _methods(*services: str) -> dict[str, Method]:
    return {
        method.name: Method(
            f"/{service}/{method.name}", _message(method.input_type.full_name), _message(method.output_type.full_name)
        )
        for service in services
        for method in POOL.FindServiceByName(service).methods
    }


METHODS = _methods("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
