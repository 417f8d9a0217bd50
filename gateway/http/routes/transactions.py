"""`POST /v1/catalogs/{catalog}/transactions`: compare, then or else; one commit or none.

A repeated transaction gets the first answer, whatever was written since: the tokens of the changed
documents follow from the commit, all else is read as of the commit's revision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.access import Role
from gateway.decide.conditions import Composite, tag_text
from gateway.decide.edits import (
    Get,
    KeyEdit,
    MoveKey,
    Touch,
    kind_of,
    operations_in,
)
from gateway.decide.ranges import RangeEdit, is_under
from gateway.decide.request import Applied, Unchanged, named_keys
from gateway.errors import CommitError, RevisionCompacted
from gateway.http.context import Context
from gateway.http.door.admission import take_body
from gateway.http.door.rate_limits import spend_operations
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire import headers as media_types
from gateway.http.wire.conditions import refuse_all_but_several
from gateway.http.wire.responses import Answer, body_answer, encode, etag
from gateway.http.wire.shapes import change_shape, skipped_shape
from gateway.http.write.answer import (
    Result,
    commit,
    headers_of,
    hidden_now,
    is_minimal,
    preferences_applied,
)
from gateway.http.write.ask import VERBS, Ask, Sent, read_ask, request_of, with_members
from gateway.http.write.transactions import TransactionBody, read_transaction
from gateway.limits import MIB
from gateway.model import SETTINGS_KEY, ChangeRecord, CommitRecord, DocumentRecord, version_token
from gateway.read.listing import as_is
from gateway.read.visibility import Life, life_of
from gateway.service import GatewayService


class TransactionRoutes(Routes):
    @route("POST", f"{CATALOG}/transactions", "transaction", Role.WRITE)
    def commit(self, context: Context, catalog: str) -> Answer:
        """Apply all of ``then``, or all of ``else``, as one commit; or nothing."""
        ask = read_ask(context, catalog)
        refuse_all_but_several(ask.conditions, "; use a compare")
        media_types.require_json(context.environ)
        raw = take_body(context, self._limits)
        transaction = read_transaction(raw, self._limits, self._gateway.limits.patch, ask.by.name)
        edits = (*transaction.then, *(transaction.otherwise or ()))
        spend_operations(context, sum(operations_in(each.edit) for each in edits))
        ask = with_members(
            ask, context.environ, transaction.message, transaction.author, transaction.dry_run
        )
        request = request_of(
            self._gateway,
            ask,
            transaction.then,
            Sent(transaction.body, media_types.JSON, len(raw)),
            compare=transaction.compare,
            otherwise=transaction.otherwise,
        )
        result = commit(self._gateway, context, ask, request)
        return _answer(self._gateway, ask, transaction, result)


# The most bytes of an ETag, which servers and clients accept; and of an answer's values in all.
_ETAG_BYTES_MAX: Final = 8 * 1024
_VALUES_BYTES_MAX: Final = 16 * MIB

_ACTIONS: Final = {edit: name for name, verb in VERBS.items() for edit in verb.edits}


@dataclass(frozen=True, slots=True)
class _State:
    """The document under a key as the transaction left it. ``withheld``: why it can't be shown.

    ``etag`` and ``revision`` are None if there is no document, or if a dry run would change it.
    """

    etag: str | None
    revision: int | None
    exists: bool | None
    document: DocumentRecord | None = None
    withheld: str | None = None


def _answer(
    gateway: GatewayService, ask: Ask, transaction: TransactionBody, result: Result
) -> Answer:
    outcome = result.outcome
    succeeded = outcome.commit.succeeded if isinstance(outcome, Applied) else outcome.succeeded
    edits = transaction.then if succeeded else transaction.otherwise or ()
    represented = ask.prefer.returns == "representation"
    hidden = hidden_now(gateway, ask, outcome)
    states = _states(gateway, ask, outcome, edits, hidden)
    content: dict[str, Any] = {
        "catalog": ask.catalog,
        "succeeded": succeeded,
        "changed": result.changed,
        "revision": result.catalog_revision,
        "commit_id": None if result.commit is None else result.commit.id,
        "attempts": result.attempts,
    }
    if not is_minimal(ask):
        content["results"] = _results(edits, states, outcome, represented)
    if result.skipped:
        content["skipped"] = [
            {"key": each.key, **shape}
            for each, shape in zip(result.skipped, skipped_shape(result.skipped), strict=True)
        ]
    if ask.dry_run:
        content["dry_run"] = True
        if isinstance(outcome, Unchanged):
            content["changes"] = [
                change_shape(each, result.catalog_revision + 1)
                for each in outcome.changes
                if each.key not in hidden
                if each.key not in states or states[each.key].withheld is None
            ]
    headers = headers_of(result)
    tag = _composite(edits, states)
    if tag and len(tag) <= _ETAG_BYTES_MAX:
        headers.append(etag(tag))
    headers += preferences_applied(ask, result, represented=represented)
    return body_answer(encode(content), headers)


def _states(
    gateway: GatewayService,
    ask: Ask,
    outcome: Applied | Unchanged,
    edits: Sequence[KeyEdit],
    hidden: Collection[str],
) -> dict[str, _State]:
    keys = [key for key in named_keys(edits) if key != SETTINGS_KEY]
    if outcome.replayed:
        return _replayed(gateway, ask, outcome, edits, keys)
    viewer = gateway.acls.viewer(ask.by, ask.catalog)
    states = {}
    for key in keys:
        document = outcome.documents.get(key)
        seen = viewer is None or document is None or (key not in hidden and viewer.sees(document))
        states[key] = _state(document, seen=seen)
    if isinstance(outcome, Unchanged):
        for change in outcome.changes:  # of a dry run; those of ranges aren't shown one by one
            if change.key not in states:
                continue
            states[change.key] = replace(states[change.key], etag=None, revision=None)
    return states


def _state(document: DocumentRecord | None, *, seen: bool) -> _State:
    """The state of a document. ``seen``: the principal may read it."""
    if document is None or not document.exists:
        return _State(None, None, False)
    if not seen:
        return _State(document.token, document.revision, True, withheld="forbidden")
    return _State(document.token, document.revision, True, document)


def _replayed(
    gateway: GatewayService,
    ask: Ask,
    outcome: Applied | Unchanged,
    edits: Sequence[KeyEdit],
    keys: Sequence[str],
) -> dict[str, _State]:
    if isinstance(outcome, Applied):
        revision = outcome.commit.revision
        known = {each.key: _state_after(each, outcome.commit) for each in outcome.commit.changes}
    else:
        revision = outcome.catalog_revision
        known = {key: _state_of(document) for key, document in outcome.documents.items()}
    shown = ask.prefer.returns == "representation"
    got = {each.key for each in edits if isinstance(each.edit, Get)}
    to_read = [key for key in keys if shown or key in got or key not in known]
    documents: Mapping[str, DocumentRecord | None] = {}
    hidden: Collection[Life] = ()
    withheld = None
    try:
        if to_read:
            _, documents = gateway.listing.several(ask.catalog, to_read, as_is, revision=revision)
            viewer = gateway.acls.viewer(ask.by, ask.catalog)
            if viewer is not None:
                hidden = viewer.hidden({life_of(each) for each in documents.values() if each})
    except RevisionCompacted:
        withheld = "compacted"
    except CommitError:  # the commit is answered even if its documents can't be read
        documents, withheld = {}, "unavailable"
    states = {}
    for key in keys:
        if key in documents:
            document = documents[key]
            seen = document is None or life_of(document) not in hidden
            states[key] = _state(document, seen=seen)
        elif key in known:
            states[key] = replace(known[key], withheld=withheld if known[key].exists else None)
        else:
            states[key] = _State(None, None, None, withheld=withheld)
    return states


def _state_after(change: ChangeRecord, commit: CommitRecord) -> _State:
    if change.action == "delete":
        return _State(None, None, False)
    return _State(version_token(commit.revision, commit.id), commit.revision, True)


def _state_of(document: DocumentRecord | None) -> _State:
    if document is None:
        return _State(None, None, False)
    return _State(document.token, document.revision, True)


def _results(
    edits: Iterable[KeyEdit],
    states: Mapping[str, _State],
    outcome: Applied | Unchanged,
    represented: bool,
) -> list[dict[str, Any]]:
    commit = outcome.commit if isinstance(outcome, Applied) else outcome
    results = []
    left_bytes = _VALUES_BYTES_MAX
    for index, each in enumerate(edits):
        result: dict[str, Any] = {"action": _ACTIONS[type(each.edit)]}
        results.append(result)
        is_left_out = index in commit.left_out
        if is_left_out:
            result["left_out"] = True
        if isinstance(each.edit, Touch | RangeEdit):
            result |= {"key": None, "etag": None, "revision": None, "exists": None}
            if isinstance(each.edit, RangeEdit):
                result |= _range_result(each.edit, () if is_left_out else commit.changes)
            continue
        key = each.key
        if isinstance(each.edit, MoveKey):
            result["from"] = key
            key = each.edit.to
        state = states[key]
        result |= {
            "key": key,
            "etag": state.etag,
            "revision": state.revision,
            "exists": state.exists,
        }
        if represented or (isinstance(each.edit, Get) and not is_left_out):
            left_bytes -= _add_value(result, state, left_bytes)
    return results


def _range_result(edit: RangeEdit, changes: Iterable[ChangeRecord]) -> dict[str, Any]:
    """How many documents of the range the commit wrote and deleted, or a dry run would have."""
    of_range = [each.action for each in changes if is_under(each.key, edit.prefix)]
    deleted = of_range.count("delete")
    return {"prefix": edit.prefix, "written": len(of_range) - deleted, "deleted": deleted}


def _add_value(result: dict[str, Any], state: _State, left_bytes: int) -> int:
    """Show the document in ``result``, or say why not. Returns the bytes that it takes."""
    document = state.document
    if state.withheld is not None:
        result[state.withheld] = True
    if document is None:
        return 0
    if document.size_bytes > left_bytes:
        result["too_large"] = True
        return 0
    result["value"] = document.content
    if document.attributes:
        result["attributes"] = document.attributes
    return document.size_bytes


def _composite(edits: Iterable[KeyEdit], states: Mapping[str, _State]) -> str | None:
    """The composite of all written documents that exist and have a token to keep."""
    keys = named_keys(
        [e for e in edits if kind_of(e.edit).writes and not isinstance(e.edit, RangeEdit)]
    )
    tokens = [(key, states[key].etag) for key in keys if states[key].etag is not None]
    return tag_text(Composite(tuple(tokens))) if tokens else None
