"""Catalogs of those that a principal may read: a page of them that tells of no other one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from gateway.access import Principal, Role
from gateway.commits.listing import Listing
from gateway.model import Head

_PAGE = 1000


def readable_catalogs(
    listing: Listing, by: Principal, *, after: str, prefix: str, limit: int
) -> tuple[Sequence[Head], str | None]:
    """A page by name ascending, and the ``after`` of the next one.

    Where it goes on, it goes on after a catalog that ``by`` may read: no other one's name is told.
    Only names that begin as one of the grants does are looked at.
    """
    if any(grant.pattern == "*" for grant in by.grants):
        heads = listing.catalogs(after=after, prefix=prefix, limit=limit)
        page = [head for head in heads if not head.deleted]
        return page, heads[-1].catalog if len(heads) == limit else None
    found = list(islice(_readable(listing, by, after, prefix), limit))
    return found, found[-1].catalog if len(found) == limit else None


def _readable(listing: Listing, by: Principal, after: str, prefix: str) -> Iterator[Head]:
    for beginning in _beginnings(by):
        if not beginning.startswith(prefix) and not prefix.startswith(beginning):
            continue
        common = max(beginning, prefix, key=len)
        for head in _heads(listing, after, common):
            if not head.deleted and by.may(Role.READ, head.catalog):
                yield head


def _heads(listing: Listing, after: str, prefix: str) -> Iterator[Head]:
    while True:
        heads = listing.catalogs(after=after, prefix=prefix, limit=_PAGE)
        yield from heads
        if len(heads) < _PAGE:
            return
        after = heads[-1].catalog


def _beginnings(by: Principal) -> list[str]:
    """What comes before the first star of the grants, ascending; none begins like another one.

    So what begins like one of them comes before all that begins like the next.
    """
    kept: list[str] = []
    for beginning in sorted({grant.pattern.partition("*")[0] for grant in by.grants}):
        if not kept or not beginning.startswith(kept[-1]):
            kept.append(beginning)
    return kept
