"""The recipe: every choice between a photo's bytes and a label, in one frozen dataclass and one TOML file."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import tomli_w

from savedmodel_bakery.exporter.errors import RecipeError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RESIZE_METHODS = ("bilinear", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic", "nearest")
CHANNEL_ORDERS = ("RGB", "BGR", "GRAY")
ORIENTATIONS = ("exif", "ignore")
DECODERS = ("exact", "fast")
STRETCH, LETTERBOX = "none", "letterbox"
OUTPUTS = ("probabilities", "logits")
MAX_SIZE = 4096
MAX_BATCH = 4096
MAX_BATCH_TIMEOUT_US = 60_000_000
MAX_BATCH_THREADS = 1024
PRECISIONS = ("float32", "bfloat16", "float16")
OPTIMISATIONS = ("drop-dead-operations", "fold-batch-norm", "fold-constants", "share-constants", "suit-cpu-kernels")

Triple = tuple[float, float, float]
Colour = tuple[int, int, int]

# Mean and standard deviation for R, G, B on pixels 0..255. imagenet and caffe are the modes `torch` and `caffe` of
# keras.applications.imagenet_utils.preprocess_input; caffe's networks also want --channels BGR.
SCALES: dict[str, tuple[Triple, Triple]] = {
    "0..255": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "0..1": ((0.0, 0.0, 0.0), (255.0, 255.0, 255.0)),
    "-1..1": ((127.5, 127.5, 127.5), (127.5, 127.5, 127.5)),
    "imagenet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "caffe": ((123.68, 116.779, 103.939), (1.0, 1.0, 1.0)),
}


@dataclass(frozen=True)
class Recipe:
    """How an image becomes what the network sees, and how what it says becomes labels.

    Attributes:
        model: the source that was baked, as `--model` names it.
        labels: a set in `labels/` or a path.
        size: height and width of the network's input, in pixels.
        crop: `none` stretches the whole image to `size`; a fraction such as `7/8` cuts the central square whose
            side is that part of the shorter side, rounded down; `letterbox` makes the whole image fit into `size`
            undistorted, in the middle of a canvas of `padding`.
        resize: a method of `tf.image.resize`.
        antialias: whether `resize` widens its kernel when it makes an image smaller.
        scale: a name in `SCALES`, or `MEAN:STD` (one number or three, for R, G, B) on pixels 0..255; the network
            sees (pixel - mean) / std.
        channels: the order of colours the network was trained on, or GRAY for one channel.
        outputs: what the network gives; logits are softmaxed.
        top_k: how many labels an answer lists; no more than there are classes.
        orientation: `exif` turns photos upright as their EXIF data say; `ignore` leaves them as they lie.
        decode: `exact` decodes every pixel; `fast` decodes JPEG photos at a half, a quarter or an eighth of their
            size where that leaves at least twice what the network is given, which changes pixels a little; rows that
            are cropped away are not decoded then, and a file that breaks off below them may be as good as a whole one.
        background: R,G,B from 0 to 255, what transparent pixels let through. White, because pictures with
            transparency are mostly made for pages, and pages are mostly white.
        padding: R,G,B from 0 to 255, what a letterbox is filled up with. Black, as in tf.image.resize_with_pad.
        max_pixels: a picture whose header claims more is refused before it is decoded; a pixel takes 3 to 12 bytes
            of the server's memory on the way.
        optimise: what is done to the network before it is baked, without changing its answers: some of
            `OPTIMISATIONS` with commas between them, or `none`.
        precision: what the network is computed in, all but its last product of matrices; 16 bits halve its weights,
            change its answers, and are faster only where the hardware computes with them.
        batch_max: the network is shown so many images of all requests together; 0 shows it each request alone.
        batch_timeout_us: so long an image waits for others, in microseconds; at 0 only while all `batch_threads` are
            busy.
        batch_threads: so many batches are computed at the same time.
        allowed_batch_sizes: numbers with commas between them, the last of which is `batch_max`; a batch is filled up
            to the next of them. None is all sizes.
        weights: of a Keras application: `none`, `imagenet` or a path.
        source_signature: signature of a source that is a SavedModel; None is its default.
        source_input: alias of that signature's input; None is its only one.
        source_output: alias of that signature's output; None is its only one.

    Raises:
        RecipeError: a value is not one of those allowed.
    """

    model: str
    labels: str
    size: tuple[int, int]
    crop: str
    resize: str
    antialias: bool
    scale: str
    channels: str
    outputs: str
    top_k: int = 5
    orientation: str = "exif"
    decode: str = "exact"
    background: str = "255,255,255"
    padding: str = "0,0,0"
    max_pixels: int = 100_000_000
    optimise: str = ",".join(OPTIMISATIONS)
    precision: str = "float32"
    batch_max: int = 0
    batch_timeout_us: int = 0
    batch_threads: int = 1
    allowed_batch_sizes: str | None = None
    weights: str | None = None
    source_signature: str | None = None
    source_input: str | None = None
    source_output: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.labels, str):
            raise RecipeError(f"labels is {self.labels!r}; allowed are the name of a set and the path of a file")
        _check_choice("resize", self.resize, RESIZE_METHODS)
        _check_choice("channels", self.channels, CHANNEL_ORDERS)
        _check_choice("outputs", self.outputs, OUTPUTS)
        _check_choice("orientation", self.orientation, ORIENTATIONS)
        _check_choice("decode", self.decode, DECODERS)
        _check_choice("precision", self.precision, PRECISIONS)
        if len(self.size) != 2 or not all(type(side) is int and 1 <= side <= MAX_SIZE for side in self.size):
            raise RecipeError(f"size is {self.size}; allowed are a height and a width from 1 to {MAX_SIZE} pixels")
        if type(self.antialias) is not bool:
            raise RecipeError(f"antialias is {self.antialias!r}; allowed are true and false")
        _check_whole_number("top_k", self.top_k, 1)
        _check_whole_number("max_pixels", self.max_pixels, 1)
        _check_whole_number("batch_max", self.batch_max, 0, MAX_BATCH)
        _check_whole_number("batch_timeout_us", self.batch_timeout_us, 0, MAX_BATCH_TIMEOUT_US)
        _check_whole_number("batch_threads", self.batch_threads, 1, MAX_BATCH_THREADS)
        if self.allowed_batch_sizes is not None and self.batch_sizes[-1] != self.batch_max:
            raise RecipeError(
                f"allowed_batch_sizes is {self.allowed_batch_sizes!r}, but batch_max is {self.batch_max}; the last of "
                "the sizes must be batch_max"
            )
        parse_crop(self.crop)
        parse_optimise(self.optimise)
        for name in ("background", "padding"):
            parse_colour(getattr(self, name), name=name)
        mean, std = parse_scale(self.scale)
        if self.channels == "GRAY" and (len(set(mean)) > 1 or len(set(std)) > 1):
            raise RecipeError(f"scale is {self.scale!r}, which differs by colour; with channels GRAY it cannot")

    @property
    def crop_fraction(self) -> Fraction | None:
        """Side of the central square as a part of the shorter side; None where the whole image is used."""
        return parse_crop(self.crop)

    @property
    def background_colour(self) -> Colour:
        """What transparent pixels let through, R, G, B."""
        return parse_colour(self.background, name="background")

    @property
    def padding_colour(self) -> Colour:
        """What a letterbox is filled up with, R, G, B."""
        return parse_colour(self.padding, name="padding")

    @property
    def optimisations(self) -> frozenset[str]:
        """The steps of optimisation that are taken."""
        return parse_optimise(self.optimise)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes that a batch may have, the smallest first."""
        if self.allowed_batch_sizes is None:
            return tuple(range(1, self.batch_max + 1))
        return parse_batch_sizes(self.allowed_batch_sizes)

    @property
    def mean_and_std(self) -> tuple[Triple, Triple]:
        """Mean and standard deviation for R, G, B on pixels 0..255."""
        return parse_scale(self.scale)

    def to_toml(self) -> str:
        """The recipe as a file that `bake --recipe` takes."""
        height, width = self.size
        values = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}
        return tomli_w.dumps(values | {"size": height if height == width else f"{height}x{width}"})


