"""A loopback HTTP server that implements TF Hub's protocol for compressed modules."""

from __future__ import annotations

import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class HubServer:
    """Returns one module's folder as a gzipped tar for requests with `?tf-hub-format=compressed`.

    Attributes:
        requests: paths of the requests so far.
        handle: the module's URL.
    """

    def __init__(self, module: Path) -> None:
        archive_bytes = io.BytesIO()
        with tarfile.open(fileobj=archive_bytes, mode="w:gz") as archive:
            archive.add(module, arcname=".")
        self.requests: list[str] = []
        requests, body = self.requests, archive_bytes.getvalue()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(self.path)
                exists = self.path == "/colours/1?tf-hub-format=compressed"
                self.send_response(200 if exists else 404)
                self.end_headers()
                if exists:
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
