"""The contract between the gateway and its database: reads, one conditional write, two writes-out.

Every call takes many catalogs at once, so that a batch over a thousand catalogs costs as many round
trips as a batch over one. Two implementations keep this contract and run the same suite
(``tests/store``): MongoDB, and the in-memory twin for simulation.

A read returns what a majority acknowledged, and is never older than a write that was acknowledged
before the read began. A write is acknowledged when a majority has it on disk.

Errors: ``StoreUnreachable`` from any call. From a read it says that nothing happened; from a write
that it may or may not have happened, now or later, unless it is ``Unsent``. A write that the
database answers with a refusal is ``WriteRejected``; of ``move_heads``, each move has a result of
its own.
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
    Verdict,
)
from patching import Json

_T = TypeVar("_T")
_Raw = TypeVar("_Raw")


class Scanned(list[_T]):
    """A page of what was scanned for, which ends where it gets heavy. ``is_whole``: there was no
    more, whether in number or in bytes."""

    def __init__(self, found: Iterable[_T] = (), *, is_whole: bool = True) -> None:
        super().__init__(found)
        self.is_whole = is_whole


class Undecoded(Sequence[_T]):
    """Records as the database sent them, which take a tenth of what they take as objects.

    Each is decoded when it is asked for, and not kept: so one at a time is there as objects.
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
        """The bytes of one of them, as it was sent."""
        return self._size(self._raw[index])

    def texts(self) -> Sequence[str | bytes]:
        """The JSON in each of them, where it is all that takes much."""
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


CLAIMS_MAX: Final = 64
# The server merges the commits of so many keys, each in order; those of over 200 it would sort.
KEYS_MERGED_MAX: Final = 100
# Up to so many commits it costs less to look at each than at each key that they may have changed.
NEAR_COMMITS: Final = 1_000
# What a scan reads of acls, parts of managers and keys; and what it reads of a range.
SCANNED_BYTES_MAX: Final = 4 * 1024 * 1024
RANGE_BYTES_MAX: Final = 32 * 1024 * 1024


class StoreUnreachable(Exception):
    """The database did not answer in time; the effect of a write is unknown, unless
    ``nothing_done``."""

    nothing_done = False


class Unsent(StoreUnreachable):
    """Nothing was sent: the write did not happen, and never will."""

    nothing_done = True


class BeingRestored(StoreUnreachable):
    """The catalog's name is kept for a restore (see ``CopyStore``)."""

    nothing_done = True

    def __init__(self, catalog: str) -> None:
        super().__init__(f"catalog {catalog!r} is being restored")
        self.catalog = catalog


