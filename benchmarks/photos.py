"""The photos that the benchmarks send: a small one and one as large as a camera's, both scaled from an example."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

SOURCE = Path(__file__).parent.parent / "examples" / "coffee.png"
SIZES = {"small": (640, 427), "large": (4000, 3000)}
LABEL = "espresso"
_QUALITY = 95


def make(name: str) -> bytes:
    """Return the JPEG photo with this name in `SIZES` (width, height); the bytes are always the same."""
    with Image.open(SOURCE) as source:
        photo = source.convert("RGB").resize(SIZES[name], Image.Resampling.BICUBIC)
    content = io.BytesIO()
    photo.save(content, "JPEG", quality=_QUALITY)
    return content.getvalue()
