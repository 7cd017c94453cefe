"""Reads and writes the files below a URL of fsspec, such as s3://bucket/models. No file is ever overwritten.

Knows neither versions nor manifests. Retries are those of the packages of fsspec.
"""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import ConnectionFailedError, PublishError
from savedmodel_bakery.extras import naming_extras

_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), ("s3fs", "s3")),
    **dict.fromkeys(("gs", "gcs"), ("gcsfs", "gcs")),
    **dict.fromkeys(("az", "abfs", "abfss"), ("adlfs", "azure")),
}
"""The package of fsspec for a scheme, and the extra that installs it."""

_BLOCK_BYTES = 2**25
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_CONNECTION_ERRORS = {"ConnectionError", "ClientConnectionError", "ServiceRequestError"}
"""Names of base classes: of Python and botocore, aiohttp (for gcsfs), and azure-core. None of them may be imported."""


def is_url(path: str | Path) -> bool:
    """Return whether a command's argument is a URL rather than a local path."""
    return "://" in str(path)


@dataclass(frozen=True)
class Store:
    """The files below a URL, by their path relative to it, such as `variables/variables.index`.

    All methods raise PublishError if the storage refuses, and ConnectionFailedError if it cannot be reached.
    """

    url: str
    _filesystem: Any  # an AbstractFileSystem of fsspec

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    def below(self, name: str) -> Store:
        """Return the store of a folder."""
        return replace(self, url=f"{self.url}/{name}")

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each file at any depth; empty if the folder does not exist."""
        with self._reporting(f"list {self}"):
            root = self._path("")
            found = self._filesystem.find(root, detail=True).items()
            return {path[len(root) :]: info["size"] for path, info in found if path.startswith(root)}

    def modified(self, name: str) -> datetime:
        """Return when a file was written."""
        with self._reporting(f"list {self}/{name}"):
            time: datetime = self._filesystem.modified(self._path(name))
            return time

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        with self._reporting(f"read {self}/{name}"):
            content: bytes = self._filesystem.cat_file(self._path(name))
            return content

    def digest(self, name: str, size_bytes: int) -> str:
        """Read a file of this size, and return its SHA-256 in hexadecimal."""
        hasher = hashlib.sha256()
        with self._reporting(f"read {self}/{name}"):
            for start in range(0, size_bytes, _BLOCK_BYTES):
                end = min(start + _BLOCK_BYTES, size_bytes)
                hasher.update(self._filesystem.cat_file(self._path(name), start=start, end=end))
        return hasher.hexdigest()

    def create(self, name: str, content: Path | bytes) -> None:
        """Write a file, which appears when it is complete; raise FileExistsError if there is one.

        The storage itself decides which of two writers is the first, by conditional writes. A local folder and
        `memory://` do not, and a local file grows as it is written.
        """
        with self._reporting(f"write {self}/{name}"):
            path = self._path(name)
            if self._filesystem.exists(path):  # else a large file would be refused only after its upload
                raise FileExistsError(path)
            if isinstance(content, bytes):
                self._filesystem.pipe_file(path, content, mode="create")
            else:
                self._filesystem.put_file(str(content), path, mode="create")

    def download(self, name: str, file: Path) -> None:
        """Copy a file to a local one; raise OSError if the disk is full or read-only."""
        with self._reporting(f"read {self}/{name}", passing=_DISK_ERRORS):
            self._filesystem.get_file(self._path(name), str(file))

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._reporting(f"remove {self}/{name}"):
            self._filesystem.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._filesystem._strip_protocol(self.url)}/{name}"

    @contextmanager
    def _reporting(self, action: str, *, passing: Collection[int] = ()) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except Exception as error:  # each package has errors of its own
            if getattr(error, "errno", None) in passing:
                raise
            is_missing = isinstance(error, FileNotFoundError) and " " not in str(error)  # the text is only a path
            message = f"cannot {action}: {'not found' if is_missing else str(error) or type(error).__name__}"
            if _CONNECTION_ERRORS & {base.__name__ for base in type(error).__mro__}:
                raise ConnectionFailedError(" ".join(message.split())) from error
            raise PublishError(message) from error


def open_store(url: str) -> Store:
    """Return the store of a URL, without a request.

    Credentials and settings are those of the scheme's package: for s3:// those of all programs of AWS.

    Raises:
        ValueError: it is not the URL of a folder.
        PublishError: fsspec does not know the scheme, or its package needs a setting that is missing.
        MissingPackageError: the scheme's package is not installed.
    """
    scheme, _, path = url.partition("://")
    if not scheme or not path.strip("/") or "::" in url:
        raise ValueError(f"invalid URL {url!r}: must be the URL of a folder, such as s3://bucket/models/flowers")
    package, extra = _PACKAGES.get(scheme, ("fsspec", "storage"))
    with naming_extras(f"{scheme}://", extra):
        import_module(package)
        import fsspec
    for noisy in ("gcsfs", "azure"):  # they log, with tracebacks, what they also raise
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    options = {"auto_mkdir": True} if scheme in ("file", "local") else {}
    try:
        # Without caches, because other programs change the same files.
        filesystem, _ = fsspec.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True, **options)
    except Exception as error:  # as for requests; a scheme that fsspec lacks, or no account, too
        raise PublishError(f"cannot open {url}: {error}") from error
    return Store(url.rstrip("/"), filesystem)
