"""Inputs of a model beside the image: their values for photos, as arrays with a row per photo. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from savedmodel_bakery.answers.images import encode_images
from savedmodel_bakery.answers.signatures import TensorSpec, as_array
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import StatusError

IMAGE = "image"

SECOND_IMAGE = "image_2"
"""The second image of models that take two, whatever the network calls it."""

SECOND_PIXELS = "pixels_2"
"""The second image of the signature `pixels`."""

Specs = Mapping[str, TensorSpec]


def other_inputs(inputs: Specs) -> dict[str, TensorSpec]:
    """Return the inputs of a signature beside the image."""
    return {alias: spec for alias, spec in inputs.items() if alias != IMAGE}


def parse_value(alias: str, text: str, spec: TensorSpec) -> Any:
    """Return the value of an input for one photo: one text is taken as it is, others are JSON. Raises ValueError."""
    if spec.dtype is dtypes.STRING and spec.shape is not None and len(spec.shape) == 1:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f'invalid input "{alias}" {text!r:.60}: must be JSON, as it is {spec}') from exc


def photo_inputs(photos: Sequence[tuple[bytes, Mapping[str, Any]]], specs: Specs) -> dict[str, np.ndarray]:
    """Return the inputs for photos, each with its other values; see `stack_values`."""
    return {
        **encode_images([image for image, _ in photos]),
        **stack_values([values for _, values in photos], specs),
    }


def stack_values(photos: Sequence[Mapping[str, Any]], specs: Specs) -> dict[str, np.ndarray]:
    """Return the inputs with a row per photo, from their values for each photo; texts become bytes.

    Raises ValueError if one is missing, unknown, or doesn't fit.
    """
    for values in photos:
        if values.keys() != specs.keys():
            raise ValueError(f"the inputs are {_listed(values)} beside the image: must be {_listed(specs)}")
    arrays = {}
    for alias, spec in specs.items():
        rows = [values[alias] for values in photos]
        try:
            array = as_array(alias, rows, spec)
            if not spec.admits(array):
                shape = ",".join(map(str, array.shape))
                raise ValueError(f'input "{alias}" is {array.dtype}[{shape}] for {len(photos)} photos: must be {spec}')
            if spec.dtype is dtypes.STRING:
                array = dtypes.object_array([dtypes.as_bytes(text) for text in array.flat]).reshape(array.shape)
        except (RequestRefusedError, StatusError) as exc:  # an element type that tensors lack
            raise ValueError(f'invalid input "{alias}": {exc.message}') from exc
        arrays[alias] = array
    return arrays


def _listed(aliases: Mapping[str, Any]) -> str:
    return ", ".join(f'"{alias}"' for alias in sorted(aliases)) or "none"
