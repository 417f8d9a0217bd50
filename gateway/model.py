"""The values that all layers use. Immutable, no I/O, no clock.

Vocabulary (the same words everywhere): a *catalog* is a totally ordered set of *documents*; its
integer clock is the *revision*; a *commit* is one atomic change at one revision; the *head* says at
which revision a catalog is, and contains its *tail*: the last commits in full, which may not be
written out yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal, NamedTuple, Self, cast

import msgspec

from patching import ABSENT, Json
from patching.owners import OwnersChange, Ownership, OwnerTree
from patching.values import Absent

Action = Literal["put", "patch", "delete", "attributes"]
# The rights that an acl narrows.
Right = Literal["read", "write"]
Attributes = dict[str, Json]


class _Withheld:
    """A value that isn't JSON, so that no code mistakes it for a content."""

    def __repr__(self) -> str:
        return "WITHHELD"

    def __reduce__(self) -> str:
        return "WITHHELD"


# Stands for a content that wasn't read, because only the document's token matters.
WITHHELD: Final = cast(Json, _Withheld())

# The key of the document that holds a catalog's settings, which no client can name. So settings
# have history, tokens, time travel and a place in the feed like any document.
SETTINGS_KEY: Final = ""
# The same for the records of the applications that write the catalog (``decide.applications``).
# Clients see their commits as ones that change nothing.
APPLICATIONS_KEY: Final = "\0applications"
# The keys of the gateway's own documents, which are in no listing and in no range.
OWN_KEYS: Final = frozenset((SETTINGS_KEY, APPLICATIONS_KEY))


class DocumentRecord(msgspec.Struct, frozen=True):
    """The state of a key as its last change left it; a tombstone if ``content`` is ABSENT.

    ``content`` is WITHHELD if it wasn't read.

    ``revision`` and ``commit_id`` are those of the last change, ``create_revision`` is that of the
    change that began its life. ``patches`` counts the changes since the last one whose commit
    records the full value. ``size_bytes`` is an upper bound on the content's length as compact
    JSON. ``attributes`` is None if there are none. ``owners`` are those of the content's leaves;
    None if no manager has ever applied anything.
    """

    key: str
    content: Json | Absent
    revision: int
    create_revision: int
    commit_id: str
    time_us: int
    patches: int = 0
    size_bytes: int = 0
    attributes: Attributes | None = None
    owners: OwnerTree | None = None

    @property
    def exists(self) -> bool:
        return self.content is not ABSENT

    @property
    def parts(self) -> tuple[Json, ...]:
        """Its JSON values: the content, unless absent or withheld, and the attributes, if any."""
        content = () if self.content is ABSENT or self.content is WITHHELD else (self.content,)
        return content if self.attributes is None else (*content, self.attributes)

    @property
    def token(self) -> str:
        return version_token(self.revision, self.commit_id)


def living(document: DocumentRecord | None) -> DocumentRecord | None:
    """The document, None for a tombstone."""
    return document if document is not None and document.exists else None


def version_of(live: DocumentRecord | None) -> tuple[str, int] | None:
    """(version token, revision); None if there is no document."""
    return None if live is None else (live.token, live.revision)


class BareDocument(msgspec.Struct, frozen=True):
    """A document or tombstone without its content; of its attributes, it has only the acl."""

    key: str
    revision: int
    create_revision: int
    exists: bool
    attributes: Attributes | None = None


class Digested(BareDocument, frozen=True):
    """A document or tombstone with the digest of its content (``patching.digest``) instead of it.

    ``digest`` is None for a tombstone, and if none was stored with the content. ``parts`` are, by
    manager, the digests of what it owns (``patching.part_digests``); None if they weren't asked
    for, or none were stored with the owners. ``size_bytes`` is as in ``DocumentRecord``.
    """

    commit_id: str = ""
    size_bytes: int = 0
    digest: str | None = None
    parts: Mapping[str, str] | None = None

    @property
    def token(self) -> str:
        return version_token(self.revision, self.commit_id)


def bare(document: DocumentRecord) -> BareDocument:
    attributes = document.attributes or {}
    return BareDocument(
        document.key,
        document.revision,
        document.create_revision,
        document.exists,
        {"acl": attributes["acl"]} if "acl" in attributes else None,
    )


