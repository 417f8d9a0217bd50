"""`POST /v1/catalogs/{catalog}/reverts`: undo commits, or bring documents back, in one commit.

::

    {"revisions": [12, 13]} or {"to": 10, "from"?: 42}, with "prefix"? or "key"?,
    "conflict"?: "refuse" | "skip" | "force", "force"?: [{"key", "pointer", "part"?}, ...],
    "message"?, "author"?, "dry_run"?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from marshmallow import fields, validate
from msgspec.structs import replace

from gateway.access import Role
from gateway.decide.conditions import CatalogTag
from gateway.decide.edits import KeyEdit
from gateway.decide.request import Applied, Request
from gateway.decide.reverting import Forced
from gateway.decide.strict import SWITCH, Exact, choice, integer, strict, text
from gateway.errors import CommitError
from gateway.http.context import Context
from gateway.http.door.admission import take_members
from gateway.http.door.authorization import require
from gateway.http.door.rate_limits import spend_operations
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire import headers as media_types
from gateway.http.wire.body import AUTHOR, MESSAGE, refuse_member
from gateway.http.wire.conditions import refuse_all_but_several
from gateway.http.wire.headers import require_key
from gateway.http.wire.query import REVISION_MAX
from gateway.http.wire.responses import Answer, body_answer, encode, etag
from gateway.http.wire.shapes import change_shape
from gateway.http.write.answer import (
    Result,
    commit,
    headers_of,
    is_minimal,
    preferences_applied,
    written_shape,
)
from gateway.http.write.ask import Ask, Sent, read_ask, request_of, with_members
from gateway.model import OWN_KEYS, SETTINGS_KEY, ChangeRecord, Skipped
from gateway.read.reverts import RevertTerms
from gateway.read.visibility import Life
from gateway.service import GatewayService
from patching import InvalidPatch, split_pointer
from patching.ownership import CONFLICTS


def revert_answer(gateway: GatewayService, ask: Ask, result: Result) -> Answer:
    """The answer to a revert. ``changes``: those of the commit, or that a dry run would make."""
    outcome = result.outcome
    content = written_shape(ask, result)
    content["skipped"] = [_skipped_shape(each) for each in result.skipped]
    if not is_minimal(ask):
        applied = isinstance(outcome, Applied)
        changes = outcome.commit.changes if isinstance(outcome, Applied) else outcome.changes
        revision = result.catalog_revision if applied else result.catalog_revision + 1
        hidden = _hidden(gateway, ask, changes) if result.replayed else frozenset()
        content["changes"] = [
            change_shape(each, revision)
            for each in changes
            if Life(each.key, each.create_revision) not in hidden
        ]
    if ask.dry_run:
        content["dry_run"] = True
    headers = [*headers_of(result), etag(CatalogTag(result.catalog_revision))]
    headers += preferences_applied(ask, result, represented=False)
    return body_answer(encode(content), headers)


def _hidden(
    gateway: GatewayService, ask: Ask, changes: tuple[ChangeRecord, ...]
) -> frozenset[Life]:
    """The lives in ``changes`` that the principal may not see when its revert is replayed."""
    viewer = gateway.acls.viewer(ask.by, ask.catalog)
    lives = {Life(e.key, e.create_revision) for e in changes if e.key not in OWN_KEYS}
    return frozenset() if viewer is None else viewer.hidden(lives)


def _skipped_shape(each: Skipped) -> dict[str, Any]:
    part = "attributes" if each.of_attributes else "content"
    return {"key": each.key or None, "part": part, "pointer": each.pointer}


_REVISIONS_MAX: Final = 100
_FORCE_MAX: Final = 1000
_PARTS: Final = ("content", "attributes")
# What a request counts for in addition to its documents.
_REQUEST_BYTES: Final = 200


def _are_revisions(values: list[Any]) -> bool:
    return 1 <= len(values) <= _REVISIONS_MAX and all(
        type(each) is int and 1 <= each <= REVISION_MAX for each in values
    )


# ``key`` null: the catalog's settings, as in refusals and answers.
_PLACE: Final = strict(
    key=text(4096, required=True, allow_none=True),
    part=Exact(
        str, "it must be content or attributes", _PARTS.__contains__, load_default="content"
    ),
    pointer=text(65_536, required=True),
)
_BODY: dict[str, fields.Field[Any]] = {
    "revisions": Exact(list, f"it must list 1 to {_REVISIONS_MAX} revisions", _are_revisions),
    "to": integer(),
    "from": integer(),
    "prefix": text(4096, load_default=""),
    "key": text(4096, load_default=None),
    "conflict": choice(CONFLICTS, load_default="refuse"),
    "force": fields.List(
        fields.Nested(_PLACE),
        load_default=None,
        validate=validate.Length(max=_FORCE_MAX, error=f"it must have at most {_FORCE_MAX} places"),
    ),
    "message": MESSAGE,
    "author": AUTHOR,
    "dry_run": SWITCH,
}
REVERT: Final = strict(**_BODY)


class RevertRoutes(Routes):
    @route("POST", f"{CATALOG}/reverts", "revert", Role.WRITE)
    def revert(self, context: Context, catalog: str) -> Answer:
        """Undo everything asked for as one commit, on the present documents; or nothing. To undo
        changes of the settings, the principal has to be an admin."""
        ask = read_ask(context, catalog)
        refuse_all_but_several(ask.conditions)
        members = take_members(context, self._limits, REVERT)
        _require_either(members)
        if members["key"] is not None:
            require_key(members["key"], self._limits)
        ask = with_members(
            ask, context.environ, members["message"] or None, members["author"], members["dry_run"]
        )
        if ask.message is None:
            ask = replace(ask, message=_message(members))
        try:
            edits, refusal = self._edits(context, ask, members), None
        except CommitError as error:
            if ask.idempotency_key is None:
                raise
            # The key decides: if it has before, history may be gone since, but its outcome stands.
            edits, refusal = [], error
        spend_operations(context, len(edits))
        request = replace(self._request(ask, members, edits), refusal=refusal)
        return revert_answer(self._gateway, ask, commit(self._gateway, context, ask, request))

    def _edits(self, context: Context, ask: Ask, members: dict[str, Any]) -> list[KeyEdit]:
        terms = RevertTerms(
            ask.catalog,
            members["prefix"],
            members["conflict"],
            self._limits.transaction_actions_max,
            self._gateway.acls.viewer(context.by, ask.catalog),
            members["key"],
            _forced(members["force"] or ()),
        )
        reverts = self._gateway.reverts
        if members["revisions"] is None:
            return reverts.to_revision(members["to"], members["from"], terms)
        edits = reverts.of_revisions(members["revisions"], terms)
        if any(each.key == SETTINGS_KEY for each in edits):
            require(context.by, Role.ADMIN, ask.catalog, "undoing a change to the settings")
        return edits

    def _request(self, ask: Ask, members: dict[str, Any], edits: Sequence[KeyEdit]) -> Request:
        size_bytes = sum(getattr(each.edit, "size_bytes", 0) for each in edits)
        not_in_body = ("message", "author", "dry_run", *(() if members["force"] else ("force",)))
        body = {name: value for name, value in members.items() if name not in not_in_body}
        sent = Sent({"revert": body}, media_types.JSON, _REQUEST_BYTES + size_bytes)
        return request_of(self._gateway, ask, edits, sent)


def _forced(places: Sequence[Mapping[str, str | None]]) -> dict[str, Forced]:
    """The forced places by key. Raises RequestRefused for an invalid pointer."""
    found: dict[str, Forced] = {}
    for index, place in enumerate(places):
        pointer = str(place["pointer"])
        try:
            split_pointer(pointer)
        except InvalidPatch as error:
            refuse_member(f"/force/{index}/pointer", error.detail)
        key = SETTINGS_KEY if place["key"] is None else str(place["key"])
        of_key = found.get(key, Forced())
        if place["part"] == "attributes":
            found[key] = replace(of_key, attributes=(*of_key.attributes, pointer))
        else:
            found[key] = replace(of_key, content=(*of_key.content, pointer))
    return found


def _require_either(members: dict[str, Any]) -> None:
    if members["key"] is not None and members["prefix"]:
        refuse_member("/key", "it can't be given together with 'prefix'")
    if (members["revisions"] is None) == (members["to"] is None):
        refuse_member("", "it must have exactly one of: revisions, to")
    since = members["from"]
    if since is None:
        return
    if members["to"] is None:
        refuse_member("/from", "it needs 'to'")
    if since < members["to"]:
        refuse_member("/from", "it must not be before 'to'")


def _message(members: dict[str, Any]) -> str:
    """The commit's message if the request has none."""
    if members["revisions"] is None:
        done = f"reverts to revision {members['to']}"
    else:
        revisions = sorted(set(members["revisions"]))
        done = f"reverts {', '.join(map(str, revisions[:10]))}"
        if len(revisions) > 10:
            done += f" and {len(revisions) - 10} more"
    if members["key"] is not None:
        return f"{done} of {members['key'][:200]!r}"
    return done + (f" under {members['prefix'][:200]!r}" if members["prefix"] else "")
