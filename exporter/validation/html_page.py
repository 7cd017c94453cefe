"""Writes a parity report as one HTML page that needs no other file."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from jinja2 import Environment
from PIL import Image

from savedmodel_bakery.errors import ParityError
from savedmodel_bakery.exporter.validation.parity import PhotoPictures
from savedmodel_bakery.exporter.validation.report import ParityReport

_GAIN = 16


def write_html_page(path: Path, report: ParityReport, pictures: Sequence[PhotoPictures]) -> None:
    """Write the report as an HTML page.

    Args:
        path: of the file.
        report: on all photos.
        pictures: the photos to show, each with the network's input from the graph and from the reference.

    Raises:
        ParityError: the file can't be written.
    """
    template = resources.files("savedmodel_bakery.exporter.validation").joinpath("html_page.html").read_text("utf-8")
    rows = [(photo.parity, _data_uris(photo)) for photo in pictures]
    html = Environment(autoescape=True, trim_blocks=True).from_string(template)
    encoded = html.render(report=report, rows=rows, gain=_GAIN).encode("utf-8", "replace")
    try:
        path.write_bytes(encoded)
    except OSError as error:
        raise ParityError(f"cannot write the report to {path}: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """Reject a path that no page can be written to, before the expensive work begins.

    Raises:
        ParityError: the folder doesn't exist.
    """
    if not path.parent.is_dir():
        raise ParityError(f"cannot write the report to {path}: no such folder {path.parent}")


def _data_uris(photo: PhotoPictures) -> dict[str, str]:
    arrays = {
        "graph": photo.graph,
        "reference": photo.reference,
        "difference": np.abs(photo.graph - photo.reference) * _GAIN,
    }
    return {"original": _data_uri(photo.original, "jpeg")} | {
        name: _data_uri(Image.fromarray(np.clip(np.round(levels), 0, 255).astype(np.uint8)), "png")
        for name, levels in arrays.items()
    }


def _data_uri(picture: Image.Image, image_format: str) -> str:
    file = io.BytesIO()
    picture.save(file, image_format)
    return f"data:image/{image_format};base64,{base64.b64encode(file.getvalue()).decode()}"
