"""How contestants are asked about a photo: for each way, callers for the load generator, which check every answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import requests

from savedmodel_bakery.client.calls import ModelSpec
from savedmodel_bakery.client.client import open_transport
from savedmodel_bakery.client.images import DEFAULT_SIGNATURE, encode_images
from savedmodel_bakery.client.load.generator import Call, CallFailedError
from savedmodel_bakery.client.load.target import WRONG, Target

MODEL = "bench"
_TIMEOUT_S = 120.0


class Callee(Protocol):
    """One contestant and one photo.

    Attributes:
        label: what the first answer said, and every other must.
    """

    label: str

    def open_caller(self) -> AbstractContextManager[Call]:
        """See `client.load.generator.generate`."""


class ModelServer:
    """A server of TensorFlow Serving's API; the photo goes as base64 over gRPC, as JSON's base64 of bytes over REST."""

    def __init__(self, transport: str, ports: list[int], photo: bytes) -> None:
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self._target = Target(
            lambda: open_transport(transport, addresses, port=ports[0], timeout_s=_TIMEOUT_S, for_load=True),
            ModelSpec(MODEL),
            signature=DEFAULT_SIGNATURE,
            atol=0.0,
        )
        image = base64.urlsafe_b64encode(photo) if transport == "grpc" else photo
        [label] = self._target.learn(encode_images([image])).arrays["output_0"].tolist()
        self.label = label.decode()
        self.open_caller = self._target.open_caller


class HttpServer:
    """A server of its own HTTP API: JSON with the photo in base64.

    Args:
        url: where to POST.
        body: makes what is sent of the photo in base64.
        label_of: finds the label in an answer.
        photo: a JPEG file.
    """

    def __init__(self, url: str, body: Callable[[str], Any], label_of: Callable[[Any], str], photo: bytes) -> None:
        content = json.dumps(body(base64.b64encode(photo).decode())).encode()
        self._request = requests.Request("POST", url, data=content, headers={"Content-Type": "application/json"})
        self._label_of = label_of
        with requests.Session() as session:
            session.trust_env = False
            self._first = session.send(session.prepare_request(self._request), timeout=_TIMEOUT_S).content
        self.label = label_of(json.loads(self._first))

    @contextmanager
    def open_caller(self) -> Iterator[Call]:
        """See `Callee`."""
        with requests.Session() as session:
            session.trust_env = False
            request = session.prepare_request(self._request)

            def call(_: int) -> None:
                try:
                    answer = session.send(request, timeout=_TIMEOUT_S)
                except requests.RequestException as exc:
                    raise CallFailedError("no answer", str(exc)) from exc
                if answer.status_code != requests.codes.ok:
                    raise CallFailedError(f"HTTP {answer.status_code}", answer.text)
                if answer.content != self._first and self._label_of(answer.json()) != self.label:
                    raise CallFailedError(WRONG, answer.text)

            yield call


class Direct:
    """The embedded server's own runtime, called in this process by as many threads as there are callers."""

    def __init__(self, servable: Any, photo: bytes) -> None:
        from savedmodel_bakery.serving.inference import predict
        from savedmodel_bakery.wire import dtypes
        from savedmodel_bakery.wire.tensors import Tensor

        signature = predict.find_signature(servable, DEFAULT_SIGNATURE)
        name = signature.inputs["image"].name
        image = np.array([base64.urlsafe_b64encode(photo)], object)

        def run() -> str:
            feeds = {name: Tensor(image, dtypes.STRING)}
            [label] = predict.run(servable, signature, feeds, ["output_0"], None)["output_0"].array.tolist()
            return str(label.decode())

        self._run = run
        self.label = run()

    @contextmanager
    def open_caller(self) -> Iterator[Call]:
        """See `Callee`."""

        def call(_: int) -> None:
            if (found := self._run()) != self.label:
                raise CallFailedError(WRONG, found)

        yield call


def open_callees(asked: str, *, ports: list[int], servable: str, photos: dict[str, bytes]) -> dict[str, Callee]:
    """A callee for each photo.

    Args:
        asked: how: `grpc`, `rest`, `json`, `triton` or `direct`.
        ports: of the servers on this machine; several share the load, of gRPC.
        servable: base path of what is called directly.
        photos: by name.
    """
    if asked == "direct":
        from savedmodel_bakery.serving.models.loading import LoadOptions, load

        loaded = load(MODEL, 1, Path(servable) / "1", LoadOptions())
        return {name: Direct(loaded, photo) for name, photo in photos.items()}
    return {name: _open(asked, ports, photo) for name, photo in photos.items()}


def _open(asked: str, ports: list[int], photo: bytes) -> Callee:
    url = f"http://127.0.0.1:{ports[0]}"
    if asked == "json":
        return HttpServer(f"{url}/predict", lambda text: {"image": text}, lambda answer: str(answer["label"]), photo)
    if asked == "triton":

        def infer(text: str) -> Any:
            return {"inputs": [{"name": "image", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}

        return HttpServer(
            f"{url}/v2/models/classifier/infer", infer, lambda answer: str(answer["outputs"][0]["data"][0]), photo
        )
    return ModelServer(asked, ports, photo)
