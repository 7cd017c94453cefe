"""Preprocessing: every choice between the bytes of a photo and the tensor that the network receives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import (
    REQUIRED,
    Choice,
    FieldGroup,
    Parsed,
    PathsOrNames,
    Switch,
    Text,
    WholeNumber,
    recipe_field,
)

RESIZE_METHODS = ("bilinear", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic", "nearest")
STRETCH, LETTERBOX, PADDED, SHORT = "none", "letterbox", "letterbox:padded", "short:"
LETTERBOXES = {LETTERBOX: "nearest", "letterbox:down": "down", "letterbox:even": "even", PADDED: None}
"""How the sides of a letterboxed photo are rounded to pixels, if it is padded after it has been resized."""
PIXELS = "0..255"
MAX_SIZE = 4096
MAX_WHITE = 2**16 - 1
_HIGHEST_FRACTION = 1.1

Number = TypeVar("Number", int, float)
Triple = tuple[float, float, float]
Colour = tuple[int, int, int]

# Mean and standard deviation for R, G, B on pixels 0..255. imagenet and caffe are the modes `torch` and `caffe` of
# keras.applications.imagenet_utils.preprocess_input; networks trained with caffe also need channels BGR.
SCALES: dict[str, tuple[Triple, Triple]] = {
    PIXELS: ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "0..1": ((0.0, 0.0, 0.0), (255.0, 255.0, 255.0)),
    "-1..1": ((127.5, 127.5, 127.5), (127.5, 127.5, 127.5)),
    "imagenet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "caffe": ((123.68, 116.779, 103.939), (1.0, 1.0, 1.0)),
}


def parse_crop(text: str) -> Fraction | int | None:
    """Parse the crop: the fraction, the shorter side of `short:`, or None for `none` and letterboxes."""
    if text in (STRETCH, *LETTERBOXES):
        return None
    if text.startswith(SHORT):
        side = int(text.removeprefix(SHORT))
        if not 1 <= side <= MAX_SIZE:
            raise ValueError
        return side
    fraction = Fraction(text)
    if not 0 < fraction <= 1:
        raise ValueError
    return fraction


def parse_colour(text: str) -> Colour:
    """Parse R, G and B from one number or three: `255` or `124,116,104`."""
    colour = _parse_triple(text, int)
    if not 0 <= min(colour) <= max(colour) <= 255:
        raise ValueError
    return colour


def parse_scale(text: str) -> tuple[Triple, Triple]:
    """Parse mean and standard deviation for R, G, B from a name or MEAN:STD."""
    if text in SCALES:
        return SCALES[text]
    mean, std = (_parse_triple(part, float) for part in text.split(":"))
    if not all(map(math.isfinite, (*mean, *std))) or min(std) <= 0:
        raise ValueError
    return mean, std


def describe_scale(mean: Sequence[float], std: Sequence[float]) -> str:
    """Return the scale with this mean and standard deviation for R, G, B; the inverse of `parse_scale`."""
    for name, known in SCALES.items():
        pairs = zip((mean, std), known, ({"abs_tol": 1e-3}, {"rel_tol": 1e-5}), strict=True)
        if all(
            math.isclose(number, other, **tolerance)
            for numbers, others, tolerance in pairs
            for number, other in zip(numbers, others, strict=True)
        ):
            return name
    return ":".join(",".join(f"{number:.8g}" for number in numbers) for numbers in (mean, std))


def _parse_triple(text: str, parse_number: Callable[[str], Number]) -> tuple[Number, Number, Number]:
    """Parse R, G and B from one number for all, or from three."""
    numbers = [parse_number(part) for part in text.split(",")]
    red, green, blue = numbers * 3 if len(numbers) == 1 else numbers
    return red, green, blue


class Size(Text):
    """Values of a field: height and width, stored as two numbers."""

    must_be = f"SIDE or HEIGHTxWIDTH, such as 224 or 240x320, of 1 to {MAX_SIZE} pixels"

    def parse(self, value: object) -> tuple[int, int]:
        """Parse `224`, `"240x320"` (height first) or `[240, 320]`; see `Text.parse`."""
        parts = list(value) if isinstance(value, (list, tuple)) else str(value).lower().split("x")
        sides = [int(str(part)) for part in parts]  # through str, because int() truncates 224.5
        height, width = sides * 2 if len(sides) == 1 else sides
        if not 1 <= min(sides) <= max(sides) <= MAX_SIZE:
            raise ValueError
        return height, width


_COLOUR = Parsed(parse_colour, "one or three levels from 0 to 255, such as 255 or 124,116,104")


@dataclass(frozen=True, kw_only=True)
class Preprocessing(FieldGroup):
    """How the bytes of a photo become the tensor that the network receives."""

    like: str | None = recipe_field(
        PathsOrNames(r".*(?<!\.json)", path_prefixes=("keras-hub:",)),
        "Preparation that is used for what is not stated: that of a known network, such as keras:MobileNetV2 for one "
        "that was fine-tuned from it; of image_dataset_from_directory, load_img or tf.image.resize; of torchvision, as "
        "torchvision:ResNet50_Weights.IMAGENET1K_V2; of keras-hub:FOLDER, a preset; or of a file, config.json of timm "
        "or preprocessor_config.json of Hugging Face. Names that do not contradict each other can be joined by commas. "
        "A size that the model fixes remains.",
        metavar="MODEL|FUNCTION|FILE",
        when_unset="none",
    )
    size: tuple[int, int] = recipe_field(
        Size(),
        "Height and width of the network's input in pixels, each from 1 to 4096.",
        default=REQUIRED,
        metavar="SIDE|HxW",
    )
    crop: str = recipe_field(
        Parsed(
            parse_crop,
            f"none, {', '.join(LETTERBOXES)}, short:SIDE of 1 to {MAX_SIZE} pixels, or a fraction above 0 and at most "
            "1, such as 7/8 or 0.875",
        ),
        "Part of the photo to keep: a fraction such as 7/8 cuts out the central square whose side is that part of the "
        "shorter side; short:256 makes the shorter side 256 pixels long and then cuts out the centre, as torchvision's "
        "Resize(256) and CenterCrop; none stretches the whole photo; letterbox fits it in undistorted and pads it, "
        "with sides rounded to the nearest pixel, or down as in tf.image.resize_with_pad, or halves to even as in "
        "Ultralytics' LetterBox; letterbox:padded pads it first and resizes it with its margins, as Keras's Resizing "
        "with pad_to_aspect_ratio.",
        default=REQUIRED,
        metavar="none|letterbox[:down|:even|:padded]|short:SIDE|FRACTION",
    )
    crop_margin: str | None = recipe_field(
        Choice("up", "down", "even"),
        "How half of an odd margin is rounded, above and to the left of what is cut out: up as in EfficientNet's "
        "training, down as in Keras's crop_to_aspect_ratio and in Hugging Face's processors, or to an even number of "
        "pixels as in torchvision.",
        when_unset="up; even for crop short:SIDE",
    )
    resize: str = recipe_field(
        Choice(*RESIZE_METHODS), "Interpolation of pixels, a method of tf.image.resize.", default=REQUIRED
    )
    antialias: bool = recipe_field(
        Switch(), "Whether to average over the skipped pixels when making a photo smaller.", default=REQUIRED
    )
    scale: str = recipe_field(
        Parsed(
            parse_scale,
            f"one of {', '.join(SCALES)}, or MEAN:STD on pixels 0..255, such as 127:128 or "
            "123.7,116.3,103.5:58.4,57.1,57.4, with finite numbers and a standard deviation above 0",
        ),
        f"Range of the network's input: {', '.join(SCALES)}, or mean and standard deviation on pixels 0..255, "
        "one number each or three for R, G, B. The network receives (pixel - mean) / std.",
        default=REQUIRED,
        metavar="NAME|MEAN:STD",
    )
    channels: str = recipe_field(
        Choice("RGB", "BGR", "GRAY"),
        "Order of colours that the network was trained on, or GRAY for one channel.",
        default=REQUIRED,
    )
    orientation: str = recipe_field(
        Choice("exif", "ignore"), "Whether to rotate photos upright as their EXIF data state.", default="exif"
    )
    decode: str = recipe_field(
        Choice("exact", "fast"),
        "exact decodes every pixel of a JPEG; fast decodes one that is much too large at 1/2, 1/4 or 1/8 of its size. "
        "Fast decoding changes pixels slightly and skips rows that are cropped away, so a file that is damaged only "
        "there is accepted.",
        default="exact",
    )
    jpeg_dct: str = recipe_field(
        Choice("accurate", "fast"),
        "Inverse DCT that decodes JPEG: accurate as in Pillow, OpenCV and torchvision, or fast as in TensorFlow's "
        "decode_jpeg and decode_image, and so in Keras's image_dataset_from_directory. Pixels differ by up to 20 "
        "levels.",
        default="accurate",
    )
    alpha: str = recipe_field(
        Choice("background", "drop"),
        "What transparent pixels of PNG and WebP photos show: background mixes their colour with that behind them; "
        "drop shows their colour as if they were not transparent, as TensorFlow and Keras do.",
        default="background",
    )
    background: str = recipe_field(
        _COLOUR, "Colour behind transparent pixels, levels 0 to 255.", default="255,255,255", metavar="R,G,B"
    )
    white: int = recipe_field(
        WholeNumber(1, MAX_WHITE),
        "Level that is white in PNG photos of 16 bits, such as 4095 if their levels are those of a 12-bit camera.",
        default=MAX_WHITE,
        metavar="LEVEL",
    )
    padding: str = recipe_field(
        _COLOUR, "Colour of a letterbox's margins, levels 0 to 255.", default="0,0,0", metavar="R,G,B"
    )
    max_pixels: int = recipe_field(
        WholeNumber(1, 2**40),
        "Reject larger images before decoding them. A pixel takes 3 to 12 bytes of the server's memory; a request "
        "decodes one image at a time.",
        default=100_000_000,
        metavar="PIXELS",
    )

    def _check_combination(self) -> None:
        if self.short_side is not None and self.short_side < max(self.size):
            raise RecipeError(
                f"invalid crop {self.crop!r}: the centre of {'x'.join(map(str, self.size))} pixels does not fit into a "
                f"shorter side of {self.short_side}; must be at least short:{max(self.size)}"
            )
        if (self.short_side is not None or self.crop == PADDED) and self.resize in ("nearest", "area"):
            raise RecipeError(
                f"invalid resize {self.resize!r}: crop {self.crop} needs another method; must be one of "
                f"{', '.join(method for method in RESIZE_METHODS if method not in ('nearest', 'area'))}"
            )
        if self.crop == PADDED and self.antialias:
            raise RecipeError(f"invalid antialias True: crop {self.crop} needs no antialias; must be False")
        mean, std = self.mean_and_std
        if self.scale not in SCALES and max(*mean, *std) < _HIGHEST_FRACTION and (mean, std) != SCALES[PIXELS]:
            same = ":".join(",".join(f"{round(255 * number, 3):g}" for number in numbers) for numbers in (mean, std))
            raise RecipeError(
                f"invalid scale {self.scale!r}: mean and standard deviation are on pixels 0..255, and these look like "
                f"those of pixels 0..1; on 0..255 they are {same}"
            )
        if self.channels == "GRAY" and (len(set(mean)) > 1 or len(set(std)) > 1):
            raise RecipeError(
                f"invalid scale {self.scale!r}: it differs by colour; with channels GRAY it must be one mean and one "
                "standard deviation"
            )

    @property
    def crop_fraction(self) -> Fraction | None:
        """Side of the central square as a part of the shorter side; None for other crops."""
        crop = parse_crop(self.crop)
        return crop if isinstance(crop, Fraction) else None

    @property
    def short_side(self) -> int | None:
        """Shorter side of the resized photo whose centre is cut out, in pixels; None for other crops."""
        crop = parse_crop(self.crop)
        return crop if isinstance(crop, int) else None

    @property
    def letterbox_rounding(self) -> str | None:
        """How the sides of a photo are rounded that is resized and then padded: `nearest`, `down` or `even`."""
        return LETTERBOXES.get(self.crop)

    @property
    def margin_rounding(self) -> str:
        """How half of an odd margin is rounded: `up`, `down` or `even`."""
        return self.crop_margin or ("up" if self.short_side is None else "even")

    @property
    def channel_count(self) -> int:
        """Number of channels of the network's input."""
        return 1 if self.channels == "GRAY" else 3

    @property
    def keeps_whole_photo(self) -> bool:
        """Whether all of the photo is in the network's input, with edges between pixels."""
        return parse_crop(self.crop) is None and self.crop != PADDED

    @property
    def background_colour(self) -> Colour:
        """Colour behind transparent pixels: R, G, B."""
        return parse_colour(self.background)

    @property
    def padding_colour(self) -> Colour:
        """Colour of a letterbox's margins: R, G, B."""
        return parse_colour(self.padding)

    @property
    def mean_and_std(self) -> tuple[Triple, Triple]:
        """Mean and standard deviation for R, G, B on pixels 0..255."""
        return parse_scale(self.scale)
