"""Reads the tokens file, again each time it changes."""

from __future__ import annotations

import logging
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from savedmodel_bakery.serving.access.identity import Identity
from savedmodel_bakery.serving.access.tokens import TokensError, parse_tokens

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 1.0


class TokensFile:
    """The callers that a tokens file lists.

    A change of the file takes effect within a second, at the next call. If the file is then missing or invalid, the
    callers stay as they were and one line is logged.

    Args:
        path: the file.
        clock: returns seconds, and never goes backwards.

    Raises:
        OSError: the file can't be read.
        TokensError: the file is invalid; the message names it.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._checking = threading.Lock()
        self._checked_at = clock()
        self._content: bytes | None = None
        self._problem = ""
        self._identities: tuple[Identity, ...] = ()
        self._read()

    def identities(self) -> tuple[Identity, ...]:
        """Return one identity per token. An entry that stays as it was keeps its identity, and so its rate limits."""
        if self._clock() - self._checked_at >= _CHECK_INTERVAL_S and self._checking.acquire(blocking=False):
            try:
                self._reread()
            finally:
                self._checked_at = self._clock()
                self._checking.release()
        return self._identities

    def _reread(self) -> None:
        """Read the file again; log a problem once."""
        before, problem = self._content, ""
        try:
            self._read()
            if self._content != before:
                logger.info("Read %d tokens from %s", len(self._identities), self._path)
        except OSError as error:
            problem = f"Cannot read {self._path} ({error.strerror})"
        except TokensError as error:
            problem = str(error)
        if problem and problem != self._problem:
            logger.error("%s; its last tokens stay valid", problem)
        self._problem = problem

    def _read(self) -> None:
        if not stat.S_ISREG(self._path.stat().st_mode):  # reading a pipe might block for ever
            raise TokensError(f"{self._path}: not a regular file")
        content = self._path.read_bytes()
        if content == self._content:
            return
        try:
            tokens = parse_tokens(content.decode())
        except UnicodeDecodeError:
            raise TokensError(f"{self._path}: not valid UTF-8") from None
        except TokensError as error:
            raise TokensError(f"{self._path}: {error}") from None
        known = {identity.token: identity for identity in self._identities}
        self._identities = tuple(known.get(token) or Identity(token) for token in tokens)
        self._content = content
        if not tokens:
            logger.warning("%s lists no tokens: only health is answered", self._path)
