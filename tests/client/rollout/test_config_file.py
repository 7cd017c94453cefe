"""The config file is replaced in one step, and by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from savedmodel_bakery.client.rollout import ConfigError, RolloutError
from savedmodel_bakery.client.rollout.config_file import ConfigFile, locked

TEXT = 'model_config_list { config { name: "m" base_path: "/m" model_platform: "tensorflow" } }'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "models.config"
    path.write_text(TEXT)
    return path


def test_the_content_is_replaced_and_the_mode_stays(path: Path) -> None:
    path.chmod(0o640)
    file = ConfigFile(path)
    with path.open() as opened:
        file.replace(TEXT + "# é\r\n")
        assert TEXT == opened.read()  # a new file has taken the name
    assert (TEXT + "# é\r\n").encode() == path.read_bytes()
    assert (0o640, [path]) == (path.stat().st_mode & 0o777, list(path.parent.iterdir()))
    assert "m" == file.model("m").name


def test_the_file_that_a_link_leads_to_is_replaced(path: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.config"
    link.symlink_to("../models.config")
    with locked(link):
        assert {"models.config", ".models.config.lock", "links"} == {entry.name for entry in tmp_path.iterdir()}
        ConfigFile(link).replace(TEXT + "\n")
    assert (True, TEXT + "\n") == (link.is_symlink(), path.read_text())
    assert {"models.config", "links"} == {entry.name for entry in tmp_path.iterdir()}


def test_a_change_by_another_program_is_not_overwritten(path: Path) -> None:
    file = ConfigFile(path)
    path.write_text(TEXT + "# mine")
    with pytest.raises(RolloutError, match=f"another program has changed {path}: run the command again"):
        file.replace(TEXT + "# theirs")
    assert TEXT + "# mine" == path.read_text()


def test_a_full_disk_leaves_the_old_file_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(RolloutError, match=f"cannot write {path}: No space left on device"):
        ConfigFile(path).replace(TEXT + "\n")
    assert (TEXT, [path]) == (path.read_text(), list(path.parent.iterdir()))


@pytest.mark.parametrize(
    ("is_member", "mode", "is_replaced"), [(True, 0o640, True), (False, 0o644, True), (False, 0o640, False)]
)
def test_the_group_stays_or_the_file_does(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_member: bool, mode: int, is_replaced: bool
) -> None:
    """Only root may give a file to another owner, and only members of a group may give it to the group."""
    path.chmod(mode)
    fstat, groups = os.fstat, [path.stat().st_gid + 1]  # of the new file

    def fchown(_handle: int, owner: int, group: int) -> None:
        if owner != -1 or not is_member:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        groups.append(group)

    monkeypatch.setattr(os, "fchown", fchown)
    monkeypatch.setattr(
        os, "fstat", lambda handle: os.stat_result((*fstat(handle)[:5], groups[-1], *fstat(handle)[6:]))
    )
    if is_replaced:
        ConfigFile(path).replace(TEXT + "\n")
    else:
        with pytest.raises(RolloutError, match=f"cannot write {path}: its group {path.stat().st_gid} would change"):
            ConfigFile(path).replace(TEXT + "\n")
    assert is_member == (path.stat().st_gid in groups)
    assert (TEXT + "\n" * is_replaced, [path]) == (path.read_text(), list(path.parent.iterdir()))


def test_a_file_that_is_mounted_by_itself_is_named_as_such(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a single file that is mounted into a container."""

    def fails(*_arguments: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(RolloutError, match=r"busy: it is a mount point, .*; mount its folder"):
        ConfigFile(path).replace(TEXT + "\n")
    assert (TEXT, [path]) == (path.read_text(), list(path.parent.iterdir()))


def test_the_rest_of_a_killed_process_does_not_matter(path: Path) -> None:
    path.with_name(".models.config.new").write_text("half a f")
    path.with_name(".models.config.lock").touch()
    with locked(path):
        ConfigFile(path).replace(TEXT + "\n")
    assert (TEXT + "\n", [path]) == (path.read_text(), list(path.parent.iterdir()))


def test_a_read_only_folder_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def read_only(name: Any, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(name, flags, *mode)

    monkeypatch.setattr(os, "open", read_only)
    expected = f"cannot write to the folder of {path}: Read-only file system"
    with pytest.raises(RolloutError, match=expected), locked(path):
        pass
    with pytest.raises(RolloutError, match=f"cannot write {path}: Read-only file system"):
        ConfigFile(path).replace(TEXT + "\n")


def test_the_lock_is_for_one_process_at_a_time(path: Path) -> None:
    for _ in range(2):
        with locked(path), pytest.raises(RolloutError, match="another rollout is changing"), locked(path):
            pass


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process ends between opening the lock and locking it."""
    lock, flock = path.with_name(".models.config.lock"), fcntl.flock
    lock.touch()

    def remove_first(handle: int, operation: int) -> None:
        monkeypatch.undo()
        lock.unlink()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with locked(path):
        assert lock.exists()
        with pytest.raises(RolloutError), locked(path):
            pass


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\xff", "is not valid UTF-8"),
        (b"model_config_list {", "not a valid ModelServerConfig: 1:"),
        (b"# nothing", "lists no models"),
        (b"model_config_list {}", "lists no models"),
        (TEXT.replace("/m", "m").encode(), "Expected model m to have an absolute path or URI; got base_path()=m"),
        (TEXT.replace("model_platform", "# ").encode() + b"\n}}", "Illegal setting neither"),
        (TEXT.replace("model_config_list", "custom_model_config").encode(), "has no field named"),
        (f"{TEXT[:-2]} {TEXT[19:]}".encode(), "Illegal to list model m multiple times"),
    ],
    ids=["bytes", "half", "comment", "empty", "relative", "no platform", "custom", "twice"],
)
def test_an_invalid_file_is_rejected(path: Path, content: bytes, error: str) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        ConfigFile(path)
    assert (True, True) == (str(caught.value).startswith(str(path)), error in str(caught.value)), caught.value


def test_a_missing_model_is_an_error_with_the_names_of_the_others(path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        ConfigFile(path).model("n")
    assert f'model "n" is not in {path}; it lists "m"' == str(caught.value)
