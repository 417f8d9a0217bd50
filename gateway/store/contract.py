"""The contract between the gateway and its database: reads, the conditional write of a head, and
the writing out of documents and commits.

The calls of a round take many catalogs at once, so a round over a thousand catalogs costs as many
round trips as a round over one. Two implementations keep this contract and run the same suite
(``tests/store``): MongoDB, and the in-memory twin for simulation.

A read returns what a majority acknowledged, and is never older than a write that was acknowledged
before the read began. A write is acknowledged when a majority has it on disk.

Errors: any call may raise ``StoreUnreachable``. From a read, it means that nothing happened; from a
write, that the write may or may not have happened, or may yet happen, unless the error is
``Unsent``. If the database refuses a write, that is ``WriteRejected``; in ``move_heads``, each move
has a result of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar, overload

from gateway.errors import Contradiction
from gateway.model import (
    BareDocument,
    Claim,
    CommitRecord,
    Digested,
    DocumentRecord,
    Head,
    HeadMove,
    HeadPosition,
    PinRecord,
    Reply,
    Retention,
    StoredToken,
    Verdict,
)
from patching import Json

_T = TypeVar("_T")
_Raw = TypeVar("_Raw")


class Scanned(list[_T]):
    """A page of a scan, bounded in number and in bytes. ``is_whole``: nothing follows it."""

    def __init__(self, found: Iterable[_T] = (), *, is_whole: bool = True) -> None:
        super().__init__(found)
        self.is_whole = is_whole


class Undecoded(Sequence[_T]):
    """Records as the database sent them, which take a tenth of the memory of decoded objects.

    Each access decodes a record anew and keeps nothing, so only one at a time exists as objects.
    """

    __slots__ = ("_decode", "_raw", "_size", "_text")

    def __init__(
        self,
        raw: Sequence[_Raw],
        decode: Callable[[_Raw], _T],
        size: Callable[[_Raw], int],
        text: Callable[[_Raw], str | bytes] = lambda _: b"",
    ) -> None:
        self._raw: Sequence[Any] = raw
        self._decode: Callable[[Any], _T] = decode
        self._size: Callable[[Any], int] = size
        self._text: Callable[[Any], str | bytes] = text

    def size_of(self, index: int) -> int:
        """The size of one record, in bytes, as it was sent."""
        return self._size(self._raw[index])

    def texts(self) -> Sequence[str | bytes]:
        """The JSON text in each record, if that is all that takes much memory; otherwise empty."""
        return [*map(self._text, self._raw)]

    def __len__(self) -> int:
        return len(self._raw)

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> Undecoded[_T]: ...

    def __getitem__(self, index: int | slice) -> _T | Undecoded[_T]:
        if isinstance(index, slice):
            return Undecoded(self._raw[index], self._decode, self._size, self._text)
        return self._decode(self._raw[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


# Later than any time.
NEVER_US: Final = 1 << 62
# The most claims in the line for one head.
CLAIMS_MAX: Final = 64
# The most keys of one ``list_commits``. MongoDB merges their commits in order; above 200 keys, it
# would sort them instead.
KEYS_MERGED_MAX: Final = 100
# Up to this many commits, reading each costs less than looking at every key they may have changed.
NEAR_COMMITS: Final = 1_000
# The most bytes of keys, acls and parts of managers that a scan reads, and that of a range.
SCANNED_BYTES_MAX: Final = 4 * 1024 * 1024
RANGE_BYTES_MAX: Final = 32 * 1024 * 1024


class StoreUnreachable(Exception):
    """The database didn't answer in time. The effect of a write is unknown, unless
    ``nothing_done``: then it certainly didn't happen."""

    nothing_done = False


class Unsent(StoreUnreachable):
    """Nothing was sent: the write did not happen, and never will."""

    nothing_done = True


class BeingRestored(StoreUnreachable):
    """The catalog's name is reserved for a restore (see ``CopyStore``)."""

    nothing_done = True

    def __init__(self, catalog: str) -> None:
        super().__init__(f"catalog {catalog!r} is being restored")
        self.catalog = catalog


