"""Source: a folder with a preset of KerasHub: an image classifier or segmenter, or a RetinaNet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.recipe import LETTERBOX, describe_scale
from savedmodel_bakery.exporter.sources.network import Network, from_keras_model
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch
from savedmodel_bakery.extras import naming_extras

PREFIX = "keras-hub:"
_TASK_FILE = "task.json"
_IMAGENET_CLASSES = 1000
_MEASURED_SIDE = 32  # of the images whose scale is measured, if the converter doesn't resize


def read(model: str, *, layer: str | None = None, task: str | None = None) -> Network:
    """Load the preset; its image converter is the recipe's preprocessing."""
    folder = Path(model.removeprefix(PREFIX))
    if not (folder / _TASK_FILE).is_file():
        raise SourceError(
            f"{folder} contains no {_TASK_FILE}: must be a folder that save_to_preset of a task of KerasHub has written"
        )
    with naming_extras("a preset of KerasHub", "keras-hub"):
        import keras_hub

    models = keras_hub.models
    loaded = _load(folder, (models.ImageClassifier, models.ImageSegmenter, models.RetinaNetObjectDetector))
    if isinstance(loaded, models.RetinaNetObjectDetector):
        network = _from_detector(loaded, model)
    elif isinstance(loaded, models.ImageSegmenter):
        network = _with_recipe(from_keras_model(loaded, model, layer), {"task": "segment", "outputs": _outputs(loaded)})
    else:
        embedded = layer or ("pooler" if task == "embed" else None)
        network = _with_recipe(from_keras_model(loaded, model, embedded), {"outputs": _outputs(loaded)})
        if loaded.num_classes == _IMAGENET_CLASSES:
            network = replace(network, defaults={**network.defaults, "labels": "imagenet"})
    converter = getattr(loaded.preprocessor, "image_converter", None)
    if converter is None:
        return network
    values = read_converter(converter)
    if network.recipe.get("task") and values.get("crop") not in ("none", LETTERBOX):
        values.pop("crop", None)  # it answers for the whole photo
        network = replace(network, defaults={**network.defaults, "crop": "none"})
    return replace(_with_recipe(network, values), scaling_layer=None)


def preprocessing(like: str) -> dict[str, Any]:
    """Return what the image converter of a preset does, without its network."""
    folder = Path(like.removeprefix(PREFIX))
    with naming_extras("a preset of KerasHub", "keras-hub"):
        import keras_hub
    try:
        return read_converter(keras_hub.layers.ImageConverter.from_preset(str(folder.resolve())))
    except Exception as error:  # KerasHub raises all types of errors
        raise SourceError(
            f"KerasHub {keras_hub.__version__} cannot load an image converter from {folder}: {error}"
        ) from error


def _load(folder: Path, allowed: tuple[type, ...]) -> Any:
    import keras
    import keras_hub

    try:
        name = json.loads((folder / _TASK_FILE).read_text(encoding="utf-8"))["registered_name"]
        kind = keras.saving.get_registered_object(name)
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{folder / _TASK_FILE} is damaged: {error!r}") from error
    if not isinstance(kind, type) or not issubclass(kind, allowed):
        names = ", ".join(each.__name__ for each in allowed)
        raise SourceError(f"{folder} is a preset of {name}: must be one of {names}")
    try:
        # An absolute path, because KerasHub would take another one for the name of a published preset.
        return kind.from_preset(str(folder.resolve()))  # type: ignore[attr-defined]
    except Exception as error:  # KerasHub raises all types of errors
        raise SourceError(f"KerasHub {keras_hub.__version__} cannot load {folder}: {error}") from error


def _with_recipe(network: Network, values: Mapping[str, Any]) -> Network:
    return replace(network, recipe={**network.recipe, **values})


def _outputs(loaded: Any) -> str:
    """Return what a model with an `activation` returns."""
    import keras

    activation = keras.activations.get(getattr(loaded, "activation", None))
    is_probability = activation in (keras.activations.softmax, keras.activations.sigmoid)
    return "probabilities" if is_probability else "logits"


def _from_detector(loaded: Any, model: str) -> Network:
    """Return the network of a RetinaNet, whose boxes are decoded but not yet filtered."""
    import keras

    decoder = loaded.prediction_decoder

    def call(pixels: NormalisedBatch) -> NetworkOutput:
        outputs = loaded(pixels, training=False)
        anchors = keras.ops.concatenate(list(loaded.anchor_generator(pixels).values()), axis=0)
        boxes = keras.utils.bounding_boxes.decode_deltas_to_boxes(
            anchors=anchors,
            boxes_delta=outputs["bbox_regression"],
            encoded_format="center_xywh",
            anchor_format=loaded.anchor_generator.bounding_box_format,
            box_format="xyxy",
            image_shape=tuple(pixels.shape[1:]),
        )
        return {"boxes": boxes, "scores": outputs["cls_logits"]}

    known = {"task": "detect", "boxes": "xyxy", "box_unit": "pixels", "outputs": _outputs(loaded)}
    defaults = {
        "threshold": str(decoder.confidence_threshold),
        "iou_threshold": str(decoder.iou_threshold),
        "max_boxes": decoder.max_detections,
    }
    network = from_keras_model(loaded, model)
    return replace(network, call=call, recipe={**network.recipe, **known}, defaults={**network.defaults, **defaults})


def read_converter(converter: Any) -> dict[str, Any]:
    """Return the preprocessing that an ImageConverter does; without size, crop and resize if it doesn't resize.

    What it does to levels is measured, because subclasses differ.
    """
    known: dict[str, Any] = {"scale": _measure_scale(converter), "channels": "RGB"}
    if converter.image_size is None:
        return known
    height, width = converter.image_size
    known |= {"size": (height, width), "resize": converter.interpolation, "antialias": converter.antialias}
    if converter.pad_to_aspect_ratio:
        known["crop"] = LETTERBOX
    elif not converter.crop_to_aspect_ratio:
        known["crop"] = "none"
    elif height == width:
        known |= {"crop": "1", "crop_margin": "down"}
    return known


def _measure_scale(converter: Any) -> str:
    """Return the scale that turns a black and a white image into what the converter makes of them."""
    height, width = converter.image_size or (_MEASURED_SIDE, _MEASURED_SIDE)
    images = np.zeros((2, height, width, 3), np.float32)
    images[1] = 255
    black, white = np.asarray(converter(images), np.float64)[:, height // 2, width // 2]
    std = 255 / (white - black)
    mean = -black * std
    return describe_scale(mean.tolist(), std.tolist())
