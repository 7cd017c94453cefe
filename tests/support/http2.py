"""gRPC calls by frames of HTTP/2, for what no client of gRPC does (RFC 9113)."""

from __future__ import annotations

import socket
import struct

NO_WINDOW = bytes.fromhex("000400000000")
"""SETTINGS_INITIAL_WINDOW_SIZE: the server may send no message."""


def open_calls(
    port: int, path: str, count: int = 1, *, message: bytes | None = None, settings: bytes = b"", repeated: int = 0
) -> socket.socket:
    """Return a connection with calls that stay open.

    Args:
        port: of the server on loopback.
        path: of the calls.
        count: of calls.
        message: of each call; None to send none.
        settings: of the connection.
        repeated: further headers of each call, of a byte each: the first call adds an empty one to the server's table,
            to which the others refer (RFC 7541, 6.1 and 6.2.1).
    """
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    # RFC 7541, 6.2.2: literal header fields without indexing.
    texts = (text.encode() for field in fields.items() for text in field)
    strings = [bytes([len(text)]) + text for text in texts]
    headers = b"".join(b"\0" + name + value for name, value in zip(strings[::2], strings[1::2], strict=True))
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, settings) + _frame(4, 1, 0, b""))
    for stream in range(1, 2 * count, 2):
        further = b"\xbe" * repeated if stream > 1 else b"\x40\x01a\0"
        connection.sendall(_frame(1, 4, stream, headers + (further if repeated else b"")))
        if message is not None:
            connection.sendall(_frame(0, 1, stream, b"\0" + struct.pack(">I", len(message)) + message))
    return connection


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame (section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
