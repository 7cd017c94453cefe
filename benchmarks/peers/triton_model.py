"""The model of Triton's Python backend: BYTES in base64 → label, batched by Triton."""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # provided by Triton

sys.path.insert(0, os.environ["BENCH_PEERS"])  # Triton's stub ignores PYTHONPATH

from classifier import Classifier


class TritonPythonModel:
    """The class that Triton instantiates."""

    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 - Triton's signature
        """Load the network."""
        self.classifier = Classifier()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests of one batch; each has one or more photos."""
        images = [triton.get_input_tensor_by_name(request, "image").as_numpy().ravel() for request in requests]
        photos = [base64.b64decode(image) for column in images for image in column]
        scores = self.classifier.scores(np.stack([self.classifier.read(photo) for photo in photos]))
        labels = iter(self.classifier.label(row).encode() for row in scores)
        outputs = [np.array([[next(labels)] for _ in column], np.object_) for column in images]
        return [triton.InferenceResponse([triton.Tensor("label", output)]) for output in outputs]
