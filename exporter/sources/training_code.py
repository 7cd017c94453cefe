"""How photos were prepared in training: by a function, by torchvision, or as a file of timm or Hugging Face states.

Each returns values of the recipe. What a file states and a recipe can't do is an error that names it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe import describe_scale
from savedmodel_bakery.files import parse_toml, read_small

TORCHVISION, FILE = "torchvision:", ".json"
_AS_TENSORFLOW_DECODES = {"jpeg_dct": "fast", "alpha": "drop", "orientation": "ignore"}
_STRETCHED = {"crop": "none", "resize": "bilinear", "antialias": False}
FUNCTIONS: dict[str, dict[str, Any]] = {
    "image_dataset_from_directory": {**_STRETCHED, "channels": "RGB", **_AS_TENSORFLOW_DECODES},
    "load_img": {**_STRETCHED, "resize": "nearest", "channels": "RGB", "alpha": "drop", "orientation": "ignore"},
    "tf.image.resize": _STRETCHED,
}
"""What the functions of Keras and TensorFlow do, with their default arguments."""

_TIMM = {"bilinear": "bilinear", "bicubic": "bicubic", "lanczos": "lanczos3"}
_TIMM_CROP_PCT = 0.875  # timm/data/constants.py
_PILLOW = {1: "lanczos3", 2: "bilinear", 3: "bicubic"}  # PIL.Image.Resampling
# What a file of Hugging Face may state without an effect on the network's input, or what must have one value.
_WITHOUT_EFFECT = ("image_processor_type", "feature_extractor_type", "processor_class", "do_convert_rgb")
_OFF = ("do_pad", "do_flip_channel_order", "do_reduce_labels", "do_thumbnail", "do_align_long_axis")
_READ = (
    *("do_resize", "size", "resample", "do_center_crop", "crop_size", "crop_pct"),
    *("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"),
)


def read_preparation(like: str) -> dict[str, Any]:
    """Return the preprocessing of a function, of torchvision's weights or of a file; RecipeError if it is not known."""
    if like in FUNCTIONS:
        return FUNCTIONS[like]
    if like.endswith(FILE):
        return _read_file(Path(like))
    return _torchvision(like.removeprefix(TORCHVISION))


def torchvision_groups() -> list[dict[str, Any]]:
    """Return how torchvision prepares photos for its weights; see torchvision_weights.toml."""
    text = resources.files("savedmodel_bakery.exporter.sources").joinpath("torchvision_weights.toml").read_text("utf-8")
    groups: list[dict[str, Any]] = parse_toml(text)["groups"]
    return groups


def _torchvision(weights: str) -> dict[str, Any]:
    for group in torchvision_groups():
        if weights in group["names"].split():
            return {
                "size": (group["size"], group["size"]),
                "crop": f"short:{group['short']}",
                "resize": group["resize"],
                "antialias": True,
                "scale": group["scale"],
                "channels": "RGB",
            }
    raise RecipeError(
        f"invalid like '{TORCHVISION}{weights}': torchvision 0.29 has no such weights for classification; must be such "
        f"as {TORCHVISION}ResNet50_Weights.IMAGENET1K_V2"
    )


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_small(path))
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot read {path}: {error}") from error
    processor: dict[str, Any] = content if isinstance(content, dict) else {}
    timm = processor.get("pretrained_cfg", processor)
    try:
        if not {"image_processor_type", "feature_extractor_type", "image_mean"}.isdisjoint(processor):
            return _hugging_face(processor)
        if not {"interpolation", "crop_pct"}.isdisjoint(timm):
            return _timm(timm)
    except KeyError as error:
        raise RecipeError(f"{path} does not state {error}") from error
    except (AttributeError, TypeError, ValueError, ZeroDivisionError, RecipeError) as error:
        raise RecipeError(f"{path}: {error}") from error
    raise RecipeError(f"{path} is neither a config.json of timm nor a preprocessor_config.json of Hugging Face")


def _timm(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what timm's `create_transform` does for evaluation: timm/data/transforms_factory.py."""
    channels, height, width = config.get("input_size", (3, 224, 224))
    _require(config, "crop_mode", ("center", None), "the centre of a photo whose shorter side has been resized")
    if channels != 3 or height != width:
        raise RecipeError(f"input_size {config['input_size']} is not that of square colour images")
    interpolation = config.get("interpolation") or "bicubic"
    if interpolation not in _TIMM:
        raise RecipeError(f"interpolation {interpolation!r} is not one of {', '.join(_TIMM)}")
    return {
        "size": (height, width),
        "crop": f"short:{math.floor(height / (config.get('crop_pct') or _TIMM_CROP_PCT))}",
        "crop_margin": "even",
        "resize": _TIMM[interpolation],
        "antialias": True,
        "scale": _scale(config["mean"], config["std"], 1 / 255),
        "channels": "RGB",
    }


def _hugging_face(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an image processor of transformers does."""
    for key, value in config.items():
        if key in _OFF:
            _require(config, key, (False, None), "no such step")
        elif key not in (*_READ, *_WITHOUT_EFFECT) and not key.startswith("_") and value is not None:
            raise RecipeError(f"{key} {value!r} cannot be honoured; it has no field in the recipe")
    _require(config, "do_resize", (True, None), "a resized photo")
    resample = config["resample"]
    if resample not in _PILLOW:
        raise RecipeError(
            f"resample {resample!r} is not one of {', '.join(f'{key} ({name})' for key, name in _PILLOW.items())}"
        )
    rescale = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1
    is_normalised = config.get("do_normalize", True)
    mean, std = (config["image_mean"], config["image_std"]) if is_normalised else (0, 1)
    return {
        **_hugging_face_crop(config),
        "resize": _PILLOW[resample],
        "antialias": True,
        "scale": _scale(mean, std, rescale),
        "channels": "RGB",
    }


def _hugging_face_crop(config: Mapping[str, Any]) -> dict[str, Any]:
    size, crop_size = config["size"], config.get("crop_size")
    is_cropped = config.get("do_center_crop", False)
    if isinstance(size, dict) and {"height", "width"} == size.keys() and not is_cropped:
        return {"size": (size["height"], size["width"]), "crop": "none"}
    if isinstance(size, dict) and {"shortest_edge"} == size.keys():
        side = size["shortest_edge"]
        if "crop_pct" in config:  # ConvNeXT's processor: smaller images are cropped
            if side >= 384:
                return {"size": (side, side), "crop": "none"}
            return {"size": (side, side), "crop": f"short:{int(side / config['crop_pct'])}", "crop_margin": "down"}
        if is_cropped and isinstance(crop_size, dict):
            kept = crop_size["height"], crop_size["width"]
            return {"size": kept, "crop": f"short:{side}", "crop_margin": "down"}
    raise RecipeError(
        f"size {size!r} with do_center_crop {is_cropped} and crop_size {crop_size!r} cannot be honoured: must be "
        "height and width without a crop, or shortest_edge with a crop of height and width"
    )


def _require(config: Mapping[str, Any], key: str, allowed: tuple[Any, ...], what: str) -> None:
    if config.get(key) not in allowed:
        raise RecipeError(f"{key} {config[key]!r} cannot be honoured: the recipe has {what}")


def _scale(mean: Any, std: Any, factor: float) -> str:
    """Return the scale for mean and standard deviation of pixels times `factor`."""
    means, stds = (
        [float(number) / factor for number in (part if isinstance(part, list) else [part] * 3)] for part in (mean, std)
    )
    return describe_scale(means, stds)
