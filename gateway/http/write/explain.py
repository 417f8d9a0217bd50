"""The facts that a problem adds to its error: the commits since, and the path of its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from gateway.access import Principal
from gateway.decide.ranges import is_under
from gateway.errors import CommitError, ConditionFailed, UnknownOutcome
from gateway.http.wire.headers import outcome_path
from gateway.http.wire.query import REVISION_MAX
from gateway.http.wire.shapes import commit_summary
from gateway.model import ChangeRecord, CommitRecord, token_revision
from gateway.read.visibility import Sight
from gateway.service import GatewayService

_COMMITS_MAX = 20
# Of these those on the documents of a range are told.
_RANGE_COMMITS_MAX = 100
# The changes since a composite of more documents aren't looked up: each takes a query.
_DOCUMENTS_MAX = 10


def further_members(
    gateway: GatewayService,
    by: Principal,
    catalog: str,
    error: CommitError,
    idempotency_key: str | None,
) -> dict[str, Any]:
    """Members of the problem beside the error's own, as far as ``by`` may see them."""
    if isinstance(error, ConditionFailed):
        changes = changes_since(gateway, by, catalog, error)
        return {} if changes is None else {"changes_since": changes}
    return outcome_members(catalog, error, idempotency_key)


def outcome_members(
    catalog: str, error: CommitError, idempotency_key: str | None
) -> dict[str, Any]:
    """The member with the path at which to ask, later, for an unknown outcome."""
    if isinstance(error, UnknownOutcome) and idempotency_key is not None:
        return {"outcome": outcome_path(catalog, idempotency_key)}
    return {}


@dataclass(frozen=True, slots=True)
class _Log:
    """A catalog's commits, as far as they are within ``sight``."""

    gateway: GatewayService
    catalog: str
    sight: Sight | None

    def under(self, prefix: str, since: int | None) -> list[CommitRecord] | None:
        """The commits on a range, with these changes alone."""
        commits = self.after(None, since, _RANGE_COMMITS_MAX)
        if commits is None:
            return None
        of_range = (
            replace(each, changes=tuple(c for c in each.changes if is_under(c.key, prefix)))
            for each in commits
        )
        return [each for each in of_range if each.changes][:_COMMITS_MAX]

    def after(
        self, key: str | None, since: int | None, limit: int = _COMMITS_MAX
    ) -> Iterable[CommitRecord] | None:
        if since is None or not 0 <= since < REVISION_MAX:
            return None
        try:
            commits = self.gateway.told_commits(
                self.catalog, self._bare, after=since, limit=limit, key=key
            ).commits
        except CommitError:
            return None
        if self.sight is None:
            return commits
        return [c for c in commits if key is None or any(key == each.key for each in c.changes)]

    def _bare(self, commits: Sequence[CommitRecord]) -> list[CommitRecord]:
        """What can be seen, without values: these aren't told."""
        seen = commits if self.sight is None else self.sight.commits(commits)
        return [
            replace(each, changes=tuple(map(_without_value, each.changes)), skipped=())
            for each in seen
        ]


def _without_value(change: ChangeRecord) -> ChangeRecord:
    return ChangeRecord(change.key, change.action, change.create_revision)


def changes_since(
    gateway: GatewayService, by: Principal, catalog: str, failed: ConditionFailed
) -> list[dict[str, Any]] | None:
    """The first 20 commits after the client's token; None where that can't be told.

    Those on the key that the condition was about, or on any where it was about the catalog; on the
    documents of a range, as far as they are among the first 100; of a composite, those on the
    documents that aren't as it says, each after its own token.

    The token may be one of another catalog or none of ours at all: then this is of no use, and
    does no harm. What ``by`` may not see of them is left out.
    """
    log = _Log(gateway, catalog, gateway.acls.sight(by, catalog))
    if len(failed.conflict.stale) > 1:
        return _of_several(log, failed)
    # The settings' key is none that a client could be told: they count as the catalog here.
    key = failed.conflict.key or None
    if failed.conflict.prefix is not None:
        commits = log.under(failed.conflict.prefix, failed.conflict.since_revision)
        return None if commits is None else [commit_summary(each, None) for each in commits]
    found = log.after(key, failed.conflict.since_revision)
    return None if found is None else [commit_summary(each, key) for each in found]


def _of_several(log: _Log, failed: ConditionFailed) -> list[dict[str, Any]] | None:
    found: dict[int, CommitRecord] = {}
    told = False
    for stale in failed.conflict.stale[:_DOCUMENTS_MAX]:
        since = token_revision(stale.token) if stale.token else None
        if stale.token is None and stale.document is not None:
            since = stale.document.create_revision - 1
        commits = log.after(stale.key, since)
        told = told or commits is not None
        found |= {commit.revision: commit for commit in commits or ()}
    if not told:
        return None
    return [commit_summary(found[revision], None) for revision in sorted(found)[:_COMMITS_MAX]]
