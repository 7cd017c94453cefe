"""A bare echo over gRPC: the least that a message of a given size costs. `python -m benchmarks.echo PORT` serves it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from savedmodel_bakery.client.load.generator import CallFailedError, SendCall

METHOD = "/benchmarks/Echo"
NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@contextmanager
def open_caller(port: int, content: bytes) -> Iterator[SendCall]:
    """Connect to the echo; each call sends `content`."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", NO_LIMIT) as channel:
        send = channel.unary_unary(METHOD)

        def call(_: int) -> None:
            if send(content) != content:
                raise CallFailedError("wrong response", "the echo returned other bytes")

        yield call


def main() -> None:
    """Serve until the process is ended."""
    handler = grpc.unary_unary_rpc_method_handler(lambda content, _: content)
    server = grpc.server(ThreadPoolExecutor(1), options=NO_LIMIT)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("benchmarks", {"Echo": handler})])
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
