"""Stopping by a signal: while the main thread holds a lock, after a failure, and with closed streams."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading
from savedmodel_bakery.serving.process import StopSignals

lock, ended = threading.Lock(), threading.Event()
signals = StopSignals(lambda: os._exit(1))

def stop():
    with lock:
        ended.set()

signals.action = stop
with lock:
    os.kill(os.getpid(), int(sys.argv[1]))
ended.wait()
sys.exit(3)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_action_may_wait_for_the_main_thread(number: signal.Signals) -> None:
    assert 3 == subprocess.run([sys.executable, "-c", PROGRAM, str(int(number))], timeout=60, check=False).returncode


WITH_A_THREAD = """
import os, signal, threading
from savedmodel_bakery.serving.process import StopSignals

threading.Thread(target=threading.Event().wait, args=(30,), daemon=True).start()
StopSignals(lambda: os._exit(3))
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait(30)
"""


def test_threads_that_ran_before_do_not_get_the_signals() -> None:
    """Such as that of fsspec, which lists the bucket of a model."""
    assert 3 == subprocess.run([sys.executable, "-c", WITH_A_THREAD], timeout=60, check=False).returncode


FAILING_ACTION = """
import os, signal, threading
from savedmodel_bakery.serving.process import StopSignals

failed = threading.Event()

def fail():
    signals.action = lambda: os._exit(3)
    failed.set()
    raise RuntimeError

signals = StopSignals(fail)
os.kill(os.getpid(), signal.SIGTERM)
failed.wait()
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait(30)
"""


def test_an_action_that_fails_does_not_end_the_waiting() -> None:
    ended = subprocess.run([sys.executable, "-c", FAILING_ACTION], timeout=60, capture_output=True, check=False)
    assert 3 == ended.returncode
    assert b"Failed to stop" in ended.stderr


FAILING_SERVER = """
import sys, threading, types
from savedmodel_bakery.serving.commands import model_server as cli
from savedmodel_bakery.serving.options import flags

def serve(*_, **__):
    threading.Thread(target=threading.Event().wait).start()
    print("failing", flush=True)
    raise RuntimeError

cli.import_tensorflow = lambda: None
sys.modules["savedmodel_bakery.serving.server"] = types.SimpleNamespace(serve=serve)
cli.serve_embedded(flags.parse(["--model_name=m", "--model_base_path=/m"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_failed_but_does_not_end_can_be_stopped(number: signal.Signals) -> None:
    command = [sys.executable, "-c", FAILING_SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert "failing\n" == process.stdout.readline()
            while "RuntimeError" not in process.stderr.readline():
                pass
            process.send_signal(number)
            assert 1 == process.wait(30)
        finally:
            process.kill()


CLOSED_STREAMS = """
import sys
from savedmodel_bakery.serving.commands import model_server as cli

sys.stdin.read()
sys.stdout = open(1, "w")  # with a buffer
sys.stdout.write("text")
cli.{call}
"""


@pytest.mark.parametrize(("call", "code"), [("_fail('reason')", 255), ("_exit(0)", 0)])
def test_closed_streams_do_not_change_the_exit_code(call: str, code: int) -> None:
    program = CLOSED_STREAMS.format(call=call)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        for stream in (process.stdout, process.stderr, process.stdin):
            assert stream is not None
            stream.close()
        assert code == process.wait(60)


def test_a_full_pipe_does_not_keep_the_process_from_ending() -> None:
    program = CLOSED_STREAMS.format(call="_exit(3)").replace("sys.stdin.read()", "")
    read_end, write_end = os.pipe()
    with os.fdopen(read_end), os.fdopen(write_end, "wb") as output:
        output.write(bytes(fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ)))
        output.flush()
        assert 3 == subprocess.run([sys.executable, "-c", program], stdout=output, timeout=60, check=False).returncode


WITHOUT_STREAMS = """
import sys
from savedmodel_bakery.serving.commands import model_server as cli

sys.stdout = sys.stderr = None  # as Python sets them if they are closed at the start
cli._exit(3)
"""


def test_streams_that_were_closed_before_the_start_do_not_change_the_exit_code() -> None:
    assert 3 == subprocess.run([sys.executable, "-c", WITHOUT_STREAMS], timeout=60, check=False).returncode
