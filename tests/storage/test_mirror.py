"""A folder follows the newest versions of a model in a bucket."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from stored_versions import contents, memory_store, stored, write_version

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage.manifest import GRAPH
from savedmodel_bakery.storage.mirror import Failure, mirror, remove_differing
from savedmodel_bakery.storage.publish import publish, published_versions, remove
from savedmodel_bakery.storage.store import Store


@pytest.fixture
def base(tmp_path: Path) -> Store:
    """A model with version 1."""
    base = memory_store()
    publish(write_version(tmp_path / "source"), base, 1)
    return base


def follow(base: Store, folder: Path, latest: int = 1) -> tuple[list[str], list[str]]:
    """Return the names of the new copies, and of all files in the folder."""
    new: list[str] = []
    wanted = dict(list(published_versions(base).items())[-latest:])
    failures = mirror(base, folder, wanted, {}, progress=lambda _: None, on_pull=lambda copy: new.append(copy.name))
    for failure in failures.values():
        raise failure.error
    return new, sorted(path.name for path in folder.iterdir())


def test_newer_versions_replace_older_ones_and_return_if_they_are_withdrawn(base: Store, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    assert (["1"], ["1"]) == follow(base, folder)
    assert ([], ["1"]) == follow(base, folder)
    publish(tmp_path / "source", base, 2)
    base.create("3/variables/unfinished", b"")
    assert (["2"], ["2"]) == follow(base, folder)
    assert (["1"], ["1", "2"]) == follow(base, folder, latest=2)
    remove(base.below("2"))
    assert ([], ["1"]) == follow(base, folder)
    assert stored(base.below("1")) == contents(folder / "1")


def test_what_is_not_a_copy_stays(base: Store, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    write_version(folder / "0")
    publish(tmp_path / "source", base, 2)
    assert (["1", "2"], ["0", "1", "2"]) == follow(base, folder, latest=2)
    assert ([], ["0", "2"]) == follow(base, folder)


def test_a_version_that_cannot_be_pulled_removes_nothing(base: Store, tmp_path: Path) -> None:
    follow(base, tmp_path / "copy")
    publish(tmp_path / "source", base, 2).remove("variables/variables.index")
    with pytest.raises(PublishError, match=r"/2 is damaged: variables/variables\.index is missing$"):
        follow(base, tmp_path / "copy")
    assert (tmp_path / "copy" / "1" / GRAPH).is_file()


def test_an_empty_folder_with_the_number_of_a_version_is_an_error(base: Store, tmp_path: Path) -> None:
    (tmp_path / "copy" / "1").mkdir(parents=True)
    with pytest.raises(PublishError, match=r"/copy/1 already exists, and .*; it is not a copy of .*/1: "):
        follow(base, tmp_path / "copy")


def test_a_version_that_cannot_be_pulled_delays_no_other(base: Store, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    follow(base, folder)
    publish(tmp_path / "source", base, 2).remove("variables/variables.index")
    publish(tmp_path / "source", base, 3)
    with pytest.raises(PublishError, match=r"/2 is damaged: variables/"):
        follow(base, folder, latest=2)
    assert ["1", "3"] == sorted(path.name for path in folder.iterdir())


def test_a_copy_of_other_files_with_the_same_number_is_removed(base: Store, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    publish(tmp_path / "source", base, 2)
    follow(base, folder, latest=2)
    (folder / "2" / "variables" / "variables.index").write_text("damaged")
    remove_differing(base, folder, published_versions(base), progress=lambda _: None)
    assert ["1"] == [path.name for path in folder.iterdir()]


def test_a_version_that_cannot_be_pulled_is_tried_again_after_pauses_or_a_change(
    base: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    failures: Mapping[int, Failure] = {}
    now = 0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def attempts() -> int:
        nonlocal failures
        steps.clear()
        wanted = published_versions(base)
        failures = mirror(base, tmp_path / "copy", wanted, failures, progress=steps.append, on_pull=lambda _: None)
        assert bool(failures) != (tmp_path / "copy" / "1").exists()
        return len(steps)

    content = base.read("1/variables/variables.index")
    base.remove("1/variables/variables.index")
    base.create("1/variables/variables.index", content.upper())
    tried = []
    for now in range(20):
        tried += [now] * attempts()
    assert [0, 2, 6, 14] == tried
    base.remove("1/variables/variables.index")
    attempts()
    assert "is missing" in str(failures[1].error)
    base.create("1/variables/variables.index", content)
    assert 1 == attempts()
    assert not failures
