"""Bakes a function: traces it, validates it and publishes it.

function, inputs ─► traced ─► staged SavedModel ─► outputs in a fresh process = outputs of the function ─► version
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tomli_w

from savedmodel_bakery.exporter import publish
from savedmodel_bakery.exporter.function.function_module import Function, FunctionModule
from savedmodel_bakery.exporter.function.inputs import Input, check_names
from savedmodel_bakery.exporter.function.validate import validate_function
from savedmodel_bakery.exporter.sources.function import import_callable
from savedmodel_bakery.exporter.validation.session import SessionProcess


def bake_function(
    *,
    base_path: Path,
    name: str,
    inputs: Sequence[Input],
    version: int | None = None,
    example: Mapping[str, np.ndarray] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Bake the function that `package.module:callable` names into a new version under `base_path`.

    Args:
        base_path: the folder of the numbered versions.
        name: of the function.
        inputs: one or more.
        version: its number; None is the next one.
        example: inputs by alias to validate it with; None generates some.
        progress: called with each step, in a few words.

    Returns:
        The version's folder.

    Raises:
        RecipeError: the inputs or the example are not usable.
        SourceError: the function can't be imported, traced, run or saved.
        VerificationError: the SavedModel's outputs differ from the function's.
        PublishError: the version exists, or can't be written.
    """
    publish.check_free(base_path, version)
    check_names(inputs)
    progress(f"loading {name}")
    function = Function(import_callable(name), inputs)
    with SessionProcess() as session:
        progress("tracing it")
        module = FunctionModule(function, inputs, name)

        def validate(version_folder: Path) -> None:
            progress("verifying it in a fresh process")
            validate_function(version_folder, session, function, inputs, base_path.name, example)

        description = tomli_w.dumps({"function": name, "inputs": [str(declared) for declared in inputs]})
        path, _ = publish.publish_version(
            base_path,
            version,
            save=module.save,
            description=(publish.FUNCTION_FILE, description),
            validate=validate,
        )
    return path
