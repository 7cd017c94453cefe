"""The table of tested versions of TensorFlow covers all options, and the Makefile and the pages agree with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from savedmodel_bakery.exporter.commands import inspect
from savedmodel_bakery.exporter.commands.inspect import OLDEST, OLDEST_FOR_PHOTOS, TESTED_VERSIONS, oldest_version
from savedmodel_bakery.exporter.recipe import Recipe


def test_tasks_and_precisions_were_tested() -> None:
    options = {
        f"`--{name} {choice}`"
        for name in ("task", "precision")
        for choice in Recipe.FIELDS[name].values.choices  # type: ignore[attr-defined]
    }
    assert {*options, "`--batch-max`"} == OLDEST.keys()
    assert {*OLDEST.values(), *OLDEST_FOR_PHOTOS.values()} <= set(TESTED_VERSIONS)


def test_make_installs_these_versions(clone: Path) -> None:
    (installed,) = re.findall("^RUNTIME_VERSIONS := (.*)$", (clone / "Makefile").read_text(), re.MULTILINE)
    assert list(TESTED_VERSIONS) == installed.split()


def test_the_page_on_int8_names_the_oldest_version(clone: Path) -> None:
    page = (clone / "docs" / "how-to" / "int8.md").read_text()
    assert f"The oldest version that was tested is TensorFlow {OLDEST['`--precision int8`']}:" in page


def test_an_option_that_needs_a_newer_version_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {"`--precision int8`": "2.19.1", "`--batch-max`": "2.20.0"}
    monkeypatch.setattr(inspect, "OLDEST", {**OLDEST, **changed})
    recipe = {"task": "classify", "precision": "int8", "batch_max": 0}
    assert "2.19.1" == oldest_version(recipe)
    assert "2.20.0" == oldest_version({**recipe, "batch_max": 8})
    assert OLDEST["`--task embed`"] == oldest_version({"task": "embed"})
    assert oldest_version({**recipe, "task": "unheard of"}) is None
