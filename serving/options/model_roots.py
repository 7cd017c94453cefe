"""The folders that models may be loaded from, set by `--allowed_model_roots`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument


class OutsideRootsError(StatusError):
    """A path leads out of the allowed folders; loading from it is not retried."""


@dataclass(frozen=True)
class ModelRoots:
    """The allowed folders; without any, every path is allowed.

    Attributes:
        folders: absolute paths; they may be symbolic links, and need not exist yet.
    """

    folders: tuple[Path, ...] = ()

    def check_base_paths(self, models: Mapping[str, ModelConfig]) -> None:
        """Check the base paths of a configuration.

        Raises:
            OutsideRootsError: as for `check`.
        """
        for name, config in models.items():
            self.check(config.folder, f"base path of model {name}")

    def check(self, path: Path, title: str) -> None:
        """Check that a path, with its symbolic links resolved, is one of the allowed folders or below one.

        Args:
            path: need not exist.
            title: what it is, for the error.

        Raises:
            OutsideRootsError: PERMISSION_DENIED, with the path and the allowed folders.
        """
        if not self.folders:
            return
        try:
            target = Path(os.path.realpath(path))
        except ValueError:  # a NUL character: such a path can't exist
            return
        if any(target.is_relative_to(os.path.realpath(folder)) for folder in self.folders):
            return
        link = "" if target == path else f" leads to {target}, which"
        allowed = ", ".join(map(str, self.folders))
        raise OutsideRootsError(
            Code.PERMISSION_DENIED,
            f"{title}: {path}{link} is not below an allowed folder: {allowed} (--allowed_model_roots)",
        )


def parse_model_roots(text: str) -> ModelRoots:
    """Parse comma-separated folders; an empty text allows every path.

    Raises:
        StatusError: INVALID_ARGUMENT if one is not absolute.
    """
    folders = tuple(map(Path, text.split(","))) if text else ()
    for folder in folders:
        if not folder.is_absolute():
            raise invalid_argument(f"invalid allowed_model_roots {text}: each folder must be an absolute path")
    return ModelRoots(folders)
