"""Callers for the load generator: for each way to call a candidate about a photo. They check every answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import requests

from savedmodel_bakery.answers.images import encode_images
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import DEFAULT_SIGNATURE
from savedmodel_bakery.client.calls import ModelSpec
from savedmodel_bakery.client.load.generator import CallFailedError, SendCall
from savedmodel_bakery.client.load.target import WRONG
from savedmodel_bakery.client.load.target import Target as LoadTarget
from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.client.transports import create_transport

MODEL = "bench"
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Target:
    """One candidate and one photo.

    Attributes:
        label: the label in the first answer; all answers must agree.
        open_caller: see `client.load.generator.generate`.
    """

    label: str
    open_caller: Callable[[], AbstractContextManager[SendCall]]


def open_targets(
    protocol: str, *, ports: list[int], base_path: str, photos: Mapping[str, bytes], timeout_s: float
) -> dict[str, Target]:
    """Return a target for each photo.

    Args:
        protocol: `grpc`, `rest`, `json` (of the peers), `triton`, or `direct` (in this process).
        ports: the ports of the servers on this machine; several share the load, over gRPC.
        base_path: the base path of the model that `direct` loads.
        photos: JPEG files by name.
        timeout_s: time limit of a call to a model server; peers have 120 s.
    """
    if protocol == "direct":
        from savedmodel_bakery.serving import warmup
        from savedmodel_bakery.serving.models.loading import LoadOptions, load

        servable = load(MODEL, 1, Path(base_path) / "1", LoadOptions(warm_up=warmup.replay))
        return {name: direct(servable, photo) for name, photo in photos.items()}
    url = f"http://127.0.0.1:{ports[0]}"
    open_target: Callable[[bytes], Target] = {
        "grpc": lambda photo: model_server("grpc", ports, base64.urlsafe_b64encode(photo), timeout_s),
        "rest": lambda photo: model_server("rest", ports, photo, timeout_s),
        "json": lambda photo: http_server(f"{url}/predict", _JSON, photo),
        "triton": lambda photo: http_server(f"{url}/v2/models/classifier/infer", _TRITON, photo),
    }[protocol]
    return {name: open_target(photo) for name, photo in photos.items()}


def open_model_server(
    transport: str, ports: Sequence[int], inputs: Mapping[str, Any], *, timeout_s: float = _TIMEOUT_S
) -> tuple[LoadTarget, Prediction]:
    """Send the first request to a server of TensorFlow Serving's API; return its target and its prediction."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    server = parse_server(addresses, transport=transport)
    target = LoadTarget(
        lambda: create_transport(server, timeout_s=timeout_s, for_load=True),
        ModelSpec(MODEL),
        signature=DEFAULT_SIGNATURE,
        atol=1e-4,
    )
    return target, target.add(inputs)


def model_server(transport: str, ports: Sequence[int], image: bytes, timeout_s: float) -> Target:
    """A server of TensorFlow Serving's API.

    Args:
        transport: `grpc` or `rest`.
        ports: the ports of the servers.
        image: what the signature takes; over gRPC a base64 text, which every candidate's export takes.
        timeout_s: time limit of a call.
    """
    target, prediction = open_model_server(transport, ports, encode_images([image]), timeout_s=timeout_s)
    [label] = prediction.arrays["output_0"].tolist()
    return Target(label.decode(), target.open_caller)


@dataclass(frozen=True)
class _Api:
    """A server's own JSON API: the body of a request with a photo in base64, and the label in a response."""

    body: Callable[[str], Any]
    label: Callable[[Any], str]


_JSON = _Api(lambda text: {"image": text}, lambda response: str(response["label"]))
_TRITON = _Api(
    lambda text: {"inputs": [{"name": "image", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]},
    lambda response: str(response["outputs"][0]["data"][0]),
)


def http_server(url: str, api: _Api, photo: bytes) -> Target:
    """A server with its own JSON API."""
    body = json.dumps(api.body(base64.b64encode(photo).decode())).encode()
    request = requests.Request("POST", url, data=body, headers={"Content-Type": "application/json"})
    with _session() as session:
        first = session.send(session.prepare_request(request), timeout=_TIMEOUT_S).content
    label = api.label(json.loads(first))

    @contextmanager
    def open_caller() -> Iterator[SendCall]:
        with _session() as session:
            prepared = session.prepare_request(request)

            def call(_: int) -> None:
                try:
                    response = session.send(prepared, timeout=_TIMEOUT_S)
                except requests.RequestException as exc:
                    raise CallFailedError("no answer", str(exc)) from exc
                if response.status_code != requests.codes.ok:
                    raise CallFailedError(f"HTTP {response.status_code}", response.text)
                if response.content != first and api.label(response.json()) != label:
                    raise CallFailedError(WRONG, response.text)

            yield call

    return Target(label, open_caller)


@contextmanager
def _session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False  # no proxy
        yield session


def direct(servable: Any, photo: bytes) -> Target:
    """The embedded server's own runtime, called in this process by as many threads as there are callers."""
    from savedmodel_bakery.serving.admission.context import RequestContext
    from savedmodel_bakery.serving.inference.predict import PredictCall, predict
    from savedmodel_bakery.wire import dtypes
    from savedmodel_bakery.wire.tensors import Tensor

    image = np.array([base64.urlsafe_b64encode(photo)], object)
    request = PredictCall(DEFAULT_SIGNATURE, {"image": Tensor(image, dtypes.STRING)})

    def classify() -> str:
        [label] = predict(servable, request, RequestContext())["output_0"].array.tolist()
        return str(label.decode())

    first = classify()

    @contextmanager
    def open_caller() -> Iterator[SendCall]:
        def call(_: int) -> None:
            if (label := classify()) != first:
                raise CallFailedError(WRONG, label)

        yield call

    return Target(first, open_caller)
