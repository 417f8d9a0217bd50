"""Idempotency keys: the same for a row that is sent again, different for any two that aren't.

By *content*, a key is made of what ran, of what the row asks for, and of its count among equal
rows::

    spark-7-r9a41…-0    k: add /log/- "a"       first attempt    k:a k:b k:a
    spark-7-r77e2…-0    k: add /log/- "b"       second attempt   k:b k:a k:a    the same three keys
    spark-7-r9a41…-1    k: add /log/- "a"

So rows may come in any order and from any partition, as long as equal ones come from one. It is how
a named job and a query make keys: their rows may be in other partitions when they are started
again. Rows that are computed anew, and differ, are other rows.

By *place*, a key is made of what ran, of the row's document, and of the row's place among those of
its document. Nothing of what the row asks for is in it, nor who asks for it::

    spark-7-9a41…-0     k: add /log/- "a"       first attempt    k:a k:b m:a
    spark-7-9a41…-1     k: add /log/- "b"       second attempt   m:a k:a k:b    the same three keys
    spark-7-77e2…-0     m: add /log/- "a"       third attempt    k:b k:a m:a    k's are refused

So rows of different documents may come in any order, and equal rows are each applied; where an
attempt has another row in a place, the gateway has seen the key with another request, and says so.

That is one place for each row where all rows of a document are in one partition. What a job writes
that nobody will start again may be in any: its keys have the partition in them, and they are made
by place. For the others, `require_apart` looks at a sample of what each partition counted: rows, or
documents.
"""

from __future__ import annotations

import heapq
import sqlite3
from array import array
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from hashlib import blake2b
from typing import Final

import numpy as np

# About 100 MB; what counts more rows or documents goes to a file.
_HELD_MAX: Final = 1_000_000
_DIGEST_BYTES: Final = 16
# 32 KB, of each of maybe thousands of partitions.
_SAMPLE_MAX: Final = 4_096


class PartitionsOverlap(Exception):
    """Equal rows of one document are in two partitions, where they have one key."""


class RowKeys:
    """The row keys of one partition; see `row_keys`."""

    def __init__(self, prefix: str, files: sqlite3.Connection, held: int, sample: int) -> None:
        self._prefix = prefix
        self._held_max = held
        self._files = files
        self._counts: dict[bytes, int] = {}
        self._spilled = False
        # The lowest, negated, so that the highest of them is at hand.
        self._sample: list[int] = []
        self._sample_max = sample

    def key(self, catalog: str, document: str) -> str:
        """By place, for the next row of the document."""
        name = f"{catalog}\0{document}".encode("utf-8", "surrogatepass")
        return self._counted("", name)

    def row_key(self, asked: bytes) -> str:
        """By content, for the next of the rows that ask for this: canonical JSON."""
        return self._counted("r", asked)

    def _counted(self, kind: str, text: bytes) -> str:
        digest = blake2b(text, digest_size=_DIGEST_BYTES).digest()
        before = self._counts.get(digest, 0)
        if not before and self._spilled:
            before = self._spilled_count(digest)
        if not before:
            self._add_to_sample(int.from_bytes(digest[:8]))
        self._counts[digest] = before + 1
        if len(self._counts) > self._held_max:
            self._spill()
        return f"{self._prefix}-{kind}{digest.hex()}-{before}"

    @property
    def sample(self) -> bytes:
        """The lowest digests, ascending: all of them where there are few."""
        return array("Q", sorted(-each for each in self._sample)).tobytes()

    def _add_to_sample(self, number: int) -> None:
        if len(self._sample) < self._sample_max:
            heapq.heappush(self._sample, -number)
        elif number < -self._sample[0]:
            heapq.heapreplace(self._sample, -number)

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
def row_keys(
    prefix: str, *, held_max: int = _HELD_MAX, sample_max: int = _SAMPLE_MAX
) -> Iterator[RowKeys]:
    """The keys of a partition, which begin with ``prefix``. ``held_max``: digests that are held
    in memory; ``sample_max``: those of its sample."""
    # "": a file of its own in the folder for temporary files, which SQLite makes when it needs it,
    # and which is gone with the connection.
    with closing(sqlite3.connect("", isolation_level=None)) as files:
        yield RowKeys(prefix, files, held_max, sample_max)


def are_apart_for_certain(samples: Mapping[int, bytes], replayed: int) -> bool:
    """Whether no equal rows are in two partitions that `require_apart` has nothing against.

    Of two such rows, the gateway answers the second as one that was sent before. So where it
    answered none like that, there are none; and where it did, because a task was repeated or the
    job started again, small samples have all.
    """
    return not replayed or all(len(each) < 8 * _SAMPLE_MAX for each in samples.values())


def require_apart(samples: Mapping[int, bytes]) -> None:
    """Raise PartitionsOverlap where a digest is in two samples, by partition.

    A sample is the lowest of its partition's digests, so one that is in two partitions is in both
    samples, or beyond the end of one: all partitions are compared as far as the shortest goes.
    """
    numbers = {p: np.frombuffer(sample, np.uint64) for p, sample in samples.items() if sample}
    if not numbers:
        return
    found = np.concatenate(list(numbers.values()))
    found.sort()
    twice = np.flatnonzero(found[1:] == found[:-1])
    if not len(twice):
        return
    digest = found[twice[0]]
    first, second = sorted(p for p, sample in numbers.items() if digest in sample)[:2]
    raise PartitionsOverlap(
        f"partitions {first} and {second} both have a row of one document that may be equal, and of"
        " such rows one was applied: have the rows of a document in one partition"
        " (`repartition('key')`), and start the job or the query again, which applies the other"
    )