class WriteRejected(StoreUnreachable):
    """The database refuses a part of what was to be written, for what it is: that part was not
    written, and would be refused again. Of the rest all may be written, or not; ``nothing_done``:
    there is no rest.

    The message names no host, and repeats nothing of what was to be written.
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
    """The database refuses this move for what it is: it was not made, and never will be.

    ``too_large``: with it the head would be larger than a record may be. ``reason`` names no host,
    and repeats nothing of what was to be written.
    """

    reason: str
    too_large: bool = False


MoveResult = Moved | Rejected


@dataclass(frozen=True, slots=True)
class Swept:
    """The rest of a commit at or below the floor after compaction.

    ``commit`` is found only under ``keys`` from now on. Of its other changes, key, action and
    create_revision are left, for the reply under its idempotency key. None: nothing is left.
    """

    revision: int
    commit: CommitRecord | None
    keys: frozenset[str] = frozenset()


class CommitSignals(Protocol):
    """Tells which catalogs have new commits written out; all watchers share one.

    A signal is a hint: its receiver reads the log from its own place. Signals are about commits
    written out after it was opened. Where ``next`` raised StoreUnreachable, a new one must be
    opened, and the commits in between have no signal.
    """

    def next(self, timeout_s: float) -> Mapping[str, int]:
        """By catalog, the newest revision signalled since the last call; {} when the time is up."""

    def close(self) -> None: ...


class Store(Protocol):
    """See the module's docstring for the rules of every call."""

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        """The heads without their tails; a catalog without a head is missing from the answer."""

    def tails(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        """The heads with their tails."""

    def last_written(self, revisions: Mapping[str, Collection[int]]) -> Mapping[str, int]:
        """By catalog, the last of these revisions whose commit is there: all up to it is written
        out, unless it was compacted."""

    def end_tails(self, reached: Mapping[str, tuple[int, int]]) -> None:
        """Note that everything is written out up to these revisions and verdicts, where heads still
        are there: their tails end. Not acknowledged by anybody: a hint that saves work.
        """

    def open_tails(self, before_us: int, limit: int, skip: int = 0) -> Sequence[Head]:
        """At most ``limit`` heads, without their tails, that have one and whose last commit was
        made before ``before_us``, behind the first ``skip`` of them.

        In an order of their own, which stays what it is while no head moves.
        """

    def uncommitted(self, before_us: int, limit: int) -> Sequence[Head]:
        """At most ``limit`` heads, without their tails, that have verdicts and never had a commit,
        and whose last verdict was made before ``before_us``; oldest first."""

    def drop_uncommitted(self, heads: Sequence[Head]) -> None:
        """Delete heads without a commit, each only where it is exactly there still, all is written
        out, and none of its catalog's verdicts is kept any more."""

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[CommitRecord]]:
        """By catalog, the commits above span[0] and up to span[1], ascending by revision.

        The answer has no gap: behind a missing revision, nothing more is given. Commits that are
        not written out or were compacted are missing, and so are the last ones beyond many
        megabytes.
        """

    def commit_id(self, catalog: str, revision: int) -> str | None:
        """The id of the commit; None where it isn't written out, or was compacted, or can't be
        read."""

    def documents(
        self, keys: Mapping[str, Collection[str]], content_bytes_max: int | None = None
    ) -> Mapping[tuple[str, str], DocumentRecord]:
        """By (catalog, key), documents and tombstones as last written out.

        A document larger than ``content_bytes_max`` comes without its content: that is WITHHELD.
        """

    def bare_documents(
        self, keys: Collection[tuple[str, str]]
    ) -> tuple[Mapping[tuple[str, str], BareDocument], Collection[tuple[str, str]]]:
        """``documents`` with only a few fields of each, by (catalog, key); and those of ``keys``
        that weren't looked at, for acls fill SCANNED_BYTES_MAX: fewer than all."""

    def list_range(
        self, catalog: str, prefix: str, newer_than: int, limit: int
    ) -> Scanned[BareDocument]:
        """The live documents whose keys begin with ``prefix``, as last written out, and tombstones
        of a revision above ``newer_than``; by key ascending (UTF-8), at most ``limit``, and
        none behind those whose acls fill RANGE_BYTES_MAX. The settings are left out.
        """

    def range_changed(
        self, catalog: str, prefix: str, after: int, through: int, within_s: float | None = None
    ) -> int | None:
        """The revision of a written-out commit above ``after`` up to ``through`` under a key that
        begins with ``prefix``; None: there is none. The settings' key counts for no prefix.

        For more than NEAR_COMMITS it may take seconds. Raises StoreUnreachable where that takes
        longer than ``within_s``.
        """

    def replies(
        self, keys: Mapping[str, Collection[tuple[str, str]]]
    ) -> Mapping[tuple[str, str, str], Reply]:
        """By (catalog, principal, key): the written-out replies under those idempotency keys. Of a
        commit and a verdict the commit: it was made when the verdict was over."""

    def claim(self, catalogs: Collection[str], claim: Claim) -> None:
        """Add the claim behind the others in line for each of the heads, in one call.

        Not where its worker is in line already, the line is full (CLAIMS_MAX), or there is no head.
        """

    def drop_claims(self, catalogs: Collection[str], by: str) -> None:
        """The worker leaves the lines, in one call. Not acknowledged by anybody: a hint that saves
        waiting."""

    def move_heads(self, moves: Sequence[HeadMove]) -> Mapping[str, MoveResult]:
        """The one linearization point: each move by itself, at most one per catalog.

        A move asks for the head's place: its revision and verdict, with the ids of both. A lost
        move changes nothing. The same move is LOST the second time. A catalog that is missing from
        the answer is in doubt, as all are where the call raises StoreUnreachable: its move may have
        been made, or may yet be.
        """

    def write_documents(self, documents: Mapping[str, Sequence[DocumentRecord]]) -> None:
        """By catalog; each is written unless the stored one has a later revision.

        At one revision a document has one state, so writing it twice changes nothing. Of two
        different ones, which must not be, one stays, whichever comes last: that of the later
        create_revision, commit_id, time_us or number of patches, compared in this order.
        """

    def write_commits(self, commits: Sequence[CommitRecord]) -> None:
        """Write in the order given (ascending in a catalog); existing commits are left alone.

        Where a commit of a catalog is visible, so are the ones given before it.
        """

    def write_verdicts(self, verdicts: Sequence[Verdict], kept_s: int) -> None:
        """Write in any order; one whose key has a later one is left out. Each is kept for so long
        at least."""

    def changes_of(self, catalog: str, key: str, through: int) -> Sequence[CommitRecord]:
        """The written-out commits up to ``through`` on ``key``, newest first, with their changes of
        that key alone: others may be many, and large.

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
        """Written-out commits above ``after`` up to ``through``; if they are given, those of the
        key, or of one of the keys (at most KEYS_MERGED_MAX), and of ``author``.

        At most ``limit``, and none behind the one that fills ``bytes_max`` bytes of changes. Each
        may be decoded anew whenever it is asked for.
        """

    def list_heads(self, after: str, prefix: str, limit: int) -> Sequence[Head]:
        """Heads without tails whose names are above ``after``, by name ascending (UTF-8)."""

    def catalog_names(self, after: str, limit: int) -> Sequence[str]:
        """The names above ``after`` of all catalogs that have a commit, by name ascending (UTF-8):
        those whose heads can't be read, and those of which there is no head, only commits or
        documents, among them."""

    def scan_documents(
        self, catalog: str, after: str, prefix: str, limit: int, bytes_max: int
    ) -> Sequence[DocumentRecord]:
        """Documents and tombstones as last written out, by key ascending (UTF-8).

        Of the keys above ``after`` that begin with ``prefix``: at most ``limit``, and none behind
        the one that fills ``bytes_max`` bytes of content. After "" the settings are left out;
        the applications always are. Each may be decoded anew whenever it is asked for.
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
        """``scan_documents`` without reading any content, of what was changed above revision
        ``above`` by commits that are there, which is above the floor. With ``parts``, these come
        too. Fewer, one at least, where acls and parts take more than SCANNED_BYTES_MAX."""

    def digests_of(
        self, catalog: str, keys: Collection[str], *, parts: bool = False
    ) -> Scanned[Digested]:
        """Of these keys what ``scan_digests`` has of them, by key; the first where they are
        heavy."""

    def scan_keys(self, catalog: str, after: str, prefix: str, limit: int) -> Sequence[str]:
        """The keys of ``scan_documents``, without a look at the documents."""

    def commit_signals(self) -> CommitSignals:
        """Open signals about the commits that are written out from now on."""

    # Retention: each call is one conditional update of the head, or is idempotent.

    def retention(self, catalog: str) -> Retention | None:
        """The bounds of the catalog's history; None where nothing was ever committed."""

    def set_pin(self, catalog: str, pin: PinRecord, held: PinRecord | None = None) -> bool:
        """Add the pin, or replace the one with its id, if floor <= pin.revision <= head revision.

        With ``held``, replace only exactly that pin: a late renewal changes nothing. One
        conditional update decides between this and ``raise_floor``. False: nothing changed.
        """

    def drop_pin(self, catalog: str, pin_id: str) -> bool:
        """Whether the pin existed."""

    def raise_floor(self, catalog: str, floor: int, now_us: int, at: int | None = None) -> bool:
        """Raise the floor, if it is lower, not above the head, and no pin holds it.

        ``floor`` is written out: the tail up to it ends. With ``at``, only while the head is at
        that revision. A pin holds the floor if its revision is lower than ``floor`` and it expires
        after ``now_us``. Expired pins are dropped in the same update.
        """

    def advance_head(self, place: HeadPosition, commit: CommitRecord) -> bool:
        """Move the head to ``commit``, at any higher revision, and write that commit out. It is the
        floor, too, and all pins end. Nothing changes (False) unless the head is at ``place``; all
        commits up to there must be written out."""

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
        ``before_us``; their number.
        """

    def purge_tombstones(self, catalog: str, through: int, before_us: int, limit: int) -> int:
        """Delete at most ``limit`` tombstones up to revision ``through`` made before ``before_us``;
        their number.
        """

    def take_lease(self, name: str, holder: str, duration_s: float) -> bool:
        """Take or renew the lease, unless another holder's lease is running, by the database's
        clock.
        """

    def end_lease(self, name: str, holder: str) -> None:
        """End the lease if this holder has it."""

    def uploads(self) -> UploadStore:
        """Where the parts of uploads are staged: in the same database."""

    def subscriptions(self) -> SubscriptionStore:
        """Where subscriptions are kept: in the same database."""

    def stored_bytes(self, content: Json) -> int:
        """The size in the database of a document with this content; no I/O."""

    def await_reachable(self, patience_s: float) -> None:
        """Return when the database is reachable; at once, unasked, where it was a moment ago.

        Raises StoreUnreachable after ``patience_s``.
        """

    def ping(self) -> None:
        """Raise StoreUnreachable unless the database answers and accepts writes."""


class ForeignRecord(Contradiction):
    """A stored record isn't as gateways write it: somebody has edited the database by hand.

    ``detail`` says which record of the catalog it is, and why it can't be read.
    """

    names_record = True

    def __init__(self, catalog: str, key: str | None, detail: str) -> None:
        super().__init__(f"catalog {catalog!r}: {detail}")
        self.catalog = catalog
        self.key = key
        self.detail = detail


class BackupRefused(Exception):
    """A file can't be restored, and no catalog was made of it; or a catalog can't be saved, and no
    file. ``str()`` says why."""


class StoredCommit(NamedTuple):
    """A commit as it is stored; ``keys`` are those that it is found under."""

    raw: bytes
    keys: Sequence[str]


class LoggedCommit(NamedTuple):
    """What ties a commit to the one before it, which ``parent`` names; "" where an earlier gateway
    has made it."""

    revision: int
    id: str
    parent: str


class CatalogCopy(Protocol):
    """A file that a catalog's log is being copied to. ``commits``: how many it has."""

    commits: int

    def add(self, commit: bytes) -> None: ...

    def end(self) -> None: ...


