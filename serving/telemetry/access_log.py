"""The access log: a line per request on stdout, when it has ended. No payloads, no tokens, no queries of URLs."""

from __future__ import annotations

import json
import logging
import re
import sys

from savedmodel_bakery.log import EscapingFormatter

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

    def write(self, fields: dict[str, str | float | None]) -> None:
        """Write a line."""
        present = {key: value for key, value in fields.items() if value is not None}
        if self._as_json:
            self._logger.info("%s", json.dumps(present))
        else:
            self._logger.info("%s", " ".join(f"{key}={_quote(value)}" for key, value in present.items()))


def _quote(value: str | float) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
