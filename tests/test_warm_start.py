"""Programs that tests start as forks of the forkserver run as if Python had started them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import tiny_models
import warm_start
from server_process import ServerProcess, free_port
from waiting import wait_until

pytestmark = pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="CUDA does not survive a fork")


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "savedmodel_bakery.exporter", *arguments]


def forkserver() -> psutil.Process:
    """The child of pytest's main process, which is this one or the parent of this one."""
    script = str(Path(warm_start.__file__).with_name("forkserver.py"))
    for pid in (os.getpid(), os.getppid()):
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # other programs end meanwhile
                if script in child.cmdline():
                    return child
    raise AssertionError("no forkserver")


def test_only_programs_that_import_tensorflow_are_forked() -> None:
    commands = {
        "-m savedmodel_bakery.exporter bake --model x": True,
        "-m savedmodel_bakery.exporter bake --model x --verbose": False,
        "-m savedmodel_bakery.exporter inspect x": False,
        "-m savedmodel_bakery.serving --port=8500": True,
        "-m savedmodel_bakery.serving amqp": False,
        "-m savedmodel_bakery ask": False,
        ".venv/bin/bakery serve x": True,
        ".venv/bin/bakery --help": False,
        "-c pass": False,
        "": False,
    }
    assert commands == {
        command: warm_start.program_of(["python", *command.split()]) is not None for command in commands
    }


def test_it_has_the_arguments_folder_variables_and_streams_of_its_caller(tmp_path: Path) -> None:
    """The network's module is in the folder, and reports what it sees."""
    (tmp_path / "spy.py").write_text(
        "import os, sys\n"
        "def build():\n"
        "    print(os.environ['SPIED'], sys.argv[1:3], sys.stdin.read(), os.getppid())\n"
        "    raise RuntimeError('seen')\n"
    )
    command = program("bake", "--model", "spy:build", *tiny_models.OPTIONS)
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "SPIED": "variable"}, input="text", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    printed, error = ended.stderr.splitlines()[-2:]
    assert f"variable ['bake', '--model'] text {forkserver().pid}" == printed
    assert "RuntimeError: seen" in error
    assert (1, "") == (ended.returncode, ended.stdout)


def start_server(model: Path, folder: Path) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    """Start a server in a folder; return the caller and its fork, which are known by this folder."""
    flags = (f"--port={free_port()}", "--bind_address=127.0.0.1", f"--model_base_path={model}")
    with (folder / "log").open("w") as log:
        command = [sys.executable, "-m", "savedmodel_bakery.serving", *flags]
        caller = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)

    def is_in_folder(fork: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):  # other tests' forks end meanwhile
            return fork.cwd() == str(folder)
        return False

    def forks() -> list[psutil.Process]:
        return [fork for fork in forkserver().children() if is_in_folder(fork)]

    wait_until(lambda: bool(forks()))
    return caller, forks()[0]


def test_a_signal_that_ends_the_fork_ends_its_caller(half_plus_two: Path, tmp_path: Path) -> None:
    caller, fork = start_server(half_plus_two, tmp_path)
    caller.send_signal(signal.SIGUSR1)
    assert -signal.SIGUSR1 == caller.wait(60)
    wait_until(lambda: not fork.is_running())


def test_a_fork_ends_when_its_caller_is_killed(half_plus_two: Path, tmp_path: Path) -> None:
    caller, fork = start_server(half_plus_two, tmp_path)
    caller.kill()
    caller.wait()
    wait_until(lambda: not fork.is_running())


def test_a_caller_that_is_killed_while_it_connects_harms_no_other() -> None:
    for sent in (b"", b"\0", (100).to_bytes(8, "big"), (100).to_bytes(8, "big") + b"half"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.environ[warm_start.ADDRESS])
            connection.sendall(sent)
    assert forkserver().is_running()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    with Path(os.devnull).open() as nothing:
        connection = warm_start.connect(program("bake", "--model", "x"), environment, [nothing.fileno()] * 3)
    assert connection is not None
    with connection:
        assert "" == warm_start.read_line(connection)  # refused: it still answers


def test_a_server_that_is_started_directly_has_the_pid_and_status_of_its_fork(
    half_plus_two: Path, tmp_path: Path
) -> None:
    flags = ("--model_name=half", f"--model_base_path={half_plus_two}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        assert isinstance(server.process, warm_start.WarmProcess)
        assert "savedmodel_bakery" not in " ".join(psutil.Process(server.process.pid).cmdline())  # the forkserver's
        assert server.process.poll() is None
        assert 0 == server.stop()
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        server.process.kill()
        assert -signal.SIGKILL == server.process.wait(10)


def test_a_program_with_other_settings_of_the_import_starts_by_itself(tmp_path: Path) -> None:
    (tmp_path / "spy.py").write_text("import os\ndef build():\n    raise RuntimeError(os.getppid())\n")
    command = program("bake", "--model", "spy:build", *tiny_models.OPTIONS)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert f"RuntimeError: {os.getpid()}" in ended.stderr
