"""The name of the folder of a model version, and the paths inside it beside its graph.

The exporter writes these files; the server reads the warm-up requests, and the client the goldens. `storage` writes the
manifest. Does no I/O.
"""

from __future__ import annotations

import re
from pathlib import Path

GOLDENS = Path("assets.extra", "goldens")
"""A folder with requests and the responses that the version returned when it was baked: index.json and one .jsonl file
per signature."""

WARMUP = Path("assets.extra", "tf_serving_warmup_requests")
"""A TFRecord file with requests that a server runs before the version becomes available
(www.tensorflow.org/tfx/serving/saved_model_warmup)."""

RECIPE = Path("assets.extra", "recipe.toml")
"""The recipe that the version was baked with. Its relative paths refer to the working directory of the bake."""

GRAPH = Path("saved_model.pb")
"""The graph. A server takes a folder with this file for a version."""

MANIFEST = Path("assets.extra", "manifest.json")
"""The size and digest of every other file of a version, where it was published to a bucket."""

_MIN_VERSION, _MAX_VERSION = -(2**63), 2**63 - 1
_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")


def version_number(name: str) -> int | None:
    """Return the number of the version whose folder has this name; None if servers ignore such a folder."""
    number = int(name) if _NUMBER.fullmatch(name) else None
    return number if number is not None and _MIN_VERSION <= number <= _MAX_VERSION else None
