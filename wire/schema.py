"""Message classes of the TensorFlow Serving API, in a descriptor pool of their own.

The pool is loaded from `descriptors.binpb`, which `tools/make_descriptors.py` generates from the official package
`tensorflow-serving-api`. So that package and TensorFlow are not required, and if they are in the same process, their
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


_MESSAGES = MessagePool("descriptors.binpb")
POOL = _MESSAGES.descriptors

ConfigProto = _MESSAGES.message("tensorflow.ConfigProto")
Example = _MESSAGES.message("tensorflow.Example")
Feature = _MESSAGES.message("tensorflow.Feature")
RewriterConfig = _MESSAGES.message("tensorflow.RewriterConfig")
ResourceHandleProto = _MESSAGES.message("tensorflow.ResourceHandleProto")
SavedModel = _MESSAGES.message("tensorflow.SavedModel")
SignatureDef = _MESSAGES.message("tensorflow.SignatureDef")
TensorProto = _MESSAGES.message("tensorflow.TensorProto")

BatchingParameters = _MESSAGES.message("tensorflow.serving.BatchingParameters")
ClassificationRequest = _MESSAGES.message("tensorflow.serving.ClassificationRequest")
ClassificationResponse = _MESSAGES.message("tensorflow.serving.ClassificationResponse")
GetModelMetadataRequest = _MESSAGES.message("tensorflow.serving.GetModelMetadataRequest")
GetModelMetadataResponse = _MESSAGES.message("tensorflow.serving.GetModelMetadataResponse")
GetModelStatusRequest = _MESSAGES.message("tensorflow.serving.GetModelStatusRequest")
GetModelStatusResponse = _MESSAGES.message("tensorflow.serving.GetModelStatusResponse")
ModelServerConfig = _MESSAGES.message("tensorflow.serving.ModelServerConfig")
ModelSpec = _MESSAGES.message("tensorflow.serving.ModelSpec")
MonitoringConfig = _MESSAGES.message("tensorflow.serving.MonitoringConfig")
MultiInferenceResponse = _MESSAGES.message("tensorflow.serving.MultiInferenceResponse")
PredictRequest = _MESSAGES.message("tensorflow.serving.PredictRequest")
PredictResponse = _MESSAGES.message("tensorflow.serving.PredictResponse")
PredictionLog = _MESSAGES.message("tensorflow.serving.PredictionLog")
ProfileRequest = _MESSAGES.message("tensorflow.ProfileRequest")
ProfileResponse = _MESSAGES.message("tensorflow.ProfileResponse")
ReloadConfigResponse = _MESSAGES.message("tensorflow.serving.ReloadConfigResponse")
RegressionRequest = _MESSAGES.message("tensorflow.serving.RegressionRequest")
RegressionResponse = _MESSAGES.message("tensorflow.serving.RegressionResponse")
SSLConfig = _MESSAGES.message("tensorflow.serving.SSLConfig")
SignatureDefMap = _MESSAGES.message("tensorflow.serving.SignatureDefMap")
TerminateRequest = _MESSAGES.message("tensorflow.TerminateRequest")
TerminateResponse = _MESSAGES.message("tensorflow.TerminateResponse")
XSpace = _MESSAGES.message("tensorflow.XSpace")

METHODS = _MESSAGES.methods("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
