"""The versions of TensorFlow in which bakes were tested, and the oldest that gives the same answers.

`make test-runtimes` bakes with the current TensorFlow and checks this table in an environment for each version; the
documentation and `bakery inspect` are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSIONS = ("2.14.1", "2.16.2", "2.18.1", "2.19.1", "2.20.0")
"""Versions of tensorflow-cpu for x86, oldest first."""

_OLDEST = VERSIONS[0]

OLDEST: Mapping[str, str] = {
    **{
        f"`--task {task}`": _OLDEST
        for task in ("classify", "binary", "multilabel", "embed", "regress", "detect", "segment")
    },
    **{f"`--precision {precision}`": _OLDEST for precision in ("float32", "bfloat16", "float16", "int8")},
    "`--batch-max`": _OLDEST,
}
"""The version from which on all in `VERSIONS` give the same answers, by an option of a bake."""

OLDEST_FOR_PHOTOS: Mapping[str, str] = {
    **dict.fromkeys(("JPEG", "PNG", "GIF", "BMP"), _OLDEST),
    "WebP": "2.20.0",
}
"""The same by the format of a photo."""


def oldest_version(recipe: Mapping[str, Any]) -> str | None:
    """Return the oldest version that was tested for the values of a recipe; None if one of them was not tested."""
    options = [f"`--task {recipe.get('task')}`", f"`--precision {recipe.get('precision', 'float32')}`"]
    if recipe.get("batch_max", 0):
        options.append("`--batch-max`")
    if not OLDEST.keys() >= set(options):
        return None
    return max((OLDEST[option] for option in options), key=VERSIONS.index)
