"""Message classes of the TensorFlow Serving API, in a separate descriptor pool.

The pool is loaded from `descriptors.binpb`, which `tools/make_descriptors.py` generates from the official package
`tensorflow-serving-api`. So TensorFlow is not required.
"""

from __future__ import annotations

from savedmodel_bakery.wire.message_pool import MessagePool

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