class WriteRejected(StoreUnreachable):
    """The database refuses a part of the write because of its data: that part was not written, and
    would be refused again. The rest may have been written or not; ``nothing_done``: there is no
    rest.

    The message names no host, and quotes nothing of the data.
    """

    def __init__(self, reason: str, *, nothing_done: bool = False) -> None:
        super().__init__(reason)
        self.nothing_done = nothing_done


class Moved(Enum):
    """The result of one conditional write of a head."""

    WON = "won"
    LOST = "lost"  # the head is elsewhere, or another worker's claim comes first


@dataclass(frozen=True, slots=True)
class Rejected:
    """The database refuses this move because of its data: it was not made, and never will be.

    ``too_large``: the head would become larger than a record may be. ``reason`` names no host, and
    quotes nothing of the data.
    """

    reason: str
    too_large: bool = False


MoveResult = Moved | Rejected


@dataclass(frozen=True, slots=True)
class Swept:
    """What compaction leaves of a commit at or below the floor.

    ``commit`` is found only under ``keys`` from now on. Its other changes keep only their key,
    action and create_revision, for the reply under its idempotency key. None: nothing is left.
    """

    revision: int
    commit: CommitRecord | None
    keys: frozenset[str] = frozenset()


class CommitSignals(Protocol):
    """Signals which catalogs have new commits written out; all watchers share one.

    A signal is a hint: its receiver reads the log from its own position. There are signals only for
    commits that are written out after this was opened. After ``next`` raises StoreUnreachable, a
    new one must be opened; the commits in between get no signal.
    """

    def next(self, timeout_s: float) -> Mapping[str, int]:
        """By catalog, the newest revision signalled since the last call; {} after ``timeout_s``."""

    def close(self) -> None: ...


