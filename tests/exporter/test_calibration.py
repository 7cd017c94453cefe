"""Photos for calibration: which are read, which are held back, and which folders are rejected."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from bulk_files import write_photos, write_tar, write_zip

from savedmodel_bakery.exporter.calibration import Calibration, digest_of, extend, read_calibration
from savedmodel_bakery.exporter.errors import RecipeError

ALL: frozenset[str] = frozenset()


def contents(start: int, stop: int) -> dict[str, bytes]:
    return {f"photo{number}": b"photo %d" % number for number in range(start, stop)}


def digests(*ranges: range) -> set[str]:
    return {hashlib.sha256(b"photo %d" % number).hexdigest()[:16] for numbers in ranges for number in numbers}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """30 different photos: in a folder, in a tar archive and in a zip archive, some of them twice."""
    folder = write_photos(tmp_path / "photos", **contents(0, 12))
    write_tar(str(folder / "more.tar"), "w", **contents(10, 20))
    write_zip(str(folder / "yet_more.zip"), **contents(18, 30))
    (folder / "notes.txt").write_text("no photo")
    return folder


def names(calibration: Calibration) -> set[str]:
    return {*calibration.photos, *calibration.held_back}


def test_each_photo_is_used_once(folder: Path) -> None:
    calibration = read_calibration(str(folder), ALL, hold_back=True)
    assert (18, 12) == (len(calibration.photos), len(calibration.held_back))
    assert digests(range(30)) == {name.partition("_")[0] for name in names(calibration)}
    assert set(calibration.digests) == set(map(digest_of, calibration.photos.values()))
    with calibration.held_back_files() as files:
        assert list(calibration.held_back.values()) == [file.read_bytes() for file in files]
    assert not any(file.exists() for file in files)


def test_all_are_for_calibration_if_others_are_for_evaluation(folder: Path) -> None:
    calibration = read_calibration(str(folder), ALL, hold_back=False)
    assert (digests(range(30)), {}) == (set(calibration.digests), calibration.held_back)


def test_the_same_photos_are_chosen_wherever_the_folder_is(folder: Path) -> None:
    first = read_calibration(str(folder), ALL, hold_back=True)
    assert first == read_calibration(str(folder.rename(folder.with_name("moved"))), ALL, hold_back=True)


def test_digests_choose_the_photos(folder: Path) -> None:
    calibration = read_calibration(str(folder), frozenset(digests(range(3, 9))), hold_back=True)
    assert digests(range(3, 9)) == set(calibration.digests)
    assert digests(range(3), range(9, 30)) == {name.partition("_")[0] for name in calibration.held_back}


def test_a_large_folder_is_used_in_part(tmp_path: Path) -> None:
    folder = write_photos(tmp_path / "large", **contents(0, 500))
    calibration = read_calibration(str(folder), ALL, hold_back=True)
    assert (200, 100) == (len(calibration.photos), len(calibration.held_back))
    assert 300 == len(names(calibration))


def test_folders_that_are_rejected(folder: Path, tmp_path: Path) -> None:
    few = write_photos(tmp_path / "few", **contents(0, 9))
    (few / "again.jpg").write_bytes(b"photo 0")
    with pytest.raises(RecipeError, match=r"has 9 different ones; must be at least 10, better 50 or more$"):
        read_calibration(str(few), ALL, hold_back=True)
    with pytest.raises(RecipeError, match=r"^invalid calibration '.*nowhere': not found: "):
        read_calibration(str(tmp_path / "nowhere"), ALL, hold_back=True)
    others = frozenset(digests(range(28, 32)))
    with pytest.raises(RecipeError, match=r"^2 of the 4 photos in calibration_digests are not in .*photos; pass "):
        read_calibration(str(folder), others, hold_back=True)
    with pytest.raises(RecipeError, match=r"^no photos to evaluate the quantised network on: all in .* are for "):
        read_calibration(str(folder), frozenset(digests(range(30))), hold_back=True)
    (folder / "damaged.zip").write_bytes(b"PK")
    with pytest.raises(RecipeError, match=r"^cannot calibrate with .*damaged.zip: the archive cannot be read"):
        read_calibration(str(folder), ALL, hold_back=True)


def test_few_images_are_extended() -> None:
    """Each image is extended by parts of itself, the first half of them mirrored."""
    pixels = np.repeat(np.arange(7, dtype=np.float32), 8 * 8 * 3).reshape(7, 8, 8, 3)
    extended = np.asarray(extend(pixels))
    assert (63, 8, 8, 3) == extended.shape
    np.testing.assert_allclose(np.tile(pixels, (9, 1, 1, 1)), extended, atol=1e-4)
    gradient = np.broadcast_to(np.arange(8, dtype=np.float32)[:, np.newaxis], (10, 8, 8, 3))
    slopes = np.sign(np.diff(np.asarray(extend(gradient)), axis=2).mean((1, 2, 3)))
    assert [1, 1, -1, 1, -1, 1] == slopes[::10].tolist()
    many = np.zeros((80, 4, 4, 3), np.float32)
    assert many.shape == np.asarray(extend(many)).shape
