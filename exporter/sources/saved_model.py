"""Sources: a SavedModel, of TensorFlow 1 or 2, as a folder or as a TF Hub module.

A module is named by its handle, a URL of tfhub.dev, kaggle.com or another host, or by its folder. Inputs and outputs
follow TF Hub's convention (tensorflow.org/hub, "Common Signatures for Images"): RGB from 0 to 1, the whole image at the
module's size; logits for 1001 classes including background, or a feature vector.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.network_inputs import Input, listed, split_inputs
from savedmodel_bakery.exporter.sources.network import (
    Network,
    recipe_from_images,
    recipe_from_outputs,
    recipe_from_shape,
    take_pixels,
)
from savedmodel_bakery.exporter.sources.tables import find_tables
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, Tensor

HUB_PREFIX = "hub:"
_KAGGLE = re.compile(r"https://(?:www\.)?kaggle\.com/models/(.+)")
_CONVENTION = {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..1", "channels": "RGB"}
_CLASSIFIER = {"labels": "imagenet1001", "outputs": "logits"}
_EMBEDDER = {"task": "embed"}
# MoveNet's single-pose models: int32 images, and y, x and score of 17 points (tensorflow.org/hub/tutorials/movenet).
_MOVENET_OUTPUT = (1, 1, 17, 3)
_MOVENET = {
    "task": "keypoints",
    "points": "yx",
    "point_unit": "fractions",
    "point_names": "nose,left_eye,right_eye,left_ear,right_ear,left_shoulder,right_shoulder,left_elbow,right_elbow,"
    "left_wrist,right_wrist,left_hip,right_hip,left_knee,right_knee,left_ankle,right_ankle",
    "skeleton": "nose-left_eye,nose-right_eye,left_eye-left_ear,right_eye-right_ear,nose-left_shoulder,"
    "nose-right_shoulder,left_shoulder-left_elbow,left_elbow-left_wrist,right_shoulder-right_elbow,"
    "right_elbow-right_wrist,left_shoulder-right_shoulder,left_shoulder-left_hip,right_shoulder-right_hip,"
    "left_hip-right_hip,left_hip-left_knee,left_knee-left_ankle,right_hip-right_knee,right_knee-right_ankle",
    "crop": "letterbox:down",
    "resize": "bilinear",
    "antialias": False,
    "scale": "0..255",
    "channels": "RGB",
}

_WHITE = 255
_FEATURES = "image_feature_vector"
# Preferred first; all but the last are those of modules of the TF 1 format.
_SIGNATURES = ("image_classification", _FEATURES, "default", "serving_default")
_MAIN_OUTPUT = "default"  # of the TF 1 format; others are those of the network's layers
# In URLs of modules that return feature vectors, at TF Hub and at Kaggle.
_FEATURES_URL = re.compile(r"https?://.*feature[-_]vector")
# The TF 1 format: one graph without tags, and often one for training.
_TF1_MARKER = "tfhub_module.pb"


def read_folder(
    model: str,
    *,
    source_signature: str = "serving_default",
    source_input: str | None = None,
    source_output: str | None = None,
) -> Network:
    """Load the folder, and select a signature, its input and its output."""
    return from_signature(load(model), model, source_signature, source_input, source_output)


def load(path: str, tags: Sequence[str] | None = None) -> Any:
    """Load the graph with these tags from a folder; None for the only one."""
    import tensorflow as tf

    if not any((Path(path) / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        raise SourceError(f"{path} contains no saved_model.pb: pass the folder that does, such as MODEL/1")
    try:
        return tf.saved_model.load(path, tags=tags)
    except Exception as error:  # its loader raises all types of errors
        raise SourceError(f"cannot load the SavedModel in {path}: {error}") from error


def from_signature(
    loaded: Any,
    model: str,
    name: str = "serving_default",
    input_alias: str | None = None,
    output_alias: str | None = None,
) -> Network:
    """Return the network of a signature of a loaded SavedModel; `model` is its name for messages."""
    if name not in loaded.signatures:
        raise SourceError(
            f'{model} has no signature "{name}"; it has {listed(loaded.signatures)}: select one with --source-signature'
        )
    signature = loaded.signatures[name]
    inputs = signature.structured_input_signature[1]
    owner = f'signature "{name}" of {model}'
    shapes_of = {alias: each.shape.as_list() if each.shape.rank is not None else None for alias, each in inputs.items()}
    declared = {alias: Input(shapes_of[alias], each.dtype.name) for alias, each in inputs.items()}
    split = split_inputs(declared, input_alias, owner)
    outputs: Mapping[str, Any] = signature.structured_outputs
    if output_alias is not None:
        _check_output(output_alias, outputs, owner)
        outputs = {output_alias: outputs[output_alias]}
    for alias in split.images:
        dtype = inputs[alias].dtype
        if not dtype.is_floating and not (dtype.is_integer and dtype.max >= _WHITE):
            raise SourceError(
                f'input "{alias}" of {owner} has dtype {dtype.name}: must be a float, or an integer up to {_WHITE} or '
                "more, as the bakery decodes images before the network"
            )
    images = [declared[alias] for alias in split.images]
    recipe = recipe_from_images(images, model)

    def run(images: Tensor, **others: Tensor) -> NetworkOutput:
        # Through `loaded`, which keeps the variables alive; a signature alone doesn't.
        answers = loaded.signatures[name](**split.rename(images, others))
        return {output: answers[output] for output in outputs} if len(outputs) > 1 else answers[next(iter(outputs))]

    call = take_pixels(run, *images)
    shapes = [tuple(each.shape.as_list()) if each.shape.rank is not None else None for each in outputs.values()]
    shape = shapes[0] if len(shapes) == 1 else None
    recipe |= recipe_from_outputs(outputs)
    if shape == _MOVENET_OUTPUT and images[0].dtype == "int32":
        recipe |= _MOVENET
    return Network(call, recipe, output_shape=shape, others=split.others, tables=find_tables(loaded))


def _check_output(alias: str, outputs: Mapping[str, Any], owner: str) -> None:
    if alias not in outputs:
        raise SourceError(f'{owner} has no output "{alias}"; it has {listed(outputs)}: select one with --source-output')


def read_hub_module(
    model: str,
    *,
    source_signature: str | None = None,
    source_input: str | None = None,
    source_output: str | None = None,
    task: str | None = None,
) -> Network:
    """Download the module unless it is cached, and load it.

    Its task is embed if its URL or the name of its signature says that it returns a feature vector, detect if its
    outputs have the names of TensorFlow's Object Detection API, and keypoints if it is MoveNet.
    """
    folder = _resolve(model)
    loaded = load(str(folder), tags=[] if (folder / _TF1_MARKER).is_file() else None)
    is_embedder = _FEATURES_URL.match(model) is not None
    if callable(loaded) and source_signature is None and not _is_detector(loaded):
        network = _from_callable(loaded, model)
    else:
        preferred = (_FEATURES, *_SIGNATURES) if task == "embed" else _SIGNATURES
        usual = next((name for name in preferred if name in loaded.signatures), _SIGNATURES[-1])
        name = source_signature or usual
        is_embedder = is_embedder or name == _FEATURES
        signature = loaded.signatures.get(name)
        if source_output is None and signature is not None and _MAIN_OUTPUT in signature.structured_outputs:
            source_output = _MAIN_OUTPUT
        network = from_signature(loaded, model, name, source_input, source_output)
    if "task" in network.recipe:  # the convention is for classification and feature vectors
        return network
    recipe = {**_CONVENTION, **(_EMBEDDER if is_embedder else _CLASSIFIER), **network.recipe}
    return replace(network, recipe=recipe, output_shape=None)


def _is_detector(loaded: Any) -> bool:
    """Return whether a module is one of TensorFlow's Object Detection API, whose signature is complete."""
    signature = loaded.signatures.get(_SIGNATURES[-1])
    return signature is not None and bool(recipe_from_outputs(signature.structured_outputs))


