"""Publishing: version numbers, atomicity and concurrent publishers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage import folders

Outcome = Path | PublishError
LARGEST = 2**63 - 1


def put(base_path: Path, version: int | None, content: str = "graph") -> Path:
    """Stage and publish a version with one file."""
    with folders.staging(base_path) as stage:
        return folders.rename_into_place(written(stage, content), base_path, version)


def written(stage: Path, content: str) -> Path:
    staged = stage / "version"
    staged.mkdir()
    (staged / "saved_model.pb").write_text(content)
    return staged


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


NUMBERS = {
    "none": ([], "1"),
    "after one": (["1"], "2"),
    "after zero": (["0"], "1"),
    "gaps stay": (["1", "7"], "8"),
    "numeric order": (["9", "10"], "11"),
    "leading zeros": (["00003"], "4"),
    "other names are ignored": (["1", "x", "2.staged", "-5", ".tmp-9"], "2"),
}


@pytest.mark.parametrize(("existing", "expected"), NUMBERS.values(), ids=NUMBERS)
def test_the_next_number_is_one_above_the_highest(tmp_path: Path, existing: list[str], expected: str) -> None:
    for name in existing:
        (tmp_path / name).mkdir()
    assert tmp_path / expected == put(tmp_path, None)
    assert sorted([*existing, expected]) == names(tmp_path)


@pytest.mark.parametrize("version", [0, 1, 5, LARGEST], ids=["zero", "one", "five", "largest"])
def test_an_explicit_number_is_used(tmp_path: Path, version: int) -> None:
    assert tmp_path / "base" / str(version) == put(tmp_path / "base", version)
    assert {version: tmp_path / "base" / str(version)} == folders.published_versions(tmp_path / "base")


@pytest.mark.parametrize("existing", ["3", "003"], ids=["same name", "same number"])
def test_an_existing_version_is_rejected_and_unchanged(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).mkdir()
    (tmp_path / existing / "saved_model.pb").write_text("old")
    for publish_again in (lambda: folders.check_free(tmp_path, 3), lambda: put(tmp_path, 3, "new")):
        with pytest.raises(PublishError) as rejected:
            publish_again()
        assert (
            f"version 3 already exists in {tmp_path}, and published versions are never overwritten; "
            "the next free version is 4"
        ) == str(rejected.value)
    assert [existing] == names(tmp_path)
    assert "old" == (tmp_path / existing / "saved_model.pb").read_text()


@pytest.mark.parametrize("version", [-1, LARGEST + 1], ids=["negative", "more than 63 bits"])
def test_a_number_that_no_server_accepts_is_rejected(tmp_path: Path, version: int) -> None:
    for publish_again in (lambda: folders.check_free(tmp_path, version), lambda: put(tmp_path, version)):
        with pytest.raises(PublishError, match=f"invalid version {version}: must be between 0 and {LARGEST}"):
            publish_again()
    assert [] == names(tmp_path)


def test_there_is_no_next_number_after_the_largest(tmp_path: Path) -> None:
    (tmp_path / str(LARGEST)).mkdir()
    with pytest.raises(PublishError, match=f"invalid version {LARGEST + 1}"):
        put(tmp_path, None)
    assert [str(LARGEST)] == names(tmp_path)


def test_the_number_of_a_file_is_not_used_for_a_version(tmp_path: Path) -> None:
    (tmp_path / "7").write_text("stray")
    assert {} == folders.published_versions(tmp_path)
    with pytest.raises(PublishError, match="version 7 already exists"):
        put(tmp_path, 7)
    assert tmp_path / "8" == put(tmp_path, None)
    assert "stray" == (tmp_path / "7").read_text()


def test_versions_are_listed_by_number(tmp_path: Path) -> None:
    for name in ("10", "9", "0", "x", ".staging-1", "11"):
        (tmp_path / name).mkdir()
        if name != "11":
            (tmp_path / name / "saved_model.pb").write_text("graph")
    assert [0, 9, 10] == list(folders.published_versions(tmp_path))


def test_a_base_path_that_does_not_exist_has_no_versions(tmp_path: Path) -> None:
    assert {} == folders.published_versions(tmp_path / "none")


def test_staging_folders_of_killed_processes_are_removed_and_others_are_kept(tmp_path: Path) -> None:
    """A staging folder without a lock belongs to a process that has ended."""
    (tmp_path / ".staging-dead").mkdir()
    (tmp_path / ".staging-dead" / "half").write_text("half")
    with folders.staging(tmp_path) as mine:
        assert not (tmp_path / ".staging-dead").exists()
        put(tmp_path, None)
        assert mine.is_dir()
    assert ["1"] == names(tmp_path)


def test_a_staged_version_has_no_name_that_a_server_loads(tmp_path: Path) -> None:
    with folders.staging(tmp_path) as stage:
        written(stage, "half")
        assert 1 == len(names(tmp_path))
        assert {} == folders.published_versions(tmp_path)


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with folders.staging(tmp_path) as stage:
            written(stage, "half")
            raise RuntimeError("while baking")

    with pytest.raises(RuntimeError, match="while baking"):
        fail()
    assert [] == names(tmp_path)


def test_a_published_version_is_readable_by_other_users(tmp_path: Path) -> None:
    assert 0o755 == put(tmp_path, None).stat().st_mode & 0o777


def test_a_base_path_that_is_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "base").write_text("")
    with pytest.raises(PublishError, match=r"cannot write to .*base: File exists"):
        put(tmp_path / "base", None)


@pytest.mark.parametrize("kept", [[], ["models"], ["models", "models/pets"]], ids=["none", "root", "base path"])
def test_a_failure_removes_the_folders_that_it_made(tmp_path: Path, kept: list[str]) -> None:
    for name in kept:
        (tmp_path / name).mkdir()

    def fail() -> None:
        with folders.staging(tmp_path / "models" / "pets"):
            raise RuntimeError("while baking")

    with pytest.raises(RuntimeError, match="while baking"):
        fail()
    assert kept == sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))


def test_a_failure_keeps_a_folder_with_the_version_of_another_process(tmp_path: Path) -> None:
    def fail() -> None:
        with folders.staging(tmp_path / "pets"):
            put(tmp_path / "pets", None)
            raise RuntimeError("while baking")

    with pytest.raises(RuntimeError, match="while baking"):
        fail()
    assert ["1"] == names(tmp_path / "pets")


def all_at_once(count: int, attempt: Callable[[int], Path]) -> list[Outcome]:
    barrier = threading.Barrier(count)

    def run(number: int) -> Outcome:
        barrier.wait(10)
        try:
            return attempt(number)
        except PublishError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


ROUNDS = range(20)
RIVALS = 8


def test_one_of_several_concurrent_publishers_of_a_number_succeeds(tmp_path: Path) -> None:
    for number in ROUNDS:
        outcomes = all_at_once(RIVALS, lambda rival, number=number: put(tmp_path, number, str(rival)))  # type: ignore[misc]
        winners = [rival for rival, outcome in enumerate(outcomes) if isinstance(outcome, Path)]
        assert 1 == len(winners)
        assert str(winners[0]) == (tmp_path / str(number) / "saved_model.pb").read_text()
    assert sorted(map(str, ROUNDS)) == names(tmp_path)


def test_concurrent_publishers_of_the_next_number_each_get_their_own(tmp_path: Path) -> None:
    for _ in ROUNDS:
        all_at_once(RIVALS, lambda rival: put(tmp_path, None, str(rival)))
    expected = range(1, len(ROUNDS) * RIVALS + 1)
    assert sorted(map(str, expected)) == names(tmp_path)