FIELDS = tuple(field.name for field in fields(Recipe))
FLAG_OF = {name: "--" + name.replace("_", "-") for name in FIELDS}


def complete(known: Mapping[str, Any], *layers: Mapping[str, Any]) -> Recipe:
    """Put a recipe together.

    Args:
        known: what the source knows; its size, and GRAY, are the network's own and can't be changed.
        layers: values given; later layers win, None counts as not given.

    Raises:
        RecipeError: a value that cannot be known is missing, or one is not allowed.
    """
    values: dict[str, Any] = dict(known)
    for layer in layers:
        values.update({name: value for name, value in layer.items() if value is not None})
    for name in ("size", "channels"):
        if name in known and values[name] != known[name] and (name == "size" or known[name] == "GRAY"):
            shown = ["x".join(map(str, value)) if name == "size" else value for value in (values[name], known[name])]
            raise RecipeError(f"{name} is {shown[0]}, but {values.get('model', 'the network')} takes {shown[1]}")
    missing = [FLAG_OF[field.name] for field in fields(Recipe) if field.default is MISSING and field.name not in values]
    if missing:
        raise RecipeError(
            f"the recipe of {values.get('model', 'this model')} lacks {_listed(missing)}, which cannot be guessed from "
            "the model; give what is missing as options, or in a file with --recipe"
        )
    return Recipe(**values)


