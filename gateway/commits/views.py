"""Putting together what a decision needs: documents and earlier replies, all at one revision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.commits.cache import Cache
from gateway.commits.decision import View
from gateway.commits.rebuild import HistoryIncomplete, rebuild
from gateway.commits.requests import Request
from gateway.model import Commit, Document, token_revision
from gateway.store.contract import Store


def read_views(
    store: Store, cache: Cache, batches: Mapping[str, Sequence[Request]]
) -> dict[str, View]:
    """By catalog the view at the cache's revision, with every key and reply the batch needs.

    A catalog is missing where the cache lost its entry, or where a stored document is newer than
    the cache: then the revision to decide at must be found again. Raises Unreachable.
    """
    views: dict[str, View] = {}
    absent: dict[str, set[str]] = {}
    for catalog, requests in batches.items():
        keys = set(requests[0].keys).union(*(request.keys for request in requests[1:]))
        seen = cache.view(catalog, keys)
        if seen is None:
            continue
        revision, time_us, documents = seen
        views[catalog] = View(catalog, revision, time_us, documents)
        if len(documents) < len(keys):
            absent[catalog] = keys - documents.keys()
    if absent:
        stored = store.documents(absent)
        for catalog, keys in absent.items():
            found = {key: stored.get((catalog, key)) for key in keys}
            _add_documents(cache, views, catalog, found)
    replies = _replies(store, {c: batches[c] for c in views})
    return {
        c: replace(view, replies=replies.get(c, {}), bases=_bases(store, view, batches[c]))
        for c, view in views.items()
    }


def _add_documents(
    cache: Cache,
    views: dict[str, View],
    catalog: str,
    found: Mapping[str, Document | None],
) -> None:
    view = views[catalog]
    if any(d is not None and d.revision > view.revision for d in found.values()):
        del views[catalog]
        return
    cache.learn(catalog, view.revision, found)
    documents = {**view.documents, **found}
    views[catalog] = View(catalog, view.revision, view.time_us, documents)


def _replies(
    store: Store, batches: Mapping[str, Sequence[Request]]
) -> dict[str, dict[tuple[str, str], Commit]]:
    """Looked up after the views' revisions are known: what isn't found wasn't used up to them."""
    wanted: dict[str, set[tuple[str, str]]] = {}
    for catalog, requests in batches.items():
        for request in requests:
            if request.idempotency is not None:
                name = (request.idempotency.principal, request.idempotency.key)
                wanted.setdefault(catalog, set()).add(name)
    replies: dict[str, dict[tuple[str, str], Commit]] = {}
    if wanted:
        for (catalog, principal, key), commit in store.replies(wanted).items():
            replies.setdefault(catalog, {})[principal, key] = commit
    return replies


def _bases(
    store: Store, view: View, requests: Sequence[Request]
) -> dict[tuple[str, str], Document]:
    """The documents that patches to be rebased were made against, as far as history has them."""
    bases: dict[tuple[str, str], Document] = {}
    for request in requests:
        if not request.rebase:
            continue
        document = view.documents[request.key]
        for tag in request.conditions.if_match or ():
            revision = token_revision(tag) if isinstance(tag, str) else None
            if revision is None or (document is not None and document.token == tag):
                continue
            base = _base(store, view, request.key, revision)
            if base is not None and base.exists and base.token == tag:
                bases[request.key, base.token] = base
    return bases


def _base(store: Store, view: View, key: str, revision: int) -> Document | None:
    if not 0 < revision <= view.revision:
        return None
    try:
        return rebuild(store, view.catalog, key, revision)
    except HistoryIncomplete:
        return None
