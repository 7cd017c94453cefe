"""Bakes a function: traces it, validates it and publishes it.

function, inputs ─► traced ─► staged SavedModel ─► outputs in a fresh process = outputs of the function ─► version
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tomli_w

from savedmodel_bakery.errors import RecipeError, SourceError, VerificationError
from savedmodel_bakery.exporter import publish
from savedmodel_bakery.exporter.function.function_module import (
    INEXACT,
    SIGNATURE,
    Function,
    FunctionModule,
    Input,
    check_example,
    generate_arrays,
)
from savedmodel_bakery.exporter.sources.user_model import import_callable
from savedmodel_bakery.exporter.tensor_types import Tensor
from savedmodel_bakery.exporter.validation.goldens import write_goldens
from savedmodel_bakery.exporter.validation.session import SessionProcess, decode_outputs, predict_request
from savedmodel_bakery.storage.folders import check_free, writing
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.tensors import as_array

# Two runs of the same operations differ in the order of additions, by at most this part of a number.
_RTOLS = dict(zip(INEXACT, (1e-2, 5e-2, 1e-4, 1e-9, 1e-4, 1e-9), strict=True))
_ATOL = 1e-6


def bake_function(
    *,
    base_path: Path,
    name: str,
    inputs: Sequence[Input],
    version: int | None = None,
    example: Mapping[str, np.ndarray] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Bake the function that `package.module:callable` names as a version under `base_path`; return its folder."""
    check_free(base_path, version)
    aliases = [declared.alias for declared in inputs]
    if repeated := sorted({alias for alias in aliases if aliases.count(alias) > 1}):
        raise RecipeError(f"duplicate input {repeated[0]}: input names must be unique")
    progress(f"loading {name}")
    function = Function(import_callable(name), inputs)
    with SessionProcess() as session:
        progress("tracing it")
        module = FunctionModule(function, inputs, name)

        def validate(version_folder: Path) -> None:
            progress("verifying it in a fresh process")
            _validate(version_folder, session, function, inputs, base_path.name, example)

        description = tomli_w.dumps({"function": name, "inputs": [str(declared) for declared in inputs]})
        path, _ = publish.publish_version(
            base_path,
            version,
            save=module.save,
            description=(publish.FUNCTION_FILE, description),
            validate=validate,
        )
    return path


def _validate(
    version: Path,
    session: SessionProcess,
    function: Function,
    inputs: Sequence[Input],
    model_name: str,
    example: Mapping[str, np.ndarray] | None,
) -> None:
    """Compare the outputs of a staged version with those of the function, and write goldens into the version."""
    calls = [check_example(example, inputs)] if example is not None else list(generate_arrays(inputs))
    try:
        expected = [
            {alias: as_array(tensor.numpy()) for alias, tensor in function(_to_tensors(arrays, inputs)).items()}
            for arrays in calls
        ]
    except SourceError as error:
        if example is not None:
            raise
        raise SourceError(
            f"{error} (the inputs were generated; pass inputs that it accepts with --example FILE.npz)"
        ) from error
    logs = session.run(version, [predict_request(SIGNATURE, arrays) for arrays in calls])
    tolerances: dict[str, float] = {}
    for log, expected_outputs in zip(logs, expected, strict=True):
        outputs = decode_outputs(log)
        for alias, array in expected_outputs.items():
            tolerance = _compare(alias, array, outputs[alias])
            if tolerance is not None:
                tolerances[alias] = max(tolerance, tolerances.get(alias, 0.0))
    with writing(version):
        write_goldens(version, model_name, logs, tolerances, warm_up={SIGNATURE})


def _compare(alias: str, expected: np.ndarray, output: np.ndarray) -> float | None:
    """Check an output; return the absolute difference to allow later, None for a dtype whose values must be equal."""
    if expected.shape != output.shape:
        raise VerificationError(
            f"the SavedModel's output \"{alias}\" has the shape {list(output.shape)}, the function's "
            f"{list(expected.shape)}"
        )
    rtol = _RTOLS.get(dtypes.of_array(output).name)
    tolerance = None
    if rtol is None:
        agrees = np.array_equal(output, expected)
    else:
        numbers = output.astype(np.complex128)
        agrees = np.allclose(numbers, expected.astype(np.complex128), rtol=rtol, atol=_ATOL, equal_nan=True)
        tolerance = _ATOL + rtol * float(np.max(np.abs(np.nan_to_num(numbers)), initial=0.0))
    if not agrees:
        raise VerificationError(
            f"the SavedModel's output \"{alias}\" differs from the function's for the same inputs; a function whose "
            "outputs are random, or depend on state in Python, cannot be baked"
        )
    return tolerance


def _to_tensors(arrays: Mapping[str, np.ndarray], inputs: Sequence[Input]) -> dict[str, Tensor]:
    return {
        declared.alias: tf.constant(
            arrays[declared.alias].tolist() if declared.dtype is dtypes.STRING else arrays[declared.alias],
            tf.as_dtype(declared.dtype.number),
            shape=arrays[declared.alias].shape,
        )
        for declared in inputs
    }