def _from_callable(loaded: Any, model: str) -> Network:
    """Return the network of a module of the TF 2 format, which is called with a batch of images."""
    function = loaded.__call__
    signatures = [concrete.structured_input_signature for concrete in function.concrete_functions]
    takes_training = any("training" in kwargs or len(args) > 1 for args, kwargs in signatures)
    specs = [args[0] for args, _ in signatures if args and hasattr(args[0], "shape")]

    def run(images: Tensor) -> NetworkOutput:
        return loaded(images, training=False) if takes_training else loaded(images)

    if not specs or specs[0].shape.rank is None:
        return Network(run, tables=find_tables(loaded))
    shape, dtype = specs[0].shape.as_list(), specs[0].dtype.name
    recipe = recipe_from_shape(shape, model, dtype)
    return Network(take_pixels(run, Input(shape, dtype)), recipe, tables=find_tables(loaded))


def _resolve(model: str) -> Path:
    """Return the module's local folder; an incomplete download leaves nothing in the cache."""
    if model.startswith(HUB_PREFIX):
        return Path(model.removeprefix(HUB_PREFIX))
    try:
        if kaggle := _KAGGLE.fullmatch(model):
            import kagglehub

            return Path(kagglehub.model_download(kaggle[1].rstrip("/")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it imports pkg_resources, which is deprecated
            import tensorflow_hub

        return Path(tensorflow_hub.resolve(model))
    except Exception as error:  # errors of two libraries and of the network
        reason = str(error) or type(error).__name__
        raise SourceError(
            f"cannot download {model} from {urlsplit(model).hostname}: {reason}; download it where that host can be "
            "reached, unpack it, and pass its folder as hub:FOLDER"
        ) from error
