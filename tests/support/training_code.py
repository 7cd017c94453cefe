"""The table of docs/how-to/keras-model.md, and photos on which its rows differ."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from PIL import Image

from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.recipe import Recipe, convert_values

SIZE = 56, 40


def options_of(page: str, *rows: str) -> dict[str, Any]:
    """Return the values of the recipe that rows of the page's table state; later rows replace those of earlier ones."""
    values: dict[str, Any] = {}
    for row in rows:
        (stated,) = re.findall(rf"^\| [^|]*{re.escape(row)}[^|]*\| `([^`]*)`", page, re.M)
        for name, value in re.findall(r"--([a-z-]+)(?: ([^-\s]\S*))?", stated):
            if name.removeprefix("no-") in Recipe.FIELDS and not value:
                values[name.removeprefix("no-")] = not name.startswith("no-")
            else:
                values[name.replace("-", "_")] = value
    return convert_values(values)


def write_photos(folder: Path) -> list[Path]:
    """Write photos: turned, gray, transparent, larger and smaller than the network's input.

    Of sizes at which no sample of `nearest` lies between two pixels; Pillow then takes the other one.
    """
    (data,) = (path.read_bytes() for path in resources.example_photos() if path.name == "rocket.jpg")
    rocket = Image.open(io.BytesIO(data)).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    rocket.resize((333, 217)).save(folder / "turned.jpg", exif=exif)
    rocket.resize((103, 67)).convert("L").save(folder / "gray.jpg", subsampling=0)
    rocket.resize((30, 45)).save(folder / "small.png")
    transparent = rocket.resize((150, 151))
    transparent.putalpha(Image.linear_gradient("L").resize(transparent.size))
    transparent.save(folder / "transparent.png")
    return sorted(folder.iterdir())
