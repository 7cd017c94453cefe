"""An error raised in the graph keeps its text over every transport, whatever bytes the text contains."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from server_process import ServerProcess

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.responses import make_status_response
from savedmodel_bakery.wire.status import Code, StatusError, truncate_message
from savedmodel_bakery.wire.tensors import encode_tensor

RAW = b"caf\xe9 \xff"
CASES = {
    "to_number": b"StringToNumberOp could not correctly convert string: ",
    "read": b"",
}


class Strings(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="s")], autograph=False)
    def to_number(self, s: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"n": tf.strings.to_number(s)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="s")], autograph=False)
    def read(self, s: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"content": tf.io.read_file(s[0])}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("strings")
    module = Strings()
    tf.saved_model.save(module, str(folder / "m" / "1"), {"to_number": module.to_number, "read": module.read})
    with ServerProcess("--model_name=m", f"--model_base_path={folder}/m", log=folder / "log") as server:
        yield server


def test_a_status_has_valid_unicode() -> None:
    """The error of a warm-up may be that of a version."""
    error = StatusError(Code.NOT_FOUND, RAW.decode("utf-8", "surrogateescape"))
    (status,) = make_status_response([(1, 50, error)]).model_version_status
    assert "caf\ufffd \ufffd" == status.status.error_message
    assert "NOT_FOUND: caf\ufffd \ufffd" == str(error)


@pytest.mark.parametrize(
    "raw",
    [b"\x80" * 2000, b"a" * 1023 + "é".encode() * 9, b"\xff" * 1025],
    ids=["continuation bytes", "a character at the end", "no character"],
)
def test_a_long_message_of_any_bytes_is_truncated(raw: bytes) -> None:
    short = truncate_message(raw.decode("utf-8", "surrogateescape"))
    kept = short.removesuffix("...TRUNCATED").encode("utf-8", "surrogateescape")
    assert raw.startswith(kept)
    assert 1020 < len(kept) <= 1024


@pytest.mark.parametrize(("signature", "start"), CASES.items(), ids=CASES)
def test_a_text_that_is_not_utf8_is_an_invalid_argument(server: ServerProcess, signature: str, start: bytes) -> None:
    """The real server has the code of the graph's error, here NOT_FOUND of `read`, which Python cannot read."""
    request = schema.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", signature
    encode_tensor(np.array([RAW], object), into=request.inputs["s"])
    with grpc.insecure_channel(server.target) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/tensorflow.serving.PredictionService/Predict")(request.SerializeToString(), timeout=30)
    assert grpc.StatusCode.INVALID_ARGUMENT is caught.value.code()
    assert (start + RAW).decode("latin-1") in caught.value.details()  # grpcio reads other bytes as Latin-1
    body = {"signature_name": signature, "instances": [{"b64": base64.b64encode(RAW).decode()}]}
    response = requests.post(f"{server.url}/v1/models/m:predict", json=body, timeout=30)
    assert 400 == response.status_code
    assert start + RAW in response.content
