"""The photos that the benchmarks send: a small one and one as large as a camera's, both scaled from an example.

And those that a network is quantised with: parts of all examples.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

SOURCE = Path(__file__).parent.parent / "examples" / "coffee.png"
SIZES = {"small": (640, 427), "large": (4000, 3000)}
LABEL = "espresso"
_QUALITY = 95
_PARTS = 50  # of each example


def make(name: str) -> bytes:
    """Return the JPEG photo with this name in `SIZES` (width, height); the bytes are always the same."""
    with Image.open(SOURCE) as source:
        photo = source.convert("RGB").resize(SIZES[name], Image.Resampling.BICUBIC)
    content = io.BytesIO()
    photo.save(content, "JPEG", quality=_QUALITY)
    return content.getvalue()


def write_calibration(folder: Path) -> None:
    """Write parts of the examples, as photos to calibrate precision int8 with; always the same."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((*SOURCE.parent.glob("*.png"), *SOURCE.parent.glob("*.jpg"))):
        with Image.open(path) as source:
            photo = source.convert("RGB")
        for number in range(_PARTS):
            side = int(min(photo.size) * random.uniform(0.6, 1))
            left, top = (int(random.integers(0, length - side + 1)) for length in photo.size)
            photo.crop((left, top, left + side, top + side)).save(folder / f"{path.stem}_{number}.png")
