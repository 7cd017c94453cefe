"""Pulling from a bucket: the copy appears complete and checked, or not at all."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest
from stored_versions import contents, memory_store, stored, write_version

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage.manifest import GRAPH, MANIFEST
from savedmodel_bakery.storage.publish import publish
from savedmodel_bakery.storage.pull import find_version, pull
from savedmodel_bakery.storage.store import Store


class Killed(BaseException):
    """The process ends."""


@pytest.fixture
def version(tmp_path: Path) -> Store:
    return publish(write_version(tmp_path / "source"), memory_store(), 2)


def test_the_copy_has_all_files_and_the_manifest(version: Store, tmp_path: Path) -> None:
    assert tmp_path / "flowers" / "2" == pull(version, tmp_path / "flowers")
    assert stored(version) == contents(tmp_path / "flowers" / "2")
    assert ["2"] == [path.name for path in (tmp_path / "flowers").iterdir()]


def test_the_number_of_a_version_is_found(version: Store) -> None:
    model = memory_store(url=version.url.rpartition("/")[0])
    model.create("3/variables/unfinished", b"")
    assert version.url == find_version(model).url == find_version(version).url
    with pytest.raises(PublishError, match=r"^no complete version in .*/none: must be the URL of a model or of a ver"):
        find_version(model.below("none"))


def test_a_pull_that_is_interrupted_at_any_moment_leaves_nothing_and_can_be_repeated(
    version: Store, tmp_path: Path
) -> None:
    for moment in itertools.count(1):

        def interrupt(step: int, moment: int = moment) -> None:
            if step == moment:
                raise Killed

        base_path = tmp_path / f"flowers{moment}"
        try:
            pull(memory_store(interrupt, version.url), base_path)
            break
        except Killed:
            assert not base_path.exists()
        pull(version, base_path)
        assert stored(version) == contents(base_path / "2")
    assert moment > 5


def test_a_copy_that_is_there_is_checked_only(version: Store, tmp_path: Path) -> None:
    copy = pull(version, tmp_path)
    before = copy.stat().st_mtime_ns
    assert copy == pull(version, tmp_path)
    assert before == copy.stat().st_mtime_ns
    (copy / GRAPH).write_text("changed")
    with pytest.raises(PublishError, match=r"2 already exists, and .* not a copy of memory.*: saved_model\.pb differs"):
        pull(version, tmp_path)
    assert "changed" == (copy / GRAPH).read_text()


def test_two_pulls_at_once_both_succeed(version: Store, tmp_path: Path) -> None:
    def meet(step: int) -> None:
        if step == 5:
            pull(version, tmp_path)

    assert tmp_path / "2" == pull(memory_store(meet, version.url), tmp_path)
    assert ["2", "source"] == sorted(path.name for path in tmp_path.iterdir())


def test_a_full_disk_is_reported_with_the_folder(version: Store, tmp_path: Path) -> None:
    def fill(step: int) -> None:
        if step == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(PublishError, match=f"^cannot write to {tmp_path}: No space left on device$"):
        pull(memory_store(fill, version.url), tmp_path)


@pytest.mark.parametrize(("content", "downloads"), [(b"INDEX", 4), (b"longer index", 0)], ids=["bytes", "size"])
def test_a_damaged_version_is_not_copied(version: Store, tmp_path: Path, content: bytes, downloads: int) -> None:
    version.remove("variables/variables.index")
    version.create("variables/variables.index", content)
    steps: list[int] = []
    with pytest.raises(PublishError, match=r"/2 is damaged: variables/variables\.index differs from the manifest$"):
        pull(memory_store(steps.append, version.url), tmp_path / "flowers")
    assert 2 + downloads == len(steps)
    assert not (tmp_path / "flowers").exists()


def test_a_manifest_that_is_too_large_is_not_read(
    version: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = version.sizes()[MANIFEST]
    monkeypatch.setattr("savedmodel_bakery.storage.publish._MAX_MANIFEST_BYTES", size_bytes - 1)
    with pytest.raises(PublishError, match=f"has {size_bytes} bytes: a manifest has at most {size_bytes - 1}$"):
        pull(version, tmp_path)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ((GRAPH,), r"no complete version in .*/2: its upload is unfinished$"),
        ((MANIFEST,), r"/2 has no assets\.extra/manifest\.json, so a copy cannot be checked: `bakery publish` writes"),
        ((GRAPH, MANIFEST, "variables/variables.index"), r"/2 is damaged: variables/variables\.index is missing$"),
    ],
    ids=["graph", "manifest", "listed file"],
)
def test_what_is_missing_is_reported(version: Store, tmp_path: Path, missing: tuple[str, ...], message: str) -> None:
    graph, manifest = version.read(GRAPH), version.read(MANIFEST)
    for name in missing:
        version.remove(name)
    if len(missing) == 3:
        version.create(GRAPH, graph)
        version.create(MANIFEST, manifest)
    with pytest.raises(PublishError, match=message):
        pull(version, tmp_path / "flowers")
    assert not (tmp_path / "flowers").exists()
    with pytest.raises(PublishError, match=r"^no complete version in .*/7: not found$"):
        pull(version.below("7"), tmp_path / "flowers")
