"""How far the answers of a SavedModel may differ from those of the ONNX model that its network was converted from."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks.task import Task, Tolerance
from savedmodel_bakery.exporter.tasks.unlabelled import Regress
from savedmodel_bakery.exporter.validation.agreement import CONVERSION, onnx_network

# Of CONVERSION, the parts that task regress has.
REGRESS = Tolerance(atol=CONVERSION.atol, rtol=CONVERSION.rtol)

TOLERANCES = {
    "default": ("float32", {"atol": None, "rtol": None}, REGRESS),
    "stated": ("float32", {"atol": 0.5, "rtol": None}, REGRESS.replaced(atol=0.5)),
    "16 bits": ("bfloat16", {"atol": None, "rtol": None}, Regress.tolerance),
    "16 bits, stated": ("bfloat16", {"atol": 0.5, "rtol": None}, Regress.tolerance.replaced(atol=0.5)),
}


@pytest.mark.parametrize(("precision", "stated", "expected"), TOLERANCES.values(), ids=TOLERANCES)
def test_the_tolerance_is_that_of_conversions_or_the_tasks_and_parts_of_it_can_be_stated(
    precision: str, stated: dict[str, float | None], expected: Tolerance, recipe_of: Callable[..., Recipe]
) -> None:
    task: Task = Regress(("value",))
    recipe = recipe_of(precision=precision)
    assert expected == onnx_network(lambda pixels: pixels, recipe, task, stated).tolerance
