"""What the model is made of: the head, commits, documents and workers.

A document's content is the list of commits that made it: those since the last whole value. So two
documents are equal where the same changes are in them. Everything is a tuple, so that states can be
compared, hashed and sorted; what isn't there is ``()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

KEYS = ("a", "b")
NOTHING: Any = ()
UNREAD: Any = (-1,)  # in the place of a document that wasn't read


class Change(NamedTuple):
    """``base`` is the commit that the document it was made from came with. A ``reduced`` change is
    what compaction leaves for the reply under a key."""

    key: int
    act: str  # put, patch, delete, reduced
    base: int = -1

    @property
    def is_whole(self) -> bool:
        return self.act in ("put", "delete")


class Commit(NamedTuple):
    """``parent`` is the id of the commit before it, ``key`` its idempotency key."""

    revision: int
    id: int
    changes: tuple[Change, ...]
    key: str = ""
    parent: int = 0


class Verdict(NamedTuple):
    number: int
    id: int
    key: str


class Doc(NamedTuple):
    """As its last change left it; ``made`` is () where that deleted it."""

    revision: int
    id: int
    made: tuple[int, ...]


class Head(NamedTuple):
    """``last`` and ``ruling`` are the ids of the last commit and the last verdict."""

    revision: int = 0
    last: int = 0
    written: int = 0
    tail: tuple[Commit, ...] = ()
    judged: int = 0
    ruling: int = 0
    judged_written: int = 0
    verdicts: tuple[Verdict, ...] = ()
    floor: int = 0


class Move(NamedTuple):
    """What it asks of the head (``base``, ``last``, ``judged``, ``ruling``), and what it adds."""

    base: int
    last: int
    judged: int
    ruling: int
    commits: tuple[Commit, ...]
    verdicts: tuple[Verdict, ...]
    written: int
    judged_written: int


class Cache(NamedTuple):
    """A worker's copy of a head, and of documents as they were there."""

    head: Head
    documents: tuple[Any, ...]


class Round(NamedTuple):
    """A request on its way through a worker. ``since`` is the revision when it came."""

    request: int
    since: int
    step: str
    found: Any = NOTHING  # a head that was read, the log, or a move in doubt
    late: bool = False


class Held(NamedTuple):
    """What a worker has to write out; ``own`` are the revisions that it made itself."""

    commits: tuple[Commit, ...]
    verdicts: tuple[Verdict, ...]
    documents: tuple[Any, ...]
    own: tuple[int, ...]
    late: bool


class Writing(NamedTuple):
    """A write-out under way. ``left`` are the documents that are still to be written."""

    step: str
    commits: tuple[Commit, ...]
    verdicts: tuple[Verdict, ...]
    documents: tuple[Any, ...]
    stored: tuple[Any, ...]
    through: tuple[int, int]
    left: tuple[Any, ...] = ()
    late: bool = False


class Worker(NamedTuple):
    cache: Any = NOTHING
    round: Any = NOTHING
    held: Any = NOTHING
    writing: Any = NOTHING


class State(NamedTuple):
    """``log`` and ``documents`` are what is written out, ``kept`` the verdicts that are. The truth,
    which nobody in it sees: ``made`` are the commits that won, ``ruled`` the verdicts. ``gone`` is,
    by key, up to which revision compaction took its tombstone away."""

    head: Head
    documents: tuple[Any, ...]
    log: tuple[Any, ...]
    kept: tuple[Verdict, ...]
    workers: tuple[Worker, ...]
    asked: tuple[int, ...]  # 0 not yet, 1 under way, 2 ended
    made: tuple[Commit, ...]
    ruled: tuple[Verdict, ...] = ()
    strays: tuple[Move, ...] = ()  # sent, and may arrive later
    ripe: int = 0  # the floor that was raised long enough ago to be swept to
    gone: tuple[int, ...] = (-1, -1)
    backup: Any = NOTHING
    restored: bool = False


class Refused(Exception):
    """A change can't be replayed on this document."""


class Wrong(Exception):
    """A property doesn't hold."""


BEFORE = Commit(0, 0, tuple(Change(key, "put") for key in range(len(KEYS))))


def replayed(document: Any, commit: Commit, change: Change, has: Callable[[str], bool]) -> Any:
    """The document that the change leaves. Raises Refused."""
    if document and document.revision >= commit.revision:
        return document
    if change.act == "put":
        return Doc(commit.revision, commit.id, (commit.id,))
    if change.act == "delete":
        return Doc(commit.revision, commit.id, ())
    if not document or not document.made:
        raise Refused(f"{commit.revision} has nothing to be applied to")
    if change.act == "reduced":
        if has("swept-refused"):
            raise Refused(f"{commit.revision} is what compaction has left of it")
        return Doc(commit.revision, commit.id, document.made)
    if has("base-named") and document.id != change.base:
        raise Refused(f"{commit.revision} was made from another document")
    return Doc(commit.revision, commit.id, (*document.made, commit.id))


def replayed_all(
    document: Any, key: int, commits: Iterable[Commit], has: Callable[[str], bool]
) -> Any:
    for commit in commits:
        for change in commit.changes:
            if change.key == key:
                document = replayed(document, commit, change, has)
    return document


@cache
def truth(made: tuple[Commit, ...]) -> tuple[Any, ...]:
    """The documents after these commits, by key, of all the keys that they change.

    Raises Wrong where one changes what isn't there.
    """
    if not made:
        return ()
    documents = list(truth(made[:-1]))
    for change in made[-1].changes:
        documents += [NOTHING] * (change.key + 1 - len(documents))
        try:
            after = replayed(documents[change.key], made[-1], change, lambda _: False)
        except Refused as error:
            raise Wrong(str(error)) from None
        documents[change.key] = after
    return tuple(documents)


def above(entries: Sequence[Any], revision: int) -> tuple[Any, ...]:
    return tuple(each for each in entries if each[0] > revision)


def put_in(entries: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*entries[:index], value, *entries[index + 1 :])


def name_of(key: int) -> str:
    return KEYS[key] if key < len(KEYS) else f"key {key}"
