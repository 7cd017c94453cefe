"""The forkserver of the tests: imports TensorFlow once and forks programs of the bakery; see warm_start.py.

python forkserver.py DESCRIPTOR

The descriptor is that of a listening socket. Ends when its stdin ends, and kills the programs that still run then.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import faulthandler
import gc
import io
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import warm_start

# What the programs import when they run, but not their main modules, which runpy must not find imported.
_MODULES = (
    "command", "exporter.bake", "exporter.commands.cli", "exporter.function.bake", "exporter.pipeline.compose",
    "exporter.validation.session", "commands.serve", "serving.commands.model_server", "serving.server",
)  # fmt: skip

_PR_SET_PDEATHSIG = 1  # prctl(2)

_settings = warm_start.import_settings(os.environ)
_own_path = {*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(Path(__file__).resolve().parent)}


class Fork(Exception):  # noqa: N818
    """In a fork: the program to run.

    Args:
        request: see `warm_start.connect`.
        streams: its stdin, stdout and stderr.
    """

    def __init__(self, request: dict[str, Any], streams: list[int]) -> None:
        super().__init__()
        self.request, self.streams = request, streams


class Forkserver:
    """Accepts requests on a listening socket, forks, and reports how the forks end."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(0, selectors.EVENT_READ, self._end)
        self._connections: dict[int, socket.socket] = {}
        self._handles: dict[int, int] = {}

    def run(self) -> None:
        """Serve until stdin ends; in a fork, raise `Fork`."""
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _end(self) -> None:
        for pid in self._connections:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        content, streams = _receive(connection)
        request = json.loads(content) if content else None  # the caller may have been killed
        if request and warm_start.import_settings(request["environment"]) == _settings:
            pid = os.fork()
            if pid == 0:
                self._close_all(connection)
                raise Fork(request, list(streams))
            self._watch(pid, connection)
        else:
            connection.close()
        for stream in streams:
            os.close(stream)

    def _close_all(self, connection: socket.socket) -> None:
        for opened in (self._selector, self._listener, connection, *self._connections.values()):
            opened.close()
        for handle in self._handles.values():
            os.close(handle)

    def _watch(self, pid: int, connection: socket.socket) -> None:
        self._connections[pid], self._handles[pid] = connection, os.pidfd_open(pid)
        with contextlib.suppress(OSError):  # if the caller has ended, its connection can be read
            connection.sendall(b"%d\n" % pid)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._abandon(pid))
        self._selector.register(self._handles[pid], selectors.EVENT_READ, lambda: self._report(pid))

    def _abandon(self, pid: int) -> None:
        """Kill a fork whose caller has closed the connection."""
        self._selector.unregister(self._connections[pid])
        os.kill(pid, signal.SIGKILL)

    def _report(self, pid: int) -> None:
        connection, handle = self._connections.pop(pid), self._handles.pop(pid)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(KeyError):  # abandoned
            self._selector.unregister(connection)
        self._selector.unregister(handle)
        os.close(handle)
        with contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % status)
        connection.close()


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Return a request, empty if it is incomplete, and the descriptors that were sent with it."""
    content, streams = b"", []
    with contextlib.suppress(OSError):
        size, ancillary, *_ = connection.recvmsg(8, socket.CMSG_SPACE(3 * 4))
        streams = [descriptor for *_, data in ancillary for descriptor in array.array("i", data)]
        while piece := connection.recv(int.from_bytes(size, "big") - len(content)):
            content += piece
        if len(streams) == 3 and len(content) == int.from_bytes(size, "big"):
            return content, streams
    return b"", streams


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this process what Python would be if it had started the program; it ends when the forkserver ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    for stream in streams:
        if stream > 2:
            os.close(stream)
    is_unbuffered = bool(request["environment"].get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = open(descriptor, "wb", buffering=0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = io.TextIOWrapper(raw, errors=errors, line_buffering=name == "stderr", write_through=is_unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.umask(request["umask"])
    for limit, soft, hard in request["limits"]:
        resource.setrlimit(limit, (soft, hard))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    script = request["script"]
    first = str(Path(script).absolute().parent if script else Path.cwd())
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [first, *given, *(path for path in sys.path if path not in _own_path)]
    sys.argv = [script or request["module"], *request["arguments"]]
    sys.orig_argv = [sys.executable, *([script] if script else ["-m", request["module"]]), *request["arguments"]]


def main() -> None:
    """Import everything, then serve."""
    from savedmodel_bakery.tensorflow_import import import_tensorflow

    import_tensorflow(without=("matplotlib", "pandas"))
    for module in _MODULES:
        __import__(f"{warm_start.PACKAGE}.{module}")
    gc.collect()
    gc.freeze()
    try:
        Forkserver(socket.socket(fileno=int(sys.argv[1]))).run()
    except Fork as fork:
        become(fork.request, fork.streams)
        module, script = fork.request["module"], fork.request["script"]
    if script:
        from savedmodel_bakery.__main__ import main as bakery

        sys.exit(bakery())
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
