"""For any input, each image has outputs of the right shape or a known error; nothing crashes or hangs.

BAKERY_FUZZ_INPUTS is the number of damaged files; `make fuzz` tries many and counts the outcomes.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import damaged_images
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tf1_session import Loaded, loaded

from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.servable_module import ServableModule

INPUTS = int(os.environ.get("BAKERY_FUZZ_INPUTS", "100"))
SEED = int(os.environ.get("BAKERY_FUZZ_SEED", "1"))
BATCH = 20
ALONE = 20 if "BAKERY_FUZZ_INPUTS" in os.environ else 2
SIDE = 8
NAMES = ["red", "green", "blue"]
PICTURES = damaged_images.pictures()
RECIPES = [*itertools.product(["exact", "fast"], ["7/8", "letterbox"])]
"""How images are decoded and cropped; unless many inputs are asked for, each value once."""

HEX = "[0-9a-f]{2}"
ERRORS = re.compile(
    "empty: no bytes were sent"
    "|(HEIC|HEIF|AVIF|TIFF|JPEG XL|JPEG 2000), which TensorFlow cannot decode: convert it to JPEG or PNG"
    f"|neither base64 nor a supported image format: it starts with {HEX}( {HEX}){{0,7}}"
    f"|base64 of an unsupported file format: it starts with {HEX}( {HEX}){{0,7}}"
    r"|too large: its header states \d+ by \d+ pixels; the maximum is 2000000"
    "|damaged, truncated or of an unsupported kind: the image file cannot be decoded"
)


@pytest.fixture(scope="module", params=RECIPES if "BAKERY_FUZZ_INPUTS" in os.environ else RECIPES[::3], ids="-".join)
def run_signature(
    request: pytest.FixtureRequest,
    recipe_of: Callable[..., Recipe],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Loaded]:
    """A network that returns the mean of each channel, in a Session; images may have up to two million pixels."""
    decode, crop = request.param
    recipe = recipe_of(size=(SIDE, SIDE), crop=crop, decode=decode, max_pixels=2_000_000, padding="9,8,7")
    path = tmp_path_factory.mktemp("fuzz") / decode
    ServableModule(lambda pixels: tf.reduce_mean(pixels, [1, 2]), recipe, NAMES).save(path)
    with loaded(path) as run_signature:
        yield run_signature


def check(run_signature: Loaded, images: list[bytes]) -> Counter[str]:
    """Run a batch and check its outputs; count its images by the first word of the error, or `ok`."""
    outputs = run_signature("top_k", np.array(images, object))
    count = len(images)
    shapes = {"labels": (count, 3), "scores": (count, 3), "class_ids": (count, 3), "ok": (count,), "error": (count,)}
    assert shapes == {alias: array.shape for alias, array in outputs.items()}
    outcomes: Counter[str] = Counter()
    for ok, error, labels, scores in zip(
        outputs["ok"], outputs["error"], outputs["labels"], outputs["scores"], strict=True
    ):
        text = error.decode()
        if ok:
            assert "" == text
            assert set(NAMES) == {label.decode() for label in labels}
            assert ((scores >= -0.2) & (scores <= 1.2)).all()  # a bicubic kernel overshoots
        else:
            assert ERRORS.fullmatch(text), text
            assert {b""} == set(labels)
            assert not scores.any()
        outcomes["ok" if ok else re.split("[:, ]", text)[0]] += 1
    return outcomes


def test_damaged_files_do_not_affect_each_other(run_signature: Loaded, capsys: pytest.CaptureFixture[str]) -> None:
    """Each image in a batch has the same pixels as alone."""
    outcomes: Counter[str] = Counter()
    stream = damaged_images.damaged(damaged_images.corpus(), SEED)
    for _ in range(-(-INPUTS // BATCH)):
        images = list(itertools.islice(stream, BATCH))
        outcomes += check(run_signature, images)
        together = run_signature("preprocess", np.array(images, object))
        for row in np.flatnonzero(together["ok"])[:ALONE]:
            alone = run_signature("preprocess", np.array(images[row : row + 1], object))
            np.testing.assert_array_equal(alone["pixels"][0], together["pixels"][row])
    assert outcomes["ok"] > INPUTS / 20
    assert outcomes["damaged"] > INPUTS / 20
    with capsys.disabled():
        if "BAKERY_FUZZ_INPUTS" in os.environ:
            print(f"\n{sum(outcomes.values())} damaged files: {dict(outcomes.most_common())}")


@st.composite
def forged(draw: Any) -> bytes:
    """A small image with a few of its first bytes changed, or truncated."""
    data = bytearray(draw(st.sampled_from(list(PICTURES.values()))))
    for at, value in draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6)):
        data[at % len(data)] = value
    cut = draw(st.none() | st.integers(0, len(data)))
    return bytes(data[:cut])


SYMBOLS = st.text("ABab01+/-_= \n,:;", max_size=60).map(str.encode)
ANYTHING = st.one_of(
    st.binary(max_size=80),
    SYMBOLS,
    st.text(max_size=30).map(str.encode),
    SYMBOLS.map(lambda text: b"data:image/png;base64," + text),
    st.binary(max_size=60).map(base64.b64encode),
    forged(),
    forged().map(base64.b64encode),
)


@given(images=st.lists(ANYTHING, max_size=6))
@settings(
    max_examples=max(INPUTS // 12, 1),
    deadline=None,
    derandomize="BAKERY_FUZZ_INPUTS" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_any_input_gives_outputs_or_a_known_error(run_signature: Loaded, images: list[bytes]) -> None:
    check(run_signature, images)


@pytest.mark.parametrize("name", PICTURES)
def test_the_files_are_readable_before_they_are_damaged(run_signature: Loaded, name: str) -> None:
    assert {"ok": 1} == check(run_signature, [PICTURES[name]])
