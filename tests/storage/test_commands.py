"""The commands `publish` and `pull`, and the bucket arguments of the others, with memory in the place of buckets."""

from __future__ import annotations

from pathlib import Path

import command_line
import pytest
from stored_versions import contents, memory_store, write_version

from savedmodel_bakery.exporter.commands.inspect import inspect
from savedmodel_bakery.storage.commands import publish, pull

Capture = pytest.CaptureFixture[str]


def test_a_version_is_published_under_its_number_and_pulled(tmp_path: Path, capsys: Capture) -> None:
    base = memory_store()
    files = contents(write_version(tmp_path / "flowers" / "7"))
    size_mb = sum(map(len, files.values())) / 1e6
    ended = command_line.run(publish, [tmp_path / "flowers" / "7", f"{base}/"], capsys)
    assert (0, f"{base}/7\n", f"uploading 4 files, {size_mb:.1f} MB …\nchecking them …\n") == ended
    ended = command_line.run(pull, [base, tmp_path / "copy"], capsys)
    assert (0, f"{tmp_path}/copy/7\n", f"downloading 4 files, {size_mb:.1f} MB …\n") == ended


def test_of_the_folder_of_a_model_the_newest_version_is_published(tmp_path: Path, capsys: Capture) -> None:
    base = memory_store()
    for name in ("9", "10"):
        write_version(tmp_path / "flowers" / name)
    assert f"{base}/10\n" == command_line.run(publish, [tmp_path / "flowers", base], capsys).stdout
    assert f"{base}/3\n" == command_line.run(publish, [tmp_path / "flowers", base, "--version", 3], capsys).stdout


@pytest.mark.parametrize(
    ("name", "url", "message"),
    [
        ("7", "memory://models/flowers/7", "ends with a number: pass the URL of the model, memory://models/flowers"),
        ("7", "models/flowers", "must be the URL of a folder, such as s3://bucket/models/flowers"),
        ("version", "memory://models/flowers", "is not a number: pass the folder of a version, or --version"),
    ],
)
def test_wrong_usage(name: str, url: str, message: str, tmp_path: Path, capsys: Capture) -> None:
    ended = command_line.run(publish, [write_version(tmp_path / name), url], capsys)
    assert (2, "") == ended[:2]
    assert message in ended.stderr


def test_versions_in_a_bucket_are_listed_with_size_and_time(tmp_path: Path, capsys: Capture) -> None:
    base = memory_store()
    for number in ("9", "10"):
        command_line.run(publish, [write_version(tmp_path / number), base], capsys)
    base.create("11/variables/unfinished", b"")
    rows = [line.split("\t") for line in command_line.run(inspect, [base], capsys).stdout.splitlines()]
    assert [("9", f"{base}/9"), ("10", f"{base}/10")] == [(row[0], row[3]) for row in rows]
    size_bytes = sum(base.below("9").sizes().values())
    assert (f"{size_bytes / 1e3:.1f} kB", True) == (rows[0][1], rows[0][2].endswith("+00:00"))
