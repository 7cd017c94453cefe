"""Bake a function: published and checked as classifiers are.

function, inputs ─► traced ─► staged SavedModel ─► answers of a fresh Session = answers of the function ─► version
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tomli_w

from savedmodel_bakery.exporter import publish
from savedmodel_bakery.exporter.function.inputs import Input, check_names
from savedmodel_bakery.exporter.function.servable_module import Function, ServableModule
from savedmodel_bakery.exporter.function.validate import prove
from savedmodel_bakery.exporter.sources.function import import_callable


def bake_function(
    *,
    base_path: Path,
    name: str,
    inputs: Sequence[Input],
    version: int | None = None,
    example: Mapping[str, np.ndarray] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Bake what `package.module:callable` names into a new version under `base_path`.

    Args:
        base_path: the folder that holds the numbered versions.
        name: of the function.
        inputs: one or more.
        version: its number; None is the next.
        example: inputs by alias to check it with; None makes some up.
        progress: told what is being done, in a few words.

    Returns:
        The version's folder.

    Raises:
        BakeError: it was refused, and nothing was published.
    """
    publish.check_free(base_path, version)
    check_names(inputs)
    progress(f"loading {name}")
    function = Function(import_callable(name), inputs)
    progress("tracing it")
    module = ServableModule(function, inputs, name)
    with publish.staging(base_path) as stage:
        staged = stage / "version"
        module.save(staged)
        (staged / publish.FUNCTION_FILE).parent.mkdir()
        (staged / publish.FUNCTION_FILE).write_text(
            tomli_w.dumps({"function": name, "inputs": [str(given) for given in inputs]})
        )
        progress("verifying it in a fresh process")
        prove(staged, function, inputs, base_path.name, example)
        return publish.publish(staged, base_path, version)
