"""The control groups of this process, whose limits apply to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def folders(controller: str) -> Iterator[Path]:
    """Yield the folders of the process's group and of those above it, of version 1 or 2, where they are visible.

    Source: cgroups(7).
    """
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = _MOUNT
        elif controller in controllers.split(","):
            root = _MOUNT / controller
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            yield folder
            if folder == root:
                break


def read_number(path: Path) -> int | None:
    """Return the number in a file; None if it has none, as `max` means no limit, or can't be read."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
