"""Photos for calibration: which are read, which are held back, and which folders are rejected."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from bulk_files import write_photos, write_tar, write_zip

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.calibration import Calibration, digest_of, extend, read_calibration

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


def digests_of(photos: Mapping[str, bytes]) -> set[str]:
    return set(map(digest_of, photos.values()))


def digests_in(calibration: Calibration) -> set[str]:
    return digests_of(calibration.photos) | digests_of(calibration.held_back)


def test_each_photo_is_used_once(folder: Path) -> None:
    calibration = read_calibration(str(folder), ALL, hold_back=True)
    assert (18, 12, 30) == (len(calibration.photos), len(calibration.held_back), calibration.count)
    assert digests(range(30)) == digests_in(calibration)
    assert set(calibration.digests) == digests_of(calibration.photos)
    with calibration.held_back_files() as files:
        assert list(calibration.held_back.values()) == [file.read_bytes() for file in files]
    assert not any(file.exists() for file in files)


def test_photos_with_the_longest_file_names_are_held_back(folder: Path) -> None:
    for file in list(folder.iterdir()):
        file.rename(file.with_name(f"{'é' * 120}{file.name}"))
    calibration = read_calibration(str(folder), ALL, hold_back=True)
    with calibration.held_back_files() as files:
        assert list(calibration.held_back.values()) == [file.read_bytes() for file in files]


def test_all_are_for_calibration_if_others_are_for_evaluation(folder: Path) -> None:
    calibration = read_calibration(str(folder), ALL, hold_back=False)
    assert (digests(range(30)), {}) == (set(calibration.digests), calibration.held_back)


def test_the_same_photos_are_chosen_wherever_the_folder_is(folder: Path) -> None:
    first = read_calibration(str(folder), ALL, hold_back=True)
    moved = read_calibration(str(folder.rename(folder.with_name("moved"))), ALL, hold_back=True)
    assert first.digests == moved.digests
    assert list(first.held_back.values()) == list(moved.held_back.values())


def test_digests_choose_the_photos(folder: Path) -> None:
    calibration = read_calibration(str(folder), frozenset(digests(range(3, 9))), hold_back=True)
    assert digests(range(3, 9)) == set(calibration.digests)
    assert digests(range(3), range(9, 30)) == digests_of(calibration.held_back)


def test_a_large_folder_is_used_in_part(tmp_path: Path) -> None:
    folder = write_photos(tmp_path / "large", **contents(0, 500))
    calibration = read_calibration(str(folder), ALL, hold_back=True)
    assert (200, 100) == (len(calibration.photos), len(calibration.held_back))
    assert 300 == len(digests_in(calibration))


def test_folders_that_are_rejected(folder: Path, tmp_path: Path) -> None:
    few = write_photos(tmp_path / "few", **contents(0, 9))
    (few / "again.jpg").write_bytes(b"photo 0")
    with pytest.raises(RecipeError, match=r"has 9 different ones that can be read; must be at least 10, better 50 or"):
        read_calibration(str(few), ALL, hold_back=True)
    with pytest.raises(RecipeError, match=r"has 6 different ones that can be read; must be at least 10, better 50 or"):
        read_calibration(str(folder), frozenset(digests(range(6))), hold_back=False)
    (tmp_path / "named_otherwise").mkdir()
    (tmp_path / "named_otherwise" / "photo").write_bytes(b"photo 0")
    with pytest.raises(RecipeError, match=r"has 0 different .* \(names of photos end in \.avif, \.bmp,.* must be at"):
        read_calibration(str(tmp_path / "named_otherwise"), ALL, hold_back=True)
    with pytest.raises(RecipeError, match=r"^invalid calibration '.*nowhere': not found: "):
        read_calibration(str(tmp_path / "nowhere"), ALL, hold_back=True)
    others = frozenset(digests(range(28, 32)))
    with pytest.raises(RecipeError, match=r"^2 of the 4 photos in calibration_digests are not in .*photos; pass "):
        read_calibration(str(folder), others, hold_back=True)
    with pytest.raises(RecipeError, match=r"^no photos to evaluate the quantised network on: all in .* are for "):
        read_calibration(str(folder), frozenset(digests(range(30))), hold_back=True)


def test_the_photos_that_are_held_back_count(tmp_path: Path) -> None:
    """10 photos are enough, also for the same bake again, from its recipe."""
    folder = write_photos(tmp_path / "ten", **contents(0, 10))
    first = read_calibration(str(folder), ALL, hold_back=True)
    assert (6, 4) == (len(first.photos), len(first.held_back))
    assert first == read_calibration(str(folder), frozenset(first.digests), hold_back=True)


def test_files_that_cannot_be_read_are_skipped(folder: Path) -> None:
    (folder / "damaged.zip").write_bytes(b"PK")
    calibration = read_calibration(str(folder), ALL, hold_back=True)
    assert digests(range(30)) == digests_in(calibration)
    ((key, reason),) = calibration.unreadable.items()
    assert str(folder / "damaged.zip") == key
    assert reason.startswith("the archive cannot be read")


def test_photos_that_cannot_be_decoded_are_skipped(folder: Path) -> None:
    """Those that are held back too; too few others are an error."""

    def decode(count: int) -> tuple[Calibration, np.ndarray]:
        """Decode only the first of the photos."""
        readable = set(contents(0, count).values())

        def read(photo: bytes) -> np.ndarray | str:
            return np.full((2, 2, 3), len(photo), np.float32) if photo in readable else "it is no image"

        return read_calibration(str(folder), ALL, hold_back=True).decode(read)

    calibration, images = decode(28)
    assert digests(range(28)) == digests_in(calibration)
    assert list(map(len, calibration.photos.values())) == images[:, 1, 1, 2].tolist()
    assert {"photo28", "photo29"} == {Path(key).stem for key in calibration.unreadable}
    with pytest.raises(RecipeError, match=r"^too few .* 9 .* \(skipped 21 .*: it is no image, .*, 18 more\); must"):
        decode(9)


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
