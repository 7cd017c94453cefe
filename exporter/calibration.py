"""Reads the photos that a network is quantised with, and divides them into those and some to evaluate the result on."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from savedmodel_bakery.client.bulk.files import FileList
from savedmodel_bakery.client.bulk.photos import UnreadablePhotoError
from savedmodel_bakery.client.bulk.sources import check_parquet_files, open_file
from savedmodel_bakery.exporter.errors import RecipeError
from savedmodel_bakery.exporter.publish import writing
from savedmodel_bakery.exporter.tensor_types import PixelBatch
from savedmodel_bakery.interrupts import cleaning_up

MIN_PHOTOS = 10
"""Fewer are rejected."""

ENOUGH_PHOTOS = 50
"""Fewer cause a warning."""

# More photos made no network more accurate.
_MAX_PHOTOS = 200
_MAX_HELD_BACK = 100
_HELD_BACK_SHARE = 0.4

_MIN_IMAGES = 60
_CROPPED_SIDE = 0.75
_DIGITS = 16


@dataclass(frozen=True)
class Calibration:
    """Photos of a folder, each once: the bytes of the image files by a name of digest and file name.

    Attributes:
        photos: those to measure the network's activations on.
        held_back: those to evaluate the quantised network on; empty if there are others.
        digests: of `photos`.
    """

    photos: Mapping[str, bytes]
    held_back: Mapping[str, bytes]
    digests: tuple[str, ...]

    @contextlib.contextmanager
    def held_back_files(self) -> Iterator[list[Path]]:
        """Write the photos that are held back to files, which are removed at the end of the block.

        Raises:
            PublishError: they can't be written.
        """
        folder = Path(tempfile.mkdtemp())
        with cleaning_up(partial(shutil.rmtree, folder, ignore_errors=True)):
            files = [folder / name for name in self.held_back]
            with writing(folder):
                for file, content in zip(files, self.held_back.values(), strict=True):
                    file.write_bytes(content)
            yield files


def digest_of(photo: bytes) -> str:
    """Return the digest of an image file, as the recipe states it."""
    return hashlib.sha256(photo).hexdigest()[:_DIGITS]


def read_calibration(folder: str, digests: frozenset[str], *, hold_back: bool) -> Calibration:
    """Read the photos to calibrate with.

    Args:
        folder: with photos, archives and Parquet files, as for `bakery bulk`; or one such file.
        digests: of the photos to calibrate with; empty to choose them, in the same way each time.
        hold_back: whether to keep a part of the photos for evaluation.

    Raises:
        RecipeError: the folder doesn't exist, a photo can't be read, or there are too few.
    """
    try:
        files = FileList.from_arguments([folder], all_files=False)
        files.check()
        check_parquet_files(files.named())
    except ValueError as error:
        raise RecipeError(f"invalid calibration {folder!r}: {error}") from error
    paths = sorted(files)
    contents = _read(paths, None if digests else _choose(paths, folder), digests)
    if len(contents) < MIN_PHOTOS:
        raise RecipeError(
            f"too few photos to calibrate with: {folder} has {len(contents)} different ones; must be at least "
            f"{MIN_PHOTOS}, better {ENOUGH_PHOTOS} or more"
        )
    if missing := digests - contents.keys():
        raise RecipeError(
            f"{len(missing)} of the {len(digests)} photos in calibration_digests are not in {folder}; pass the folder "
            "that has them, or remove calibration_digests from the recipe to choose others"
        )
    ordered = sorted(contents)
    held_back_count = min(int(len(ordered) * _HELD_BACK_SHARE), _MAX_HELD_BACK) if hold_back else 0
    used = sorted(digests) or ordered[held_back_count:][:_MAX_PHOTOS]
    held_back = [digest for digest in ordered if digest not in used][:_MAX_HELD_BACK] if hold_back else []
    if hold_back and not held_back:
        raise RecipeError(
            f"no photos to evaluate the quantised network on: all in {folder} are for calibration; pass others with "
            "--photos"
        )
    return Calibration(
        {f"{digest}_{contents[digest].name}": contents[digest].content for digest in used},
        {f"{digest}_{contents[digest].name}": contents[digest].content for digest in held_back},
        tuple(used),
    )


def _choose(paths: Iterable[Path], folder: str) -> set[str]:
    """Return the keys of some photos in files, or all; see `client.bulk.photos`.

    They are chosen as if at random, but the same each time, wherever the folder is.
    """
    keys = set[str]()

    def record(key: str) -> bool:
        keys.add(key)
        return False

    for path in paths:
        for _ in open_file(path, record, all_files=False):
            pass  # `record` selects no photo
    ordered = sorted(keys, key=lambda key: hashlib.sha256(key.removeprefix(folder).encode()).digest())
    return set(ordered[: _MAX_PHOTOS + _MAX_HELD_BACK])


class _File(NamedTuple):
    name: str
    content: bytes


def _read(paths: Iterable[Path], chosen: Collection[str] | None, digests: Collection[str]) -> dict[str, _File]:
    """Return photos by digest: the chosen ones, or those with one of the digests and some others."""
    files: dict[str, _File] = {}
    others = 0
    for path in paths:
        for photo in open_file(path, lambda key: chosen is None or key in chosen, all_files=False):
            try:
                content = photo.read()
            except UnreadablePhotoError as error:
                raise RecipeError(f"cannot calibrate with {photo.key}: {error}") from error
            digest = digest_of(content)
            if digest not in files and (chosen is not None or digest in digests or others < _MAX_HELD_BACK):
                files[digest] = _File(Path(photo.key).name, content)
                others += digest not in digests
    return files


def extend(pixels: np.ndarray) -> PixelBatch:
    """Add mirrored and cropped images to a few: at least 60 in all, in the same way each time.

    Args:
        pixels: float32 [images, height, width, 3].
    """
    import tensorflow as tf

    random = np.random.default_rng(0)
    extended = [pixels]
    while sum(map(len, extended)) < _MIN_IMAGES:
        corners = random.uniform(0, 1 - _CROPPED_SIDE, (len(pixels), 2))
        boxes = np.concatenate([corners, corners + _CROPPED_SIDE], axis=1)
        cropped = tf.image.crop_and_resize(pixels, boxes, np.arange(len(pixels)), pixels.shape[1:3])
        extended.append(np.asarray(cropped) if len(extended) % 2 else np.asarray(cropped)[:, :, ::-1])
    return np.concatenate(extended)
