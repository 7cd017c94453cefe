"""Label sets and files of the exporter, and what it rejects."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery.errors import LabelError
from savedmodel_bakery.exporter import labels
from savedmodel_bakery.label_files import Label


def test_the_names_of_a_file_are_read_in_the_order_of_ids(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("id,name\n1,grün\n0,red\n")
    assert ["red", "grün"] == labels.read_class_names(str(path))


@pytest.mark.parametrize(
    ("name", "count", "class_id", "espresso"),
    [("imagenet", 1000, 967, "espresso"), ("imagenet1001", 1001, 968, "espresso")],
    ids=["plain", "with background"],
)
def test_included_sets_are_read_by_name(name: str, count: int, class_id: int, espresso: str) -> None:
    names = labels.read_class_names(name)
    assert count == len(names)
    assert espresso == names[class_id]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"0": "a", "2": "c"}', "has 2 names but none for class id 1: ids must count from 0 without gaps"),
        ('[{"id": 1, "name": "a"}]', "has 1 names but none for class id 0: ids must count from 0"),
        ("[1]", "has the name 1 for class id 0: must be text"),
    ],
    ids=["gap", "from one", "content that is not valid"],
)
def test_names_need_ids_from_zero_without_gaps(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "n.json"
    path.write_text(content)
    with pytest.raises(LabelError) as rejected:
        labels.check_ids(labels.read_class_names(str(path)), str(path))
    assert message in str(rejected.value)
    assert str(path) in str(rejected.value)


def test_a_table_has_any_ids(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    path.write_text('{"7": "c", "1": "a"}')
    assert (Label("a", 1), Label("c", 7)) == labels.read_label_table(str(path))
    assert Label("tench", 0) == labels.read_label_table("imagenet")[0]
    assert ["", "a", "", "", "", "", "", "c"] == labels.read_class_names(str(path))


def test_ids_have_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    path.write_text('{"1000000000": "c"}')
    with pytest.raises(LabelError, match="have the class id 1000000000: the highest allowed is 65535"):
        labels.read_class_names(str(path))


@pytest.mark.parametrize(
    "name", ["imagenet2000", "none.txt", ".", "a\0b"], ids=["no set", "no file", "a folder", "NUL"]
)
def test_an_unreadable_file_is_rejected_with_the_included_sets(name: str) -> None:
    with pytest.raises(LabelError) as rejected:
        labels.read_class_names(name)
    assert f"cannot read labels {name!r}" in str(rejected.value)
    assert "must be imagenet, imagenet1001 or the path of a file" in str(rejected.value)


BACKGROUND = "; a network with one more class than labels usually has a background class at id 0"


@pytest.mark.parametrize(
    ("width", "count", "hint"),
    [(1001, 1000, BACKGROUND), (1000, 1001, ""), (10, 1000, "")],
    ids=["background missing", "one too many", "another label set"],
)
def test_a_wrong_number_of_labels_is_reported_with_the_number_of_classes(width: int, count: int, hint: str) -> None:
    with pytest.raises(LabelError) as rejected:
        labels.check_width(["x"] * count, "some.txt", width)
    assert f"the network has {width} classes, but labels 'some.txt' have {count}{hint}" == str(rejected.value)


def test_the_right_number_of_labels_is_accepted() -> None:
    labels.check_width(["a", "b"], "some.txt", 2)
