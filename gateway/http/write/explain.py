"""Members that a problem has in addition to its error's own.

They are the commits since the client's token, the path of the outcome, and the documents that the
write met, next to their tokens.

The documents are for clients that prefer ``return=representation``, or ``refusal=representation``
if the answer to an applied write needn't repeat the document. Each is shown in the state on which
the write was decided: that of a moment between request and answer or, if the answer is replayed,
that of the first time. A document isn't shown if the principal may not read it, or if history no
longer has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from gateway.access import Principal
from gateway.decide.ranges import is_under
from gateway.errors import (
    CommitError,
    ConditionFailed,
    PatchDoesNotFit,
    TargetExists,
    UnknownOutcome,
)
from gateway.http.wire.codes import KINDS
from gateway.http.wire.headers import outcome_path
from gateway.http.wire.problems import problem_of
from gateway.http.wire.query import REVISION_MAX
from gateway.http.wire.shapes import commit_summary
from gateway.limits import MIB
from gateway.model import (
    SETTINGS_KEY,
    WITHHELD,
    ChangeRecord,
    CommitRecord,
    DocumentRecord,
    token_revision,
)
from gateway.read.visibility import Viewer, life_of
from gateway.service import GatewayService

_COMMITS_MAX = 20
# For a range: how many commits are searched for those on its documents.
_RANGE_COMMITS_MAX = 100
# For a composite: for how many stale documents the commits are read. Each takes a query.
_DOCUMENTS_MAX = 10
# The most bytes of the documents shown in one answer, or in a window of bulk lines, in all.
VALUES_BYTES_MAX: Final = 16 * MIB
_STATUSES: Final = (409, 412)
_Found = dict[tuple[str, str], DocumentRecord]


def further_members(
    gateway: GatewayService,
    by: Principal,
    catalog: str,
    error: CommitError,
    *,
    key: str = SETTINGS_KEY,
    idempotency_key: str | None = None,
    shows: bool = False,
) -> dict[str, Any]:
    """Further members of the problem of ``error``, as far as ``by`` may see them.

    ``key``: that of the document to write, if it was one. ``shows``: with the documents."""
    members: dict[str, Any] = {}
    if not isinstance(error, ConditionFailed):
        members = outcome_members(catalog, error, idempotency_key)
    elif (changes := changes_since(gateway, by, catalog, error)) is not None:
        members["changes_since"] = changes
    if shows:
        members |= Represented(gateway, by).members(catalog, key, error)
    return members


def outcome_members(
    catalog: str, error: CommitError, idempotency_key: str | None
) -> dict[str, Any]:
    """The member with the path of the outcome, if ``error`` says that it is unknown."""
    if isinstance(error, UnknownOutcome) and idempotency_key is not None:
        return {"outcome": outcome_path(catalog, idempotency_key)}
    return {}


@dataclass(frozen=True, slots=True)
class _Log:
    """A catalog's commits, as far as ``viewer`` sees them (None: all)."""

    gateway: GatewayService
    catalog: str
    viewer: Viewer | None

    def under(self, prefix: str, since: int | None) -> list[CommitRecord] | None:
        """The commits on documents under ``prefix``, with the changes of these alone."""
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
            commits = self.gateway.encoded_commits(
                self.catalog, self._bare, after=since, limit=limit, key=key
            ).commits
        except CommitError:
            return None
        if self.viewer is None:
            return commits
        return [c for c in commits if key is None or any(key == each.key for each in c.changes)]

    def _bare(self, commits: Sequence[CommitRecord]) -> list[CommitRecord]:
        """The visible parts of ``commits`` without values, which aren't shown."""
        visible = commits if self.viewer is None else self.viewer.filter(commits)
        return [
            replace(each, changes=tuple(map(_without_value, each.changes)), skipped=())
            for each in visible
        ]


def _without_value(change: ChangeRecord) -> ChangeRecord:
    return ChangeRecord(change.key, change.action, change.create_revision)


