"""Message classes of the v2 protocol and of Triton's extensions of it, in a separate descriptor pool.

The pool is loaded from `descriptors.binpb`, which `tools/make_v2_descriptors.py` generates from the official package
`tritonclient`.
"""

from __future__ import annotations

from savedmodel_bakery.wire.schema import MessagePool

_MESSAGES = MessagePool("v2/descriptors.binpb")
POOL = _MESSAGES.descriptors

InferTensorContents = _MESSAGES.message("inference.InferTensorContents")
ModelConfig = _MESSAGES.message("inference.ModelConfig")
ModelConfigResponse = _MESSAGES.message("inference.ModelConfigResponse")
ModelInferRequest = _MESSAGES.message("inference.ModelInferRequest")
ModelInferResponse = _MESSAGES.message("inference.ModelInferResponse")
ModelMetadataRequest = _MESSAGES.message("inference.ModelMetadataRequest")
ModelMetadataResponse = _MESSAGES.message("inference.ModelMetadataResponse")
ModelReadyResponse = _MESSAGES.message("inference.ModelReadyResponse")
RepositoryIndexRequest = _MESSAGES.message("inference.RepositoryIndexRequest")
RepositoryIndexResponse = _MESSAGES.message("inference.RepositoryIndexResponse")
ServerLiveResponse = _MESSAGES.message("inference.ServerLiveResponse")
ServerMetadataResponse = _MESSAGES.message("inference.ServerMetadataResponse")
ServerReadyResponse = _MESSAGES.message("inference.ServerReadyResponse")

METHODS = _MESSAGES.methods("inference.GRPCInferenceService")
