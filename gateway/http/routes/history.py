"""`/v1/catalogs/{catalog}/commits`, `…/outcomes`, `…/differences`: what was done in a catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
from marshmallow import fields

from gateway.access import Role
from gateway.cpu import interruptible
from gateway.http.context import Context
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire import query
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import refuse_conditions, refuse_terms
from gateway.http.wire.headers import IDEMPOTENCY_KEY_RULE, is_idempotency_key, name_decoded
from gateway.http.wire.responses import Answer, body_answer, encode
from gateway.http.wire.shapes import commit_shape
from gateway.model import CommitRecord, DocumentRecord, Verdict
from gateway.read.differences import DocumentDifference
from gateway.read.history import Filter
from patching import Json, diff
from patching.values import rfc3339

_SPAN: Any = {
    "from": query.number(required=True),
    "to": query.number(load_default=None),
}
# A page of the commits above revision ``after`` and below ``before``, on one document if ``key`` is
# given, by an ``author``, made ``since`` or ``until`` a time.
_COMMITS_PARAMETERS: Final = query.takes(
    after=query.AFTER,
    limit=query.LIMIT,
    key=fields.String(load_default=None),
    before=query.number(1, load_default=None),
    author=fields.String(load_default=None),
    since=query.Parameter(query.timestamp_us, load_default=None),
    until=query.Parameter(query.timestamp_us, load_default=None),
    newest_first=query.Parameter(query.switch, load_default=False),
)
# A page of the differences between two revisions, of keys above ``after``.
_DIFFERENCES_PARAMETERS: Final = query.takes(
    **_SPAN, prefix=query.TEXT, after=query.TEXT, limit=query.LIMIT
)


class HistoryRoutes(Routes):
    @route("GET", f"{CATALOG}/commits", "list_commits", Role.READ)
    def page(self, context: Context, catalog: str) -> Answer:
        """A page of commits; ``next``: the next page's ``after`` or, newest first, ``before``."""
        refuse_conditions(context.environ)
        params = query.parameters(context.environ, _COMMITS_PARAMETERS)
        viewer = self._gateway.acls.viewer(context.by, catalog)
        if viewer is not None and params["key"] is not None:
            viewer.require_named([params["key"]])
        span = {name: params.pop(name) for name in ("after", "limit", "key")}
        params["since_us"], params["until_us"] = params.pop("since"), params.pop("until")

        def encode_visible(commits: Sequence[CommitRecord]) -> list[msgspec.Raw]:
            visible = commits if viewer is None else viewer.filter(commits)
            return [msgspec.Raw(encode(commit_shape(commit))) for commit in visible]

        page = self._gateway.encoded_commits(catalog, encode_visible, **span, only=Filter(**params))
        content = {"commits": page.commits, "next": page.next_after}
        return body_answer(encode(content), [("Catalog-Revision", str(page.head_revision))])

    @route("GET", f"{CATALOG}/commits/<segment:revision>", "read_commit", Role.READ)
    def commit(self, context: Context, catalog: str, revision: str) -> Answer:
        refuse_terms(context.environ)
        try:
            number = query.whole_number(revision)
        except ValueError as error:
            raise RequestRefused("invalid_parameter", f"revision: {error}") from error

        def encode_visible(commits: Sequence[CommitRecord]) -> list[bytes]:
            return [encode(commit_shape(self._visible(context, catalog, each))) for each in commits]

        return body_answer(self._gateway.encoded_commit(catalog, number, encode_visible), [])

    @route("GET", f"{CATALOG}/outcomes/<rest:idempotency_key>", "outcome", Role.READ)
    def outcome(self, context: Context, catalog: str, idempotency_key: str) -> Answer:
        """What was decided under the key. A 404 says that nothing has been decided so far."""
        refuse_terms(context.environ)
        name = _idempotency_key(idempotency_key)
        reply = self._gateway.reply(catalog, context.by.name, name)
        if reply is None:
            detail = (
                f"catalog {catalog!r} has decided nothing under your idempotency key {name!r} so"
                " far"
            )
            raise RequestRefused("outcome_not_found", detail)
        if isinstance(reply, CommitRecord):
            shape = {"applied": True, **commit_shape(self._visible(context, catalog, reply))}
        else:
            shape = {"applied": False, **verdict_shape(reply)}
        return body_answer(encode({**shape, "idempotency_key": name}), [])

    @route("GET", f"{CATALOG}/differences", "list_differences", Role.READ)
    def differences(self, context: Context, catalog: str) -> Answer:
        """A page of differences by key; ``next`` has the next page's parameters."""
        refuse_conditions(context.environ)
        params = query.parameters(context.environ, _DIFFERENCES_PARAMETERS)
        reading = self._gateway.differences
        span = reading.span(catalog, params["from"], params["to"], params["prefix"])
        viewer = self._gateway.acls.viewer(context.by, catalog)
        page = reading.page(
            span, _encoded_difference, after=params["after"], limit=params["limit"], viewer=viewer
        )
        more = page.next_after
        content = {
            "catalog": catalog,
            "from": page.before,
            "to": page.after,
            "differences": page.documents,
            "next": None if more is None else {"after": more, "to": page.after},
        }
        return body_answer(encode(content), [("Catalog-Revision", str(page.after))])

    def _visible(self, context: Context, catalog: str, commit: CommitRecord) -> CommitRecord:
        """``commit`` without the changes of documents that the principal may not read."""
        viewer = self._gateway.acls.viewer(context.by, catalog)
        return commit if viewer is None else viewer.filter([commit])[0]


def _idempotency_key(encoded: str) -> str:
    key = name_decoded(encoded, "key")
    if not is_idempotency_key(key):
        raise RequestRefused("invalid_name", f"an idempotency key must be {IDEMPOTENCY_KEY_RULE}")
    return key


def _encoded_difference(difference: DocumentDifference) -> msgspec.Raw:
    return msgspec.Raw(encode(difference_shape(difference)))


def verdict_shape(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON. ``problem``: that of a refused request; null if it was unchanged."""
    refused = verdict.outcome.get("refused")
    problem = None
    if isinstance(refused, dict):
        members = refused.get("members")
        problem = {**members} if isinstance(members, dict) else {}
        problem |= {"code": refused["code"], "detail": refused["detail"]}
    return {
        "revision": verdict.revision,
        "time": rfc3339(verdict.time_us),
        "attempts": verdict.attempts,
        "problem": problem,
    }


@interruptible
def difference_shape(each: DocumentDifference) -> dict[str, Any]:
    """A created or deleted document is shown as a whole, a changed one as patches (RFC 6902).

    ``etag`` and ``revision`` are those of the document at ``to``, or null. The catalog's settings
    have the key null.
    """
    before, after = each.before, each.after
    shape: dict[str, Any] = {"key": each.key or None}
    if before is not None and after is not None:
        shape |= {
            "change": "changed",
            "patch": diff(cast(Json, before.content), cast(Json, after.content)),
            "attributes_patch": diff(_attributes(before), _attributes(after)),
        }
    else:
        there = after or before
        assert there is not None
        change = "created" if before is None else "deleted"
        shape |= {"change": change, "value": there.content, "attributes": _attributes(there)}
    shape["etag"] = None if after is None else after.token
    shape["revision"] = None if after is None else after.revision
    return shape


def _attributes(document: DocumentRecord) -> Json:
    return cast(Json, document.attributes or {})