def version_token(revision: int, commit_id: str) -> str:
    """The version token, with which a client says "as I last saw it".

    The revision alone can't come back while the catalog's head lives. The commit's id makes the
    token differ even if a database was restored from a backup and reached the revision again.
    """
    return f"{revision:x}-{commit_id[:8]}"


def token_revision(token: str) -> int | None:
    """The revision of a version token, None if it isn't one of the gateway's."""
    revision, dash, _ = token.partition("-")
    try:
        return int(revision, 16) if dash else None
    except ValueError:
        return None


class Idempotency(msgspec.Struct, frozen=True):
    """A client's name for a request. Its scope is the catalog and the principal, or an application
    that several principals share; then ``principal`` is a text that names no principal.

    ``fingerprint`` is a digest of the request: the same key with another fingerprint is a mistake.
    """

    principal: str
    key: str
    fingerprint: str


class Skipped(msgspec.Struct, frozen=True, array_like=True):
    """A leaf of document ``key`` that an apply left as its ``owners`` want it.

    Without owners: a place, of the content or of the attributes (``of_attributes``), that a revert
    left as it was, because it was changed since.
    """

    key: str
    pointer: str
    owners: tuple[Ownership, ...]
    of_attributes: bool = False


class ChangeRecord(msgspec.Struct, frozen=True):
    """A commit's change of one document: enough to repeat it on the state before.

    ``patch`` is the effective RFC 6902 patch (no tests); None for put, delete and attributes.
    ``value`` is the full content afterwards: for every put, and every K-th change; ABSENT
    otherwise. ``size_bytes`` bounds the content's length afterwards, as in ``DocumentRecord``.
    ``attributes`` are those afterwards. If it is None, there are none if the change begins anew
    (a put records the attributes that it keeps), and otherwise they are unchanged. The action
    ``attributes`` leaves the content as it was. ``owners`` are those afterwards if the change
    begins anew, and ``owners_change`` is how they changed; None: they didn't. ``managers`` are
    those that applied or let go; none for a plain write.

    ``base_revision`` and ``base_id`` name the state that a patch, or a change of attributes, was
    made from, by the commit that left it. They are 0 and "" for other changes, and for those that
    were recorded before bases were named.
    """

    key: str
    action: Action
    create_revision: int
    patch: list[dict[str, Json]] | None = None
    value: Json | Absent = ABSENT
    size_bytes: int = 0
    attributes: Attributes | None = None
    owners: OwnerTree | None = None
    owners_change: OwnersChange | None = None
    base_revision: int = 0
    base_id: str = ""
    managers: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the change contains the content afterwards, or deletes the document."""
        return self.action == "delete" or self.value is not ABSENT

    def begins_at(self, revision: int) -> bool:
        """Whether the change, made at ``revision``, needs no earlier state: it is whole, or creates
        the document."""
        return self.is_whole or self.create_revision == revision

    @property
    def is_reduced(self) -> bool:
        """Whether a sweep has left only what a reply needs of the change.

        For a delete, this can't be known and doesn't matter: it still says that the key was
        deleted.
        """
        return (
            self.action != "delete"
            and self.patch is None
            and self.value is ABSENT
            and self.attributes is None
            and self.owners_change is None
        )


class CommitRecord(msgspec.Struct, frozen=True):
    """One atomic change at one revision: the record for history, feed and idempotency keys.

    ``time_us`` (microseconds since the epoch) is strictly increasing within the catalog. ``parent``
    is the id of the commit before it; "" if that isn't known. A commit without changes is a touch.
    ``succeeded`` is false if a transaction's ``else`` was committed; ``rebased_from`` is the
    version token that a rebased patch was made for; ``deletes_catalog`` marks the commit that
    deleted all documents and the settings. ``skipped`` is what its applies left to others, and its
    reverts as it was; ``left_out`` are the positions of a transaction's actions whose own condition
    was false. ``size_bytes`` is an estimate of the size of its record, 0 if it wasn't measured.
    """

    catalog: str
    revision: int
    time_us: int
    id: str
    author: str
    message: str | None
    idempotency: Idempotency | None
    attempts: int
    changes: tuple[ChangeRecord, ...]
    succeeded: bool = True
    rebased_from: str | None = None
    deletes_catalog: bool = False
    skipped: tuple[Skipped, ...] = ()
    left_out: tuple[int, ...] = ()
    size_bytes: int = 0
    parent: str = ""

    def __eq__(self, other: object) -> bool:
        return _equal_but_size(self, other)

    def change_of(self, key: str) -> ChangeRecord:
        """The commit's change of ``key``. Raises StopIteration if there is none."""
        return next(change for change in self.changes if change.key == key)


