"""Reads the values of a model's inputs beside photos from arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savedmodel_bakery.client.commands.predict import read_file
from savedmodel_bakery.exits import as_usage_error

if TYPE_CHECKING:
    import numpy as np

    from savedmodel_bakery.answers.other_inputs import Specs
    from savedmodel_bakery.answers.signatures import TensorSpec


def read_inputs(arguments: Sequence[str], specs: Specs, photos: int) -> list[dict[str, np.ndarray]]:
    """Return the inputs beside each photo, with one row, from arguments of the form NAME=FILE or NAME=JSON."""
    from savedmodel_bakery.answers.other_inputs import stack_values

    values: dict[str, list[Any]] = {alias: [] for alias in specs}
    with as_usage_error(ValueError):
        for argument in arguments:
            alias, separator, text = argument.partition("=")
            if not separator or alias not in specs:
                allowed = ", ".join(specs) or "none"
                raise ValueError(
                    f"invalid --input {argument}: must be NAME=FILE or NAME=JSON; the inputs are {allowed}"
                )
            values[alias].append(_read_value(alias, text, specs[alias]))
        for alias, rows in values.items():
            if len(rows) != photos:
                raise ValueError(
                    f"--input {alias}=… was given {len(rows)} times: must be {photos}, once for each photo"
                )
        return [
            stack_values([{alias: rows[place] for alias, rows in values.items()}], specs) for place in range(photos)
        ]


def _read_value(alias: str, text: str, spec: TensorSpec) -> Any:
    from savedmodel_bakery.answers.images import convert_photo
    from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE, parse_value
    from savedmodel_bakery.client.commands.array_files import read_input

    if alias == SECOND_IMAGE:
        return convert_photo(read_file(text, "photo"))
    if Path(text).is_file():
        return read_input(alias, read_file(text, "input"), text)[alias]
    return parse_value(alias, text, spec)