class Store(Protocol):
    """See the module's docstring for the rules of every call."""

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        """The heads without their tails; a catalog without a head is missing from the answer."""

    def tails(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        """The heads with their tails."""

    def last_written(self, revisions: Mapping[str, Collection[int]]) -> Mapping[str, int]:
        """By catalog, the last of these revisions whose commit is stored: everything up to it is
        written out, unless it was compacted."""

    def end_tails(self, reached: Mapping[str, tuple[int, int]]) -> None:
        """Empty the tails of heads that are still at these revisions and verdicts: everything up to
        there is written out. A hint that saves work; correctness doesn't depend on it.
        """

    def open_tails(
        self, before_us: int, limit: int, skip: int = 0, *, after_us: int = NEVER_US
    ) -> Sequence[Head]:
        """At most ``limit`` heads that have a tail and whose last commit was made before
        ``before_us`` or after ``after_us``, without those tails, after the first ``skip`` of such
        heads.

        Their order is arbitrary, but stays the same as long as no head moves.
        """

    def uncommitted(self, before_us: int, limit: int) -> Sequence[Head]:
        """At most ``limit`` heads that have verdicts but never had a commit, and whose last verdict
        was made before ``before_us``; without their tails, oldest first."""

    def drop_uncommitted(self, heads: Sequence[Head]) -> None:
        """Delete heads without a commit. A head stays if it has moved since, if a part of it isn't
        written out, or if a verdict of its catalog is still kept."""

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[CommitRecord]]:
        """By catalog, the commits above span[0] and up to span[1], ascending by revision.

        There is no gap in the answer: it ends before the first missing revision. Commits are
        missing if they aren't written out or were compacted, and so are the last ones of an answer
        of many megabytes.
        """

    def commit_id(self, catalog: str, revision: int) -> str | None:
        """The id of the commit; None if it isn't written out, was compacted, or can't be read."""

    def documents(
        self, keys: Mapping[str, Collection[str]], content_bytes_max: int | None = None
    ) -> Mapping[tuple[str, str], DocumentRecord]:
        """By (catalog, key), documents and tombstones as last written out.

        The content of a document larger than ``content_bytes_max`` is WITHHELD.
        """

    def bare_documents(
        self, keys: Collection[tuple[str, str]]
    ) -> tuple[Mapping[tuple[str, str], BareDocument], Collection[tuple[str, str]]]:
        """``documents`` with only a few fields of each, by (catalog, key); and those of ``keys``,
        never all, that weren't read because the acls before them fill SCANNED_BYTES_MAX."""

    def list_range(
        self, catalog: str, prefix: str, newer_than: int, limit: int
    ) -> Scanned[BareDocument]:
        """The live documents whose keys begin with ``prefix``, as last written out, and the
        tombstones above revision ``newer_than``; by key ascending (UTF-8). At most ``limit``, and
        none after those whose acls fill RANGE_BYTES_MAX. The settings are left out.
        """

    def range_changed(
        self, catalog: str, prefix: str, after: int, through: int, within_s: float | None = None
    ) -> int | None:
        """The revision of any written-out commit above ``after`` up to ``through`` that changed a
        key beginning with ``prefix``; None: there is none. The settings' key belongs to no prefix.

        For more than NEAR_COMMITS, it may take seconds. Raises StoreUnreachable after ``within_s``.
        """

    def replies(
        self, keys: Mapping[str, Collection[tuple[str, str]]]
    ) -> Mapping[tuple[str, str, str], Reply]:
        """By (catalog, principal, key): the written-out replies under those idempotency keys. If a
        key has both a commit and a verdict, the commit: it was made after the verdict expired."""

    def claim(self, catalogs: Collection[str], claim: Claim) -> None:
        """Add the claim at the end of the line for each of the heads, in one call.

        No claim is added if its worker is in that line already, if the line is full (CLAIMS_MAX),
        or if there is no head.
        """

    def drop_claims(self, catalogs: Collection[str], by: str) -> None:
        """Remove the worker's claims from the lines, in one call. A hint that saves waiting;
        correctness doesn't depend on it."""

    def move_heads(self, moves: Sequence[HeadMove]) -> Mapping[str, MoveResult]:
        """The one linearization point: each move by itself, at most one per catalog.

        A move requires the head's position: its revision and verdict, with the ids of both. A lost
        move changes nothing. The same move is LOST the second time. If a catalog is missing from
        the answer, its move is in doubt: it may have been made, or may yet be. If the call raises
        StoreUnreachable, all moves are in doubt.
        """

    def write_documents(self, documents: Mapping[str, Sequence[DocumentRecord]]) -> None:
        """Write documents, by catalog: each unless the stored one has a later revision.

        A document has one state at a revision, so writing it twice changes nothing. If there are
        two, which must not happen, the same one wins in whichever order they come: the one with the
        greater create_revision, commit_id, time_us or number of patches, compared in this order.
        """

    def write_commits(self, commits: Sequence[CommitRecord]) -> None:
        """Write in the order given (ascending in a catalog); existing commits are left alone.

        If a commit of a catalog is visible, so are the ones given before it.
        """

    def write_verdicts(self, verdicts: Sequence[Verdict], kept_s: int) -> None:
        """Write in any order; a verdict is left out if its key has a later one. Each is kept for
        at least ``kept_s``."""

    def changes_of(self, catalog: str, key: str, through: int) -> Sequence[CommitRecord]:
        """The written-out commits up to ``through`` on ``key``, newest first. They contain only
        their changes of that key, because the others may be many and large.

        They end with the first one whose change holds the whole document (``Change.begins_at``), if
        any.
        """

    def commit_at(self, catalog: str, time_us: int) -> CommitRecord | None:
        """The last written-out commit made at or before ``time_us``."""

    def list_commits(
        self,
        catalog: str,
        after: int,
        through: int,
        limit: int,
        keys: str | Collection[str] | None,
        bytes_max: int,
        *,
        author: str | None = None,
        newest_first: bool = False,
    ) -> Sequence[CommitRecord]:
        """Written-out commits above ``after`` up to ``through``; only those of the key, or of one
        of the keys (at most KEYS_MERGED_MAX), and of ``author``, if these are given.

        At most ``limit``, and none after the one that fills ``bytes_max`` bytes of changes. Each
        access to a commit may decode it anew.
        """

    def count_commits(self, catalog: str, after: int, through: int) -> int:
        """How many commits above ``after`` up to ``through`` are written out."""

    def list_heads(self, after: str, prefix: str, limit: int) -> Sequence[Head]:
        """Heads without tails whose names are above ``after``, by name ascending (UTF-8)."""

    def catalog_names(self, after: str, limit: int) -> Sequence[str]:
        """The names above ``after`` of all catalogs that have a commit, by name ascending (UTF-8).
        This includes catalogs whose head can't be read, and those without a head that have commits
        or documents."""

    def scan_documents(
        self, catalog: str, after: str, prefix: str, limit: int, bytes_max: int
    ) -> Sequence[DocumentRecord]:
        """Documents and tombstones as last written out, by key ascending (UTF-8).

        Only keys above ``after`` that begin with ``prefix``: at most ``limit``, and none after the
        one that fills ``bytes_max`` bytes of content. The settings are left out after ""; the
        applications always are. Each access to a document may decode it anew.
        """

    def scan_digests(
        self,
        catalog: str,
        after: str,
        prefix: str,
        limit: int,
        *,
        above: int = 0,
        parts: bool = False,
    ) -> Scanned[Digested]:
        """``scan_documents`` without any content, and only of documents that stored commits changed
        above revision ``above``, which is at or above the floor; 0: of all. With ``parts``, also
        the digests of what each manager owns. Fewer, but at least one, if acls and parts take more
        than SCANNED_BYTES_MAX."""

    def digests_of(
        self, catalog: str, keys: Collection[str], *, parts: bool = False
    ) -> Scanned[Digested]:
        """What ``scan_digests`` returns, for these keys, by key ascending; only the first ones if
        acls and parts take too much."""

    def scan_keys(self, catalog: str, after: str, prefix: str, limit: int) -> Sequence[str]:
        """The keys of ``scan_documents``, without reading the documents."""

    def commit_signals(self) -> CommitSignals:
        """Open signals about the commits that are written out from now on."""

    # Retention: each call is one conditional update of the head, or is idempotent.

    def retention(self, catalog: str) -> Retention | None:
        """The bounds of the catalog's history; None if nothing was ever committed."""

    def set_pin(self, catalog: str, pin: PinRecord, held: PinRecord | None = None) -> bool:
        """Add the pin, or replace the one with its id, if floor <= pin.revision <= head revision.

        With ``held``, replace exactly that pin only, so a late renewal changes nothing. One
        conditional update decides between this and ``raise_floor``. False: nothing changed.
        """

    def drop_pin(self, catalog: str, pin_id: str) -> bool:
        """Remove a pin; whether it existed."""

    def raise_floor(self, catalog: str, floor: int, now_us: int, at: int | None = None) -> bool:
        """Raise the floor to ``floor``, if it is lower, ``floor`` isn't above the head, and no pin
        holds it.

        Everything up to ``floor`` must be written out; it leaves the tail. With ``at``, only while
        the head is at that revision. A pin holds the floor if its revision is lower than ``floor``
        and it expires after ``now_us``. Expired pins are dropped in the same update.
        """

    def advance_head(self, position: HeadPosition, commit: CommitRecord) -> bool:
        """Move the head to ``commit``, at any higher revision, and write that commit out. Its
        revision becomes the floor, too, and all pins end. Nothing changes (False) unless the head
        is at ``position``; all commits up to there must be written out."""

    def end_sweep(self, catalog: str, floor: int) -> None:
        """Note that the history up to ``floor`` is swept; the note never goes back."""

    def commits_of_keys(
        self, catalog: str, keys: Collection[str], through: int
    ) -> Sequence[CommitRecord]:
        """The written-out commits up to ``through`` under any of ``keys``, ascending."""

    def sweep(self, catalog: str, swept: Sequence[Swept]) -> None:
        """Replace or delete commits, in the order given (ascending)."""

    def drop_replies(self, catalog: str, through: int, before_us: int) -> int:
        """Delete the commits below ``through`` that were kept only for their reply and made before
        ``before_us``; return how many.
        """

    def purge_tombstones(self, catalog: str, through: int, before_us: int, limit: int) -> int:
        """Delete at most ``limit`` tombstones up to revision ``through`` made before ``before_us``;
        return how many.
        """

    def take_lease(self, name: str, holder: str, duration_s: float) -> bool:
        """Take or renew the lease, unless another holder's is running by the database's clock;
        whether this holder has it.
        """

    def uploads(self) -> UploadStore:
        """Where the parts of uploads are staged: in the same database."""

    def subscriptions(self) -> SubscriptionStore:
        """Where subscriptions are kept: in the same database."""

    def stored_bytes(self, content: Json) -> int:
        """The size in the database of a document with this content; no I/O."""

    def await_reachable(self, patience_s: float) -> None:
        """Return when the database can be reached; at once, without asking it, if it could be a
        moment ago.

        Raises StoreUnreachable after ``patience_s``.
        """

    def ping(self) -> None:
        """Raise StoreUnreachable unless the database answers and accepts writes."""


