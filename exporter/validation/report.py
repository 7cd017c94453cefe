"""The parity report: how a baked graph compares with the reference pipeline, as JSON, a table and an HTML page."""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment
from PIL import Image

from savedmodel_bakery.errors import ParityError
from savedmodel_bakery.exporter.tasks.task import Doubt, Tolerance
from savedmodel_bakery.exporter.validation.int8_agreement import Int8Agreement

_GAIN = 16
_FRAME_HEIGHT, _FRAME_PHOTOS = "30em", 10


@dataclass(frozen=True)
class PhotoParity:
    """How one photo compares.

    Attributes:
        photo: the file name of the photo.
        pixels_mean: mean absolute difference of the network's input before normalising, in levels of 0..255.
        pixels_max: the largest such difference.
        difference: the difference of the answers, in the measure of the task.
        answer: the answer of the graph, in a few words.
        reference_answer: the answer of the reference pipeline, in a few words.
        caveat: why agreement on this photo says little; else empty.
        doubts: reasons to doubt the recipe.
        error: why the graph can't read the photo; if it is not empty, the other values mean nothing.
        is_within: whether the photo is within tolerance.
    """

    photo: str
    pixels_mean: float = 0.0
    pixels_max: float = 0.0
    difference: float = 0.0
    answer: str = ""
    reference_answer: str = ""
    caveat: str = ""
    doubts: tuple[Doubt, ...] = ()
    error: str = ""
    is_within: bool = False

    def distance(self) -> tuple[bool, float, float]:
        """Return the sort key of photos: unreadable ones are farthest, then answers count, then pixels."""
        return bool(self.error), self.difference, self.pixels_mean


@dataclass(frozen=True)
class PhotoPictures:
    """The pictures of one photo, for people to compare."""

    parity: PhotoParity
    original: Image.Image  # a thumbnail of the photo
    graph: np.ndarray  # what the network receives from the graph, [height, width, 3], 0..255
    reference: np.ndarray  # what it receives from the reference pipeline


