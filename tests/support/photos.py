"""The labelled photos in the package foolbox, which is not imported."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def labelled_photos() -> list[Path]:
    """Return 20 ImageNet photos, progressive JPEG files named `imagenet_<number>_<class id>.jpg`."""
    spec = importlib.util.find_spec("foolbox")
    assert spec is not None, "foolbox==3.3.4 is needed for its photos: pip install --no-deps foolbox==3.3.4"
    assert spec.submodule_search_locations is not None
    photos = sorted((Path(spec.submodule_search_locations[0]) / "data").glob("imagenet_[0-9][0-9]_*.jpg"))
    assert 20 == len(photos)
    return photos
