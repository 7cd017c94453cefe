"""moto's S3 server on loopback, in a process of its own, with a bucket, and a proxy before it that counts requests."""

from __future__ import annotations

import http.client
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests
from bucket_process import BUCKET, run_process
from server_process import free_port

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


def environment(port: int) -> dict[str, str]:
    """Return the variables with which programs of AWS use the server at a port, and no settings of the machine."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def run_s3() -> Iterator[int]:
    """Run the server with an empty bucket, and yield its port."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with run_process(command, lambda: requests.put(f"http://127.0.0.1:{port}/{BUCKET}", timeout=10)):
        yield port


@contextmanager
def run_proxy(upstream_port: int, before: Callable[[int, str], bool]) -> Iterator[int]:
    """Run a proxy of the server, and yield its port.

    `before` is called with the number of each request, from 1, and its method. The request is passed on if it returns
    true, else answered as by a throttling S3: 503 SlowDown.
    """
    counting, count = threading.Lock(), 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            nonlocal count
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with counting:
                count += 1
                number = count
            if not before(number, self.command):
                self.respond(503, {}, SLOW_DOWN)
                return
            upstream = http.client.HTTPConnection("127.0.0.1", upstream_port, timeout=60)
            upstream.request(self.command, self.path, body, dict(self.headers))
            response = upstream.getresponse()
            self.respond(response.status, dict(response.getheaders()), response.read())
            upstream.close()

        def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            is_head = self.command == "HEAD"
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            length = {name.lower(): value for name, value in headers.items()}.get("content-length")
            self.send_header("Content-Length", (length or "0") if is_head else str(len(body)))
            self.end_headers()
            if not is_head:
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:  # a killed client
            pass

    server = Server(("127.0.0.1", free_port()), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
