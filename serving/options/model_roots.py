"""The folders that models may be loaded from, set by `--allowed_model_roots`; without any, every path is allowed.

They are absolute paths, may be symbolic links, and need not exist yet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument


class OutsideRootsError(StatusError):
    """A path leads out of the allowed folders; loading from it is not retried."""


def parse_model_roots(text: str) -> tuple[Path, ...]:
    """Parse comma-separated folders; an empty text allows every path.

    Raises:
        StatusError: INVALID_ARGUMENT if one is not absolute.
    """
    roots = tuple(map(Path, text.split(","))) if text else ()
    for root in roots:
        if not root.is_absolute():
            raise invalid_argument(f"invalid allowed_model_roots {text}: each folder must be an absolute path")
    return roots


def check_base_paths(models: Mapping[str, ModelConfig], roots: Sequence[Path]) -> None:
    """Check the base paths of a configuration; see `check_path`."""
    for name, config in models.items():
        check_path(config.folder, roots, f"base path of model {name}")


def check_path(path: Path, roots: Sequence[Path], title: str) -> None:
    """Check that a path, with its symbolic links resolved, is one of the allowed folders or below one.

    Args:
        path: need not exist.
        roots: the allowed folders.
        title: what it is, for the error.

    Raises:
        OutsideRootsError: PERMISSION_DENIED, with the path and the allowed folders.
    """
    if not roots:
        return
    try:
        target = Path(os.path.realpath(path))
    except ValueError:  # a NUL character: such a path can't exist
        return
    if any(target.is_relative_to(os.path.realpath(root)) for root in roots):
        return
    link = "" if target == path else f" leads to {target}, which"
    allowed = ", ".join(map(str, roots))
    raise OutsideRootsError(
        Code.PERMISSION_DENIED,
        f"{title}: {path}{link} is not below an allowed folder: {allowed} (--allowed_model_roots)",
    )
