"""Fixtures for the tests of the photos of a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from savedmodel_bakery.answers.photo import UnreadablePhotoError
from savedmodel_bakery.answers.photo_files import FileList, open_file

Read = Callable[..., dict[str, str]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Read the photos that paths name in an empty folder: their contents by key, or why they can't be read."""
    monkeypatch.chdir(tmp_path)

    def read(*paths: str, listed: bytes = b"") -> dict[str, str]:
        contents = {}
        for path in FileList(paths, listed):
            for photo in open_file(path, lambda _: True, all_files=False):
                assert photo.key not in contents
                try:
                    contents[photo.key] = photo.read().decode()
                except UnreadablePhotoError as exc:
                    contents[photo.key] = str(exc)
        return contents

    return read
