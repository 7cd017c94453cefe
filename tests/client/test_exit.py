"""A program ends when its code has ended, also if it has not closed a client whose call has failed."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

PROGRAM = """
import asyncio, atexit, contextlib, threading, time
from savedmodel_bakery import AsyncClient, Client, ClientError

options = {{"model": "flowers", "timeout_s": 0.5, "transport": "{transport}"}}

def fail():
    client = Client("127.0.0.1:1", **options)
    with contextlib.suppress(ClientError):
        client.classify(b"a photo")
    return client

async def fail_async():
    client = AsyncClient("127.0.0.1:1", **options)
    with contextlib.suppress(ClientError):
        await client.classify(b"a photo")
    return client

{code}
"""
CODE = {
    "kept": "client = fail()",
    "dropped": "fail()",
    "in a cycle": "clients = [fail()]; clients.append(clients); del clients",
    "in a thread": "threading.Thread(target=fail).start()",
    "uncaught": 'Client("127.0.0.1:1", **options).classify(b"a photo")',
    "in a daemon thread": "threading.Thread(target=fail, daemon=True).start(); time.sleep(0.6)",
    "at exit": "atexit.register(fail)",
    "kept, asyncio": "client = asyncio.run(fail_async())",
}


def test_a_client_that_was_not_closed_does_not_hold_up_the_exit() -> None:
    """Nothing is printed but the error that was not caught."""

    def run(code: str, transport: str) -> str:
        command = [sys.executable, "-c", PROGRAM.format(code=code, transport=transport)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
        except subprocess.TimeoutExpired:
            return "does not end"
        return "".join(ended.stderr.splitlines()[-1:])

    cases = [(name, transport) for name in CODE for transport in ("grpc", "v2-grpc")]
    with ThreadPoolExecutor(4) as pool:
        outcomes = pool.map(lambda case: run(CODE[case[0]], case[1]), cases)
    error = "savedmodel_bakery.errors.ConnectionFailedError: "
    assert [] == [
        (case, outcome)
        for case, outcome in zip(cases, outcomes, strict=True)
        if not (outcome.startswith(error) if case[0] == "uncaught" else outcome == "")
    ]
