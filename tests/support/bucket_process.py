"""A server of buckets on loopback, in a process of its own, with an empty bucket."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import requests
from waiting import wait_until

BUCKET = "bucket"


@contextmanager
def run_process(command: Sequence[str], make_bucket: Callable[[], requests.Response]) -> Iterator[None]:
    """Run a server until the block ends; it has a bucket when the block begins."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _is_made(make_bucket))
        yield
    finally:
        process.kill()
        process.wait()


def _is_made(make_bucket: Callable[[], requests.Response]) -> bool:
    try:
        return make_bucket().ok
    except requests.ConnectionError:
        return False
