"""A loopback HTTP server that speaks TF Hub's protocol for compressed modules."""

from __future__ import annotations

import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class HubServer:
    """Hands out the folder of one module as a gzipped tar, to who asks with `?tf-hub-format=compressed`.

    Attributes:
        requests: paths that were asked for, in order.
        handle: the module's URL.
    """

    def __init__(self, module: Path) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(module, arcname=".")
        self.requests: list[str] = []
        requests, body = self.requests, packed.getvalue()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(self.path)
                found = self.path == "/colours/1?tf-hub-format=compressed"
                self.send_response(200 if found else 404)
                self.end_headers()
                if found:
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def handle(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/colours/1"

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
