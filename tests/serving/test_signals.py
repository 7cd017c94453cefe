"""A stop signal can arrive while the main thread holds a lock that stopping needs."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading
from savedmodel_bakery.serving.signals import StopSignals

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
