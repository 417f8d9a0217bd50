"""Losses: the fields of documents that a manager owned until somebody took them over.

Worked example. nightly applied {"rows": 1, "note": "x"} to k, and ann changed /rows at revision 12
and /note at 14. At 15 she gave /note back. nightly has lost /rows of k, at revision 12.

Losses are found in history, newest first, and compared with the documents as they are now. A field
isn't lost if the manager owns it again, if nobody owns it, if it is gone, or if the manager let it
go. Losses below the floor aren't known any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway import cpu
from gateway.cpu import interruptible
from gateway.model import ChangeRecord, CommitRecord, DocumentRecord, living
from gateway.read.current import CurrentDocuments
from gateway.read.history import Filter, HistoryReads
from gateway.read.visibility import Viewer
from gateway.store.unreachable import as_unavailable
from patching.owners import Ownership, Set, tokens_of
from patching.pointers import Tokens, is_within

# How many commits a page reads, and how many of them at a time.
_EXAMINED_MAX: Final = 2_000
_PAGE: Final = 250


@dataclass(frozen=True, slots=True)
class LostField:
    """A leaf that was lost, and the ``owners`` of what is in its place now."""

    tokens: Tokens
    owners: Set


@dataclass(frozen=True, slots=True)
class Loss:
    """The fields of document ``key`` that a commit took from a manager."""

    key: str
    revision: int
    time_us: int
    author: str
    message: str | None
    fields: Sequence[LostField]


@dataclass(frozen=True, slots=True)
class LossPage:
    """Losses, newest first. The next page has commits below ``before``, and of the newest of them
    only keys above ``after_key``. ``before`` None: this is the last page."""

    losses: Sequence[Loss]
    head_revision: int
    before: int | None
    after_key: str = ""


@dataclass(frozen=True, slots=True)
class LossQuery:
    """The query: at most ``limit`` losses of ``manager`` above revision ``after`` and below
    ``before``; of commit ``before`` - 1, only keys above ``after_key``. Changes hidden from
    ``viewer`` are left out."""

    catalog: str
    manager: str
    limit: int
    after: int = 0
    before: int | None = None
    after_key: str = ""
    viewer: Viewer | None = None


@dataclass(slots=True)
class _Found:
    losses: list[Loss] = field(default_factory=list)
    # The keys and leaves that are decided: a later commit took them, too.
    seen: set[tuple[str, Tokens]] = field(default_factory=set)


class LossReads:
    """Reads losses. Raises StoreUnavailable."""

    def __init__(self, history: HistoryReads, documents: CurrentDocuments) -> None:
        self._history = history
        self._documents = documents

    def page(self, query: LossQuery) -> LossPage:
        """A page of losses; it has fewer than ``limit``, or none, if few commits took fields
        over."""
        with as_unavailable():
            found, last = _Found(), None
            before, examined, head = query.before, 0, 0
            while True:
                page = self._history.encoded_commits(
                    query.catalog,
                    _loss_finder(query),
                    after=query.after,
                    limit=_PAGE,
                    key=None,
                    only=Filter(before=before, newest_first=True),
                )
                head = head or page.head_revision
                for losses in page.commits:
                    for loss in losses:
                        if last and (len(found.losses) == query.limit or cpu.is_half_used()):
                            same = last.revision == loss.revision
                            before = loss.revision + 1
                            return LossPage(found.losses, head, before, last.key if same else "")
                        self._add(found, query, loss)
                        last = loss
                examined += _PAGE
                before = page.next_after
                if before is None or examined >= _EXAMINED_MAX:
                    return LossPage(found.losses, head, before)

    def _add(self, found: _Found, query: LossQuery, loss: Loss) -> None:
        document = living(self._documents.read(query.catalog, loss.key).document)
        if document is None or (query.viewer is not None and not query.viewer.sees(document)):
            return  # the loss may be of an earlier document under this key, with another acl
        owners_now = _owners_now(document, [each.tokens for each in loss.fields])
        fields = []
        for each in loss.fields:
            name = (loss.key, each.tokens)
            if name not in found.seen:
                found.seen.add(name)
                owners = tuple(sorted(owners_now[each.tokens]))
                if owners and all(owner.name != (query.manager, False) for owner in owners):
                    fields.append(LostField(each.tokens, owners))
        if fields:
            found.losses.append(
                Loss(loss.key, loss.revision, loss.time_us, loss.author, loss.message, fields)
            )


def _loss_finder(query: LossQuery) -> Callable[[Sequence[CommitRecord]], list[list[Loss]]]:
    @interruptible
    def find(commits: Sequence[CommitRecord]) -> list[list[Loss]]:
        return [list(_losses(query, commit)) for commit in commits]

    def find_visible(commits: Sequence[CommitRecord]) -> list[list[Loss]]:
        return find(commits if query.viewer is None else query.viewer.filter(commits))

    return find_visible


def _losses(query: LossQuery, commit: CommitRecord) -> Iterator[Loss]:
    again = query.before is not None and commit.revision == query.before - 1
    for change in sorted(commit.changes, key=lambda change: change.key):
        if again and change.key <= query.after_key:
            continue
        lost = [LostField(tokens, ()) for tokens in _taken(query.manager, change)]
        if lost:
            yield Loss(
                change.key, commit.revision, commit.time_us, commit.author, commit.message, lost
            )


def _taken(manager: str, change: ChangeRecord) -> Iterator[Tokens]:
    """The leaves that the manager lost and whose places, or places within or above them, others
    gained."""
    owners = change.owners_change
    if owners is None:
        return
    lost = [t for name, plain, tree in owners.lost if (name, plain) == (manager, False)
            for t in tokens_of(tree)]  # fmt: skip
    if not lost:
        return
    gained = frozenset(
        tokens
        for name, plain, tree in owners.gained
        if (name, plain) != (manager, False)
        for tokens in tokens_of(tree)
    )
    above = {tokens[:length] for tokens in gained for length in range(len(tokens))}
    for tokens in sorted(lost):
        if tokens in above or is_within(tokens, gained):
            yield tokens


@interruptible
def _owners_now(
    document: DocumentRecord, places: Collection[Tokens]
) -> Mapping[Tokens, set[Ownership]]:
    """By place, the owners of the leaves at, above or below it."""
    leaves = {} if document.owners is None else dict(document.owners.leaves())
    found: dict[Tokens, set[Ownership]] = {place: set() for place in places}
    for tokens, by in leaves.items():
        for length in range(len(tokens) + 1):
            if tokens[:length] in found:
                found[tokens[:length]].update(by)
    for place, owners in found.items():
        for length in range(len(place)):
            owners.update(leaves.get(place[:length], ()))
    return found
