"""What the commit loop needs from a database: a few reads, one conditional write, two writes-out.

Every call takes many catalogs at once, so that a batch over a thousand catalogs costs as many
round trips as a batch over one. Two implementations keep this contract and run the same suite
(``tests/store``): MongoDB and the in-memory twin for simulation.

A read returns what a majority acknowledged and is never older than any write that was
acknowledged before the read began. A write is acknowledged when a majority has it on disk.

Errors: ``Unreachable`` from any call. From a read it says nothing happened; from a write that it
may or may not have happened, now or later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gateway.model import Commit, Document, Head
from patching import Json


class Unreachable(Exception):
    """The database did not answer in time; what a write did is not known."""


class Moved(Enum):
    """What one conditional write of a head did."""

    WON = "won"
    LOST = "lost"  # the head is at another revision


@dataclass(frozen=True, slots=True)
class Move:
    """Set the head ``to``, if it is still at ``to.base_revision`` (0: no head yet)."""

    to: Head


class Store(Protocol):
    """See the module's docstring for what holds of every call."""

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        """The heads without their batches; a catalog that was never written isn't in the answer."""

    def head_with_batch(self, catalog: str) -> Head | None:
        """The head with its last batch."""

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[Commit]]:
        """By catalog, the commits above span[0] and up to span[1], ascending by revision.

        A prefix is complete: where a revision is missing, the ones behind it are left out.
        Commits that are not written out, or were compacted, are missing; where it gets heavy
        (many megabytes), so are the last ones.
        """

    def documents(self, keys: Mapping[str, Collection[str]]) -> Mapping[tuple[str, str], Document]:
        """By (catalog, key), documents and tombstones as last written out."""

    def replies(
        self, keys: Mapping[str, Collection[tuple[str, str]]]
    ) -> Mapping[tuple[str, str, str], Commit]:
        """By (catalog, principal, key): the written-out commits under those idempotency keys."""

    def move_heads(self, moves: Sequence[Move]) -> Mapping[str, Moved]:
        """The one linearization point: each move on its own, at most one per catalog.

        A loser changes nothing. Moving to the same head twice is LOST the second time.
        """

    def write_documents(self, documents: Mapping[str, Sequence[Document]]) -> None:
        """By catalog; each is written unless the stored one has a later revision.

        At one revision a document has one state, so writing it twice changes nothing.
        """

    def write_commits(self, commits: Sequence[Commit]) -> None:
        """In the order given (ascending within a catalog); those already there are left alone.

        Where a commit of a catalog is visible, so are the ones given before it.
        """

    def changes_of(self, catalog: str, key: str, through: int) -> Sequence[Commit]:
        """The written-out commits up to ``through`` on ``key``, newest first.

        They end with the first one whose change says everything (``Change.begins_at``), if any.
        """

    def commit_at(self, catalog: str, time_us: int) -> Commit | None:
        """The last written-out commit made at or before ``time_us``."""

    def list_commits(
        self, catalog: str, after: int, through: int, limit: int, key: str | None, bytes_max: int
    ) -> Sequence[Commit]:
        """Written-out commits above ``after`` up to ``through``, ascending, of ``key`` if given.

        At most ``limit``, and none behind the one that fills ``bytes_max`` bytes of changes.
        """

    def stored_bytes(self, content: Json) -> int:
        """How large a document with this content is in the database; no I/O."""

    def ping(self) -> None:
        """Raise Unreachable unless the database answers and accepts writes."""
