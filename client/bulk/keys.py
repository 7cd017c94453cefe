"""The keys that have been met: any number of them, at the cost of disk space, not of memory."""

from __future__ import annotations

import sqlite3


class Keys:
    """A set of keys in a temporary file; for one thread."""

    def __init__(self) -> None:
        # An empty name is a file that SQLite deletes itself; what fits its cache (2 MB) is not even written.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE keys (key TEXT PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, key: str) -> bool:
        """Whether the key is new; from now on it isn't."""
        return self._database.execute("INSERT OR IGNORE INTO keys VALUES (?)", (key,)).rowcount == 1

    def close(self) -> None:
        """Delete the file."""
        self._database.close()
