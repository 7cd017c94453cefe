"""Runs the ONNX model that a network was converted from, on the pixels that the network receives.

Its input is NCHW, as PyTorch exports it, or NHWC. Knows onnxruntime; imports it when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.network_outputs import assign_roles
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.sources.network import listed
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch
from savedmodel_bakery.extras import naming_extras

# The axes of [images, height, width, channels] in the order of the layout. PyTorch's comes first: it is chosen for an
# input that fits both because it doesn't declare its sizes.
_LAYOUTS = {"NCHW": (0, 3, 1, 2), "NHWC": (0, 1, 2, 3)}
_TO_NHWC = (0, 2, 3, 1)
_FATAL = 4  # level of onnxruntime's log; its errors are exceptions too


class OnnxModel:
    """A loaded ONNX model.

    Raises:
        SourceError: the file doesn't exist, is not an ONNX model, or has several inputs.
        MissingPackageError: onnxruntime is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        if not path.is_file():
            raise SourceError(f"file not found: {path}")
        with naming_extras("--reference", "export", "onnx"):
            import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common base
            raise SourceError(f"cannot load {path} as an ONNX model: {error}") from error
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise SourceError(f"{self.name} has {len(inputs)} inputs: must have one, for a batch of images")
        (self._input,) = inputs
        self._output_names = [output.name for output in self._session.get_outputs()]

    def network(self, recipe: Recipe) -> Callable[[NormalisedBatch], NetworkOutput]:
        """Return a function that runs the model on one normalised image [1, height, width, channels].

        Its outputs are those that the network returns for `recipe`: with 4 axes, they are NHWC.
        """
        layout = self._layout(recipe)
        try:
            assign_roles(self._select(self._output_names, recipe), recipe)
        except SourceError as error:
            raise SourceError(f"{self.name}: {error}") from error

        def call(normalised: NormalisedBatch) -> NetworkOutput:
            image = np.asarray(normalised).transpose(_LAYOUTS[layout])
            try:
                outputs = self._session.run(self._output_names, {self._input.name: image})
            except Exception as error:  # its errors have no common base
                raise SourceError(f"{self.name} does not accept an image {list(image.shape)}: {error}") from error
            if layout == "NCHW":
                outputs = [output.transpose(_TO_NHWC) if output.ndim == 4 else output for output in outputs]
            return self._select(outputs, recipe)

        return call

    def _layout(self, recipe: Recipe) -> str:
        """Return the layout in which the input of the model takes images of the recipe's size."""
        height, width = recipe.preprocessing.size
        image = np.array([1, height, width, 1 if recipe.preprocessing.channels == "GRAY" else 3])
        shapes = {layout: image[list(axes)].tolist() for layout, axes in _LAYOUTS.items()}
        if self._input.type == "tensor(float)":
            for layout, shape in shapes.items():
                if _accepts(self._input.shape, shape):
                    return layout
        allowed = " or ".join(f"{shape} ({layout})" for layout, shape in shapes.items())
        raise SourceError(
            f"{self.name} takes {self._input.type} {self._input.shape}: must take tensor(float) {allowed}, as the "
            "recipe prepares images; the batch may have any size"
        )

    def _select(self, outputs: Sequence[Any], recipe: Recipe) -> Any:
        """Return the output of the recipe, or all by name; converters name them output_0, output_1 and so on."""
        if len(outputs) == 1 and recipe.answers.task != "detect":
            return outputs[0]
        numbered = {f"output_{number}": output for number, output in enumerate(outputs)}
        by_name = {**numbered, **dict(zip(self._output_names, outputs, strict=True))}
        name = recipe.source.source_output
        if name is None:
            return by_name
        if name not in by_name:
            raise SourceError(f"no output {name!r}; the model has {listed(self._output_names)}")
        return by_name[name]


def _accepts(declared: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    """Return whether an input declares a shape; a size that is a name or None is any."""
    return len(declared) == len(shape) and all(
        not isinstance(size, int) or size == wanted for size, wanted in zip(declared, shape, strict=True)
    )