class ForeignRecord(Contradiction):
    """A stored record isn't as gateways write it: somebody has edited the database by hand.

    ``detail`` says which record of the catalog it is, and why it can't be read. ``key`` is that of
    a document, else None.
    """

    names_record = True

    def __init__(self, catalog: str, key: str | None, detail: str) -> None:
        super().__init__(f"catalog {catalog!r}: {detail}")
        self.catalog = catalog
        self.key = key
        self.detail = detail


class BackupRefused(Exception):
    """A file can't be restored, and no catalog was made; or a catalog can't be saved, and no file
    was made. ``str()`` says why."""


class StoredCommit(NamedTuple):
    """A commit as it is stored; ``keys`` are the keys that it is found under."""

    raw: bytes
    keys: Sequence[str]


class LoggedCommit(NamedTuple):
    """A commit's revision and id, and the id of the commit before it: ``parent``, which is "" in
    commits of earlier gateways."""

    revision: int
    id: str
    parent: str


class CatalogCopy(Protocol):
    """A file that a catalog's log is being copied to. ``commits``: how many it has so far."""

    commits: int

    def add(self, commit: bytes) -> None: ...

    def end(self) -> None: ...


class CopyStore(Protocol):
    """Logs of catalogs as they are stored, and the files that they are saved to. Calls that reach
    the database raise StoreUnreachable."""

    def commits(self, catalog: str, after: int, through: int) -> tuple[Sequence[bytes], int]:
        """A page of the stored commits above ``after`` up to ``through``, oldest first, and the
        revision after which the next page begins; an empty page is the end. Below the floor, the
        commits are what compaction has left."""

    def logged(self, commit: bytes) -> LoggedCommit:
        """The revision, id and parent of a stored commit. Raises ForeignRecord."""

    def begin_restore(self, catalog: str, by: str) -> None:
        """Reserve the catalog's name for ``by``: from then on, nobody reads or writes the catalog.
        The remains of a restore that stood still for a minute are removed. Raises BackupRefused if
        there is such a catalog, or another restore of it is under way.

        Each later call of this restore checks the reservation in its own transaction and extends it
        by a minute. It raises BackupRefused if a later restore has the name.
        """

    def drop_restore(self, catalog: str, by: str) -> None:
        """Remove what this restore has written, and free the name."""

    def put_commits(self, catalog: str, by: str, commits: Sequence[bytes]) -> None: ...

    def put_documents(self, catalog: str, by: str, documents: Sequence[DocumentRecord]) -> None: ...

    def put_head(self, head: Head, by: str) -> None:
        """Write the head, without a tail; from then on, the catalog exists."""

    def copy_to(self, file: BinaryIO, head: Head) -> CatalogCopy: ...

    def copied_head(self, file: BinaryIO) -> tuple[Head, int]:
        """The head in a seekable file, and the number of its commits, once all of the file is
        checked. Raises BackupRefused if it is damaged, cut off, or of another format."""

    def copied_commits(self, file: BinaryIO, head: Head) -> Iterator[StoredCommit]:
        """The commits of a file that ``copied_head`` has checked. ``head`` may name another catalog
        than the saved one: then the commits below the floor that are kept only for their replies
        are left out."""

    def note_copy(self, catalog: str, revision: int, time_us: int) -> None:
        """Note that there is a whole copy of the catalog at ``revision``, instead of the last
        note."""


