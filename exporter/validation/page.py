"""A parity report for people: a table for the terminal, and one HTML page that needs no other file."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from jinja2 import Environment
from PIL import Image

from savedmodel_bakery.exporter.errors import ParityError
from savedmodel_bakery.exporter.validation.parity import Compared, PhotoParity, Report

_HEADER = ("photo", "pixels mean", "max", "probability", "baked graph", "reference", "top 5", "")
_GAIN = 16


def table(report: Report) -> str:
    """The report as lines of columns; a difference of probabilities is the largest of a photo's best classes."""
    rows = [_HEADER, *map(_row, report.photos)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(photo: PhotoParity) -> tuple[str, ...]:
    if photo.error:
        return (photo.photo, *[""] * 5, "", f"cannot be read: {photo.error}")
    return (
        photo.photo,
        f"{photo.pixels_mean:.3f}",
        f"{photo.pixels_max:.1f}",
        f"{photo.probability:.4f}",
        f"{photo.label} {photo.score:.4f}",
        f"{photo.reference_label} {photo.reference_score:.4f}",
        f"{photo.top_5}/{photo.top_5_of}",
        "within" if photo.is_within else "BEYOND",
    )


def write(path: Path, report: Report, shown: Sequence[Compared]) -> None:
    """Write the report as an HTML page.

    Args:
        path: of the file.
        report: about all photos.
        shown: some of them, which the page shows as they are, as the network sees them, and as it should.

    Raises:
        ParityError: the file can't be written.
    """
    template = resources.files("savedmodel_bakery.exporter.validation").joinpath("page.html").read_text("utf-8")
    page = Environment(autoescape=True, trim_blocks=True).from_string(template)
    rows = [(compared.parity, _sources(compared)) for compared in shown]
    written = page.render(report=report, rows=rows, gain=_GAIN).encode("utf-8", "replace")
    try:
        path.write_bytes(written)
    except OSError as error:
        raise ParityError(f"the report cannot be written to {path}: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """Refuse a path that no page can be written to, before anything costly is done for it.

    Raises:
        ParityError: its folder isn't there.
    """
    if not path.parent.is_dir():
        raise ParityError(f"the report cannot be written to {path}: there is no folder {path.parent}")


def _sources(compared: Compared) -> dict[str, str]:
    """Data URIs of the pictures."""
    difference = np.abs(compared.graph - compared.reference) * _GAIN
    return {"original": _data_uri(compared.original, "jpeg")} | {
        name: _data_uri(Image.fromarray(np.clip(np.round(levels), 0, 255).astype(np.uint8)), "png")
        for name, levels in {
            "graph": compared.graph,
            "reference": compared.reference,
            "difference": difference,
        }.items()
    }


def _data_uri(picture: Image.Image, kind: str) -> str:
    written = io.BytesIO()
    picture.save(written, kind)
    return f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}"
