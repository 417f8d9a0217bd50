"""What the commit loop needs from a database: a few reads, one conditional write, two writes-out.

Every call takes many catalogs at once, so that a batch over a thousand catalogs costs as many
round trips as a batch over one. Two implementations keep this contract and run the same suite
(``tests/store``): MongoDB and the in-memory twin for simulation.

A read returns what a majority acknowledged and is never older than any write that was
acknowledged before the read began. A write is acknowledged when a majority has it on disk.

Errors: ``Unreachable`` from any call. From a read it says nothing happened; from a write that it
may or may not have happened, now or later, unless it is ``Unsent``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gateway.model import BareDocument, Commit, Document, Head, Pin, Retention
from patching import Json


class Unreachable(Exception):
    """The database did not answer in time; what a write did is not known."""


class Unsent(Unreachable):
    """Nothing was sent: whatever was to be written is not, and never will be."""


class Moved(Enum):
    """What one conditional write of a head did."""

    WON = "won"
    LOST = "lost"  # the head is at another revision


@dataclass(frozen=True, slots=True)
class Move:
    """Set the head ``to``, if it is still at ``to.base_revision`` (0: no head yet)."""

    to: Head


@dataclass(frozen=True, slots=True)
class Swept:
    """What compaction leaves of a commit at or below the floor.

    ``commit`` is found under ``keys`` alone from now on: of its other changes only key, action and
    create_revision are left, for the reply under its idempotency key. None: nothing is left.
    """

    revision: int
    commit: Commit | None
    keys: frozenset[str] = frozenset()


class CommitSignals(Protocol):
    """Tells which catalogs have new commits written out; one is shared by all watchers.

    A hint: whoever is told reads the log from where he stands. Told are the commits written out
    after it was opened; where ``next`` raised Unreachable, a new one must be opened, and nothing
    is told of what happened in between.
    """

    def next(self, timeout_s: float) -> Mapping[str, int]:
        """By catalog the newest revision told of since the last call; {} when the time is up."""

    def close(self) -> None: ...


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

    def documents(
        self, keys: Mapping[str, Collection[str]], content_bytes_max: int | None = None
    ) -> Mapping[tuple[str, str], Document]:
        """By (catalog, key), documents and tombstones as last written out.

        Of a document larger than ``content_bytes_max`` the content isn't read: it is WITHHELD.
        """

    def bare_documents(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], BareDocument]:
        """As ``documents``, by (catalog, key), but little is read of each."""

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

    def list_heads(self, after: str, prefix: str, limit: int) -> Sequence[Head]:
        """Heads without batches, by name ascending (UTF-8), with name above ``after``."""

    def scan_documents(
        self, catalog: str, after: str, prefix: str, limit: int, bytes_max: int
    ) -> Sequence[Document]:
        """Documents and tombstones as last written out, by key ascending (UTF-8).

        Of the keys above ``after`` that begin with ``prefix``: at most ``limit``, and none behind
        the one that fills ``bytes_max`` bytes of content. After "" the settings are left out.
        """

    def commit_signals(self) -> CommitSignals:
        """Opened now: commits that are written out from now on are told."""

    # Retention: each call is one conditional update of the head, or idempotent.

    def retention(self, catalog: str) -> Retention | None:
        """The bounds of the catalog's history as they are; None where there is no head."""

    def set_pin(self, catalog: str, pin: Pin, held: Pin | None = None) -> bool:
        """Add the pin, or replace the one with its id, if floor <= pin.revision <= head revision.

        With ``held``, only in place of exactly that one: a renewal that arrives late changes
        nothing. Decided against ``raise_floor`` by one conditional update. False: nothing was
        changed.
        """

    def drop_pin(self, catalog: str, pin_id: str) -> bool:
        """Whether there was such a pin."""

    def raise_floor(self, catalog: str, floor: int, now_us: int, at: int | None = None) -> bool:
        """Raise the floor, if it is lower, swept, not above the head, and no pin holds it.

        With ``at``, only while the head is at that revision. A pin holds the floor if its revision
        is lower than ``floor`` and it expires after ``now_us``. Pins that have expired are dropped
        with it.
        """

    def end_sweep(self, catalog: str, floor: int) -> None:
        """The history up to ``floor`` is swept; never set back."""

    def commits_of_keys(
        self, catalog: str, keys: Collection[str], through: int
    ) -> Sequence[Commit]:
        """The written-out commits up to ``through`` that are found under any of ``keys``,
        ascending."""

    def sweep(self, catalog: str, swept: Sequence[Swept]) -> None:
        """Replace or delete commits, in the order given, which is ascending."""

    def drop_replies(self, catalog: str, through: int, before_us: int) -> int:
        """Delete the commits below ``through`` kept for their reply alone and made before
        ``before_us``; how many there were."""

    def purge_tombstones(self, catalog: str, through: int, before_us: int, limit: int) -> int:
        """Delete at most ``limit`` tombstones up to revision ``through`` and made before
        ``before_us``; how many there were."""

    def drop_document(self, catalog: str, key: str, revision: int) -> bool:
        """Delete the document's record if it is at exactly this revision; whether it was."""

    def take_lease(self, name: str, holder: str, duration_s: float) -> bool:
        """Take or renew the lease, unless another holder has one that isn't over.

        By the database's clock.
        """

    def end_lease(self, name: str, holder: str) -> None:
        """Give the lease up, if it is this holder's."""

    def stored_bytes(self, content: Json) -> int:
        """How large a document with this content is in the database; no I/O."""

    def await_reachable(self, patience_s: float) -> None:
        """Returns at once where the database was reachable a moment ago, without asking it.

        Else waits until it is. Raises Unreachable after ``patience_s``.
        """

    def ping(self) -> None:
        """Raise Unreachable unless the database answers and accepts writes."""
