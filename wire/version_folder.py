"""Paths inside the folder of a model version, beside its graph.

The exporter writes these files; the server reads the warm-up requests, and the client the goldens. Does no I/O.
"""

from __future__ import annotations

from pathlib import Path

GOLDENS = Path("assets.extra", "goldens")
"""A folder with requests and the responses that the version returned when it was baked: index.json and one .jsonl file
per signature."""

WARMUP = Path("assets.extra", "tf_serving_warmup_requests")
"""A TFRecord file with requests that a server runs before the version becomes available
(www.tensorflow.org/tfx/serving/saved_model_warmup)."""

RECIPE = Path("assets.extra", "recipe.toml")
"""The recipe that the version was baked with. Its relative paths refer to the working directory of the bake."""
