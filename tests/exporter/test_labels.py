"""Label sets: the accepted formats of files, and what is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery.exporter import labels
from savedmodel_bakery.exporter.errors import LabelError

FORMS = {
    "JSON list": ("n.json", '["red", "grün", "blue"]'),
    "JSON objects": ("n.json", '[{"id": 0, "name": "red"}, {"id": 1, "name": "grün"}, {"id": 2, "name": "blue"}]'),
    "JSON objects in another order": (
        "n.json",
        '[{"id": 2, "name": "blue"}, {"id": 0, "name": "red", "wordnet_id": null}, {"id": 1, "name": "grün"}]',
    ),
    "map from id": ("n.json", '{"1": "grün", "0": "red", "2": "blue"}'),
    "lines": ("n.txt", "red\ngrün\nblue\n"),
    "lines without a final newline": ("n.txt", "red\ngrün\nblue"),
    "Windows lines": ("n.txt", "red\r\ngrün\r\nblue\r\n"),
    "lines with a byte order mark": ("n.txt", "\ufeffred\ngrün\nblue\n"),
    "JSON with a byte order mark": ("n.json", '\ufeff["red", "grün", "blue"]'),
    "no ending": ("names", "red\ngrün\nblue\n"),
}


@pytest.mark.parametrize(("name", "content"), FORMS.values(), ids=FORMS)
def test_every_format_is_read_in_the_order_of_ids(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert ["red", "grün", "blue"] == labels.read_labels(str(path))


@pytest.mark.parametrize(
    ("name", "count", "class_id", "espresso"),
    [("imagenet", 1000, 967, "espresso"), ("imagenet1001", 1001, 968, "espresso")],
    ids=["plain", "with background"],
)
def test_included_sets_are_read_by_name(name: str, count: int, class_id: int, espresso: str) -> None:
    names = labels.read_labels(name)
    assert count == len(names)
    assert espresso == names[class_id]


REJECTED = {
    "gap": (
        "n.json",
        '{"0": "a", "2": "c"}',
        "has 2 names but none for class id 1: ids must count from 0 without gaps",
    ),
    "from one": ("n.json", '[{"id": 1, "name": "a"}]', "has 1 names but none for class id 0: ids must count from 0"),
    "duplicate": (
        "n.json",
        '[{"id": 0, "name": "a"}, {"id": 0, "name": "b"}]',
        "has 2 entries but only 1 different class ids",
    ),
    "two forms of an id": ("n.json", '{"0": "a", "00": "b"}', "has 2 entries but only 1 different class ids"),
    "not JSON": ("n.json", "red\n", "is not a label file ("),
    "nested too deeply": (
        "n.json",
        "[" * 100_000 + "]" * 100_000,
        "is not a label file: its JSON is nested too deeply",
    ),
    "no id": ("n.json", '[{"name": "a"}]', "is not a label file ('id'): must be a list of names, a list of objects"),
    "id as a word": ("n.json", '{"first": "a"}', "is not a label file ("),
    "a string": ("n.json", '"abc"', "is not a label file (it contains a str): must be a list of names"),
    "a number": ("n.json", "7", "is not a label file (it contains a int)"),
    "names as numbers": ("n.json", "[1, 2]", "has a name that is not text"),
    "empty file": ("n.txt", "", "are empty: at least one name is required"),
    "empty list": ("n.json", "[]", "are empty: at least one name is required"),
    "blank line": ("n.txt", "a\n\nb\n", "have a blank name for class id 1"),
    "blank name": ("n.json", '["a", " "]', "have a blank name for class id 1"),
}


@pytest.mark.parametrize(("name", "content", "message"), REJECTED.values(), ids=REJECTED)
def test_a_file_that_does_not_name_every_class_once_is_rejected(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(LabelError) as rejected:
        labels.read_labels(str(path))
    assert message in str(rejected.value)
    assert str(path) in str(rejected.value)


@pytest.mark.parametrize(
    "name", ["imagenet2000", "none.txt", ".", "a\0b"], ids=["no set", "no file", "a folder", "NUL"]
)
def test_an_unreadable_file_is_rejected_with_the_included_sets(name: str) -> None:
    with pytest.raises(LabelError) as rejected:
        labels.read_labels(name)
    assert f"cannot read labels {name!r}" in str(rejected.value)
    assert "must be imagenet, imagenet1001 or the path of a file" in str(rejected.value)


def test_invalid_utf8_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes("größe\n".encode("latin-1"))
    with pytest.raises(LabelError, match=r"are not valid UTF-8"):
        labels.read_labels(str(path))


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