class Keys(NamedTuple):
    """Keys, which are found one by one, and by prefix, without going through all of them: there may
    be thousands of keys, and of those who look for some."""

    each: frozenset[str]
    ascending: Sequence[str]

    @classmethod
    def of(cls, keys: Iterable[str]) -> Self:
        each = frozenset(keys)
        return cls(each, sorted(each))

    @classmethod
    def union(cls, some: Sequence[Self]) -> Self:
        """All of them; faster than ``of``, as those of each are in order."""
        if len(some) == 1:
            return some[0]
        ascending = sorted(chain.from_iterable(keys.ascending for keys in some))
        each = dict.fromkeys(ascending)
        return cls(frozenset(each), [*each])

    def has_under(self, prefix: str) -> bool:
        at = bisect_left(self.ascending, prefix)
        return at < len(self.ascending) and self.ascending[at].startswith(prefix)

    def under(self, prefix: str) -> Sequence[str]:
        """Those with ``prefix``, ascending."""
        first = bisect_left(self.ascending, prefix)
        end = bisect_left(self.ascending, True, first, key=lambda key: not key.startswith(prefix))
        return self.ascending[first:end]


class Verdict(msgspec.Struct, frozen=True):
    """What was decided under an idempotency key without a commit: a key decides once.

    The verdicts of a catalog are counted: ``number``. ``revision`` is the one at which it was
    decided, ``id`` that of the commit that the request would have made. ``outcome`` is JSON that
    ``decide`` makes and reads. ``size_bytes`` is an estimate of the size of its record.
    """

    catalog: str
    number: int
    revision: int
    time_us: int
    id: str
    idempotency: Idempotency
    attempts: int
    outcome: dict[str, Json]
    size_bytes: int = 0

    def __eq__(self, other: object) -> bool:
        return _equal_but_size(self, other)


def _equal_but_size(one: msgspec.Struct, other: object) -> bool:
    """Whether both are equal, except for their size, which is only an estimate."""
    names = (name for name in one.__struct_fields__ if name != "size_bytes")
    return type(one) is type(other) and all(getattr(one, n) == getattr(other, n) for n in names)


# What an idempotency key has decided.
Reply = CommitRecord | Verdict


class Claim(msgspec.Struct, frozen=True):
    """A worker's place in the line for a head. Others let it move first, for at most ``hold_ms``.

    It is a hint: a move that passes a claim is as valid as any.
    """

    by: str
    hold_ms: int


class Head(msgspec.Struct, frozen=True):
    """The head of a catalog. All commits up to ``written`` are written out; ``tail`` contains those
    above it up to ``revision``, None if they weren't read.

    ``judged`` is the number of the last verdict. Those up to ``judged_written`` are written out;
    ``verdicts`` contains those above it, None if they weren't read.

    ``floor`` is the oldest revision whose state can still be read; all commits above it exist.
    ``deleted``: the catalog was deleted at ``revision``. ``claims`` are read with the tail.

    ``last`` is the id of the commit at ``revision``, ``last_verdict`` that of verdict ``judged``;
    "" if there is none, and in a head of an older format until it is moved.
    """

    catalog: str
    revision: int = 0
    time_us: int = 0
    written: int = 0
    floor: int = 0
    deleted: bool = False
    tail: tuple[CommitRecord, ...] | None = None
    judged: int = 0
    judged_written: int = 0
    verdicts: tuple[Verdict, ...] | None = None
    claims: tuple[Claim, ...] = ()
    last: str = ""
    last_verdict: str = ""

    @property
    def position(self) -> HeadPosition:
        return HeadPosition(self.revision, self.last, self.judged, self.last_verdict)


