"""Measure what reading one photo costs, and how much of that each safety measure of the image graph takes.

    python -m benchmarks.decoding

Each variant is the image graph of EfficientNet-Lite0 without one measure, in a session with one thread. They take
turns, so that other load on the machine affects all of them.
"""

from __future__ import annotations

import base64
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import click
import tensorflow as tf

from benchmarks import machine, photos
from savedmodel_bakery.exporter.image import encodings, header, per_image, pixels
from savedmodel_bakery.exporter.image.header import Header
from savedmodel_bakery.exporter.recipe import Preprocessing

# EfficientNet-Lite0's
_RECIPE = Preprocessing(size=(224, 224), crop="7/8", resize="bicubic", antialias=False, scale="127:128", channels="RGB")


def _as_baked(image: Any, preprocessing: Preprocessing = _RECIPE) -> Any:
    return per_image.read_images(image[tf.newaxis], tf.constant([0]), tf.constant(1), preprocessing).pixels


def _without(*measures: tuple[Any, str, Any]) -> Callable[[Any], Any]:
    """Return the image graph in which names of modules have other values, such as simpler functions."""

    def build(image: Any) -> Any:
        with ExitStack() as stack:
            for module, name, simpler in measures:
                stack.enter_context(patch.object(module, name, simpler))
            return _as_baked(image)

    return build


def _attempt(function: Callable[[Any], Any], argument: Any, **_fallback: Any) -> Any:
    return function(argument)


def _size_only(data: Any) -> Any:
    height, width, _ = tf.unstack(tf.cast(tf.io.extract_jpeg_shape(data), tf.int64))
    return Header(height, width, tf.constant(1), tf.constant(False), tf.constant(encodings.JPEG))


def _decoder_alone(image: Any) -> Any:
    decoded = tf.io.decode_jpeg(image, channels=3, dct_method="INTEGER_ACCURATE")
    height, width, _ = tf.unstack(tf.shape(decoded))
    side = tf.minimum(height, width) * 7 // 8
    top, left = (height - side + 1) // 2, (width - side + 1) // 2
    return tf.image.resize(decoded[top : top + side, left : left + side], [224, 224], method=_RECIPE.resize)


VARIANTS: dict[str, Callable[[Any], Any]] = {
    "as baked": _as_baked,
    "without the attempt that isolates a damaged file": _without(
        (pixels, "with_fallback", _attempt), (encodings, "with_fallback", _attempt)
    ),
    "without the recognition of base64": _without((encodings, "decode", lambda image: image)),
    "without EXIF's orientation": _without((header, "read_orientation", lambda *_: tf.constant(1))),
    "with extract_jpeg_shape instead of the segments of the header": _without((per_image, "read_header", _size_only)),
    "with the fast DCT": lambda image: _as_baked(image, replace(_RECIPE, jpeg_dct="fast")),
    "with bilinear instead of bicubic": lambda image: _as_baked(image, replace(_RECIPE, resize="bilinear")),
    "decoder, crop and resize alone": _decoder_alone,
}


def make_run(build: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    """Return a function that runs the graph of a variant."""
    with tf.Graph().as_default() as graph:
        image = tf.compat.v1.placeholder(tf.string, [])
        # As in a version: the graph is that of a function, whose loops and branches call functions.
        output = tf.function(build, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)(image)
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        session = tf.compat.v1.Session(graph=graph, config=config)
        return session.make_callable(output, [image])  # type: ignore[no-any-return]


@click.command()
@click.option("--photo", type=click.Choice(list(photos.SIZES)), default="small", show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True, help="Turns of each variant.")
@click.option("--calls", type=click.IntRange(1), default=30, show_default=True, help="Calls per turn.")
def main(photo: str, rounds: int, calls: int) -> None:
    """Print a Markdown table of the CPU time of one photo."""
    jpeg = photos.make(photo)
    runs = {name: (make_run(build), jpeg) for name, build in VARIANTS.items()}
    runs["as baked, the photo as base64"] = (runs["as baked"][0], base64.urlsafe_b64encode(jpeg))
    figures: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, (run, content) in runs.items():
            before_s = time.process_time()
            for _ in range(calls):
                run(content)
            if number:  # the first turn warms up
                figures[name].append((time.process_time() - before_s) / calls * 1e3)
    whole = statistics.median(figures["as baked"])
    click.echo(", ".join(f"{name} {value}" for name, value in machine.describe().items()))
    click.echo(f"{photo} photo, {rounds} interleaved rounds of {calls} calls\n")
    click.echo("| variant | CPU ms (least–most) | difference |\n| --- | ---: | ---: |")
    for name, mine in figures.items():
        median = statistics.median(mine)
        difference = "" if name == "as baked" else f"{median - whole:+.2f}"
        click.echo(f"| {name} | {median:.2f} ({min(mine):.2f}–{max(mine):.2f}) | {difference} |")


if __name__ == "__main__":
    main()
