"""Ctrl-C while a program imports its modules: one line, no traceback, exit code 130."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from savedmodel_bakery.exits import run_command
from savedmodel_bakery.interrupts import interrupt_on_termination

# Runs a package as `python -m` does, and interrupts it when it is about to import a module.
INTERRUPTING = """
import os, runpy, signal, sys
package, module = sys.argv[1:3]

class Interrupt:
    @staticmethod
    def find_spec(name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})  # a background job's processes inherit that it is ignored
sys.meta_path.insert(0, Interrupt)
del sys.argv[1:3]
runpy.run_module(package, run_name="__main__", alter_sys=True)
"""
BAKE = ["bake", "--model", "efficientnet-lite0"]
IMPORTS = {
    "bakery": ("savedmodel_bakery", "click", ["--help"]),
    "bakery bake, TensorFlow": ("savedmodel_bakery", "tensorflow", BAKE),
    "bakery bake, numpy inside TensorFlow": ("savedmodel_bakery", "numpy", BAKE),
    "bakery bake, after TensorFlow": ("savedmodel_bakery", "savedmodel_bakery.exporter.sources", BAKE),
    "bakery predict, numpy": ("savedmodel_bakery", "numpy", ["predict", "--input", "x=__file__"]),
    "bakery ask, grpc": ("savedmodel_bakery", "grpc", ["ask", "__file__"]),
    "exporter": ("savedmodel_bakery.exporter", "click", ["--help"]),
    "client": ("savedmodel_bakery.client", "click", ["--help"]),
    "serving": ("savedmodel_bakery.serving", "savedmodel_bakery.serving.commands.model_server", ["--help"]),
}


def run(
    package: str, module: str, arguments: list[str], folder: Path, handler: str
) -> subprocess.CompletedProcess[str]:
    words = [word.replace("__file__", __file__) for word in arguments]
    command = [sys.executable, "-c", INTERRUPTING.format(handler=handler), package, module, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("package", "module", "arguments"), IMPORTS.values(), ids=IMPORTS)
def test_an_interrupt_is_one_line(package: str, module: str, arguments: list[str], tmp_path: Path) -> None:
    ended = run(package, module, arguments, tmp_path, "default_int_handler")
    assert (130, "", "\ninterrupted\n") == (ended.returncode, ended.stdout, ended.stderr)
    assert [] == list(tmp_path.iterdir())


SWALLOWING = """
import os, signal
def build():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        print("swallowed")
"""


def test_an_interrupt_that_other_code_would_swallow_ends_a_bake(tmp_path: Path) -> None:
    """TensorFlow's C extensions do that."""
    (tmp_path / "swallowing.py").write_text(SWALLOWING)
    arguments = ["bake", "--model", "swallowing:build"]
    ended = run("savedmodel_bakery", "none", arguments, tmp_path, "default_int_handler")
    assert (130, "", "loading swallowing:build …\n\ninterrupted\n") == (ended.returncode, ended.stdout, ended.stderr)


WAITING = {
    "ask": ["ask", "photo.jpg", "--port", "PORT"],
    "ask over REST": ["ask", "photo.jpg", "-f", "REST", "--rest-api-port", "PORT"],
    "predict": ["predict", "--input", "x=array.json", "--port", "PORT"],
    "status": ["status", "--port", "PORT"],
    "bench": ["bench", "-i", "photo.jpg", "--port", "PORT"],
    "bulk": ["bulk", "photo.jpg", "--out", "rows of photos.csv", "--port", "PORT"],
    "bulk of a list": ["bulk", "-", "--out", "rows.csv", "--port", "PORT"],
}


@pytest.mark.parametrize("arguments", WAITING.values(), ids=WAITING)
def test_a_call_that_waits_for_a_server_is_interrupted(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"photo")
    (tmp_path / "array.json").write_text("[1]")
    (tmp_path / "list.txt").write_text("photo.jpg\n")
    with socket.create_server(("127.0.0.1", 0)) as silent, (tmp_path / "list.txt").open() as stdin:
        silent.settimeout(60)
        words = [word.replace("PORT", str(silent.getsockname()[1])) for word in arguments]
        command = [sys.executable, "-c", INTERRUPTING.format(handler="default_int_handler"), "savedmodel_bakery"]
        with subprocess.Popen(
            [*command, "none", *words], cwd=tmp_path, stdin=stdin, stderr=subprocess.PIPE, text=True
        ) as waiting:
            connection, _ = silent.accept()
            with connection:
                waiting.send_signal(signal.SIGINT)
                _, stderr = waiting.communicate(timeout=60)
    is_resumable = words[:2] == ["bulk", "photo.jpg"]
    hint = f"; to continue, run: python -m savedmodel_bakery {shlex.join(words)}" if is_resumable else ""
    assert (130, f"\ninterrupted{hint}\n") == (waiting.returncode, stderr)


def test_a_termination_interrupts_also_where_interrupts_are_ignored() -> None:
    """As in the background jobs of a script, which inherit that SIGINT is ignored."""
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interrupt_on_termination():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, former)


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    """As in a background job of a shell."""
    ended = run("savedmodel_bakery", "click", ["--help"], tmp_path, "SIG_IGN")
    assert (0, "") == (ended.returncode, ended.stderr)


CLOSED_STDERR = """
import os, signal, sys
from pathlib import Path
import click
from savedmodel_bakery.exits import run_command
from savedmodel_bakery.interrupts import cleaning_up, exit_on_interrupt, handle_interrupts

handle_interrupts()

@click.command()
@click.argument("place")
def command(place):
    if place == "client":
        os.kill(os.getpid(), signal.SIGINT)
    else:
        with cleaning_up(Path("cleaned").touch), exit_on_interrupt():
            os.kill(os.getpid(), signal.SIGINT)

sys.stdin.read()
sys.exit(run_command(command))
"""


@pytest.mark.parametrize("place", ["client", "TensorFlow"])
def test_a_closed_stderr_does_not_change_the_exit_code(place: str, tmp_path: Path) -> None:
    """As in `bakery bake … 2>&1 | tee log`, where Ctrl-C ends tee too."""
    command = [sys.executable, "-c", CLOSED_STDERR, place]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stderr.close()
        process.stdin.close()
        assert 130 == process.wait(60)
    assert (place == "TensorFlow") == (tmp_path / "cleaned").exists()


def test_an_end_of_file_is_an_error_and_not_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def command() -> None:
        raise EOFError("no data left in file")

    assert 1 == run_command(command, [])
    assert "\nerror: no data left in file\n" == capsys.readouterr().err
