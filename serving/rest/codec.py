"""HTTP requests to calls of the inference core, and results to JSON. Does no I/O."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from savedmodel_bakery.serving.inference.examples import Classifications
from savedmodel_bakery.serving.inference.metadata import Metadata
from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE, SignatureNotFoundError, input_dtypes
from savedmodel_bakery.serving.models.registry import VersionStatus
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import messages
from savedmodel_bakery.wire.json import examples as examples_json
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.json import status as status_json
from savedmodel_bakery.wire.json.predict import PredictBody
from savedmodel_bakery.wire.status import invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

_MAX_UNPACKED_BYTES = 100 * 2**20


@dataclass(frozen=True)
class Request:
    """An HTTP request.

    Attributes:
        method: as sent.
        target: path, query and fragment, as sent except for scheme and host.
        headers: by name in lower case.
        body: as sent.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def decode_predict(request: Request) -> PredictBody:
    """Parse the body of a Predict request, as far as that is possible without the signature.

    Raises:
        StatusError: INVALID_ARGUMENT if it is not a JSON object, or `signature_name` is not a string.
    """
    return predict_json.decode_request(_unpack(request))


def decode_inputs(body: PredictBody, servable: Servable) -> tuple[dict[str, Tensor], bool]:
    """Decode the inputs of a Predict request for the signature that it names.

    Returns:
        The inputs by alias, and whether the request is in row format.

    Raises:
        StatusError: INVALID_ARGUMENT if the signature is unknown or the inputs do not fit it; UNIMPLEMENTED for an
            element type that JSON cannot carry.
    """
    try:
        dtypes = input_dtypes(servable, body.signature_name)
    except SignatureNotFoundError as error:
        raise invalid_argument(f'Serving signature name: "{error.name}" not found in signature def') from None
    return predict_json.decode_inputs(body.document, dtypes, body.signature_name or DEFAULT_SIGNATURE)


encode_predict = predict_json.encode_response  # outputs by alias, and the format that `decode_inputs` returned


def decode_examples(request: Request, verb: str) -> tuple[str, list[bytes]]:
    """Parse the body of a `classify` or `regress` request.

    Returns:
        The signature name (empty for the default signature), and serialized tf.Examples.

    Raises:
        StatusError: INVALID_ARGUMENT.
    """
    return examples_json.decode_request(_unpack(request), verb)


def encode_classify(result: Classifications) -> bytes:
    """Encode the result of Classify."""
    return examples_json.encode_classifications(*result)


def encode_regress(result: np.ndarray) -> bytes:
    """Encode the result of Regress, float32 [examples]."""
    return examples_json.encode_regressions(result)


def encode_metadata(metadata: Metadata) -> bytes:
    """Encode the metadata of a model."""
    return status_json.encode_metadata(messages.make_metadata_response(*metadata))


def encode_status(versions: list[VersionStatus]) -> bytes:
    """Encode the states of versions."""
    return status_json.encode_status(messages.make_status_response(versions))


def _unpack(request: Request) -> bytes:
    """Return the body, decompressed if it is gzipped; a body that is damaged or too large counts as empty."""
    if "gzip" not in request.headers.get("content-encoding", ""):
        return request.body
    decompressor = zlib.decompressobj(wbits=31)
    try:
        body = decompressor.decompress(request.body, _MAX_UNPACKED_BYTES + 1)
    except zlib.error:
        return b""
    return body if decompressor.eof and len(body) <= _MAX_UNPACKED_BYTES else b""
