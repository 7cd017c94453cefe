"""Compares the answers of a SavedModel with those of a network on the same pixels.

The network is the source's own, or the ONNX model that it was converted from. Knows onnxruntime; imports it when an
ONNX model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE
from savedmodel_bakery.errors import SourceError, VerificationError
from savedmodel_bakery.exporter.image.pixels import normalise
from savedmodel_bakery.exporter.network_inputs import listed
from savedmodel_bakery.exporter.network_outputs import assign_roles, role_of
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.recipe.model import parse_names
from savedmodel_bakery.exporter.tasks.task import NetworkResult, Task, Tolerance
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch
from savedmodel_bakery.exporter.validation import reference
from savedmodel_bakery.exporter.validation.session import PhotoResponse
from savedmodel_bakery.extras import naming_extras

# The axes of [images, height, width, channels] in the order of the layout. PyTorch's comes first: it is chosen for an
# input that fits both because it doesn't declare its sizes.
_LAYOUTS = {"NCHW": (0, 3, 1, 2), "NHWC": (0, 1, 2, 3)}
_TO_NHWC = (0, 2, 3, 1)
_FATAL = 4  # level of onnxruntime's log; its errors are exceptions too

ROUNDING = Tolerance(atol=1e-5, rtol=1e-4, share=0.999, iou=0.99)
"""Two runs of the same network differ in the order of additions; a wrong network differs by far more."""

CONVERSION = Tolerance(atol=1e-4, rtol=1e-3, share=0.99, iou=0.95)
"""Two runtimes differ by about 0.00001 in a probability; a faulty conversion differs by far more.

The parts that a task's own tolerance doesn't have are not used.
"""


class OnnxModel:
    """A loaded ONNX model. Its input is NCHW, as PyTorch exports it, or NHWC.

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
        if recipe.answers.task != "regress":  # several of its outputs are joined, which names can't be
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
        if name is None and recipe.answers.task == "regress" and recipe.answers.output_names:
            return {each: by_name[each] for each in parse_names(recipe.answers.output_names) if each in by_name}
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


class Original(NamedTuple):
    """A network that a SavedModel must agree with; `call` runs it on a batch of one image."""

    name: str  # for messages
    call: Callable[..., NetworkOutput]
    tolerance: Tolerance
    advice: str  # the end of the message about a larger difference


def source_network(call: Callable[..., NetworkOutput], recipe: Recipe, parity: Tolerance) -> Original:
    """Return the network of the source, without optimisation; with 16-bit precision, its tolerance is `parity`."""
    precision = recipe.optimisation.precision
    if precision != "float32":
        advice = f"; allow more with --parity-atol, or bake with --precision float32 instead of {precision}"
        return Original("the network", call, parity, advice)
    advice = "; --optimise none bakes the network unchanged" if recipe.optimisation.steps else ""
    return Original("the network", call, ROUNDING, advice)


def onnx_network(
    call: Callable[[NormalisedBatch], NetworkOutput],
    recipe: Recipe,
    task: Task,
    stated: Mapping[str, float | None],
) -> Original:
    """Return the ONNX model that the network was converted from; `stated` has the stated parts of the tolerance."""
    is_float32 = recipe.optimisation.precision == "float32"
    default = CONVERSION.limited_to(task.tolerance) if is_float32 else task.tolerance
    advice = (
        "; the network was converted incorrectly, or from another ONNX model. If the difference is intended, allow "
        "more with --parity-atol, or for maps and boxes with --parity-share"
    )
    return Original("the ONNX model", call, default.replaced(**stated), advice)


@dataclass(frozen=True)
class Agreement:
    """How the SavedModel's answers compare with the network's.

    Attributes:
        photos: the number of photos that were compared.
        max_difference: the largest difference of an answer, in the measure of the task.
    """

    photos: int
    max_difference: float

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.photos + other.photos, max(self.max_difference, other.max_difference))


def run_network(
    network: Callable[..., NetworkOutput],
    normalised: np.ndarray,
    recipe: Recipe,
    others: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> dict[str, np.ndarray]:
    """Run the network on one image, `normalised` float32 [height, width, channels]; return the outputs by role.

    The `others` are the values of other inputs, without the batch axis; a second image is normalised too.
    """
    image, *values = (tf.constant(array[np.newaxis]) for array in (normalised, *others.values()))
    outputs = {}
    for role, output in assign_roles(network(image, **dict(zip(others, values, strict=True))), recipe).items():
        (array,) = np.asarray(tf.cast(output, tf.float32))
        own_role, of_head = role_of(role, recipe)
        if own_role == "vector" and of_head.answers.task != "tensors":
            array = array.mean(axis=(0, 1)) if array.ndim == 3 else array.reshape(-1)
        if not np.isfinite(array).all():
            raise VerificationError("the network returns values that are not finite (NaN or infinity) for a photo")
        outputs[role] = np.asarray(array)
    return outputs


def network_result(network: Callable[..., NetworkOutput], response: PhotoResponse, recipe: Recipe) -> NetworkResult:
    """Run the network on the pixels that the graph made of a photo, and of its second one."""
    others = dict(response.others.arrays)
    if response.second_pixels is not None:
        (others[SECOND_IMAGE],) = np.asarray(normalise(response.second_pixels[np.newaxis], recipe.second_preprocessing))
    (normalised,) = np.asarray(normalise(response.pixels[np.newaxis], recipe.preprocessing))
    size = reference.upright_size(response.photo, recipe.preprocessing)
    return NetworkResult(run_network(network, normalised, recipe, others), size)


def check_agreement(responses: Sequence[PhotoResponse], original: Original, recipe: Recipe, task: Task) -> Agreement:
    """Reject a SavedModel whose responses to readable photos differ from a network's outputs for the same pixels."""
    differences = []
    for response in responses:
        result = network_result(original.call, response, recipe)
        comparison = task.compare(response.answers, result, original.tolerance)
        if not comparison.is_within:
            allowed = original.tolerance.describe_for(task.tolerance)
            raise VerificationError(
                f"on {response.photo.name} the SavedModel answers {comparison.answer}, {original.name} "
                f"{comparison.expected}: {task.measure} {comparison.difference:.3g} (allowed: {allowed})"
                f"{original.advice}"
            )
        differences.append(comparison.difference)
    return Agreement(len(responses), max(differences))