@dataclass(frozen=True, repr=False)
class ParityReport:
    """How a baked graph compares with the reference pipeline of its source.

    Attributes:
        model: the source model.
        departures: fields of the recipe that differ from the reference's: name to (baked, reference).
        measure: the measure of the difference of two answers, such as `cosine distance`.
        tolerance: how far answers may differ.
        pixel_limit: how far pixels may differ in the mean, in levels of 0..255.
        photos: a comparison for each photo.
        int8: how the answers of an int8 servable compare with those of the network; photos are then within tolerance if
            their pixels are.
        doubts: what is implausible about the recipe or the network, each in a line with the likely fix.
        evidence: what training shows of the recipe, one entry per kind; see `evidence.judge.Judgement.to_json`.
        pictures: the pictures of the photos that are farthest from the reference, worst first, for the HTML page.
    """

    model: str
    departures: Mapping[str, tuple[Any, Any]]
    measure: str
    tolerance: Tolerance
    pixel_limit: float
    photos: Sequence[PhotoParity]
    int8: Int8Agreement | None = None
    doubts: Sequence[str] = ()
    evidence: Sequence[Mapping[str, Any]] = ()
    pictures: Sequence[PhotoPictures] = dataclasses.field(default=(), compare=False)

    def __repr__(self) -> str:
        """Return the verdict and the worst photo."""
        verdict = "within" if self.is_within else "beyond"
        worst = self.worst
        difference = worst.error or f"{self.measure} {worst.difference:.2g}"
        photos = "1 photo" if len(self.photos) == 1 else f"{len(self.photos)} photos"
        return f"<ParityReport: {verdict} tolerance on {photos}; farthest {worst.photo}: {difference}>"

    def _repr_html_(self) -> str:
        """Return the HTML page, in a frame, so that its styles have no effect on the rest of a notebook."""
        page = escape(_html_page(self, self.pictures[:_FRAME_PHOTOS]))
        return f'<iframe srcdoc="{page}" style="width:100%;height:{_FRAME_HEIGHT};border:0"></iframe>'

    @property
    def is_within(self) -> bool:
        """Whether every photo is within tolerance, and the network's outputs do not contradict the recipe."""
        agrees = self.int8 is None or self.int8.is_within
        return all(photo.is_within for photo in self.photos) and agrees and not self.contradiction

    @property
    def worst(self) -> PhotoParity:
        """The photo that is farthest from the reference."""
        return max(self.photos, key=PhotoParity.distance)

    @property
    def contradiction(self) -> str:
        """How the network's outputs contradict the recipe on all photos, and what to do; empty if they don't."""
        return "\n".join(self._shared_doubts(is_error=True))

    @property
    def warning(self) -> str:
        """What is doubtful about the recipe or the report, and what to do; one line each, empty if nothing is."""
        lines = [*self.doubts, *self._shared_doubts(is_error=False), *(self.int8.warnings if self.int8 else [])]
        caveats = {photo.caveat for photo in self.photos}
        if len(caveats) == 1 and caveats != {""}:
            (caveat,) = caveats
            advice = "pass photos that show the model's labels with --photos FOLDER"
            lines.append(f"on {self._all_photos} {caveat}; {advice}")
        return "\n".join(lines)

    @property
    def _all_photos(self) -> str:
        return "the only photo" if len(self.photos) == 1 else f"all {len(self.photos)} photos"

    def _shared_doubts(self, *, is_error: bool) -> list[str]:
        """Return the doubts that all photos share, apart from those whose comparison says little."""
        first: dict[str, tuple[PhotoParity, Doubt]] = {}
        for photo in self.photos:
            for doubt in photo.doubts:
                first.setdefault(doubt.reason, (photo, doubt))
        lines = []
        for reason, (example, doubt) in first.items():
            with_doubt = [photo for photo in self.photos if any(each.reason == reason for each in photo.doubts)]
            others = [photo for photo in self.photos if photo not in with_doubt]
            if doubt.is_error != is_error or not all(photo.error or photo.caveat for photo in others):
                continue
            on = f"{len(with_doubt)} photos" if others else self._all_photos
            lines.append(f"{reason} on {on} ({doubt.values} on {example.photo}); {doubt.advice}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the report as it is stored in the version's `parity.json`."""
        return {
            "model": self.model,
            "is_within": self.is_within,
            "contradiction": self.contradiction,
            "warning": self.warning,
            "evidence": list(self.evidence),
            "measure": self.measure,
            **dataclasses.asdict(self.tolerance),
            "pixels_mean_limit": self.pixel_limit,
            "departures": {
                name: {"baked": baked, "reference": expected} for name, (baked, expected) in self.departures.items()
            },
            "photos": [dataclasses.asdict(photo) for photo in self.photos],
            **({} if self.int8 is None else {"int8": self.int8.to_json()}),
        }

    def to_table(self) -> str:
        """Return the report as aligned columns, one line per photo, and the agreement of int8 with the network."""
        header = ("photo", "pixels mean", "max", self.measure, "baked graph", "reference", "")
        rows = [header, *map(_row, self.photos)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines + (self.int8.describe() if self.int8 else []))

    def check(self, advice: str = "") -> None:
        """Reject a graph that is not within tolerance.

        Args:
            advice: the text at the end of the message.

        Raises:
            ParityError: the network's outputs contradict the recipe, int8 agrees with float32 on too few photos, or a
                photo is beyond tolerance; the message names the worst one and possible causes.
        """
        if self.contradiction:
            raise ParityError(f"{self.contradiction}{advice}")
        if self.int8 is not None:
            self.int8.check(advice)
        if self.is_within:
            return
        worst = max((photo for photo in self.photos if not photo.is_within), key=PhotoParity.distance)
        if worst.error:
            raise ParityError(f"the baked graph cannot read {worst.photo}: {worst.error}")
        causes = [
            f"; {name} is {baked}, the source uses {expected}" for name, (baked, expected) in self.departures.items()
        ]
        answers = f"{self.measure} {worst.difference:.3g} (allowed: {self.tolerance}), " if self.int8 is None else ""
        raise ParityError(
            f"on {worst.photo} the baked graph answers {worst.answer}, the reference pipeline "
            f"{worst.reference_answer}: {answers}pixels differ by {worst.pixels_mean:.2f} levels in the mean (allowed: "
            f"{self.pixel_limit:g}){''.join(causes)}{advice}"
        )


def _row(photo: PhotoParity) -> tuple[str, ...]:
    if photo.error:
        return (photo.photo, *[""] * 5, f"cannot be read: {photo.error}")
    return (
        photo.photo,
        f"{photo.pixels_mean:.3f}",
        f"{photo.pixels_max:.1f}",
        f"{photo.difference:.4f}",
        photo.answer,
        photo.reference_answer,
        "within" if photo.is_within else "BEYOND",
    )


def write_html_page(path: Path, report: ParityReport) -> None:
    """Write the report as one HTML page that needs no other file, with the pictures of some of the photos.

    Raises:
        ParityError: the file can't be written.
    """
    try:
        path.write_bytes(_html_page(report, report.pictures).encode("utf-8", "replace"))
    except OSError as error:
        raise ParityError(f"cannot write the report to {path}: {error.strerror}") from error


def _html_page(report: ParityReport, pictures: Sequence[PhotoPictures]) -> str:
    template = resources.files("savedmodel_bakery.exporter.validation").joinpath("report.html").read_text("utf-8")
    rows = [(photo.parity, _data_uris(photo)) for photo in pictures]
    page = Environment(autoescape=True, trim_blocks=True).from_string(template)
    html: str = page.render(report=report, rows=rows, gain=_GAIN)
    return html


def check_writable(path: Path) -> None:
    """Reject a path in a folder that doesn't exist, before the expensive work begins."""
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
