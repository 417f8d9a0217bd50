"""What a problem tells beyond its error: what happened since, and where to ask about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.commits.errors import CommitError, OutcomeUnknown, PreconditionFailed
from gateway.commits.service import Gateway
from gateway.http import names
from gateway.http.commit_shapes import commit_summary
from gateway.http.parameters import REVISION_MAX
from gateway.model import Commit, token_revision

_COMMITS_MAX = 20
# Of more documents than these, a composite's changes aren't looked for: each is a query.
_DOCUMENTS_MAX = 10


def what_helps(
    gateway: Gateway, catalog: str, error: CommitError, idempotency_key: str | None
) -> dict[str, Any]:
    """Members for the problem that the error itself doesn't know."""
    if isinstance(error, PreconditionFailed):
        changes = changes_since(gateway, catalog, error)
        return {} if changes is None else {"changes_since": changes}
    if isinstance(error, OutcomeUnknown) and idempotency_key is not None:
        return {"outcome": names.outcome_path(catalog, idempotency_key)}
    return {}


def changes_since(
    gateway: Gateway, catalog: str, failed: PreconditionFailed
) -> list[dict[str, Any]] | None:
    """The first 20 commits after the client's token; None where that can't be told.

    Those on the key that the condition was about, or on any where it was about the catalog; of a
    composite, those on the documents that aren't as it says, each after its own token.

    The token may be one of another catalog or none of ours at all: then this is of no use, and
    does no harm.
    """
    if len(failed.stale) > 1:
        return _of_several(gateway, catalog, failed)
    # The settings' key is none that a client could be told: they count as the catalog here.
    key = failed.key or None
    commits = _after(gateway, catalog, key, failed.since_revision)
    return None if commits is None else [commit_summary(each, key) for each in commits]


def _of_several(
    gateway: Gateway, catalog: str, failed: PreconditionFailed
) -> list[dict[str, Any]] | None:
    found: dict[int, Commit] = {}
    told = False
    for stale in failed.stale[:_DOCUMENTS_MAX]:
        since = token_revision(stale.token) if stale.token else None
        if stale.token is None and stale.document is not None:
            since = stale.document.create_revision - 1
        commits = _after(gateway, catalog, stale.key, since)
        told = told or commits is not None
        found |= {commit.revision: commit for commit in commits or ()}
    if not told:
        return None
    return [commit_summary(found[revision], None) for revision in sorted(found)[:_COMMITS_MAX]]


def _after(
    gateway: Gateway, catalog: str, key: str | None, since: int | None
) -> Iterable[Commit] | None:
    if since is None or not 0 <= since < REVISION_MAX:
        return None
    try:
        return gateway.commits(catalog, after=since, limit=_COMMITS_MAX, key=key).commits
    except CommitError:
        return None
