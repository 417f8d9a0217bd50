"""The documents in a refusal: what the write met, beside the tokens that its problem tells.

For who prefers ``return=representation``, or ``refusal=representation`` where the answer to a write
that is applied needn't repeat the document. Each document is the one that was decided on, in that
state: the present one at a moment between request and answer or, told again under an idempotency
key, the one of the first time. One that the principal may not read isn't shown, nor is one that
history has no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.access import Principal
from gateway.errors import CommitError, ConditionFailed, PatchDoesNotFit, TargetExists
from gateway.http.wire.codes import KINDS
from gateway.http.wire.problems import problem_of
from gateway.model import WITHHELD, DocumentRecord, token_revision
from gateway.read.visibility import life_of
from gateway.service import GatewayService

# What the values of one answer, or of a window of bulk lines, may take in all.
VALUES_BYTES_MAX: Final = 16 * 1024 * 1024
_STATUSES: Final = (409, 412)
_Met = dict[tuple[str, str], DocumentRecord]


class Represented:
    """The documents that refusals show to ``by``; at most VALUES_BYTES_MAX of them in all."""

    def __init__(self, gateway: GatewayService, by: Principal) -> None:
        self._gateway = gateway
        self._by = by
        self._left_bytes = VALUES_BYTES_MAX

    def members(self, catalog: str, key: str, error: CommitError) -> dict[str, Any]:
        """Those members of the problem of ``error`` that tell a token, with ``value`` beside it.

        ``too_large`` instead: there is no more room. ``key`` is the document that was to be
        written, if it was one.
        """
        problem = problem_of(error)
        if problem is None or KINDS[problem.code].status not in _STATUSES:
            return {}
        told, met = problem.members, _met(error)
        members: dict[str, Any] = {}
        if "current" in told:
            of = told.get("key", key)
            members["current"] = self._shown(catalog, of, told["current"], met)
        for name in ("stale", "failed_compares"):
            if name in told:
                members[name] = [self._with_current(catalog, each, met) for each in told[name]]
        return members

    def _with_current(self, catalog: str, each: Mapping[str, Any], met: _Met) -> dict[str, Any]:
        if each["current"] is None:
            return dict(each)
        return {**each, "current": self._shown(catalog, each["key"], each["current"], met)}

    def _shown(
        self, catalog: str, key: str, current: Mapping[str, Any], met: _Met
    ) -> dict[str, Any]:
        shown = {name: current[name] for name in ("etag", "revision")}
        try:
            document = self._visible(catalog, key, shown["etag"], met)
        except CommitError:
            document = None  # a refusal stays one, whatever can be read
        if document is None:
            return shown
        if document.size_bytes > self._left_bytes:
            return {**shown, "too_large": True}
        self._left_bytes -= document.size_bytes
        shown["value"] = document.content
        if document.attributes:
            shown["attributes"] = document.attributes
        return shown

    def _visible(self, catalog: str, key: str, token: str, met: _Met) -> DocumentRecord | None:
        sight = self._gateway.acls.sight(self._by, catalog)
        document = met.get((key, token))
        if document is not None and document.content is not WITHHELD:
            return document if sight is None or sight.sees(document) else None
        document = self._document(catalog, key, token)
        if document is None or sight is None or not sight.hidden([life_of(document)]):
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


def _met(error: CommitError) -> _Met:
    """The documents that ``error`` holds, by key and token."""
    return {(each.key, each.token): each for each in _documents(error) if each is not None}


def _documents(error: CommitError) -> Iterator[DocumentRecord | None]:
    if isinstance(error, ConditionFailed):
        yield error.conflict.document
        yield from (each.document for each in error.conflict.stale)
        yield from (each.document for each in error.conflict.compares)
    elif isinstance(error, PatchDoesNotFit | TargetExists):
        yield error.document
