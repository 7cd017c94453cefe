"""Example inputs of a pipeline, for verification and goldens: photos for images, generated arrays for others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from savedmodel_bakery.exporter.function.inputs import Input, check_example, generate_array, generate_arrays
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline
from savedmodel_bakery.exporter.validation.goldens import NOT_AN_IMAGE
from savedmodel_bakery.exporter.validation.session import read_photo
from savedmodel_bakery.wire import dtypes

_IMAGE = "image"


@dataclass(frozen=True)
class Example:
    """Inputs of one request."""

    inputs: dict[str, np.ndarray]
    has_bad_image: bool = False  # whether one of its images is not an image, which the pipeline may reject


def make_examples(
    checked: CheckedPipeline, photos: Sequence[Path], example: Mapping[str, np.ndarray] | None
) -> Iterator[Example]:
    """Return example inputs of a pipeline, made one by one, because photos may take more memory than there is.

    Args:
        checked: the pipeline.
        photos: for inputs of text that a step takes as `image`.
        example: inputs by name, to be used instead of photos and generated arrays.

    Raises:
        RecipeError: the example does not fit the inputs of the pipeline.
        ParityError: a photo can't be read.
    """
    inputs = [_declared(checked, name) for name in checked.pipeline.inputs]
    if example is not None:
        return iter([Example(check_example(example, inputs))])
    taken = {step.step.input_map.get(_IMAGE) for step in checked.steps}
    images = {declared.alias for declared in inputs if declared.alias in taken and declared.dtype == dtypes.STRING}
    if not images:
        return map(Example, generate_arrays(inputs))
    return _photo_examples(inputs, images, sorted(photos, key=lambda photo: len(read_photo(photo))))


def _photo_examples(inputs: Sequence[Input], images: Collection[str], photos: Sequence[Path]) -> Iterator[Example]:
    """Yield the smallest photo together with a text that is not an image, then each photo."""
    generator = np.random.default_rng(0)

    def fill(*contents: bytes) -> dict[str, np.ndarray]:
        return {
            declared.alias: _repeated(declared, contents)
            if declared.alias in images
            else generate_array(declared, len(contents), generator)
            for declared in inputs
        }

    yield Example(fill(read_photo(photos[0]), NOT_AN_IMAGE), has_bad_image=True)
    for photo in photos:
        yield Example(fill(read_photo(photo)))


def _declared(checked: CheckedPipeline, name: str) -> Input:
    form = checked.tensors[name]
    shape = None if form.shape is None else tuple(None if size < 0 else size for size in form.shape)
    return Input(name, dtypes.BY_NAME[form.dtype], shape)


def _repeated(declared: Input, contents: Sequence[bytes]) -> np.ndarray:
    """Return an array that fits an input, filled with the contents in turn."""
    sizes = (None,) if declared.shape is None else declared.shape
    shape = tuple(len(contents) if size is None else size for size in sizes)
    return np.resize(np.array(contents, object), shape)
