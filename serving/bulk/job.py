"""The job as Ray Data runs it: starts Ray, reads photos in tasks, runs the model in actors, writes Parquet parts."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.data.datasource import FilenameProvider

from savedmodel_bakery.answers.photo import UnreadablePhotoError
from savedmodel_bakery.answers.photo_files import open_file
from savedmodel_bakery.serving.bulk.classifier import PHOTOS, Classifier
from savedmodel_bakery.serving.bulk.parts import find_new, part_name

# Size of a part, and so of the work that a restart may repeat.
_BLOCK_BYTES = 16 << 20
_FILES_PER_BLOCK = 256
_LOCAL_OBJECT_STORE_BYTES = 1 << 30

_PROBE_TIMEOUT_S = 10.0


def start_ray(address: str | None, *, actors: int) -> None:
    """Connect to the cluster at `address`, such as `auto` for one on this machine; None starts Ray on this machine."""
    if address and address != "auto":
        _probe(address)  # without a listener, Ray would retry forever
    local = {
        # Leave one CPU for the tasks that read photos.
        "num_cpus": max(os.cpu_count() or 1, actors + 1),
        "object_store_memory": _LOCAL_OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    options = local if address is None else {}
    ray.init(address=address or "local", log_to_driver=False, logging_level="error", **options)


def _probe(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f'invalid --ray-address "{address}": must be HOST:PORT, or auto for a cluster on this machine')
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_TIMEOUT_S).close()
    except (OSError, OverflowError) as exc:
        raise ConnectionError(f"cannot connect to {address}: is it the head of a Ray cluster?") from exc


def run(
    files: Sequence[str],
    done: frozenset[str],
    *,
    version: tuple[str, int, str],
    all_files: bool,
    actors: int,
    batch_size: int,
    out: Path,
) -> None:
    """Run a model on the photos in `files` and write their rows as Parquet parts to the folder `out`.

    Every node must find the photos and archives under these paths. `done` are the keys of photos to skip, `version` the
    arguments of `Classifier`. Raises RayError if the cluster failed, or all actors did.
    """
    DataContext.get_current().target_max_block_size = _BLOCK_BYTES
    read_photos = functools.partial(_read_photos, all_files=all_files, done=ray.put(done), folder=str(Path.cwd()))
    photos = _dataset(files).flat_map(read_photos)
    rows = photos.map_batches(
        Classifier,
        fn_constructor_args=version,
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(size=actors),
    )
    rows.write_parquet(str(out), filename_provider=_PartNames())


def find_missing(files: Sequence[str], done: frozenset[str], *, all_files: bool) -> str | None:
    """Return the key of one photo in `files` that is not in `done`; None if all are."""
    find = functools.partial(_find_missing, all_files=all_files, done=ray.put(done), folder=str(Path.cwd()))
    missing: list[dict[str, str]] = _dataset(files).flat_map(find).take(1)
    return missing[0]["image"] if missing else None


class _PartNames(FilenameProvider):  # type: ignore[misc]  # Ray has no types
    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        return part_name(write_uuid, task_index)


def _dataset(files: Sequence[str]) -> ray.data.Dataset:
    blocks = -(-len(files) // _FILES_PER_BLOCK)
    return ray.data.from_items([{"file": file} for file in files], override_num_blocks=blocks)


def _file(row: dict[str, str], folder: str) -> Path:
    """Return a row's path, after changing to the folder in which the job was started if it is relative."""
    path = Path(row["file"])
    if not path.is_absolute():
        os.chdir(folder)
    return path


def _find_missing(row: dict[str, str], *, all_files: bool, done: Any, folder: str) -> list[dict[str, str]]:
    return [{"image": key} for key in find_new(_file(row, folder), _fetch(done), all_files=all_files)]


def _read_photos(row: dict[str, str], *, all_files: bool, done: Any, folder: str) -> Iterator[dict[str, Any]]:
    """Yield the photos of a file that are not done, with the columns `PHOTOS`."""
    done_keys, seen = _fetch(done), set()

    def is_new(key: str) -> bool:
        if key in done_keys or key in seen:
            return False
        seen.add(key)
        return True

    for photo in open_file(_file(row, folder), is_new, all_files=all_files):
        try:
            content, error = photo.read(), None
        except UnreadablePhotoError as exc:
            content, error = None, str(exc)
        yield dict(zip(PHOTOS.names, (photo.key, content, error), strict=True))


@functools.lru_cache(maxsize=1)
def _fetch(reference: Any) -> frozenset[str]:
    """Return the keys behind a Ray reference, fetched once per process."""
    keys: frozenset[str] = ray.get(reference)
    return keys
