"""The options for photos, which several commands share."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


class PhotoPath(click.Path):
    """The path of a photo, or - for stdin. For a folder the error names the command that takes folders."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True, allow_dash=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check the path."""
        if "://" in value:
            from savedmodel_bakery.answers.images import URL  # imports numpy

            if URL.match(value):
                advice = "pass a path, or - for an image on stdin"
                self.fail(f"invalid image {value}: URLs are not fetched; {advice}", param, ctx)
        if Path(value).is_dir():
            advice = f"to classify the photos in it: bakery bulk {shlex.quote(value)} --out FILE"
            self.fail(f"{value} is a folder; {advice}", param, ctx)
        return super().convert(value, param, ctx)


def image_option(help_text: str) -> Callable[[_Command], _Command]:
    """Give a command the option `-i`, whose values are passed as `images`."""
    return click.option("-i", "--image-file", "images", multiple=True, metavar="PATH", type=PhotoPath(), help=help_text)


icc_option = click.option(
    "--icc",
    is_flag=True,
    help="Convert the colours of photos that have another ICC profile than sRGB, which TensorFlow does not read. Needs "
    "the extra draw.",
)
