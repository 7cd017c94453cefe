"""Reads the photos that a network is quantised with, and divides them into those and some to evaluate the result on."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from savedmodel_bakery.answers.photo import IMAGE_SUFFIXES, UnreadablePhotoError
from savedmodel_bakery.answers.photo_files import FileList, check_parquet_files, open_file
from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.interrupts import cleaning_up
from savedmodel_bakery.storage.folders import writing

MIN_PHOTOS = 10
"""Fewer that can be read are rejected. Those that are held back count too."""

ENOUGH_PHOTOS = 50
"""Fewer that can be read cause a warning. Those that are held back count too."""

# More photos made no network more accurate.
_MAX_PHOTOS = 200
_MAX_HELD_BACK = 100
_HELD_BACK_SHARE = 0.4

_MIN_IMAGES = 60
_CROPPED_SIDE = 0.75
_DIGITS = 16
_MAX_NAME = 50  # characters; each has up to 4 bytes
_MAX_NAMED = 3


@dataclass(frozen=True)
class Calibration:
    """Photos of a folder, each once: the bytes of the image files by the key of `answers.photo`."""

    folder: str  # as stated
    photos: Mapping[str, bytes]  # to measure the network's activations on
    held_back: Mapping[str, bytes]  # to evaluate the quantised network on; empty if there are others
    unreadable: Mapping[str, str]  # reasons by key of the photos that were skipped

    @property
    def count(self) -> int:
        """The number of photos that can be read, including those that are held back."""
        return len(self.photos) + len(self.held_back)

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of `photos`."""
        return tuple(map(digest_of, self.photos.values()))

    def decode(self, read: Callable[[bytes], np.ndarray | str]) -> tuple[Calibration, np.ndarray]:
        """Return the photos that can be decoded, and the images of `photos`.

        `read` returns an image, float32 [height, width, channels], or the reason why it can't be decoded.
        """
        unreadable = dict(self.unreadable)
        images, count = np.empty((0, 0, 0, 0), np.float32), 0
        for key, photo in {**self.photos, **self.held_back}.items():
            image = read(photo)
            if isinstance(image, str):
                unreadable[key] = image
            elif key in self.photos:
                images = images if count else np.empty((len(self.photos), *image.shape), np.float32)
                images[count] = image
                count += 1
        decoded = replace(
            self,
            photos={key: photo for key, photo in self.photos.items() if key not in unreadable},
            held_back={key: photo for key, photo in self.held_back.items() if key not in unreadable},
            unreadable=unreadable,
        )
        decoded.check(hold_back=bool(self.held_back))
        return decoded, images[:count]

    def check(self, *, hold_back: bool) -> None:
        """Reject too few photos."""
        if not self.photos or self.count < MIN_PHOTOS:
            reason = ""
            if self.unreadable:
                reason = f" ({describe_unreadable(self.unreadable)})"
            elif not self.count:
                reason = f" (names of photos end in {', '.join(sorted(IMAGE_SUFFIXES))})"
            raise RecipeError(
                f"too few photos to calibrate with: {self.folder} has {self.count} different ones that can be "
                f"read{reason}; must be at least {MIN_PHOTOS}, better {ENOUGH_PHOTOS} or more"
            )
        if hold_back and not self.held_back:
            raise RecipeError(
                f"no photos to evaluate the quantised network on: all in {self.folder} are for calibration; pass "
                "others with --photos"
            )

    @contextlib.contextmanager
    def held_back_files(self) -> Iterator[list[Path]]:
        """Write the photos that are held back to files, which are removed at the end of the block."""
        folder = Path(tempfile.mkdtemp())
        with cleaning_up(partial(shutil.rmtree, folder, ignore_errors=True)):
            # The end of its name, because a file's name can have 255 bytes.
            files = [
                folder / f"{digest_of(photo)}_{Path(key).name[-_MAX_NAME:]}" for key, photo in self.held_back.items()
            ]
            with writing(folder):
                for file, content in zip(files, self.held_back.values(), strict=True):
                    file.write_bytes(content)
            yield files


NO_CALIBRATION = Calibration("", {}, {}, {})


def digest_of(photo: bytes) -> str:
    """Return the digest of an image file, as the recipe states it."""
    return hashlib.sha256(photo).hexdigest()[:_DIGITS]


