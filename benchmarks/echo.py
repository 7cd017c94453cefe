"""A bare echo over gRPC: bytes in, the same bytes out; what large messages cost at least.

python -m benchmarks.echo PORT
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

METHOD = "/benchmarks/Echo"
NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def main() -> None:
    """Listen on the port that is the only argument, until the process is ended."""
    handler = grpc.unary_unary_rpc_method_handler(lambda content, _: content)
    server = grpc.server(ThreadPoolExecutor(1), options=NO_LIMIT)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("benchmarks", {"Echo": handler})])
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
