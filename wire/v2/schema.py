"""Message classes of the v2 protocol and of Triton's extensions of it, in a separate descriptor pool.

The pool is loaded from `descriptors.binpb`, which `tools/make_v2_descriptors.py` generates from the official package
`tritonclient`.
"""

from __future__ import annotations

from savedmodel_bakery.wire.message_pool import MessagePool

_MESSAGES = MessagePool("v2/descriptors.binpb")
POOL = _MESSAGES.descriptors

InferParameter = _MESSAGES.message("inference.InferParameter")
InferTensorContents = _MESSAGES.message("inference.InferTensorContents")
ModelConfig = _MESSAGES.message("inference.ModelConfig")
ModelConfigResponse = _MESSAGES.message("inference.ModelConfigResponse")
ModelInferRequest = _MESSAGES.message("inference.ModelInferRequest")
ModelInferResponse = _MESSAGES.message("inference.ModelInferResponse")
ModelMetadataRequest = _MESSAGES.message("inference.ModelMetadataRequest")
ModelMetadataResponse = _MESSAGES.message("inference.ModelMetadataResponse")
ModelReadyRequest = _MESSAGES.message("inference.ModelReadyRequest")
ModelReadyResponse = _MESSAGES.message("inference.ModelReadyResponse")
RepositoryIndexRequest = _MESSAGES.message("inference.RepositoryIndexRequest")
RepositoryIndexResponse = _MESSAGES.message("inference.RepositoryIndexResponse")
ServerLiveRequest = _MESSAGES.message("inference.ServerLiveRequest")
ServerLiveResponse = _MESSAGES.message("inference.ServerLiveResponse")
ServerMetadataRequest = _MESSAGES.message("inference.ServerMetadataRequest")
ServerMetadataResponse = _MESSAGES.message("inference.ServerMetadataResponse")
ServerReadyRequest = _MESSAGES.message("inference.ServerReadyRequest")
ServerReadyResponse = _MESSAGES.message("inference.ServerReadyResponse")

METHODS = _MESSAGES.methods("inference.GRPCInferenceService")
