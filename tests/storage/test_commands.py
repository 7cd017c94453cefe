"""The commands of storage, and the bucket arguments of the others, with memory in the place of buckets."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import command_line
import pytest
from stored_versions import contents, memory_store, write_version

from savedmodel_bakery.exporter.commands.inspect import inspect
from savedmodel_bakery.storage.commands import package, publish, pull

Capture = pytest.CaptureFixture[str]


def test_a_version_is_published_under_its_number_and_pulled(tmp_path: Path, capsys: Capture) -> None:
    base = memory_store()
    files = contents(write_version(tmp_path / "flowers" / "7"))
    size_mb = sum(map(len, files.values())) / 1e6
    ended = command_line.run(publish, [tmp_path / "flowers" / "7", f"{base}/"], capsys)
    assert (0, f"{base}/7\n", f"listing {base} …\nuploading 4 files, {size_mb:.1f} MB …\nchecking them …\n") == ended
    ended = command_line.run(pull, [base, tmp_path / "copy"], capsys)
    assert (0, f"{tmp_path}/copy/7\n", f"listing {base} …\ndownloading 4 files, {size_mb:.1f} MB …\n") == ended


def test_of_the_folder_of_a_model_the_newest_version_is_published(tmp_path: Path, capsys: Capture) -> None:
    base = memory_store()
    for name in ("9", "10"):
        write_version(tmp_path / "flowers" / name)
    assert f"{base}/10\n" == command_line.run(publish, [tmp_path / "flowers", base], capsys).stdout
    assert f"{base}/3\n" == command_line.run(publish, [tmp_path / "flowers", base, "--version", 3], capsys).stdout


@pytest.mark.parametrize(
    ("name", "url", "message"),
    [
        ("7", "memory://models/flowers/7", "ends with a number: pass the URL of a model"),
        ("7", "://models/flowers", "invalid URL '://models/flowers': must be the URL of a folder, such as s3://bucket"),
        ("7", "models/flowers", "must be the URL of a folder, such as s3://bucket/models/flowers"),
        ("version", "memory://models/flowers", "is not a number: pass the folder of a version, or --version"),
    ],
)
def test_wrong_usage(name: str, url: str, message: str, tmp_path: Path, capsys: Capture) -> None:
    ended = command_line.run(publish, [write_version(tmp_path / name), url], capsys)
    assert (2, "") == ended[:2]
    assert message in ended.stderr


def test_a_package_has_the_files_of_a_version_and_nothing_of_their_origin(tmp_path: Path, capsys: Capture) -> None:
    archives = []
    for name in ("here", "there"):
        version = write_version(tmp_path / name / "flowers" / "2")
        archives.append(tmp_path / f"{name}.tar.gz")
        arguments = [version.parent, "--for", "sagemaker", "--out", archives[-1]]
        assert (0, f"{archives[-1]}\n", "") == command_line.run(package, arguments, capsys)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as archive:
        assert {("", 0, 0)} == {(member.uname, member.uid, member.mtime) for member in archive}
        archive.extractall(tmp_path / "model", filter="data")
    assert contents(version) == contents(tmp_path / "model" / "flowers" / "2")
    assert {"here", "there", "here.tar.gz", "there.tar.gz", "model"} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("folder", "options", "code", "message"),
    [
        ("flowers/2", ["--name", "a/b"], 2, "invalid model name 'a/b': must be text without / \\ : and control char"),
        ("flowers/2", ["--out", "flowers/pipe"], 1, "cannot write to flowers/pipe: must be a regular file"),
        ("flowers/new", [], 2, "is not a number: pass the folder of a version, such as MODEL/1"),
        (".", [], 1, "no SavedModel in"),
        ("flowers/2", ["--out", "/nowhere/model.tar.gz"], 1, "cannot write to /nowhere/model.tar.gz: No such file or"),
        ("flowers/2", ["--out", "flowers/2/model.tar.gz"], 1, "2 has a SavedModel, and published versions stay as the"),
    ],
)
def test_what_cannot_be_packaged(
    folder: str,
    options: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("2", "new"):
        write_version(tmp_path / "flowers" / name)
    os.mkfifo(tmp_path / "flowers" / "pipe")
    arguments = [tmp_path / folder, "--for", "sagemaker", "--out", tmp_path / "out.tar.gz", *options]
    ended = command_line.run(package, arguments, capsys)
    assert (code, "") == ended[:2]
    assert message in ended.stderr
    assert ["flowers"] == [path.name for path in tmp_path.iterdir()]
    assert not list(tmp_path.rglob("model.tar.gz"))


def test_versions_in_a_bucket_are_listed_with_size_and_time(tmp_path: Path, capsys: Capture) -> None:
    base = memory_store()
    for number in ("9", "10"):
        command_line.run(publish, [write_version(tmp_path / number), base], capsys)
    base.create("11/variables/unfinished", b"")
    rows = [line.split("\t") for line in command_line.run(inspect, [base], capsys).stdout.splitlines()]
    assert [("9", f"{base}/9"), ("10", f"{base}/10")] == [(row[0], row[3]) for row in rows]
    size_bytes = sum(base.below("9").sizes().values())
    assert (f"{size_bytes / 1e3:.1f} kB", True) == (rows[0][1], rows[0][2].endswith("+00:00"))
