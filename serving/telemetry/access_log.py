"""The access log: a line per request on stdout, when it has ended. No payloads, no tokens, no queries of URLs."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
from datetime import datetime, timezone

from savedmodel_bakery.log import EscapingFormatter

REQUEST_ID = "x-request-id"
"""The header, or the key of the metadata, with the id of a request."""

_ID = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)
_PLAIN = re.compile(r"[^\s\"=\\]+", re.ASCII)


class AccessLog:
    """Writes the lines.

    Args:
        as_json: as JSON objects; otherwise as `key=value`, with values as JSON strings where they need quotes.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._logger = logging.Logger("access")  # not below the root, which has another format
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(EscapingFormatter("%(message)s"))
        self._logger.addHandler(handler)

    def begin(self, entrypoint: str, call: str, peer: str, request_id: str | None) -> Entry:
        """Return the entry of a request whose headers have arrived.

        Args:
            entrypoint: `GRPC` or `REST`.
            call: the path of an RPC, or method and path of an HTTP request.
            peer: address of the caller.
            request_id: that the caller has sent; one that is not of 1 to 128 letters, digits and `_.:+/=-` is replaced.
        """
        is_valid = request_id is not None and _ID.fullmatch(request_id)
        return Entry(self, entrypoint, call, peer, request_id if request_id and is_valid else uuid.uuid4().hex)

    def write(self, fields: dict[str, str | float | None]) -> None:
        """Write a line."""
        present = {key: value for key, value in fields.items() if value is not None}
        if self._as_json:
            self._logger.info("%s", json.dumps(present))
        else:
            self._logger.info("%s", " ".join(f"{key}={_quote(value)}" for key, value in present.items()))


class Entry:
    """The entry of one request.

    Attributes:
        request_id: its id.
        token_name: name of the caller's token.
        model_name: the model that it names.
        model_version: the version that ran.
        received_bytes: size of its body or message.
    """

    def __init__(self, log: AccessLog, entrypoint: str, call: str, peer: str, request_id: str) -> None:
        self._log = log
        self._entrypoint = entrypoint
        self._call = call
        self._peer = peer
        self._time = datetime.now(timezone.utc)
        self._started_s = time.perf_counter()
        self.request_id = request_id
        self.token_name: str | None = None
        self.model_name: str | None = None
        self.model_version: int | None = None
        self.received_bytes: int | None = None

    def end(self, status: str, sent_bytes: int) -> None:
        """Write the line.

        Args:
            status: HTTP status or gRPC code.
            sent_bytes: size of the response's body or message.
        """
        self._log.write(
            {
                "time": self._time.isoformat(timespec="milliseconds"),
                "request_id": self.request_id,
                "entrypoint": self._entrypoint,
                "call": self._call,
                "status": status,
                "duration_ms": round((time.perf_counter() - self._started_s) * 1000, 3),
                "received_bytes": self.received_bytes,
                "sent_bytes": sent_bytes,
                "model_name": self.model_name,
                "model_version": self.model_version,
                "token_name": self.token_name,
                "peer": self._peer,
            }
        )


def _quote(value: str | float) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
