"""Label sets and files of the exporter, and what it rejects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from savedmodel_bakery.errors import LabelError, ParityError
from savedmodel_bakery.exporter import resources


def test_the_names_of_a_file_are_read_in_the_order_of_ids(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("id,name\n1,grün\n0,red\n")
    assert ["red", "grün"] == resources.read_class_names(str(path))


@pytest.mark.parametrize(
    ("name", "count", "class_id", "espresso"),
    [("imagenet", 1000, 967, "espresso"), ("imagenet1001", 1001, 968, "espresso")],
    ids=["plain", "with background"],
)
def test_included_sets_are_read_by_name(name: str, count: int, class_id: int, espresso: str) -> None:
    names = resources.read_class_names(name)
    assert count == len(names)
    assert espresso == names[class_id]


def test_names_that_are_not_text_are_rejected_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    path.write_text("[1]")
    with pytest.raises(LabelError) as rejected:
        resources.read_class_names(str(path))
    assert "have the name 1 for class id 0: must be text" in str(rejected.value)
    assert str(path) in str(rejected.value)


def test_ids_may_have_gaps(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    path.write_text('{"7": "c", "1": "a"}')
    assert ["", "a", "", "", "", "", "", "c"] == resources.read_class_names(str(path))


def test_ids_have_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    path.write_text('{"1000000000": "c"}')
    with pytest.raises(LabelError, match="have the class id 1000000000: the highest allowed is 65535"):
        resources.read_class_names(str(path))


@pytest.mark.parametrize(
    "name", ["imagenet2000", "none.txt", ".", "a\0b"], ids=["no set", "no file", "a folder", "NUL"]
)
def test_an_unreadable_file_is_rejected_with_the_included_sets(name: str) -> None:
    with pytest.raises(LabelError) as rejected:
        resources.read_class_names(name)
    assert f"cannot read labels {name!r}" in str(rejected.value)
    assert "must be imagenet, imagenet1001 or the path of a file" in str(rejected.value)


def test_photos_are_a_folder_a_path_or_several(tmp_path: Path) -> None:
    files = [tmp_path / "a.jpg", tmp_path / "b.png"]
    for file in files:
        file.touch()
    for photos in (tmp_path, str(tmp_path), files, [str(file) for file in files], sorted(tmp_path.glob("*"))):
        assert files == resources.list_photos(photos)
    assert files[:1] == resources.list_photos(str(files[0])) == resources.list_photos(files[0])
    assert resources.example_photos() == resources.list_photos(None)


def test_photos_may_be_in_a_folder_for_each_label(tmp_path: Path) -> None:
    files = [tmp_path / "photos" / label / "1.jpg" for label in ("cat", "dog")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    assert files == resources.list_photos(tmp_path / "photos")
    with pytest.raises(ParityError, match="no photos in "):
        resources.list_photos(tmp_path)


@pytest.mark.parametrize(
    ("photos", "message"),
    [
        ([], "photos are empty: pass a folder"),
        (iter(()), "photos are empty"),
        ([b"a"], "photos have a bytes: must be"),
        ("no/such", "^photo not found: no/such$"),
    ],
)
def test_other_photos_are_rejected(photos: Any, message: str) -> None:
    with pytest.raises(ParityError, match=message):
        resources.list_photos(photos)
