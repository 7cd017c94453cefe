"""The job as Ray Data runs it."""

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

from savedmodel_bakery.client.bulk.photos import UnreadablePhoto, open_file, spell
from savedmodel_bakery.client.errors import ClientError
from savedmodel_bakery.client.transports.transport import Endpoint
from savedmodel_bakery.serving.bulk.classifier import PHOTOS, Classifier
from savedmodel_bakery.serving.bulk.parts import part_name
from savedmodel_bakery.wire.status import StatusError

# What is written at once, and so what a restart may have to do again; photos in bytes, files in number.
_BLOCK_BYTES = 16 << 20
_FILES_PER_BLOCK = 256
_LOCAL_OBJECT_STORE_BYTES = 1 << 30

_RAY_PORT = 6379
_PROBE_TIMEOUT_S = 10.0

Servable = tuple[str, int, str]  # name of the model, version and its folder


def start_ray(address: str | None, *, actors: int) -> None:
    """Join the cluster at `address`, or start Ray on this machine.

    Raises:
        ConnectionError: there is no cluster.
        ValueError: `address` is none.
    """
    if address is not None:
        _probe(address)  # where nobody listens, Ray would try for ever
    local = {
        # Beside the actors there must be room for the readers.
        "num_cpus": max(os.cpu_count() or 1, actors + 1),
        "object_store_memory": _LOCAL_OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    options = local if address is None else {}
    ray.init(address=address or "local", log_to_driver=False, logging_level="error", **options)


def _probe(address: str) -> None:
    endpoint = Endpoint.parse(address, _RAY_PORT, "Ray")
    try:
        socket.create_connection((endpoint.host, endpoint.port), _PROBE_TIMEOUT_S).close()
    except OSError as exc:
        raise ConnectionError(f"cannot connect to {endpoint.address}; is a Ray cluster's head running there?") from exc


def refusal(servable: Servable) -> str | None:
    """Why no actor can use a servable; None where one can. It is loaded where an actor would be."""
    found: str | None = ray.get(ray.remote(max_calls=1)(_refusal).remote(servable))
    return found


def run(
    files: Sequence[str],
    done: frozenset[str],
    *,
    servable: Servable,
    actors: int,
    batch_size: int,
    out: Path,
) -> None:
    """Classify what is in `files` and write rows as Parquet parts to `out`.

    Args:
        files: photos and archives, where every node finds them.
        done: keys of photos that are left out.
        servable: what the actors load.
        actors: how many hold the servable.
        batch_size: most photos that are run at once.
        out: folder for the parts.

    Raises:
        ray.exceptions.RayError: the cluster, or all of its actors, are gone.
    """
    DataContext.get_current().target_max_block_size = _BLOCK_BYTES
    photos = _dataset(files).flat_map(functools.partial(_read_photos, done=ray.put(done), folder=str(Path.cwd())))
    rows = photos.map_batches(
        Classifier,
        fn_constructor_args=servable,
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(size=actors),
    )
    rows.write_parquet(str(out), filename_provider=_PartNames())


def find_lost(files: Sequence[str], done: frozenset[str]) -> str | None:
    """The key of a photo in `files` that is not among those in `done`; None where there is none.

    Raises:
        ray.exceptions.RayError: the cluster is gone.
    """
    find = functools.partial(_find_lost, done=ray.put(done), folder=str(Path.cwd()))
    found: list[dict[str, str]] = _dataset(files).flat_map(find).take(1)
    return found[0]["image"] if found else None


class _PartNames(FilenameProvider):  # type: ignore[misc]  # Ray has no types
    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        return part_name(write_uuid, task_index)


def _dataset(files: Sequence[str]) -> ray.data.Dataset:
    blocks = -(-len(files) // _FILES_PER_BLOCK)
    return ray.data.from_items([{"file": file} for file in files], override_num_blocks=blocks)


def _file(row: dict[str, str], folder: str) -> Path:
    """The file, found from where the job was started; a worker is somewhere else on a cluster."""
    path = Path(row["file"])
    if not path.is_absolute():
        os.chdir(folder)
    return path


def _find_lost(row: dict[str, str], *, done: Any, folder: str) -> list[dict[str, str]]:
    path, known, found = _file(row, folder), _fetch(done), []

    def note(key: str) -> bool:
        if key not in known:
            found.append({"image": key})
        return False

    if spell(path) not in known:  # what has a row itself is a photo, or damaged, and was not read to its end
        for _ in open_file(path, note):
            pass  # none is wanted
    return found


def _read_photos(row: dict[str, str], *, done: Any, folder: str) -> Iterator[dict[str, Any]]:
    """The photos of a file, as `PHOTOS` has them."""
    known, met = _fetch(done), set()

    def is_wanted(key: str) -> bool:
        is_new = key not in known and key not in met
        met.add(key)
        return is_new

    for photo in open_file(_file(row, folder), is_wanted):
        try:
            content, error = photo.read(), None
        except UnreadablePhoto as exc:
            content, error = None, str(exc)
        yield dict(zip(PHOTOS.names, (photo.key, content, error), strict=True))


def _refusal(servable: Servable) -> str | None:
    try:
        Classifier(*servable)
    except (StatusError, ClientError) as exc:
        return str(exc)
    return None


@functools.lru_cache(maxsize=1)
def _fetch(reference: Any) -> frozenset[str]:
    """What was put there, once for each process."""
    found: frozenset[str] = ray.get(reference)
    return found
