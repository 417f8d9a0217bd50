"""Idempotency keys: the same for a row that is sent again, different for any two other rows.

By *content*, a key is made of the version, of what the row asks for, and of its number among equal
rows::

    spark-7-r9a41…-0    k: add /log/- "a"       first attempt    k:a k:b k:a
    spark-7-r77e2…-0    k: add /log/- "b"       second attempt   k:b k:a k:a    the same three keys
    spark-7-r9a41…-1    k: add /log/- "a"

So rows may come in any order and from any partition, as long as equal ones come from one. Named
jobs and queries make keys like this, as their rows may be in other partitions when they are started
again. A row that is computed again with another result is another row.

By *place*, a key is made of the version or job, of the row's document, and of the row's place among
the rows of its document, but not of what the row asks for, or who asks for it::

    spark-7-9a41…-0     k: add /log/- "a"       first attempt    k:a k:b m:a
    spark-7-9a41…-1     k: add /log/- "b"       second attempt   m:a k:a k:b    the same three keys
    spark-7-77e2…-0     m: add /log/- "a"       third attempt    k:b k:a m:a    k's are refused

So rows of different documents may come in any order, and equal rows are each applied. If an attempt
has another row in a place, the gateway refuses it: it has seen the key with another request.

A row has one place only if all rows of its document are in one partition. The rows of a job that
nobody will start again may be in any: its keys are made by place, and contain the partition. For
other jobs, `require_apart` compares samples of what each partition counted: rows, or documents.
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

# The most digests in memory, about 100 MB; more go to a file.
_HELD_MAX: Final = 1_000_000
_DIGEST_BYTES: Final = 16
# The most digests in a sample: 32 KB for each of perhaps thousands of partitions.
_SAMPLE_MAX: Final = 4_096


class PartitionsOverlap(Exception):
    """Two partitions may have equal rows of one document, and so one key for both."""


class RowKeys:
    """The row keys of one partition; see `row_keys`."""

    def __init__(self, prefix: str, files: sqlite3.Connection, held: int, sample: int) -> None:
        self._prefix = prefix
        self._held_max = held
        self._files = files
        self._counts: dict[bytes, int] = {}
        self._spilled = False
        # The lowest digests, negated, so that the highest of them comes first.
        self._sample: list[int] = []
        self._sample_max = sample

    def key(self, catalog: str, document: str) -> str:
        """The key by place of the document's next row."""
        name = f"{catalog}\0{document}".encode("utf-8", "surrogatepass")
        return self._counted("", name)

    def row_key(self, asked: bytes) -> str:
        """The key by content of the next row that asks for this, canonical JSON."""
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
        """The lowest digests, ascending; all of them if there are few."""
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
    """The keys of a partition, which begin with ``prefix``. ``held_max``: the most digests in
    memory; ``sample_max``: in its sample."""
    # "": a temporary file, which SQLite makes when it needs it, and which ends with the connection.
    with closing(sqlite3.connect("", isolation_level=None)) as files:
        yield RowKeys(prefix, files, held_max, sample_max)


def are_apart_for_certain(samples: Mapping[int, bytes], replayed: int) -> bool:
    """Whether it is certain that no two partitions have equal rows, after `require_apart` found
    none.

    The gateway answers the second of two equal rows as one that was sent before. So if it answered
    none like that, there are none. If it did, because a task was repeated or the job started again,
    small samples settle it: they contain every digest.
    """
    return not replayed or all(len(each) < 8 * _SAMPLE_MAX for each in samples.values())


def require_apart(samples: Mapping[int, bytes]) -> None:
    """Raise PartitionsOverlap if a digest is in two of the ``samples``, by partition.

    A sample has the lowest of its partition's digests. So a digest of two partitions is in both
    samples, or beyond the end of one: partitions are compared as far as the shortest sample goes.
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
        f"partitions {first} and {second} have rows of one document that may be equal, and of"
        " equal rows in two partitions only one was applied: put the rows of a document into one"
        " partition (`repartition('key')`), and start the job or the query again, which applies"
        " the other"
    )
