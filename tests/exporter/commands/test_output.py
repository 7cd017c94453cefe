"""The place of a new version: a local folder, or a bucket, to which it is uploaded; a failed upload keeps it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import click
import pytest
from stored_versions import contents, memory_store, write_version

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter.commands.output import open_output
from savedmodel_bakery.storage.publish import VersionTakenError


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary folders."""
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_local_folder_is_the_final_place(tmp_path: Path) -> None:
    root, finish = open_output(tmp_path, "flowers", None)
    assert (tmp_path, tmp_path / "flowers" / "1") == (root, finish(tmp_path / "flowers" / "1"))


@pytest.mark.parametrize(("version", "expected"), [(None, "4"), (7, "7")], ids=["next", "stated"])
def test_a_version_in_a_bucket_is_baked_in_a_temporary_folder(
    version: int | None, expected: str, temporary: Path
) -> None:
    models = memory_store()
    models.create("flowers/3/saved_model.pb", b"")
    with click.Context(click.Command("bake")):
        root, finish = open_output(models, "flowers", version)
        files = contents(write_version(root / "flowers" / "1"))
        assert f"{models}/flowers/{expected}" == str(finish(root / "flowers" / "1"))
    assert files.keys() == models.below(f"flowers/{expected}").sizes().keys() - {"assets.extra/manifest.json"}
    assert [] == list(temporary.iterdir())


@pytest.mark.parametrize("is_local", [True, False], ids=["folder", "bucket"])
def test_a_version_that_exists_is_rejected_before_the_bake(tmp_path: Path, temporary: Path, is_local: bool) -> None:
    (tmp_path / "flowers" / "3").mkdir(parents=True)
    models = memory_store()
    models.create("flowers/3/saved_model.pb", b"")
    with pytest.raises(PublishError, match=r"^version 3 already exists in .*flowers"):
        open_output(tmp_path if is_local else models, "flowers", 3)
    assert [] == list(temporary.iterdir())


def test_a_version_that_cannot_be_uploaded_is_kept(temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = memory_store()
    with click.Context(click.Command("bake")):
        root, finish = open_output(models, "flowers", 3)
        files = contents(write_version(root / "flowers" / "3"))
        models.create("flowers/3/saved_model.pb", b"of another publisher")
        with pytest.raises(VersionTakenError):
            finish(root / "flowers" / "3")
    expected = r"the new version is kept in (\S+); to publish it, run: bakery publish \1 \S+ --version NUMBER\n"
    message = re.search(expected, capsys.readouterr().err)
    assert message is not None
    assert files == contents(Path(message[1]))
    assert [Path(message[1]).parent] == list(temporary.iterdir())
