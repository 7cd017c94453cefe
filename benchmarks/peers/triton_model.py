"""The model of Triton's Python backend: BYTES in base64 → label, batched by Triton."""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # which Triton brings

sys.path.insert(0, os.environ["BENCH_PEERS"])  # Triton's stub ignores PYTHONPATH

from classifier import Classifier


class TritonPythonModel:
    """What Triton makes an instance of."""

    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 - configuration, which is fixed
        """Load the network."""
        self.classifier = Classifier()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests of one batch, each of one photo or more."""
        asked = [triton.get_input_tensor_by_name(request, "image").as_numpy().ravel() for request in requests]
        photos = [base64.b64decode(photo) for one in asked for photo in one]
        scores = self.classifier.scores(np.stack([self.classifier.read(photo) for photo in photos]))
        labels = iter(self.classifier.label(row).encode() for row in scores)
        answers = [np.array([[next(labels)] for _ in one], np.object_) for one in asked]
        return [triton.InferenceResponse([triton.Tensor("label", answer)]) for answer in answers]
