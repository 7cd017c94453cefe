"""Memory that is no longer needed is returned to the system."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import model_makers
import pytest
import requests
import tensorflow as tf
from server_process import ServerProcess

from savedmodel_bakery.serving import process
from savedmodel_bakery.serving.models import loading
from savedmodel_bakery.serving.models.loading import LoadOptions

WEIGHTS = 100 * 2**20  # bytes


USE_TWICE = """
import ctypes, resource, sys, threading
from savedmodel_bakery.serving import process

process.use_system_allocator()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
size, faults = int(sys.argv[1]), []

def use():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = ctypes.c_void_p(library.malloc(ctypes.c_size_t(size)))
    ctypes.memset(block, 1, size)
    library.free(block)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

for _ in range(2):
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
resident = process.resident_bytes()
process.trim_memory()
print(*faults, resident - process.resident_bytes())
"""


class Table(tf.Module):
    """A model with large weights that returns single weights."""

    def __init__(self) -> None:
        super().__init__()
        self._table = tf.Variable(tf.ones([WEIGHTS // 4]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="x")], autograph=False)
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.gather(self._table, x)}


def resident(pid: int | str = "self") -> int:
    """Return the bytes of a process that are in memory or swapped, without mapped files."""
    status = Path("/proc", str(pid), "status").read_text()
    return sum(int(kilobytes) * 1024 for kilobytes in re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+) kB", status, re.M))


@contextmanager
def fragmented_heap() -> Iterator[int]:
    """Free 125 MB below a block that is still in use, and yield the number of bytes.

    The C library does not return them by itself, as it returns only memory at the end of a heap.
    """
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    size = 64 * 1024
    *blocks, last = [library.malloc(size) for _ in range(2000)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks:
        library.free(ctypes.c_void_p(block))
    yield size * len(blocks)
    library.free(ctypes.c_void_p(last))


def test_release_returns_most_of_the_free_memory() -> None:
    with fragmented_heap() as free:
        before = resident()
        process.release_memory()
        assert 0.8 < (before - resident()) / free


def test_large_blocks_of_all_threads_use_the_same_memory_until_it_is_returned() -> None:
    size = 144 * 2**20  # the levels of a photo of 12 megapixels in float32
    ended = subprocess.run([sys.executable, "-c", USE_TWICE, str(size)], capture_output=True, text=True, check=True)
    first, second, returned = map(int, ended.stdout.split())
    assert second < first / 10  # pages that the kernel clears
    assert 0.9 < returned / size


def test_loading_a_version_returns_free_memory(tmp_path: Path) -> None:
    version = model_makers.half_plus(tmp_path / "m", 1)
    with fragmented_heap() as free:
        before = resident()
        loading.load("m", 1, version, LoadOptions()).close()
        assert 0.4 < (before - resident()) / free


def test_replacing_versions_does_not_accumulate_memory(tmp_path: Path) -> None:
    """After four replacements, memory has grown by less than half of one version's weights."""
    base_path, module, sizes = tmp_path / "m", Table(), []
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures={"serving_default": module.serve})
    shutil.copytree(tmp_path / "saved", base_path / "1")
    flags = ("--model_name=m", f"--model_base_path={base_path}", "--file_system_poll_wait_seconds=1")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        for version in range(1, 5):
            response = requests.post(f"{server.url}/v1/models/m:predict", json={"instances": [3]}, timeout=30)
            assert {"predictions": [1.0]} == response.json()
            shutil.copytree(tmp_path / "saved", tmp_path / "staged")
            (tmp_path / "staged").rename(base_path / str(version + 1))
            server.wait_for_log(f"Unloaded servable version {{name: m version: {version}}}")
            sizes.append(resident(server.process.pid))
    assert (sizes[-1] - sizes[0]) / WEIGHTS < 0.5


def test_an_operator_may_keep_the_pool_of_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda parameter, value: settings.append((parameter, value)))
    monkeypatch.setattr(process.ctypes, "CDLL", lambda _name: library)
    monkeypatch.setenv("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "0")
    process.use_system_allocator()
    assert (os.environ["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"], settings) == ("0", [])
    monkeypatch.delenv("TF_ONEDNN_USE_SYSTEM_ALLOCATOR")
    process.use_system_allocator()
    assert os.environ["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"] == "1"
    assert settings
