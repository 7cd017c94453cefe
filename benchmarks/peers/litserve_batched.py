"""LitServe with batching: decodes photos one by one, classifies up to 8 at once. The port is the argument."""

from __future__ import annotations

import base64
import sys
from typing import Any

import litserve
import numpy as np

MAX_BATCH = 8
BATCH_TIMEOUT_S = 0.002


class ClassifierApi(litserve.LitAPI):
    """Runs in a worker process of LitServe."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe's signature
        """Load the network."""
        from classifier import Classifier  # only in the worker process

        self.classifier = Classifier()

    def decode_request(self, request: dict[str, str]) -> Any:
        """Decode a photo in base64 to pixels."""
        return self.classifier.read(base64.b64decode(request["image"]))

    def batch(self, inputs: list[Any]) -> np.ndarray:
        """Stack the pixels of several photos."""
        return np.stack(inputs)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the scores of several photos."""
        return self.classifier.scores(x)

    def unbatch(self, output: np.ndarray) -> list[np.ndarray]:
        """Return the scores of each photo."""
        return list(output)

    def encode_response(self, output: np.ndarray) -> dict[str, str]:
        """Return the label."""
        return {"label": self.classifier.label(output)}


if __name__ == "__main__":
    api = ClassifierApi(max_batch_size=MAX_BATCH, batch_timeout=BATCH_TIMEOUT_S)
    server = litserve.LitServer(api, accelerator="cpu", timeout=120)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