@dataclass(frozen=True, slots=True)
class LostHead:
    """What is left of a head: each part by itself, None if that part can't be read.

    ``record`` is the record as it is stored, None if there is none. Pins that can't be read are
    left out. ``swept`` is 0 if it can't be read. ``judged`` is the highest known number of a
    verdict.
    """

    record: Any
    revision: int | None
    last: str | None
    tail: Sequence[CommitRecord] | None
    floor: int | None
    swept: int
    pins: Sequence[PinRecord]
    judged: int


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """The record of a document as it is stored. ``document`` None: it can't be read."""

    record: Any
    document: DocumentRecord | None


class Mending(Protocol):
    """Mends heads that can't be read or are at the wrong position, and records of documents that
    can't be written over. Every call raises StoreUnreachable."""

    def lost_head(self, catalog: str) -> LostHead: ...

    def put_head(self, lost: LostHead, head: Head, advance: CommitRecord | None) -> bool:
        """Replace the lost head, if it is still as it was found, by ``head`` with the pins at or
        above its floor, and write ``advance`` to the log, its last commit: both or neither. Whether
        it was done."""

    def found_document(self, catalog: str, key: str) -> FoundDocument | None: ...

    def put_document(
        self, found: FoundDocument, move: HeadMove, document: DocumentRecord | None
    ) -> bool:
        """Make the move, and replace the record, if it is still as it was found, by ``document``,
        the document after the move; None: delete the record. Both or neither; whether it was done.

        ``document`` contains everything that was committed up to the move. Later commits are
        written out over it, because no foreign record is in their way any more."""


