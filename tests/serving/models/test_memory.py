"""Memory goes back to the system when it is no longer needed."""

from __future__ import annotations

import ctypes
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import model_makers
import requests
import tensorflow as tf
from server_process import ServerProcess

from savedmodel_bakery.serving.models import loading, memory
from savedmodel_bakery.serving.models.loading import LoadOptions

MB = 2**20
WEIGHTS = 100 * MB


class Table(tf.Module):
    """A model of many weights, of which each answer is one."""

    def __init__(self) -> None:
        super().__init__()
        self._table = tf.Variable(tf.ones([WEIGHTS // 4]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.gather(self._table, x)}


def resident(pid: int | str = "self") -> int:
    """Bytes of a process that are in memory or swapped, and no file's."""
    status = Path("/proc", str(pid), "status").read_text()
    return sum(int(kilobytes) * 1024 for kilobytes in re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+) kB", status, re.M))


@contextmanager
def fragments() -> Iterator[None]:
    """125 MB that are free below something in use: the C library gives back only what is free at a heap's end."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    *blocks, last = [library.malloc(64 * 1024) for _ in range(2000)]
    for block in blocks:
        ctypes.memset(block, 1, 64 * 1024)
    for block in blocks:
        library.free(ctypes.c_void_p(block))
    yield
    library.free(ctypes.c_void_p(last))


def test_what_is_free_goes_back() -> None:
    with fragments():
        before = resident()
        memory.release()
        assert resident() < before - 100 * MB


def test_a_load_gives_back_what_it_no_longer_needs(tmp_path: Path) -> None:
    """Here what was free before it."""
    version = model_makers.half_plus(tmp_path / "m", 1)
    with fragments():
        before = resident()
        loading.load("m", 1, version, LoadOptions()).close()
        assert resident() < before - 50 * MB


def test_versions_that_come_and_go_take_the_memory_of_two(tmp_path: Path) -> None:
    """Of the last and of the one after it; TensorFlow keeps what weights took, for the next ones."""
    base_path, module, found = tmp_path / "m", Table(), []
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures={"serving_default": module.serve})
    shutil.copytree(tmp_path / "saved", base_path / "1")
    flags = ("--model_name=m", f"--model_base_path={base_path}", "--file_system_poll_wait_seconds=1")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        for version in range(1, 5):
            answer = requests.post(f"{server.url}/v1/models/m:predict", json={"instances": [3]}, timeout=30)
            assert {"predictions": [1.0]} == answer.json()
            shutil.copytree(tmp_path / "saved", tmp_path / "staged")
            (tmp_path / "staged").rename(base_path / str(version + 1))
            server.wait_for_log(f"Unloaded servable version {{name: m version: {version}}}")
            found.append(resident(server.process.pid))
    assert found[-1] < found[0] + WEIGHTS / 2
