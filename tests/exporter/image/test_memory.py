"""Peak memory of hostile batches: oversized images are not decoded, and others are decoded one by one."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import damaged_images
import numpy as np
import pytest
from image_bombs import PALETTE, RGB, RGBA, png
from PIL import Image

from savedmodel_bakery.exporter.recipe import Recipe

SIDE = 3000
MAX_PIXELS = SIDE * SIDE


TEXT_BYTES = 30_000_000


def texts() -> list[bytes]:
    """Texts that are no images, but must be converted to find that out."""
    return [b"data:" + b"," * TEXT_BYTES, (b"A" * 75 + b"\n") * (TEXT_BYTES // 76), b"+\n" * (TEXT_BYTES // 2)]


def saved(image: Image.Image, file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def oversized_headers() -> list[bytes]:
    """Three files whose headers state 60000 by 60000 pixels, and a GIF file with 500 further frames that do."""
    gif, jpeg = damaged_images.pictures()["GIF, animated"], bytearray(damaged_images.pictures()["JPEG"])
    large_frame = gif.replace(b",\0\0\0\0\x3d\0\x28\0", b",\0\0\0\0" + struct.pack("<HH", 60000, 60000), 1)
    further = (b"," + struct.pack("<HHHHB", 0, 0, 60000, 60000, 0) + b"\x02\x02\x4c\x01\x00") * 500
    size = jpeg.index(b"\xff\xc0") + 5
    jpeg[size : size + 4] = struct.pack(">HH", 60000, 60000)
    assert large_frame != gif
    return [png(60000, RGBA, 1), bytes(jpeg), large_frame, gif[:-1] + further + b";"]


def bombs() -> list[bytes]:
    """Small files that decode to the maximum number of pixels."""
    blank = Image.fromarray(np.zeros((SIDE, SIDE, 3), np.uint8))
    frame = saved(blank.convert("P"), "GIF")
    files = [
        png(SIDE, RGB, SIDE),
        png(SIDE, PALETTE, SIDE),
        png(SIDE, RGBA, SIDE),
        saved(blank, "JPEG", progressive=True),
        saved(Image.new("RGBA", (SIDE, SIDE)), "WEBP", lossless=True, method=0),
        frame[:-1] + frame[frame.index(b",\0\0\0\0") : -1] * 20 + b";",
    ]
    assert max(map(len, files)) < 1e6
    return files


@pytest.fixture(scope="module")
def measured(
    recipe_of: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory, clone: Path
) -> list[dict[str, Any]]:
    """Errors and rise of peak memory of four batches: oversized headers, bombs, many bombs, texts.

    Before these, the process has read every kind of file.
    """
    values = recipe_of(max_pixels=MAX_PIXELS, crop="7/8", resize="bicubic").to_values()
    path = tmp_path_factory.mktemp("memory") / "images.pickle"
    batches = [oversized_headers() * 50, bombs(), bombs() * 4, texts()]
    path.write_bytes(pickle.dumps((values, list(damaged_images.pictures().values()), batches)))
    child = subprocess.run(
        [sys.executable, str(clone / "tests" / "support" / "peak_memory.py"), str(path)],
        env={**os.environ, "PYTHONPATH": str(clone), "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"},  # as in the server
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    results: list[dict[str, Any]] = json.loads(child.stdout)
    return results


def test_images_with_oversized_headers_are_not_decoded(measured: list[dict[str, Any]]) -> None:
    """Each states 400 times as many pixels as one bomb has, so decoding one would take more memory than the bombs."""
    error = "too large: its header states 60000 by 60000 pixels; the maximum is 9000000"
    assert [error, error, error, ""] * 50 == measured[0]["errors"]
    assert measured[0]["rise"] < measured[1]["rise"]


def test_images_of_the_maximum_size_are_decoded_one_by_one(measured: list[dict[str, Any]]) -> None:
    """Four times as many take less than twice as much; the allocator may keep what some have taken."""
    assert [""] * 6 == measured[1]["errors"]
    assert [""] * 24 == measured[2]["errors"]
    assert measured[2]["rise"] < 2 * measured[1]["rise"]


def test_converting_base64_takes_four_times_the_memory_of_a_text(measured: list[dict[str, Any]]) -> None:
    """One text after the other is converted."""
    assert all("neither base64 nor" in error or "unsupported" in error for error in measured[3]["errors"])
    assert measured[3]["rise"] < 6 * TEXT_BYTES  # two at once would take 8
