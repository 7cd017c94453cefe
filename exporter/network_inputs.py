"""The inputs of a network: which of them are images, and what the others take. Imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from savedmodel_bakery.answers.other_inputs import IMAGE, SECOND_IMAGE, SECOND_PIXELS
from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.tensor_types import Tensor

_SIGNATURE_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)  # other names would be changed by TensorFlow
_TAKEN = {IMAGE, SECOND_IMAGE, "pixels", SECOND_PIXELS}
_NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|b?float16|float32|float64")
STRING = "string"


class Input(NamedTuple):
    """An input of a network."""

    shape: Sequence[int | None] | None  # with the batch axis; None is any size
    dtype: str  # TensorFlow's name

    @property
    def takes_images(self) -> bool:
        """Whether it looks like one for images: four axes, of which the second or the last are channels."""
        shape = self.shape
        is_number = self.dtype not in (STRING, "bool")
        return is_number and shape is not None and len(shape) == 4 and not {1, 3}.isdisjoint((shape[1], shape[3]))


class OtherInput(NamedTuple):
    """An input beside the image."""

    shape: tuple[int, ...]  # of the value for one photo
    dtype: str  # TensorFlow's name

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


OtherInputs = Mapping[str, OtherInput]
"""The inputs beside the image by name; that of a second image is `SECOND_IMAGE`, of its size in the network."""


class Split(NamedTuple):
    """The inputs of a network by what they are."""

    images: tuple[str, ...]  # one or two names
    others: OtherInputs

    def rename(self, image: Tensor, others: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors by the network's own names, given the image and those beside it by `others`."""
        return {
            self.images[0]: image,
            **{self.images[1] if name == SECOND_IMAGE else name: value for name, value in others.items()},
        }


def split_inputs(inputs: Mapping[str, Input], stated: str | None, owner: str) -> Split:
    """Return which of a network's inputs are images; `stated` names one, or two with a comma.

    Raises:
        SourceError: that is not clear, or an input is none that a signature can have.
    """
    images = _image_names(inputs, stated, owner)
    first = inputs[images[0]]
    others: dict[str, OtherInput] = {}
    for name, declared in inputs.items():
        if name == images[0]:
            continue
        if name in images:
            if first.shape is None or declared.shape is None or first.shape[:1] != declared.shape[:1]:
                raise SourceError(
                    f'{owner} takes images {_shown(first)} as "{images[0]}" and {_shown(declared)} as "{name}": two '
                    "images must have known shapes and the same number of images"
                )
            others[SECOND_IMAGE] = OtherInput(tuple(side or 0 for side in declared.shape[1:]), declared.dtype)
        else:
            others[name] = _other(name, declared, first, owner)
    return Split(images, others)


def _image_names(inputs: Mapping[str, Input], stated: str | None, owner: str) -> tuple[str, ...]:
    if stated is None:
        names = list(inputs) if len(inputs) == 1 else [name for name, each in inputs.items() if each.takes_images]
        if len(names) != 1:
            raise SourceError(
                f"{owner} has several inputs, {listed(inputs)}: select the image with --source-input NAME, or two "
                "images with --source-input NAME,NAME"
            )
        return tuple(names)
    names = [name.strip() for name in stated.split(",")]
    for name in names:
        if name not in inputs:
            raise SourceError(
                f'{owner} has no input "{name}"; it has {listed(inputs)}: select one with --source-input, or two '
                "images with a comma"
            )
    if len(names) > 2 or len(set(names)) < len(names):
        raise SourceError(f"invalid source_input {stated!r}: must be the name of one image, or of two with a comma")
    return tuple(names)


def _other(name: str, declared: Input, image: Input, owner: str) -> OtherInput:
    if not _SIGNATURE_NAME.fullmatch(name) or name in _TAKEN:
        raise SourceError(
            f'{owner} has an input "{name}": must be a letter, then letters, digits or _, other than '
            f"{', '.join(sorted(_TAKEN))}; rename it in the network"
        )
    if declared.dtype != STRING and not _NUMBERS.fullmatch(declared.dtype):
        raise SourceError(f'input "{name}" of {owner} has dtype {declared.dtype}: must be numbers, bool or string')
    batch = None if image.shape is None else image.shape[0]
    if not declared.shape or None in declared.shape[1:] or declared.shape[0] != batch:
        raise SourceError(
            f'input "{name}" of {owner} is {_shown(declared)}: beside an image {_shown(image)}, it must have a row for '
            "each image, and a fixed size apart from that"
        )
    return OtherInput(tuple(size or 0 for size in declared.shape[1:]), declared.dtype)


def _shown(declared: Input) -> str:
    shape = declared.shape
    sizes = "unknown" if shape is None else ", ".join("?" if size is None else str(size) for size in shape)
    return f"{declared.dtype} [{sizes}]"


def listed(names: Iterable[str]) -> str:
    """Return names in quotes, for messages."""
    return ", ".join(f'"{name}"' for name in sorted(names))