class CopyStore(Protocol):
    """Logs of catalogs as they are stored, and files of them. What is about the store raises
    StoreUnreachable."""

    def commits(self, catalog: str, after: int, through: int) -> tuple[Sequence[bytes], int]:
        """A page of the stored commits above ``after`` up to ``through``, oldest first, and what
        the next page begins after; an empty one is the end. Those below the floor are there as far
        as compaction has left them."""

    def logged(self, commit: bytes) -> LoggedCommit:
        """Of a stored commit. Raises ForeignRecord."""

    def begin_restore(self, catalog: str, by: str) -> None:
        """Keep the catalog's name for ``by``: from then on nobody reads or writes it. What is left
        of a restore that stood still for a minute is gone then. Raises BackupRefused where there is
        such a catalog, or another restore of it goes on.

        Every later call of this restore looks at the name in its own transaction and keeps it for
        another minute. It raises BackupRefused where a later restore has the name.
        """

    def drop_restore(self, catalog: str, by: str) -> None:
        """Nothing was restored: the name is free again."""

    def put_commits(self, catalog: str, by: str, commits: Sequence[bytes]) -> None: ...

    def put_documents(self, catalog: str, by: str, documents: Sequence[DocumentRecord]) -> None: ...

    def put_head(self, head: Head, by: str) -> None:
        """The head without a tail; from then on there is the catalog."""

    def copy_to(self, file: BinaryIO, head: Head) -> CatalogCopy: ...

    def copied_head(self, file: BinaryIO) -> tuple[Head, int]:
        """The head that a whole file, seekable, has, and the number of its commits. Raises
        BackupRefused where it is damaged, cut off, or of another format."""

    def copied_commits(self, file: BinaryIO, head: Head) -> Iterator[StoredCommit]:
        """Of a whole file with this head, whose catalog may be another one than when it was saved:
        then without those below the floor, which are kept for their replies."""

    def note_copy(self, catalog: str, revision: int, time_us: int) -> None:
        """Keep that there is a whole copy of the catalog at ``revision``, the newest one alone."""


