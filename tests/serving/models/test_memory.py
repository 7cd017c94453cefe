"""Memory is taken in huge pages where the system has them, and goes back to it when nobody needs it any more."""

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

import model_makers
import pytest
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


PROGRAM = """
import os, sys
from pathlib import Path
from serving import memory
memory._HUGE_PAGES = Path(sys.argv[1])
starts = int(os.environ["STARTS"]) + 1
os.environ["STARTS"] = str(starts)
if sys.argv[2] == "lose":  # as glibc does where a program has special rights
    os.environ.pop("GLIBC_TUNABLES", None)
own = os.environ.get("GLIBC_TUNABLES")
if sys.argv[2] == "nameless":
    sys.executable = ""
memory.start_with_huge_pages()
print(os.getpid(), starts, own, os.environ.get("GLIBC_TUNABLES"), sys.argv[2:])
"""
ASKS = "always [madvise] never"


@pytest.mark.parametrize(
    ("system", "told", "what", "starts", "own"),
    [
        pytest.param(ASKS, "", "", 2, "glibc.malloc.hugetlb=1", id="for who asks"),
        pytest.param("[always] madvise never", "", "", 1, "", id="always"),
        pytest.param("always madvise [never]", "", "", 1, "", id="never"),
        pytest.param(None, "", "", 1, "", id="not known to the system"),
        pytest.param(
            *(ASKS, "glibc.malloc.arena_max=4", "", 2, "glibc.malloc.arena_max=4:glibc.malloc.hugetlb=1"),
            id="beside what the user tells",
        ),
        pytest.param(ASKS, "glibc.malloc.hugetlb=0", "", 1, "glibc.malloc.hugetlb=0", id="not if the user says no"),
        pytest.param(ASKS, "", "lose", 2, None, id="not for ever"),
        pytest.param(ASKS, "", "nameless", 1, "", id="not if Python doesn't know itself"),
    ],
)
def test_a_program_starts_with_huge_pages(
    tmp_path: Path, system: str | None, told: str, what: str, starts: int, own: str | None
) -> None:
    """In the same process, with the same arguments; what it starts itself is told what it was told."""
    if system is not None:
        (tmp_path / "enabled").write_text(system)
    environment = os.environ | {"GLIBC_TUNABLES": told, "STARTS": "0"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "enabled"), what, "--a=b c"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=60)
    assert f"{process.pid} {starts} {own} {told} {[what, '--a=b c']}\n" == output
    assert 0 == process.returncode


def test_the_server_has_huge_pages_where_the_system_gives_them_to_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a process has asked for are marked `hg` (proc(5), VmFlags); malloc's heap is the first of them."""
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    model_makers.half_plus(tmp_path / "m", 1)
    system = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    asks = system.is_file() and "[madvise]" in system.read_text()
    with ServerProcess("--model_name=m", f"--model_base_path={tmp_path / 'm'}", log=tmp_path / "log") as server:
        heap = Path("/proc", str(server.process.pid), "smaps").read_text().partition("[heap]\n")[2]
    flags = re.search(r"^VmFlags: (.*)$", heap, re.M)
    assert flags
    assert asks == ("hg" in flags[1].split())


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
