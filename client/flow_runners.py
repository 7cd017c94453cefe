"""Runs flows: exchanges with a server that are written once, for synchronous and asynchronous callers. Does no I/O.

A flow is a generator, as httpx's `auth_flow`: it yields requests, is sent their responses (or thrown the ClientError
that a request raised), and returns a result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from savedmodel_bakery.errors import ClientError

Request = TypeVar("Request")
Result = TypeVar("Result")


def run_flow(flow: Generator[Request, Any, Result], send: Callable[[Request], Any]) -> Result:
    """Send a flow's requests one after the other and return its result."""
    try:
        request = next(flow)
        while True:
            try:
                response = send(request)
            except ClientError as exc:
                request = flow.throw(exc)
            else:
                request = flow.send(response)
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_flow_async(flow: Generator[Request, Any, Result], send: Callable[[Request], Awaitable[Any]]) -> Result:
    """Do the same as `run_flow` without blocking the event loop."""
    try:
        request = next(flow)
        while True:
            try:
                response = await send(request)
            except ClientError as exc:
                request = flow.throw(exc)
            else:
                request = flow.send(response)
    except StopIteration as end:
        result: Result = end.value
        return result