def changes_since(
    gateway: GatewayService, by: Principal, catalog: str, failed: ConditionFailed
) -> list[dict[str, Any]] | None:
    """The first 20 commits after the client's token, or None if history doesn't say.

    These are commits on the key of the condition or, for a condition on the catalog, on any key;
    for a range, those on its documents that are among the first 100; for a composite, those on its
    stale documents, each after its own token.

    If the token is of another catalog, or no gateway made it, they are useless but harmless.
    Whatever ``by`` may not see of them is left out.
    """
    log = _Log(gateway, catalog, gateway.acls.viewer(by, catalog))
    if len(failed.conflict.stale) > 1:
        return _of_several(log, failed)
    # No client knows the key of the settings: a condition on them counts as one on the catalog.
    key = failed.conflict.key or None
    if failed.conflict.prefix is not None:
        commits = log.under(failed.conflict.prefix, failed.conflict.since_revision)
        return None if commits is None else [commit_summary(each, None) for each in commits]
    found = log.after(key, failed.conflict.since_revision)
    return None if found is None else [commit_summary(each, key) for each in found]


def _of_several(log: _Log, failed: ConditionFailed) -> list[dict[str, Any]] | None:
    found: dict[int, CommitRecord] = {}
    known = False
    for stale in failed.conflict.stale[:_DOCUMENTS_MAX]:
        since = token_revision(stale.token) if stale.token else None
        if stale.token is None and stale.document is not None:
            since = stale.document.create_revision - 1
        commits = log.after(stale.key, since)
        known = known or commits is not None
        found |= {commit.revision: commit for commit in commits or ()}
    if not known:
        return None
    return [commit_summary(found[revision], None) for revision in sorted(found)[:_COMMITS_MAX]]


class Represented:
    """The documents that refusals show to ``by``: at most VALUES_BYTES_MAX bytes in all."""

    def __init__(self, gateway: GatewayService, by: Principal) -> None:
        self._gateway = gateway
        self._by = by
        self._left_bytes = VALUES_BYTES_MAX

    def members(self, catalog: str, key: str, error: CommitError) -> dict[str, Any]:
        """The members of the problem of ``error`` that have a token, with the ``value`` of each, or
        ``too_large`` beyond the bound. ``key``: that of the document to write, if it was one."""
        problem = problem_of(error)
        if problem is None or KINDS[problem.code].status not in _STATUSES:
            return {}
        known, found = problem.members, _found_documents(error)
        members: dict[str, Any] = {}
        if "current" in known:
            of = known.get("key", key)
            members["current"] = self._shown(catalog, of, known["current"], found)
        for name in ("stale", "failed_compares"):
            if name in known:
                members[name] = [self._with_current(catalog, each, found) for each in known[name]]
        return members

    def _with_current(self, catalog: str, each: Mapping[str, Any], found: _Found) -> dict[str, Any]:
        if each["current"] is None:
            return dict(each)
        return {**each, "current": self._shown(catalog, each["key"], each["current"], found)}

    def _shown(
        self, catalog: str, key: str, current: Mapping[str, Any], found: _Found
    ) -> dict[str, Any]:
        shown = {name: current[name] for name in ("etag", "revision")}
        try:
            document = self._visible(catalog, key, shown["etag"], found)
        except CommitError:
            document = None  # the refusal is answered even if nothing can be read
        if document is None:
            return shown
        if document.size_bytes > self._left_bytes:
            return {**shown, "too_large": True}
        self._left_bytes -= document.size_bytes
        shown["value"] = document.content
        if document.attributes:
            shown["attributes"] = document.attributes
        return shown

    def _visible(self, catalog: str, key: str, token: str, found: _Found) -> DocumentRecord | None:
        viewer = self._gateway.acls.viewer(self._by, catalog)
        document = found.get((key, token))
        if document is not None and document.content is not WITHHELD:
            return document if viewer is None or viewer.sees(document) else None
        document = self._document(catalog, key, token)
        if document is None or viewer is None or not viewer.hidden([life_of(document)]):
            return document
        return None

    def _document(self, catalog: str, key: str, token: str) -> DocumentRecord | None:
        """The document that has, or had, the token."""
        document = self._gateway.read(catalog, key).document
        revision = token_revision(token)
        if revision is not None and (document is None or document.token != token):
            document = self._gateway.read_at_revision(catalog, key, revision).document
        same = document is not None and document.exists and document.token == token
        return document if same else None


def _found_documents(error: CommitError) -> _Found:
    """The documents that ``error`` holds, by key and token."""
    return {(each.key, each.token): each for each in _documents(error) if each is not None}


def _documents(error: CommitError) -> Iterator[DocumentRecord | None]:
    if isinstance(error, ConditionFailed):
        yield error.conflict.document
        yield from (each.document for each in error.conflict.stale)
        yield from (each.document for each in error.conflict.compares)
    elif isinstance(error, PatchDoesNotFit | TargetExists):
        yield error.document
