"""Starts programs of the bakery as forks of a process that has imported TensorFlow, which saves the import.

`forkserver.py` is that process. A program is started in one of two ways:

- `start` forks it directly. It returns a `WarmProcess`, which is like `subprocess.Popen` without pipes.
- `take_over`: any `python -m savedmodel_bakery…` or `bakery …` that imports TensorFlow hands over to a fork when Python
  starts. It passes its arguments, folder, environment and standard streams, forwards signals, and ends as the fork
  ends. Its pid is not that of the fork.

A program starts by itself if a variable that is read during the import differs from the forkserver's, if it shows
TensorFlow's log, and in the tests that `COLD` in conftest.py lists. Imports only the standard library.
"""

from __future__ import annotations

import array
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ADDRESS = "BAKERY_FORKSERVER"
"""Environment variable with the path of the forkserver's socket; programs start by themselves without it."""
PACKAGE = "savedmodel_bakery"

_COMMANDS = {
    f"{PACKAGE}.exporter": {"bake", "function", "compose", "parity"},
    PACKAGE: {"bake", "function", "compose", "parity", "serve", "model-server"},
}
"""The commands that import TensorFlow, by module."""
_SERVER = f"{PACKAGE}.serving"
_SESSION_PROCESS = f"{PACKAGE}.exporter.validation.session_process"
_SHOW_MORE = {"-h", "--help", "-v", "--verbose", "--version"}

# Read when Python starts, or when TensorFlow and its libraries are imported.
_PREFIXES = (
    "GLIBC_",
    "KERAS_",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTHON",
    "TF_",
)
# The fork applies the first two; TensorFlow reads the last when it first needs memory, which the server sets itself.
_APPLIED = {"PYTHONFAULTHANDLER", "PYTHONPATH", "TF_ONEDNN_USE_SYSTEM_ALLOCATOR"}
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1)
_LIMITS = (
    resource.RLIMIT_AS,
    resource.RLIMIT_DATA,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_CORE,
)


def import_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that must be equal in the forkserver and in a fork."""
    return {name: value for name, value in environment.items() if name.startswith(_PREFIXES) and name not in _APPLIED}


def program_of(command: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the module and the arguments of a command line of Python, if a fork can run it."""
    if len(command) > 2 and command[1] == "-m":
        module, arguments = command[2], list(command[3:])
    elif len(command) > 1 and Path(command[1]).name == "bakery":
        module, arguments = PACKAGE, list(command[2:])
    else:
        return None
    if _SHOW_MORE & {*arguments}:
        return None
    if module in _COMMANDS:
        return (module, arguments) if arguments and arguments[0] in _COMMANDS[module] else None
    is_server = module == _SERVER and arguments and arguments[0].startswith("--")
    return (module, arguments) if is_server or module == _SESSION_PROCESS else None


def connect(command: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> socket.socket | None:
    """Start a command line of Python in a fork; None if it must start by itself.

    Args:
        command: the command line.
        environment: its variables.
        streams: file descriptors of stdin, stdout and stderr.

    Returns:
        A connection to the forkserver, which sends the fork's pid and its status, a line each. The fork is killed when
        the connection is closed.
    """
    program = program_of(command)
    if program is None or not environment.get(ADDRESS):
        return None
    module, arguments = program
    request = {
        "module": module,
        "script": command[1] if command[1] != "-m" else None,
        "arguments": arguments,
        "folder": str(Path.cwd()),
        "environment": dict(environment),
        "umask": _umask(),
        "limits": [[limit, *resource.getrlimit(limit)] for limit in _LIMITS],
        "ignored": [number for number in _FORWARDED if signal.getsignal(number) is signal.SIG_IGN],
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(environment[ADDRESS])
        content = json.dumps(request).encode()
        size = len(content).to_bytes(8, "big")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        connection.sendmsg([size], rights)
        connection.sendall(content)
    except OSError:
        connection.close()
        return None
    return connection


def read_line(connection: socket.socket) -> str:
    """Return the next line of the forkserver; empty if it has closed the connection."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line.decode().strip()


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def take_over() -> None:
    """Let a fork run this process's program, forward signals to it, and end as it ends; return if it can't."""
    connection = connect(sys.orig_argv, os.environ, (0, 1, 2))
    if connection is None:
        return
    answer = read_line(connection)
    if answer == "":  # the forkserver refused, as a variable differs
        return
    pid = int(answer)
    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: os.kill(pid, received))
    status = int(read_line(connection) or signal.SIGKILL)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


class WarmProcess:
    """A program that runs in a fork; the part of `subprocess.Popen` that the tests of servers use.

    Args:
        connection: to the forkserver.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status; None while the program runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._read_status()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status when the program has ended."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            remaining = None if end is None else max(end - time.monotonic(), 0)
            if select.select([self._connection], [], [], remaining)[0]:
                self._read_status()
            elif timeout is not None:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _read_status(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(int(read_line(self._connection) or signal.SIGKILL))
        self._connection.close()


def start(
    command: Sequence[str], *, output: int, environment: Mapping[str, str]
) -> WarmProcess | subprocess.Popen[bytes]:
    """Start a command line of Python, in a fork if possible; its stdout and stderr go to a file descriptor."""
    with Path(os.devnull).open() as nothing:
        connection = connect(command, environment, (nothing.fileno(), output, output))
    if connection is not None:
        pid = read_line(connection)
        if pid:
            return WarmProcess(connection, int(pid))
        connection.close()
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**environment, ADDRESS: ""}
    )