@dataclass(frozen=True, slots=True)
class LostHead:
    """What is left of a head: each part by itself, None where it can't be read.

    ``record`` is all of it as it is stored, None where there is none. Pins that can't be read are
    none, and history of which it isn't known that it was swept isn't. ``judged`` is the number of
    the last verdict that is known.
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
    """Heads that can't be read, or are at the wrong place, and records of documents that nothing
    can be written over. Every call raises StoreUnreachable."""

    def lost_head(self, catalog: str) -> LostHead: ...

    def put_head(self, lost: LostHead, head: Head, advance: CommitRecord | None) -> bool:
        """Put ``head``, with the pins at or above its floor, where the lost one still is as it was
        found, and log ``advance``, its last commit: all or nothing. Whether it was."""

    def found_document(self, catalog: str, key: str) -> FoundDocument | None: ...

    def put_document(
        self, found: FoundDocument, move: HeadMove, document: DocumentRecord | None
    ) -> bool:
        """Make the move, and put ``document``, as it leaves it, in place of the record where that
        still is as it was found; None: no record. Both or neither; whether it was done.

        What was committed up to the move is in ``document``, and what is committed later is written
        out over it, as by then no record stands in its way."""


@dataclass(frozen=True, slots=True)
class StoredToken:
    """``grants`` as text, ``role:pattern``. Only a digest of the secret is stored.

    ``expires_us`` None: it never expires. ``revoked_us`` None: it isn't revoked.
    """

    id: str
    name: str
    grants: tuple[str, ...]
    secret_sha256: str
    created_us: int
    expires_us: int | None = None
    revoked_us: int | None = None


class TokenStore(Protocol):
    """Issued tokens, which are of no catalog."""

    def create_token(self, token: StoredToken) -> None:
        """Store a token with a new id. ValueError where the id is taken."""

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
    """``terms`` are the conditions of its opening, as plain JSON. ``is_open`` False: it was
    committed, and is kept for its result.
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
    """The number of uploads and the bytes of their parts, counting the room that was made."""

    uploads: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class UploadPart:
    number: int
    size_bytes: int
    sha256: str


