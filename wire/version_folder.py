"""What lies in a version's folder beside its graph: the exporter writes it, the server and the client read it."""

from __future__ import annotations

from pathlib import Path

# Requests and the answers that the version gave when it was baked: index.json, and a .jsonl a signature.
GOLDENS = Path("assets.extra", "goldens")

# Requests to run before a version answers, a TFRecord file (https://www.tensorflow.org/tfx/serving/saved_model_warmup).
WARMUP = Path("assets.extra", "tf_serving_warmup_requests")
