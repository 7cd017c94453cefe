"""Publishing a baked version: saved, described, validated and renamed, or nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from stored_versions import memory_store

from savedmodel_bakery.errors import PublishError, VerificationError
from savedmodel_bakery.exporter import publish
from savedmodel_bakery.storage.folders import published_versions
from savedmodel_bakery.storage.publish import publish as publish_to_bucket
from savedmodel_bakery.storage.store import Store


def save(path: Path) -> None:
    path.mkdir()
    (path / "saved_model.pb").write_text("graph")


def test_a_version_is_saved_described_validated_and_renamed(tmp_path: Path) -> None:
    def validate(staged: Path) -> str:
        assert "graph" == (staged / "saved_model.pb").read_text()
        assert "how" == (staged / publish.RECIPE_FILE).read_text()
        assert {} == published_versions(tmp_path)
        return "valid"

    path, result = publish.publish_version(
        tmp_path, None, save=save, description=(publish.RECIPE_FILE, "how"), validate=validate
    )
    assert (tmp_path / "1", "valid") == (path, result)
    assert ["assets.extra", "saved_model.pb"] == sorted(file.name for file in path.iterdir())


def test_a_version_that_cannot_be_written_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    def fill_disk(staged: Path) -> None:
        staged.mkdir()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(PublishError, match=r"^cannot write to .*: No space left on device$"):
        publish.publish_version(
            tmp_path, None, save=fill_disk, description=(publish.RECIPE_FILE, "how"), validate=lambda _: None
        )
    assert [] == list(tmp_path.iterdir())


def test_a_version_that_fails_validation_is_not_published(tmp_path: Path) -> None:
    def validate(staged: Path) -> None:
        raise VerificationError(f"{staged.name} is wrong")

    with pytest.raises(VerificationError, match="version is wrong"):
        publish.publish_version(tmp_path, None, save=save, description=(publish.RECIPE_FILE, "how"), validate=validate)
    assert [] == list(tmp_path.iterdir())


def test_an_os_error_of_validation_is_not_reported_as_a_write_error(tmp_path: Path) -> None:
    def validate(_: Path) -> None:
        (tmp_path / "missing.jpg").read_bytes()

    with pytest.raises(FileNotFoundError, match=r"missing\.jpg"):
        publish.publish_version(
            tmp_path / "base", None, save=save, description=(publish.RECIPE_FILE, "how"), validate=validate
        )
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("is_local", [True, False], ids=["folder", "bucket"])
def test_the_newest_version_is_of_the_same_model(tmp_path: Path, is_local: bool) -> None:
    base = tmp_path if is_local else memory_store()
    publish.check_same_model(base, "net:two")
    for number, model in ((1, "net:two"), (2, "net:one")):
        save(tmp_path / str(number))
        (tmp_path / str(number) / "assets.extra").mkdir()
        (tmp_path / str(number) / publish.RECIPE_FILE).write_text(f'model = "{model}"\n')
        if isinstance(base, Store):
            publish_to_bucket(tmp_path / str(number), base, number)
    publish.check_same_model(base, "net:one")
    with pytest.raises(PublishError, match="already serves net:one; choose another name for net:two with --name"):
        publish.check_same_model(base, "net:two")
