"""Publishing to a bucket: the order of the files, and what is left when a publisher is killed, or is not alone."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path

import pytest
from stored_versions import contents, memory_store, stored, write_version

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage.manifest import GRAPH, MANIFEST
from savedmodel_bakery.storage.publish import (
    VersionTakenError,
    check_free,
    publish,
    publish_next,
    published_versions,
    remove,
    started_versions,
)
from savedmodel_bakery.storage.store import Store


class Killed(BaseException):
    """The process ends: nothing after it is done."""


def without_manifest(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name != MANIFEST}


def test_the_manifest_is_written_first_and_the_graph_last(tmp_path: Path) -> None:
    files = contents(write_version(tmp_path / "2"))
    order: list[str] = []

    def observe(_: int) -> None:
        order.extend(name for name in base.below("2").sizes() if name not in order)

    base = memory_store()
    version = publish(tmp_path / "2", memory_store(observe, base.url), 2)
    order.extend(name for name in version.sizes() if name not in order)
    assert (MANIFEST, GRAPH) == (order[0], order[-1])
    assert files == without_manifest(stored(base.below("2")))
    assert files == contents(tmp_path / "2"), "the folder has changed"


def test_a_publisher_that_is_killed_at_any_moment_leaves_no_wrong_version_and_continues(tmp_path: Path) -> None:
    files = contents(write_version(tmp_path / "2"))
    for moment in itertools.count(1):

        def kill(step: int, moment: int = moment) -> None:
            if step == moment:
                raise Killed

        base = memory_store()
        try:
            publish(tmp_path / "2", memory_store(kill, base.url), 2)
            break
        except Killed:
            pass
        if published_versions(base):
            assert files == without_manifest(stored(base.below("2")))
        publish(tmp_path / "2", base, 2)
        assert files == without_manifest(stored(base.below("2")))
    assert moment > 15


@pytest.mark.parametrize("restart", [False, True], ids=["as it is", "restarted"])
@pytest.mark.parametrize("text", ["first", "second"], ids=["same files", "other files"])
def test_another_publisher_at_any_moment_never_mixes_their_files(tmp_path: Path, text: str, restart: bool) -> None:
    first = contents(write_version(tmp_path / "first" / "2"))
    second = contents(write_version(tmp_path / "second" / "2", text))
    for moment in itertools.count(1):
        base, winners = memory_store(), list[str]()

        def meet(step: int, moment: int = moment, base: Store = base, winners: list[str] = winners) -> None:
            if step == moment:
                with suppress(VersionTakenError):
                    publish(tmp_path / "second" / "2", base, 2, restart=restart)
                    winners.append("second")

        try:
            publish(tmp_path / "first" / "2", memory_store(meet, base.url), 2)
            winners.append("first")
        except PublishError:
            assert ["second"] == winners
        assert (second if "second" in winners else first) == without_manifest(stored(base.below("2")))
        assert 1 == len(winners) or first == second
        if moment > 20:  # after the last step of the first
            break


def test_a_complete_version_is_never_overwritten_not_even_by_a_restart(tmp_path: Path) -> None:
    base = memory_store()
    version = publish(write_version(tmp_path / "2"), base, 2)
    before = stored(version)
    write_version(tmp_path / "2", "second")
    for restart in (False, True):
        with pytest.raises(VersionTakenError) as rejected:
            publish(tmp_path / "2", base, 2, restart=restart)
    assert (
        f"version 2 already exists in {base}, and published versions are never overwritten; the next free version is 3"
    ) == str(rejected.value)
    assert before == stored(version)


def test_an_unfinished_upload_of_other_files_is_removed_on_request_only(tmp_path: Path) -> None:
    base = memory_store()
    base.create("2/variables/old", b"by another program")
    write_version(tmp_path / "2")
    with pytest.raises(VersionTakenError, match=r"/2 has an unfinished upload of other files: .* with restart"):
        publish(tmp_path / "2", base, 2)
    assert {"2/variables/old": 18} == base.sizes()
    publish(tmp_path / "2", base, 2, restart=True)
    assert contents(tmp_path / "2") == without_manifest(stored(base.below("2")))


@pytest.mark.parametrize("name", ["variables/variables.index", "variables/stray"])
def test_bytes_that_another_program_wrote_keep_the_graph_from_being_written(tmp_path: Path, name: str) -> None:
    def disturb(step: int) -> None:
        if step == 4:
            base.create(f"2/{name}", b"INDEX")

    base = memory_store()
    with pytest.raises(PublishError, match=f"/2/{name} is not the file of this version: another program"):
        publish(write_version(tmp_path / "2"), memory_store(disturb, base.url), 2)
    assert {} == published_versions(base)


def test_a_folder_that_is_not_a_version_is_rejected(tmp_path: Path) -> None:
    base = memory_store()
    with pytest.raises(PublishError, match=r"^no SavedModel in .*: must be the folder of a version, such as MODEL/1$"):
        publish(tmp_path, base, 2)
    assert {} == base.sizes()


def test_a_pulled_version_that_was_damaged_is_rejected(tmp_path: Path) -> None:
    base = memory_store()
    write_version(tmp_path / "2")
    (tmp_path / "2" / MANIFEST).write_bytes(publish(tmp_path / "2", base, 2).read(MANIFEST))
    publish(tmp_path / "2", base, 3)
    write_version(tmp_path / "2", "second")
    with pytest.raises(PublishError, match=r"/2 is damaged: saved_model\.pb differs from the manifest$"):
        publish(tmp_path / "2", base, 4)
    with pytest.raises(PublishError, match=f"^invalid version {2**63}: must be between 0 and {2**63 - 1}$"):
        publish(tmp_path / "2", base, 2**63)


def test_versions_are_numbers_and_complete_if_they_have_a_graph(tmp_path: Path) -> None:
    base = memory_store()
    for folder in ("10", "9", "x", "07", "-1"):
        base.create(f"{folder}/saved_model.pb", b"")
    base.create("11/half", b"")
    assert [9, 10] == list(published_versions(base))
    assert [9, 10, 11] == list(started_versions(base))
    assert "12" == publish_next(write_version(tmp_path / "1"), base, progress=lambda _: None).name


def test_the_next_publisher_of_a_number_that_is_taken_meanwhile_gets_the_next(tmp_path: Path) -> None:
    def meet(step: int) -> None:
        if step == 2:
            publish_next(write_version(tmp_path / "other", "second"), base, progress=lambda _: None)

    base = memory_store()
    version = publish_next(write_version(tmp_path / "1"), memory_store(meet, base.url), progress=lambda _: None)
    assert ("2", [1, 2]) == (version.name, list(published_versions(base)))


def test_a_number_in_use_or_out_of_range_is_rejected_beforehand() -> None:
    base = memory_store()
    base.create("3/half", b"")
    check_free(base, None)
    check_free(base, 4)
    with pytest.raises(VersionTakenError, match=r"^version 3 already exists"):
        check_free(base, 3)
    with pytest.raises(PublishError, match=r"^invalid version -1: must be between 0 and 9223372036854775807$"):
        check_free(base, -1)


def test_a_removal_that_is_cut_off_leaves_no_complete_version(tmp_path: Path) -> None:
    def kill(step: int) -> None:
        if step == 3:
            raise Killed

    base = memory_store()
    publish(write_version(tmp_path / "2"), base, 2)
    with pytest.raises(Killed):
        remove(memory_store(kill, base.url).below("2"))
    assert {} == published_versions(base)
    remove(base.below("2"))
    assert {} == base.sizes()
