"""What happened to a document since a client saw it: help for those whose precondition failed."""

from __future__ import annotations

from typing import Any

from gateway.commits.errors import CommitError, PreconditionFailed
from gateway.commits.service import Gateway
from gateway.http.commit_shapes import commit_summary
from gateway.http.parameters import REVISION_MAX

_COMMITS_MAX = 20


def changes_since(
    gateway: Gateway, catalog: str, failed: PreconditionFailed
) -> list[dict[str, Any]] | None:
    """The first 20 commits after the client's token; None where that can't be told.

    Those on the key that the condition was about, or on any where it was about the catalog.

    The token may be one of another catalog or none of ours at all: then this is of no use, and
    does no harm.
    """
    since = failed.since_revision
    if since is None or not 0 <= since < REVISION_MAX:
        return None
    try:
        page = gateway.commits(catalog, after=since, limit=_COMMITS_MAX, key=failed.key or None)
    except CommitError:
        return None
    return [commit_summary(commit, failed.key) for commit in page.commits]
