"""TensorFlow is imported without changing the process of its caller."""

from __future__ import annotations

import gc
import importlib
import sys

import pytest

from savedmodel_bakery.tensorflow_import import import_tensorflow


@pytest.mark.parametrize("is_enabled", [True, False], ids=["on", "off"])
def test_the_collection_of_garbage_stays_on_or_off(is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        tensorflow = import_tensorflow(without=())
        assert tensorflow is sys.modules["tensorflow"]
        assert is_enabled == gc.isenabled()
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_packages_that_it_did_without_can_be_imported_afterwards() -> None:
    sys.modules.pop("colorsys", None)
    import_tensorflow(without=("colorsys",))
    assert "colorsys" == importlib.import_module("colorsys").__name__