def read_calibration(folder: str, digests: frozenset[str], *, hold_back: bool) -> Calibration:
    """Read the photos to calibrate with, from a folder or a file as for `bakery bulk`.

    `digests` are those of the photos to calibrate with; if there are none, they are chosen, in the same way each time.
    With `hold_back`, a part of the photos is for evaluation.
    """
    try:
        file_list = FileList.from_arguments([folder], all_files=False)
        file_list.check()
        check_parquet_files(file_list.named())
    except ValueError as error:
        raise RecipeError(f"invalid calibration {folder!r}: {error}") from error
    paths = sorted(file_list)
    files, unreadable = _read(paths, None if digests else _choose(paths, folder), digests)
    ordered = sorted(files)
    held_back_count = min(int(len(ordered) * _HELD_BACK_SHARE), _MAX_HELD_BACK) if hold_back else 0
    used = sorted(digests & files.keys()) if digests else ordered[held_back_count:][:_MAX_PHOTOS]
    held_back = [digest for digest in ordered if digest not in used][:_MAX_HELD_BACK] if hold_back else []
    if missing := digests - files.keys():
        raise RecipeError(
            f"{len(missing)} of the {len(digests)} photos in calibration_digests are not in {folder}; pass the folder "
            "that has them, or remove calibration_digests from the recipe to choose others"
        )
    photos, others = (dict(files[digest] for digest in part) for part in (used, held_back))
    calibration = Calibration(folder, photos, others, unreadable)
    calibration.check(hold_back=hold_back)
    return calibration


def describe_unreadable(reasons: Mapping[str, str]) -> str:
    """Return the number of photos that can't be read, and some of their keys with the reason."""
    named = [f"{key}: {reason}" for key, reason in list(reasons.items())[:_MAX_NAMED]]
    more = [f"{len(reasons) - _MAX_NAMED} more"] if len(reasons) > _MAX_NAMED else []
    return f"skipped {len(reasons)} that can't be read: {', '.join(named + more)}"


def _choose(paths: Iterable[Path], folder: str) -> set[str]:
    """Return the keys of some photos in files: as if at random, but the same each time, wherever the folder is."""
    keys = set[str]()

    def record(key: str) -> bool:
        keys.add(key)
        return False

    for path in paths:
        for _ in open_file(path, record, all_files=False):
            pass  # `record` selects no photo
    ordered = sorted(keys, key=lambda key: hashlib.sha256(key.removeprefix(folder).encode()).digest())
    return set(ordered[: _MAX_PHOTOS + _MAX_HELD_BACK])


def _read(
    paths: Iterable[Path], chosen: Collection[str] | None, digests: Collection[str]
) -> tuple[dict[str, tuple[str, bytes]], dict[str, str]]:
    """Return keys and contents of photos by digest, and errors by key.

    The photos are the chosen ones, or those with one of the digests and some others.
    """
    files: dict[str, tuple[str, bytes]] = {}
    unreadable: dict[str, str] = {}
    others = 0
    for path in paths:
        for photo in open_file(path, lambda key: chosen is None or key in chosen, all_files=False):
            try:
                content = photo.read()
            except UnreadablePhotoError as error:
                unreadable[photo.key] = str(error)
                continue
            digest = digest_of(content)
            if digest not in files and (chosen is not None or digest in digests or others < _MAX_HELD_BACK):
                files[digest] = photo.key, content
                others += digest not in digests
    return files, unreadable


def extend(images: np.ndarray) -> np.ndarray:
    """Add mirrored and cropped images to a few normalised ones: at least 60 in all, in the same way each time."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    extended = [images]
    while sum(map(len, extended)) < _MIN_IMAGES:
        corners = random.uniform(0, 1 - _CROPPED_SIDE, (len(images), 2))
        boxes = np.concatenate([corners, corners + _CROPPED_SIDE], axis=1)
        cropped = np.asarray(tf.image.crop_and_resize(images, boxes, np.arange(len(images)), images.shape[1:3]))
        is_mirrored = len(extended) % 2 == 0
        extended.append(np.flip(cropped, axis=2) if is_mirrored else cropped)
    return np.concatenate(extended) if len(extended) > 1 else images  # many take gigabytes
