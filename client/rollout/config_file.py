"""Reads a model config file and replaces it atomically."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from savedmodel_bakery.client.rollout import ConfigError, RolloutError, config_text
from savedmodel_bakery.wire.model_config import ModelConfig, parse_config, platform_of
from savedmodel_bakery.wire.status import StatusError


class ConfigFile:
    """A file as `--model_config_file` takes it; `text` is its content, as this object read or wrote it last.

    A symbolic link stays one: the file that it leads to is replaced. Raises ConfigError for an invalid list of models.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.resolve()
        self.text = self._read()
        self.models()

    def __str__(self) -> str:
        return str(self.path)

    def models(self) -> Mapping[str, ModelConfig]:
        """Return the models that the file lists, by name."""
        try:
            models = parse_config(config_text.parse(self.text))
            for config in (models or {}).values():
                platform_of(config)  # tensorflow_model_server refuses every later reload after one without a platform
        except StatusError as error:
            raise ConfigError(f"{self.path}: {error.text}") from error
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}") from error
        if not models:
            raise ConfigError(f"{self.path} lists no models")
        return models

    def model(self, name: str) -> ModelConfig:
        """Return a model of the file."""
        models = self.models()
        if name not in models:
            names = ", ".join(f'"{listed}"' for listed in models)
            raise ConfigError(f'model "{name}" is not in {self.path}; it lists {names}')
        return models[name]

    def replace(self, text: str) -> None:
        """Replace another content, in one step and durably. The mode stays, and so do owner and group if permitted."""
        if text == self.text:
            return
        if self._read() != self.text:
            raise RolloutError(f"another program has changed {self.path}: run the command again")
        new = self._file.with_name(f".{self._file.name}.new")
        try:
            try:
                _write(new, text.encode(), self._file.stat())
                new.replace(self._file)
            except BaseException:
                new.unlink(missing_ok=True)
                raise
            _sync_folder(self._file.parent)
        except OSError as error:
            reason = error.strerror
            if error.errno == errno.EBUSY:
                reason = f"{reason}: it is a mount point, so no other file can take its place; mount its folder instead"
            raise RolloutError(f"cannot write {self.path}: {reason}") from error
        self.text = text

    def _read(self) -> str:
        try:
            return self._file.read_bytes().decode()
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.path} is not valid UTF-8") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes that use this function from changing a config file, at most until the process ends.

    The lock is on a file beside it, which is removed at the end: the config file itself is replaced, and network file
    systems cannot lock folders.
    """
    file = path.resolve()
    lock = file.with_name(f".{file.name}.lock")
    try:
        handle = _lock(lock)
    except BlockingIOError as error:
        raise RolloutError(f"another rollout is changing {path}: run the command again when it has ended") from error
    except OSError as error:
        raise RolloutError(f"cannot write to the folder of {path}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _lock(lock: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.fstat(handle).st_ino == lock.stat().st_ino:
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # the process that had the lock has just removed the file


def _write(path: Path, content: bytes, like: os.stat_result) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        _set_owner(handle, like)
        os.fchmod(handle, like.st_mode & 0o7777)
        file.write(content)
        file.flush()
        os.fsync(handle)


def _set_owner(handle: int, like: os.stat_result) -> None:
    """Set owner and group, or the group alone: only root may give files away, but members of a group may set it."""
    for owner in (like.st_uid, -1):
        with suppress(PermissionError):
            os.fchown(handle, owner, like.st_gid)
            return
    if os.fstat(handle).st_gid != like.st_gid and not like.st_mode & stat.S_IROTH:
        reason = f"its group {like.st_gid} would change, and servers could lose access: run as a member of this group"
        raise PermissionError(errno.EPERM, reason)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
