"""Label files: the accepted formats, and what is rejected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from savedmodel_bakery.label_files import Label, LabelFileError, read_label_file

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
    "CSV": ("n.csv", "name\nred\ngrün\nblue\n"),
    "CSV with ids": ("n.csv", "id,name,source\n2,blue,x\n0,red,\n1,grün\n"),
    "CSV with display names": ("n.csv", "name,display_name\nred,\n/m/1,grün\nblue,blue\n"),
    "JSON with display names": (
        "n.json",
        '[{"id": 0, "name": "/m/0", "display_name": "red"}, {"id": 1, "name": "grün", "display_name": ""}, '
        '{"id": 2, "display_name": "blue"}]',
    ),
    "label map": ("n.pbtxt", "item { id: 2 name: 'blue' } item { id: 0 name: 'red' } item { id: 1 name: 'grün' }"),
    "map to id": ("class_indices.json", '{"blue": 2, "grün": 1, "red": 0}'),
    "map to WordNet's id and name": (
        "imagenet_class_index.json",
        '{"0": ["n01440764", "red"], "1": ["n01443537", "grün"], "2": ["n01484850", "blue"]}',
    ),
    "lines with ids": ("labels.txt", "0 red\n1 grün\n2  blue\n"),
    "padded lines": ("n.txt", "red \n\tgrün\nblue\t\n\n"),
    "padded JSON": ("n.json", '[" red", "grün ", "blue\\n"]'),
    "padded CSV": ("n.csv", "id, name\n0, red\n1, grün \n2,blue\n"),
    "JSON list in a text file": ("n.txt", '["red", "grün", "blue"]\n'),
    "JSON map in a text file": ("n.txt", '{"red": 0, "grün": 1, "blue": 2}'),
    "no ending": ("names", "red\ngrün\nblue\n"),
}


@pytest.mark.parametrize(("name", "content"), FORMS.values(), ids=FORMS)
def test_every_format_is_read_in_the_order_of_ids(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert (Label("red", 0), Label("grün", 1), Label("blue", 2)) == read_label_file(path)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("[UNK]\ncat\n", ["[UNK]", "cat"]),
        ("1 dollar\n2 dollars\n", ["1 dollar", "2 dollars"]),
        ("0\n1\n", ["0", "1"]),
        ('{"0": 0, "1": 1}', ["0", "1"]),
    ],
    ids=["bracket", "numbers that are not ids", "digits", "digits by name"],
)
def test_names_that_look_like_another_format_are_kept(tmp_path: Path, content: str, names: list[str]) -> None:
    path = tmp_path / "n.txt"
    path.write_text(content)
    assert names == [label.name for label in read_label_file(path)]


# As in data/mscoco_label_map.pbtxt of TensorFlow's models, with keypoints and an enumeration, which are ignored.
LABEL_MAP = """
item {
  name: "/m/01g317"
  id: 1
  display_name: "person"
  keypoints { id: 2502 label: "nose" }
  frequency: FREQUENT
}
item: <name: '/m/015qff' id: 10 display_name: "traffic light">  # 2 to 9 are left out here
"""


def test_ids_of_a_label_map_start_at_1_and_have_gaps(tmp_path: Path) -> None:
    path = tmp_path / "coco.pbtxt"
    path.write_text(LABEL_MAP)
    assert (Label("person", 1), Label("traffic light", 10)) == read_label_file(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("n.json", '[{"id": 5, "name": "sky", "colour": "#0080Ff"}, {"id": 9, "name": "road", "colour": null}]'),
        ("n.csv", "id,name,colour\n5,sky,#0080Ff\n9,road,\n"),
    ],
    ids=["JSON", "CSV"],
)
def test_a_label_may_have_a_colour(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert (Label("sky", 5, (0, 128, 255)), Label("road", 9)) == read_label_file(path)


REJECTED = {
    "duplicate": (
        "n.json",
        '[{"id": 0, "name": "a"}, {"id": 0, "name": "b"}]',
        "have 2 entries but only 1 different class ids",
    ),
    "two forms of an id": ("n.json", '{"0": "a", "00": "b"}', "have 2 entries but only 1 different class ids"),
    "not JSON": ("n.json", "red\n", "is not a label file ("),
    "nested too deeply": (
        "n.json",
        "[" * 100_000 + "]" * 100_000,
        "is not a label file (maximum recursion depth exceeded",
    ),
    "no id": (
        "n.json",
        '[{"name": "a"}]',
        "is not a label file ('id'): must contain a list of names, a list",
    ),
    "id as a word": ("n.json", '{"first": "a"}', "have the id 'first': must be a whole number"),
    "id with a fraction": ("n.json", '[{"id": 1.5, "name": "a"}]', "have the id 1.5: must be a whole number"),
    "id below 0": ("n.json", '{"-1": "a"}', "have the id '-1': must be a whole number, 0 or more"),
    "a string": ("n.json", '"abc"', "is not a label file (it contains a str): must contain a list of names"),
    "a number": ("n.json", "7", "is not a label file (it contains a int)"),
    "names as numbers": ("n.json", "[1, 2]", "have the name 1 for class id 0: must be text"),
    "no name": ("n.pbtxt", "item { id: 3 }", "have the name None for class id 3: must be text"),
    "no column of names": (
        "n.csv",
        "id,label\n0,a\n",
        "is not a label file (it has no column name): must contain",
    ),
    "a huge CSV value": ("n.csv", "name\n" + "a" * 200_000, "is not a label file (field larger than field limit"),
    "colour as a word": (
        "n.json",
        '[{"id": 0, "name": "a", "colour": "red"}]',
        "have the colour 'red': must be #rrggbb, such as #ff8000",
    ),
    "colour with three digits": ("n.csv", "name,colour\na,#fff\n", "have the colour '#fff': must be #rrggbb"),
    "no label map": ("n.pbtxt", "item [", "is not a label file (1:7 : "),
    "no id in a label map": ("n.pbtxt", "item { name: 'a' }", "have the id None: must be a whole number"),
    "empty file": ("n.txt", "", "are empty: at least one name is required"),
    "empty list": ("n.json", "[]", "are empty: at least one name is required"),
    "blank line": ("n.txt", "a\n\nb\n", "have a blank name for class id 1"),
    "blank name": ("n.json", '["a", " "]', "have a blank name for class id 1"),
}


@pytest.mark.parametrize(("name", "content", "message"), REJECTED.values(), ids=REJECTED)
def test_a_file_that_is_not_valid_is_rejected(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(LabelFileError) as rejected:
        read_label_file(str(path))
    assert message in str(rejected.value)
    assert str(path) in str(rejected.value)


def test_invalid_utf8_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes("größe\n".encode("latin-1"))
    with pytest.raises(LabelFileError, match=r"are not valid UTF-8"):
        read_label_file(str(path))


@pytest.mark.parametrize(
    ("name", "error"), [("none.txt", FileNotFoundError), (".", IsADirectoryError), ("a\0b", ValueError)]
)
def test_an_unreadable_file_raises_what_opening_it_raises(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_label_file(name)


def test_neither_tensorflow_nor_numpy_is_imported() -> None:
    code = "import sys, savedmodel_bakery.label_files; sys.exit('numpy' in sys.modules or 'tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
