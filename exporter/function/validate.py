"""What is proven of a baked function: a fresh Session answers as the function itself does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.errors import SourceError, VerificationError
from savedmodel_bakery.exporter.function.inputs import INEXACT, Input, check_example, make_up
from savedmodel_bakery.exporter.function.servable_module import SIGNATURE, Function
from savedmodel_bakery.exporter.validation import goldens
from savedmodel_bakery.exporter.validation import requests as questions
from savedmodel_bakery.wire import dtypes

# Two runs of the same operations differ in the order of additions: by this part of a number at most.
_RTOLS = dict(zip(INEXACT, (1e-2, 5e-2, 1e-4, 1e-9, 1e-4, 1e-9), strict=True))
_ATOL = 1e-6


def prove(
    version: Path,
    function: Function,
    inputs: Sequence[Input],
    model: str,
    example: Mapping[str, np.ndarray] | None,
) -> None:
    """Compare what a staged version answers in a fresh Session with what the function gives, and write its goldens.

    Args:
        version: its folder, which has an `assets.extra`.
        function: what was baked.
        inputs: what it takes.
        model: the name it will be served under.
        example: inputs by alias; None makes some up.

    Raises:
        SourceError: the function fails on them.
        VerificationError: the SavedModel can't be loaded or run, or answers otherwise.
    """
    asked = [check_example(example, inputs)] if example is not None else list(make_up(inputs))
    try:
        expected = [
            {alias: tensor.numpy() for alias, tensor in function(_as_tensors(feeds, inputs)).items()} for feeds in asked
        ]
    except SourceError as error:
        if example is not None:
            raise
        raise SourceError(
            f"{error} (inputs were made up for this; give some that it takes as --example FILE.npz)"
        ) from error
    answered = questions.ask(version, [questions.predict(SIGNATURE, feeds) for feeds in asked])
    tolerances: dict[str, float] = {}
    for log, wanted in zip(answered, expected, strict=True):
        found = questions.outputs_of(log)
        for alias, array in wanted.items():
            _compare(alias, np.asarray(array), found[alias])
            if _is_inexact(found[alias]):
                largest = float(np.max(np.abs(np.nan_to_num(found[alias].astype(np.complex128))), initial=0.0))
                allowed = _ATOL + _rtol(found[alias]) * largest
                tolerances[alias] = max(allowed, tolerances.get(alias, 0.0))
    goldens.write(version, model, answered, tolerances=tolerances)


def _compare(alias: str, wanted: np.ndarray, found: np.ndarray) -> None:
    if wanted.shape != found.shape:
        raise VerificationError(
            f"the SavedModel's \"{alias}\" has the shape {list(found.shape)}, the function's {list(wanted.shape)}"
        )
    if _is_inexact(found):
        wide = np.complex128
        agrees = np.allclose(found.astype(wide), wanted.astype(wide), rtol=_rtol(found), atol=_ATOL, equal_nan=True)
    else:
        agrees = bool(np.array_equal(found, wanted))
    if not agrees:
        raise VerificationError(
            f"the SavedModel's \"{alias}\" differs from the function's for the same inputs; a function whose answers "
            "are random, or hang on something in Python, cannot be baked"
        )


def _is_inexact(array: np.ndarray) -> bool:
    return dtypes.of_array(array).name in _RTOLS


def _rtol(array: np.ndarray) -> float:
    return _RTOLS[dtypes.of_array(array).name]


def _as_tensors(feeds: Mapping[str, np.ndarray], inputs: Sequence[Input]) -> dict[str, Any]:
    return {
        given.alias: tf.constant(
            feeds[given.alias].tolist() if given.dtype is dtypes.STRING else feeds[given.alias],
            tf.as_dtype(given.dtype.number),
            shape=feeds[given.alias].shape,
        )
        for given in inputs
    }