def read_toml(path: Path) -> dict[str, Any]:
    """Values of a recipe file, checked for unknown names; the file may hold only some.

    Raises:
        RecipeError: the file cannot be read, is no TOML, or names something that is not part of a recipe.
    """
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"the recipe file {path} cannot be read: {error}") from error
    unknown = sorted(set(values) - set(FIELDS))
    if unknown:
        raise RecipeError(f"the recipe file {path} names {_listed(unknown)}; a recipe has {_listed(FIELDS)}")
    if "size" in values:
        values["size"] = parse_size(values["size"])
    return values


def parse_size(value: object) -> tuple[int, int]:
    """Height and width from `224`, `"240x320"` (height first) or `[240, 320]`.

    Raises:
        RecipeError: none of these.
    """
    try:
        parts = list(value) if isinstance(value, (list, tuple)) else str(value).lower().split("x")
        sides = [int(str(part)) for part in parts]  # as text, because int() cuts 224.5 down
        height, width = sides * 2 if len(sides) == 1 else sides
    except ValueError:
        raise RecipeError(f"size is {value!r}; allowed are SIDE and HEIGHTxWIDTH, as 224 or 240x320") from None
    return height, width


def parse_crop(value: str) -> Fraction | None:
    """None for `none` and `letterbox`, else the fraction, which is more than 0 and at most 1.

    Raises:
        RecipeError: none of these.
    """
    if value in (STRETCH, LETTERBOX):
        return None
    try:
        fraction = Fraction(str(value))  # a TOML file may hold a number
    except (ValueError, ZeroDivisionError):
        fraction = Fraction(0)
    if not 0 < fraction <= 1:
        raise RecipeError(
            f"crop is {value!r}; allowed are none, letterbox and a fraction above 0 up to 1, as 7/8 or 0.875"
        )
    return fraction


def parse_optimise(value: str) -> frozenset[str]:
    """Steps of optimisation, none for `none`.

    Raises:
        RecipeError: one isn't known.
    """
    steps = frozenset() if value == "none" else frozenset(str(value).split(","))
    if not steps <= set(OPTIMISATIONS):
        raise RecipeError(
            f"optimise is {value!r}; allowed are none and, with commas between them, {_listed(OPTIMISATIONS)}"
        )
    return steps


def parse_batch_sizes(value: str) -> tuple[int, ...]:
    """Sizes of batches.

    Raises:
        RecipeError: they are no whole numbers from 1, each larger than the one before.
    """
    try:
        sizes = [int(part) for part in str(value).split(",")]  # a TOML file may hold a number
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1 or sizes != sorted(set(sizes)):
        raise RecipeError(
            f"allowed_batch_sizes is {value!r}; allowed are whole numbers from 1, each larger than the one before, "
            "with commas between them, as 1,4,16"
        )
    return tuple(sizes)


def parse_colour(value: str, *, name: str) -> Colour:
    """R, G and B of the field `name`, from one number or three, as `255` or `124,116,104`.

    Raises:
        RecipeError: neither, or a level beyond 0..255.
    """
    try:
        levels = [int(part) for part in str(value).split(",")]  # a TOML file may hold a number
        red, green, blue = levels * 3 if len(levels) == 1 else levels
        if not 0 <= min(levels) <= max(levels) <= 255:
            raise ValueError
    except ValueError:
        raise RecipeError(
            f"{name} is {value!r}; allowed are one or three levels from 0 to 255, as 255 or 124,116,104"
        ) from None
    return red, green, blue


def parse_scale(value: str) -> tuple[Triple, Triple]:
    """Mean and standard deviation for R, G, B.

    Raises:
        RecipeError: neither a known name nor MEAN:STD.
    """
    text = str(value)  # a TOML file may hold anything
    if text in SCALES:
        return SCALES[text]
    try:
        mean, std = (_triple(part) for part in text.split(":"))
    except ValueError:
        raise RecipeError(
            f"scale is {value!r}; allowed are {_listed(SCALES)} and MEAN:STD on pixels 0..255, "
            "as 127:128 or 123.7,116.3,103.5:58.4,57.1,57.4"
        ) from None
    if not all(map(math.isfinite, (*mean, *std))) or min(std) <= 0:
        raise RecipeError(f"scale is {value!r}; numbers must be finite, and a standard deviation above 0")
    return mean, std


def _triple(text: str) -> Triple:
    numbers = [float(part) for part in text.split(",")]
    red, green, blue = numbers * 3 if len(numbers) == 1 else numbers
    return red, green, blue


def _check_choice(name: str, value: object, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise RecipeError(f"{name} is {value!r}; allowed are {_listed(allowed)}")


def _check_whole_number(name: str, value: object, least: int, most: int | None = None) -> None:
    if type(value) is not int or value < least or (most is not None and value > most):
        to_most = "" if most is None else f" to {most}"
        raise RecipeError(f"{name} is {value!r}; allowed is a whole number from {least}{to_most}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
