"""Idempotency keys: the same for a row that is sent again, different for any two that aren't.

A key is made of what ran (a job, or a streaming query's micro-batch), the partition, a digest of
what the row asks for (but not in whose name, nor with which message), and how many rows of the
partition before it asked for the very same::

    spark-5f0c…-3-9a41…-0     add /log/- "a"        first attempt    a a b
    spark-5f0c…-3-9a41…-1     add /log/- "a"        second attempt   b a a     the same three keys
    spark-5f0c…-3-77e2…-0     add /log/- "b"        third attempt    b a c     one more: c is new

So an attempt may see its rows in another order, and nothing is applied twice or left out. With the
row's number in place of the digest, c of the third attempt would have the second attempt's key of
another row. A row that another attempt computes differently is another row: both are applied.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from typing import Final

# About 100 MB; what has more rows goes to a file.
_HELD_MAX: Final = 1_000_000
_DIGEST_BYTES: Final = 16


class RowKeys:
    """The row keys of one partition; see `row_keys`."""

    def __init__(self, origin: str, partition: int, files: sqlite3.Connection, held: int) -> None:
        self._prefix = f"spark-{origin}-{partition}"
        self._held_max = held
        self._files = files
        self._counts: dict[bytes, int] = {}
        self._spilled = False

    def key(self, text: bytes) -> str:
        """For the next row, which asks for ``text``."""
        digest = blake2b(text, digest_size=_DIGEST_BYTES).digest()
        before = self._counts.get(digest, 0)
        if not before and self._spilled:
            before = self._spilled_count(digest)
        self._counts[digest] = before + 1
        if len(self._counts) > self._held_max:
            self._spill()
        return f"{self._prefix}-{digest.hex()}-{before}"

    def _spilled_count(self, digest: bytes) -> int:
        found = self._files.execute("SELECT n FROM seen WHERE digest = ?", (digest,)).fetchone()
        return found[0] if found else 0

    def _spill(self) -> None:
        if not self._spilled:
            self._files.execute(
                "CREATE TABLE seen (digest BLOB PRIMARY KEY, n INTEGER) WITHOUT ROWID"
            )
            self._spilled = True
        self._files.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?)", self._counts.items())
        self._counts.clear()


@contextmanager
def row_keys(origin: str, partition: int, *, held_max: int = _HELD_MAX) -> Iterator[RowKeys]:
    """The keys of ``partition`` as ``origin`` writes it. ``held_max``: digests held in memory."""
    # "": a file of its own in the folder for temporary files, which SQLite makes when it needs it,
    # and which is gone with the connection.
    with closing(sqlite3.connect("", isolation_level=None)) as files:
        yield RowKeys(origin, partition, files, held_max)
