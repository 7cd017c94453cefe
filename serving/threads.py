"""Threads for calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class CallThreads(ThreadPoolExecutor):
    """Starts threads as they are needed. If the system permits no more, calls wait for those that there are."""

    def __init__(self, maximum: int, name: str) -> None:
        super().__init__(maximum, thread_name_prefix=name)
        self.submit(int).result()  # so there is always one

    def _adjust_thread_count(self) -> None:
        # Called when a call is in the queue already. An error would end the thread that receives calls.
        try:  # contextlib.suppress would cost every call a microsecond
            super()._adjust_thread_count()
        except RuntimeError:  # can't start new thread
            return