class UploadStore(Protocol):
    """Staged parts of two-phase uploads. No part of a catalog: an upload becomes visible only by a
    write through the commit loop.

    An expired upload may disappear at any time after ``expires_us``, parts first.
    """

    def create_upload(self, upload: UploadRecord) -> None: ...

    def end_upload(self, upload: UploadRecord) -> None:
        """It isn't open any more, and holds nothing; one that is gone stays so."""

    def upload(self, catalog: str, upload_id: str) -> UploadRecord | None: ...

    def held(self, principal: str, now_us: int) -> tuple[UploadsHeld, UploadsHeld]:
        """Open uploads that expire after ``now_us``: of all principals, and of ``principal``."""

    def make_room(self, upload: UploadRecord, number: int, size_bytes: int, bytes_max: int) -> bool:
        """Make room for a part. False, without a change, where the upload would take more than
        ``bytes_max``, or where it is gone or no longer open.

        Atomic. A part counts as the largest one that room was made for under its number.
        """

    def put_part(self, upload: UploadRecord, number: int, content: bytes) -> UploadPart:
        """Stage a part, replacing the one with its number."""

    def parts(self, upload: UploadRecord) -> Sequence[UploadPart]:
        """The parts without their contents, ascending by number."""

    def part_content(self, upload: UploadRecord, number: int) -> bytes | None: ...

    def count_uploads(self, now_us: int) -> int:
        """The number of uploads that expire after ``now_us``, committed ones included."""

    def drop_parts(self, upload: UploadRecord) -> None:
        """Delete the parts of an upload that isn't open any more, and keep the upload."""

    def drop_upload(self, upload: UploadRecord) -> None:
        """Delete the upload, then its parts: so whoever finds the upload open afterwards had read
        all its parts. Does nothing if that was done."""


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """Where a catalog's commits are delivered to, and how far that has come.

    ``number`` is another one after each change by people, not after progress, and never that of a
    former subscription of this name. ``secrets`` are (secret, until): what signs, the newest first;
    until 0: for good. ``by`` is the principal that changed it last.

    Its progress: ``position`` is that of a feed, "" before the state was begun. ``failures`` in a
    row, ``failing_since_us`` the first of them, or when it was paused; 0: it is neither.
    ``delivered`` counts events.
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
    """One worker of all works for a subscription at a time: the one that holds its lease, which
    ends by the database's clock. Only that one writes its progress, and only as long as nobody has
    changed the subscription."""

    def subscription(self, catalog: str, name: str) -> SubscriptionRecord | None:
        """None where there is none that can be read."""

    def has_unreadable_subscription(self, catalog: str, name: str) -> bool:
        """Whether there is one of that name that can't be read."""

    def subscriptions_of(self, catalog: str) -> Sequence[SubscriptionRecord]:
        """Those of a catalog, by name (UTF-8)."""

    def create_subscription(self, record: SubscriptionRecord) -> bool:
        """False, without a change, where there is one of that name."""

    def change_subscription(
        self,
        record: SubscriptionRecord,
        number: int,
        progress: Collection[str],
        *,
        at_revision: bool = False,
    ) -> bool:
        """Replace the one that has this number; of its progress only the fields ``progress``.
        False: it has another number by now, or is gone; with ``at_revision`` also where its
        position isn't a revision: it is within the list of the state, or about to begin it."""

    def drop_subscription(self, catalog: str, name: str, number: int | None) -> bool:
        """Whether there was one with this number; None: one that can't be read."""

    def claimable(
        self, holder: str, limit: int
    ) -> tuple[Sequence[SubscriptionRecord], Sequence[tuple[str, str]]]:
        """Those that the holder works for, and the catalogs and names of those that nobody does, at
        most ``limit``."""

    def claim_subscription(
        self, catalog: str, name: str, holder: str, duration_s: float
    ) -> SubscriptionRecord | None:
        """Work for it; None: somebody else does, or it is gone."""

    def renew_claims(self, holder: str, duration_s: float) -> None:
        """Go on to work for all that the holder still works for."""

    def end_claim(self, catalog: str, name: str, holder: str) -> None:
        """Work for it no longer, if this holder does."""

    def save_progress(self, record: SubscriptionRecord, holder: str) -> bool:
        """Write the fields of its progress; False, without a change, where the holder doesn't work
        for it any more, or it was changed or dropped."""
