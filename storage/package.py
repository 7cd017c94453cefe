"""Writes a version as an archive, whose bytes depend on the files of the version only."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
from pathlib import Path

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage.folders import check_outside_versions, writing


def package(version: Path, name: str, number: int, out: Path) -> Path:
    """Write the folder of a version as `<name>/<number>/…` to a tar.gz file, which appears when it is complete.

    An archive that is there is replaced. Files have no owner and the time 0.

    Returns:
        The path of the archive.

    Raises:
        PublishError: a file can't be read, or the archive can't be written, would be in a version's folder, or would
            replace what is not a regular file.
    """
    check_outside_versions(out.parent)
    if out.exists() and not out.is_file():
        raise PublishError(f"cannot write to {out}: must be a regular file")
    with writing(out), tempfile.TemporaryDirectory(prefix=".package-", dir=out.parent) as folder:
        staged = Path(folder) / out.name
        with (
            staged.open("wb") as file,
            gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed,
            # A link becomes the file that it leads to.
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as archive,
        ):
            archive.add(version, f"{name}/{number}", filter=_without_origin)
        staged.replace(out)
    return out


def _without_origin(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member