def follows(last: str, parent: str) -> bool:
    """Whether a commit that names ``parent`` can come right after the one with the id ``last``.
    Each may be "", not known; then it can."""
    return not (last and parent) or last == parent


class HeadPosition(NamedTuple):
    """Where a head is: at a revision and a verdict, each with its id. See ``Head``.

    Two heads at the same position have the same history.
    """

    revision: int
    last: str
    judged: int
    last_verdict: str

    def is_of(self, later: HeadPosition) -> bool:
        """Whether a head that was here can be at ``later`` now, as far as the positions show."""
        return (
            self.revision <= later.revision
            and self.judged <= later.judged
            and (self.revision != later.revision or self.last == later.last)
            and (self.judged != later.judged or self.last_verdict == later.last_verdict)
        )

    def __str__(self) -> str:
        commit = f"revision {self.revision} (commit {self.last or 'unknown'})"
        return f"{commit}, verdict {self.judged}" if self.judged else commit


class HeadMove(msgspec.Struct, frozen=True):
    """Move a head on by ``commits`` and ``verdicts``, each ascending without a gap, if it is still
    at revision ``base`` (0: no head yet) and verdict ``judged``, by the commit with the id ``last``
    and the verdict with the id ``last_verdict``.

    They are added to the head's tail and its verdicts. The commits up to ``written``, and the
    verdicts up to ``judged_written``, are dropped from it: they are known to be written out.

    The move passes the claims of the workers ``passed``, which leave the line with it. It is lost
    if another worker's claim comes first, unless it ``passes_all``.
    """

    catalog: str
    base: int
    commits: Sequence[CommitRecord]
    written: int
    judged: int = 0
    verdicts: Sequence[Verdict] = ()
    judged_written: int = 0
    passed: Sequence[str] = ()
    last: str = ""
    last_verdict: str = ""
    passes_all: bool = False

    @property
    def position(self) -> HeadPosition:
        """The position where the head must be."""
        return HeadPosition(self.base, self.last, self.judged, self.last_verdict)

    @property
    def reached(self) -> tuple[int, int]:
        """The revision and the verdict of the head afterwards."""
        return self.base + len(self.commits), self.judged + len(self.verdicts)

    @property
    def end(self) -> HeadPosition:
        """The position of the head afterwards."""
        revision, judged = self.reached
        last = self.commits[-1].id if self.commits else self.last
        last_verdict = self.verdicts[-1].id if self.verdicts else self.last_verdict
        return HeadPosition(revision, last, judged, last_verdict)


@dataclass(frozen=True, slots=True)
class PinRecord:
    """Keeps the floor at or below ``revision`` until ``expires_us`` (microseconds since the epoch).

    ``owner`` is the principal that made it, "" the gateway itself. ``note`` is for people.
    """

    id: str
    revision: int
    expires_us: int
    owner: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Retention:
    """The bounds of a catalog's history: see ``Head.floor``.

    ``swept`` is the floor up to which history was swept; lower than ``floor`` until some time after
    the floor was raised, when a sweep follows. ``raises`` are the floors above ``swept`` that were
    set, each with the seconds since then, by the database's clock.
    """

    revision: int
    floor: int
    swept: int
    pins: tuple[PinRecord, ...]
    raises: tuple[tuple[int, float], ...] = field(default=(), compare=False)

    def sweepable(self, grace_s: float) -> int:
        """The highest floor that was set ``grace_s`` ago or earlier, by the database's clock;
        ``swept`` without one."""
        aged = (floor for floor, age_s in self.raises if age_s >= grace_s)
        return max(aged, default=self.swept)


@dataclass(frozen=True, slots=True)
class StoredToken:
    """An issued token, with a digest of its secret. Each of ``grants`` is a text ``role:pattern``.

    ``expires_us`` None: it never expires. ``revoked_us`` None: it isn't revoked.
    """

    id: str
    name: str
    grants: tuple[str, ...]
    secret_sha256: str
    created_us: int
    expires_us: int | None = None
    revoked_us: int | None = None


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token. ``text`` is the token as its holder sends it; it can't be read again later."""

    stored: StoredToken
    text: str = field(repr=False)
