"""Draw photos of two classes, discs and stripes, to train a network with any library: photos/train and photos/test.

    python examples/train/discs_and_stripes.py

Each of the two has a folder per class, in the working directory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

PHOTOS = {"train": 40, "test": 4}
"""The number of photos per class."""


def draw(label: str, random: np.random.Generator) -> Image.Image:
    """Draw a disc or stripes at a random place, in random colours."""
    background, colour = (tuple(random.integers(low, low + 100, 3).tolist()) for low in (0, 150))
    picture = Image.new("RGB", (160, 120), background)
    x, y = random.integers(10, 50, 2).tolist()
    if label == "disc":
        ImageDraw.Draw(picture).ellipse((x, y, x + 60, y + 60), fill=colour)
    else:
        for left in range(x - 10, 160, 24):
            ImageDraw.Draw(picture).rectangle((left, 0, left + 8, 120), fill=colour)
    return picture


def main() -> None:
    """Write the photos."""
    random = np.random.default_rng(1)
    for part, count in PHOTOS.items():
        for label in ("disc", "stripes"):
            folder = Path("photos", part, label)
            folder.mkdir(parents=True)
            for number in range(count):
                draw(label, random).save(folder / f"{number}.jpg")


if __name__ == "__main__":
    main()
