"""If the system permits no more threads, calls wait for those that run."""

from __future__ import annotations

import threading

import pytest

from savedmodel_bakery.serving.threads import CallThreads


def test_calls_run_although_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = CallThreads(10, "test")

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    results = [threads.submit(abs, -number) for number in range(20)]
    assert list(range(20)) == [result.result(10) for result in results]
    monkeypatch.undo()
    threads.shutdown()