class TokenStore(Protocol):
    """Issued tokens, which belong to no catalog."""

    def create_token(self, token: StoredToken) -> None:
        """Store a token with a new id. Raises ValueError if the id is taken."""

    def token(self, token_id: str) -> StoredToken | None: ...

    def tokens_of(self, ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        """By id, the existing tokens of ``ids``."""

    def tokens(self) -> Sequence[StoredToken]:
        """All tokens, oldest first."""

    def revoke_token(self, token_id: str, revoked_us: int) -> StoredToken | None:
        """Revoke the token for good, and return it; a second revocation keeps the first one's time.
        None: there is no such token.
        """


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An upload. ``terms`` are the conditions given when it was opened, as plain JSON. ``is_open``
    False: it was committed, and is kept for its result.
    """

    id: str
    catalog: str
    key: str
    principal: str
    terms: Mapping[str, Any]
    created_us: int
    expires_us: int
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class UploadsHeld:
    """The number of uploads, and the bytes that ``make_room`` has reserved for their parts."""

    uploads: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class UploadPart:
    number: int
    size_bytes: int
    sha256: str


class UploadStore(Protocol):
    """Staged parts of two-phase uploads. They belong to no catalog: an upload becomes visible only
    by a write through the commit loop.

    An expired upload may disappear at any time after ``expires_us``, parts first.
    """

    def create_upload(self, upload: UploadRecord) -> None: ...

    def end_upload(self, upload: UploadRecord) -> None:
        """Mark the upload as no longer open, and release its room. Does nothing if it is gone."""

    def upload(self, catalog: str, upload_id: str) -> UploadRecord | None: ...

    def held(self, principal: str, now_us: int) -> tuple[UploadsHeld, UploadsHeld]:
        """What open uploads that expire after ``now_us`` hold: those of all principals, and those
        of ``principal``."""

    def make_room(self, upload: UploadRecord, number: int, size_bytes: int, bytes_max: int) -> bool:
        """Reserve room for a part. False, without a change, if the upload would take more than
        ``bytes_max``, or is gone or no longer open.

        Atomic. A part counts with the most room ever reserved under its number.
        """

    def put_part(self, upload: UploadRecord, number: int, content: bytes) -> UploadPart:
        """Stage a part, replacing the one with its number."""

    def parts(self, upload: UploadRecord) -> Sequence[UploadPart]:
        """The parts without their contents, ascending by number."""

    def part_content(self, upload: UploadRecord, number: int) -> bytes | None: ...

    def count_uploads(self, now_us: int) -> int:
        """The number of uploads that expire after ``now_us``, committed ones included."""

    def drop_parts(self, upload: UploadRecord) -> None:
        """Delete the parts of an upload that is no longer open, and keep the upload."""

    def drop_upload(self, upload: UploadRecord) -> None:
        """Delete the upload, then its parts: so a reader that finds the upload open after reading
        the parts has read all of them. Idempotent."""


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """Where a catalog's commits are delivered to, and how far delivery has come.

    ``number`` changes with each change of the subscription, but not with its progress, and never
    repeats that of a former subscription of this name. ``secrets`` are pairs (secret, until) that
    sign deliveries, newest first; until 0: for good. ``by`` is the principal that changed it last.

    Its progress: ``position`` is a position in the feed, "" before the feed from the state begins.
    ``failures`` counts failures in a row. ``failing_since_us`` is the time of the first of them, or
    of the pause; 0: it neither fails nor is paused. ``delivered`` counts events.
    """

    catalog: str
    name: str
    to: str
    prefix: str
    format: str
    secrets: tuple[tuple[str, int], ...]
    by: str
    created_us: int
    number: int
    paused: bool = False
    position: str = ""
    failures: int = 0
    failing_since_us: int = 0
    error: Mapping[str, Any] | None = None
    next_try_us: int = 0
    delivered: int = 0
    delivered_us: int = 0


# The fields that a worker writes while it delivers.
PROGRESS: Final = (
    *("position", "failures", "failing_since_us", "error", "next_try_us"),
    *("delivered", "delivered_us"),
)


class SubscriptionStore(Protocol):
    """Subscriptions. One worker of all gateways delivers for a subscription at a time: the one that
    holds its lease, which ends by the database's clock. Only that worker writes its progress, and
    only as long as nobody changes the subscription."""

    def subscription(self, catalog: str, name: str) -> SubscriptionRecord | None:
        """The subscription; None if there is none, or it can't be read."""

    def has_unreadable_subscription(self, catalog: str, name: str) -> bool:
        """Whether there is one of that name, and it can't be read."""

    def subscriptions_of(self, catalog: str) -> Sequence[SubscriptionRecord]:
        """The subscriptions of a catalog, by name (UTF-8)."""

    def create_subscription(self, record: SubscriptionRecord) -> bool:
        """Store a new subscription, also over one that can't be read. False, without a change, if
        there is one of that name."""

    def change_subscription(
        self,
        record: SubscriptionRecord,
        number: int,
        progress: Collection[str],
        *,
        at_revision: bool = False,
    ) -> bool:
        """Replace the subscription if it has this number; of its progress, only the fields in
        ``progress``. False: it has another number by now, or is gone. With ``at_revision``, also if
        its position isn't a revision: the list of the state is under way, or hasn't begun."""

    def drop_subscription(self, catalog: str, name: str, number: int | None) -> bool:
        """Delete the subscription if it has this number; None: if it can't be read. Whether it was
        deleted."""

    def claimable(
        self, holder: str, limit: int
    ) -> tuple[Sequence[SubscriptionRecord], Sequence[tuple[str, str]]]:
        """The subscriptions that the holder has claimed, and the (catalog, name) of at most
        ``limit`` that nobody has."""

    def claim_subscription(
        self, catalog: str, name: str, holder: str, duration_s: float
    ) -> SubscriptionRecord | None:
        """Claim the subscription; None: somebody else has, or it is gone or can't be read."""

    def renew_claims(self, holder: str, duration_s: float) -> None:
        """Renew all claims that the holder still has."""

    def end_claim(self, catalog: str, name: str, holder: str) -> None:
        """End the claim, if this holder has it."""

    def save_progress(self, record: SubscriptionRecord, holder: str) -> bool:
        """Write the fields of its progress. False, without a change, if the holder has lost its
        claim, or the subscription was changed or dropped."""
