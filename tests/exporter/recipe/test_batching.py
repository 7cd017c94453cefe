"""Batching: the allowed sizes of a batch."""

from __future__ import annotations

from typing import Any

import pytest

from savedmodel_bakery.exporter.recipe import Batching

BATCH_SIZES = {
    "all by default": ({"batch_max": 3}, (1, 2, 3)),
    "some": ({"batch_max": 8, "allowed_batch_sizes": "2,8"}, (2, 8)),
    "a number": ({"batch_max": 8, "allowed_batch_sizes": 8}, (8,)),
    "batching off": ({}, ()),
}


@pytest.mark.parametrize(("values", "expected"), BATCH_SIZES.values(), ids=BATCH_SIZES)
def test_sizes_of_batches(values: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert expected == Batching(**values).batch_sizes
