"""LitServe with its batching: photos are read one by one, classified by eight at most. The port is the argument."""

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

    def setup(self, device: str) -> None:  # noqa: ARG002 - it is the CPU
        """Load the network."""
        from classifier import Classifier  # in the worker alone

        self.classifier = Classifier()

    def decode_request(self, request: dict[str, str]) -> Any:
        """A photo in base64 as pixels."""
        return self.classifier.read(base64.b64decode(request["image"]))

    def batch(self, inputs: list[Any]) -> np.ndarray:
        """Pixels of several photos."""
        return np.stack(inputs)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Scores of several photos."""
        return self.classifier.scores(x)

    def unbatch(self, output: np.ndarray) -> list[np.ndarray]:
        """Scores of each."""
        return list(output)

    def encode_response(self, output: np.ndarray) -> dict[str, str]:
        """The label."""
        return {"label": self.classifier.label(output)}


if __name__ == "__main__":
    api = ClassifierApi(max_batch_size=MAX_BATCH, batch_timeout=BATCH_TIMEOUT_S)
    server = litserve.LitServer(api, accelerator="cpu", timeout=120)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
