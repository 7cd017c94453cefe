"""A set of photo keys that uses disk space instead of memory."""

from __future__ import annotations

import sqlite3


class Keys:
    """A set of keys in a temporary file; for one thread."""

    def __init__(self) -> None:
        # With an empty name SQLite uses a temporary file, which it writes only if its cache of 2 MB is full.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE keys (key TEXT PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, key: str) -> bool:
        """Add a key and return whether it is new."""
        return self._database.execute("INSERT OR IGNORE INTO keys VALUES (?)", (key,)).rowcount == 1

    def close(self) -> None:
        """Delete the file."""
        self._database.close()
