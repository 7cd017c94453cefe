"""Models that MLServer runs in tests; it imports this file, without this project."""

from __future__ import annotations

import numpy as np
from mlserver import MLModel, types
from mlserver.codecs import Base64Codec, NumpyCodec
from mlserver.errors import InferenceError


class AddSub(MLModel):
    """`sum` and `difference` of `a` and `b`; refuses arrays of different sizes."""

    async def predict(self, payload: types.InferenceRequest) -> types.InferenceResponse:
        """Run the model."""
        inputs = {each.name: NumpyCodec.decode_input(each) for each in payload.inputs}
        a, b = inputs["a"], inputs["b"]
        if a.shape != b.shape:
            raise InferenceError(f"a has {a.size} values, b has {b.size}")
        arrays = {"sum": a + b, "difference": a - b}
        wanted = [each.name for each in payload.outputs] if payload.outputs else list(arrays)
        outputs = [NumpyCodec.encode_output(name, arrays[name]) for name in wanted]
        return types.InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)


class Echo(MLModel):
    """Returns its inputs, and for each of strings the number of bytes of its items."""

    async def predict(self, payload: types.InferenceRequest) -> types.InferenceResponse:
        """Run the model."""
        outputs = []
        for each in payload.inputs:
            outputs.append(types.ResponseOutput(**each.model_dump()))
            if each.datatype == "BYTES":
                is_base64 = each.parameters is not None and each.parameters.content_type == "base64"
                items = Base64Codec.decode_input(each) if is_base64 else each.data.root
                sizes = [len(item if isinstance(item, bytes) else item.encode()) for item in items]
                outputs.append(NumpyCodec.encode_output(f"{each.name}_bytes", np.array(sizes, np.int64)))
        return types.InferenceResponse(model_name=self.name, outputs=outputs)
