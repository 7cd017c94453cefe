"""Runs a model in ONNX, from which a SavedModel was converted, as the network that it must agree with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch
from savedmodel_bakery.extras import naming_extras

_CHANNELS = (1, 3)


@dataclass(frozen=True)
class OnnxModel:
    """A model in ONNX.

    Attributes:
        name: of its file.
        session: an `onnxruntime.InferenceSession`.
        has_channels_first: whether images are [batch, channels, height, width]; outputs with four axes then are too.
    """

    name: str
    session: Any
    has_channels_first: bool

    def call(self, pixels: NormalisedBatch) -> NetworkOutput:
        """Run the model on a normalised batch, [batch, height, width, channels].

        Returns:
            Its output, or a dict of them by name; channels last.

        Raises:
            SourceError: it can't be run, for example because it takes images of another size.
        """
        images = np.asarray(pixels)
        if self.has_channels_first:
            images = images.transpose(0, 3, 1, 2)
        try:
            outputs = self.session.run(None, {self.session.get_inputs()[0].name: images})
        except Exception as error:  # its errors have no common class
            raise SourceError(f"cannot run {self.name} on images {images.shape}: {error}") from error
        by_name = {
            output.name: value.transpose(0, 2, 3, 1) if self.has_channels_first and value.ndim == 4 else value
            for output, value in zip(self.session.get_outputs(), outputs, strict=True)
        }
        return by_name if len(by_name) > 1 else next(iter(by_name.values()))


def load_onnx(path: Path) -> OnnxModel:
    """Load a model that takes one batch of float32 images.

    Raises:
        SourceError: the file doesn't exist, isn't valid, or the model takes something else.
        MissingPackageError: onnxruntime is not installed.
    """
    if not path.is_file():
        raise SourceError(f"file not found: {path}")
    with naming_extras("--reference", "onnx"):
        import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common class
        raise SourceError(f"onnxruntime {onnxruntime.__version__} cannot load {path}: {error}") from error
    inputs = session.get_inputs()
    taken = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
    shape: list[Any] = inputs[0].shape if len(inputs) == 1 and inputs[0].type == "tensor(float)" else []
    if len(shape) != 4 or not {shape[1], shape[3]} & {*_CHANNELS}:
        raise SourceError(
            f"{path} takes {taken}: must be one batch of float32 images, [batch, channels, height, width] or [batch, "
            "height, width, channels] with 1 or 3 channels"
        )
    return OnnxModel(path.name, session, has_channels_first=shape[3] not in _CHANNELS)
