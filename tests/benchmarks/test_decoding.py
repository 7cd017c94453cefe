"""`python -m benchmarks.decoding` measures what reading a photo costs; the figures themselves are not tested."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks import photos
from benchmarks.decoding import VARIANTS, make_run

BASELINE = "decoder, crop and resize alone"


@functools.cache
def run_of(variant: str) -> Callable[[bytes], np.ndarray]:
    return make_run(VARIANTS[variant])


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_reads_the_photo(name: str) -> None:
    """Without its measure a variant still returns the pixels, so its time is comparable."""
    expected, pixels = (run_of(variant)(photos.make("small")) for variant in (BASELINE, name))
    np.testing.assert_allclose(expected, pixels[0] if pixels.ndim == 4 else pixels, atol=40)
    assert np.abs(expected - pixels).mean() < 2


@pytest.mark.slow
def test_the_graph_as_baked_reads_base64_too() -> None:
    run, photo = run_of("as baked"), photos.make("small")
    np.testing.assert_array_equal(run(photo), run(base64.urlsafe_b64encode(photo)))
