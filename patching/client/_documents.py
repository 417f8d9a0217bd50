"""Reading and writing a catalog's documents or their attributes; read-modify-write: read, let a
function change it, write if nobody else has meanwhile; applying what a manager wants of a document,
and who owns what of it; and reverts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Literal, Unpack

import msgspec

from patching import ABSENT, DEFAULT_LIMITS, NO_LISTS, Json, Lists, apply, diff
from patching.client._calls import CallPolicy, Edit
from patching.client._retry import Tries, warn_renamed
from patching.client._steps import Listing, Pause, PlanItem, Steps, called, listed, plan_of
from patching.client._wire import HttpAnswer, segment
from patching.client.errors import NotFound, NotModified, PreconditionFailed, Problem, UpdateFailed
from patching.client.results import (
    ContestedLeaf,
    Document,
    LeafOwners,
    Owner,
    Reverted,
    SkippedPlace,
    Takeover,
    Updated,
    Written,
    changes_of,
    expecting,
    is_replayed,
    parse_document,
    parse_written,
    value_of,
)
from patching.client.terms import (
    Operations,
    Token,
    Tokens,
    WriteTerms,
    encoded,
    operations_of,
    tag_list,
    token_texts,
)
from patching.extended import is_extended
from patching.operations import as_operations
from patching.ownership import OnConflict
from patching.values import Absent

_JSON: Final = "application/json"
_PATCH: Final = "application/json-patch+json"
_MERGE: Final = "application/merge-patch+json"
_EXTENDED: Final = "application/vnd.metadata.patch+json"
# By media type, how a bulk line says it: the verb, and the member that has the body.
_VERBS: Final = {
    _PATCH: ("patch", b'"patch":'),
    _MERGE: ("merge", b'"value":'),
    _EXTENDED: ("patch", b""),
}
_FIRST_S: Final = 0.02
_LONGEST_S: Final = 1.0


class Part:
    """One part of a catalog's documents: their contents, or their attributes. Thread-safe.

    Every method raises RequestError; a refusal is a `Problem`.
    """

    def __init__(
        self, calls: CallPolicy, catalog: str, part: Literal["documents", "attributes"]
    ) -> None:
        self._calls = calls
        self._catalog = catalog
        self._catalog_path = f"/v1/catalogs/{segment(catalog)}"
        self._part = part

    @called
    def get(
        self,
        key: str,
        *,
        revision: int | None = None,
        at: datetime | str | None = None,
        if_none_match: Token | None = None,
        timeout_s: float | None = None,
    ) -> Steps[Document]:
        """The document as it is, or as it was at ``revision`` or at the time ``at`` (an aware
        datetime, or RFC 3339). Raises NotFound; Gone if that was compacted.

        ``if_none_match``: only if the document no longer has this token. If it still does, a
        `Document` given here is returned again; for a bare token, NotModified is raised.
        """
        headers = {}
        if if_none_match is not None:
            headers["If-None-Match"] = tag_list(if_none_match)
        path = self._catalog_path + self._rest(key)
        query = time_query(revision, at)
        answer = yield from self._calls.get(path, query, headers, timeout_s, brief=True)
        if answer.status != 304:
            return parse_document(key, answer)
        if isinstance(if_none_match, Document):
            return if_none_match
        assert if_none_match is not None
        raise NotModified(repr(key), token_texts(if_none_match)[0])

    @called
    def put(
        self,
        key: str,
        value: Json,
        *,
        if_match: Tokens | None = None,
        if_absent: bool = False,
        **terms: Unpack[WriteTerms],
    ) -> Steps[Written]:
        """Create the document, or replace it as a whole; attributes can be replaced only if the
        document exists. Without a condition the last writer wins.

        ``if_match``: only if it has this token (compare-and-set), or all documents of a composite
        are as it says. ``if_absent``: only if there is none. Otherwise raises PreconditionFailed.
        """
        return (
            yield from self._write("PUT", key, encoded(value), _JSON, if_match, if_absent, terms)
        )

    @called
    def patch(
        self,
        key: str,
        operations: Operations,
        *,
        if_match: Tokens | None = None,
        rebase: bool = False,
        array_primary_keys: Mapping[str, Sequence[str]] | None = None,
        **terms: Unpack[WriteTerms],
    ) -> Steps[Written]:
        """Apply a JSON Patch (operations, or a `jsonpatch.JsonPatch`), or an extended one if an
        operation or ``array_primary_keys`` says so, to the document as it is then. Raises Conflict
        if it doesn't fit.

        ``rebase``, with ``if_match``: also apply it if the document has changed since, but nothing
        that the patch reads or writes; otherwise raises PreconditionFailed, whose problem has the
        ``overlap``.
        """
        operations = operations_of(operations)
        body: Any = operations
        media_type = _PATCH
        if array_primary_keys is not None or is_extended(operations):
            body, media_type = {"patch": operations}, _EXTENDED
            if array_primary_keys is not None:
                body["array_primary_keys"] = array_primary_keys
        return (
            yield from self._write(
                "PATCH", key, encoded(body), media_type, if_match, False, terms, rebase=rebase
            )
        )

    @called
    def merge(
        self,
        key: str,
        value: Json,
        *,
        if_match: Tokens | None = None,
        rebase: bool = False,
        **terms: Unpack[WriteTerms],
    ) -> Steps[Written]:
        """Apply a merge patch (RFC 7396) to a document that exists: members that are null in
        ``value`` are removed. ``if_match`` and ``rebase`` as in `patch`."""
        return (
            yield from self._write(
                "PATCH", key, encoded(value), _MERGE, if_match, False, terms, rebase=rebase
            )
        )

    @called
    def update(
        self,
        key: str,
        function: Callable[[Any], Any],
        *,
        create: bool = False,
        rebase: bool = False,
        retries_max: int = 19,
        lists: Lists = NO_LISTS,
        tries_max: int | None = None,
        **terms: Unpack[WriteTerms],
    ) -> Steps[Updated]:
        """Read-modify-write, for what a patch can't say.

        ``function`` gets its own copy of the content and returns the new content (the same object,
        changed, will do), a `jsonpatch.JsonPatch` for it, or ABSENT to delete the document. The
        difference is sent as the smallest patch, on condition that the document is still as it was
        read. If it isn't, all this is done again: first with the document that the refusal shows,
        without reading it, then after a pause. So ``function`` may be called any number of times
        and should do nothing else. What it raises ends the update.

        ``create``: if there is no document, the function gets ABSENT; otherwise raises NotFound.
        ``rebase``: the condition is only that others haven't changed what the function changes. For
        functions that read nothing else. ``lists``: those that the catalog declares for this
        document; the difference then names items by key, so that with ``rebase`` writers of
        different items don't overlap, and the order of items doesn't matter.

        Raises UpdateFailed after ``retries_max`` retries (``tries_max`` is deprecated) or at the
        deadline; TypeError if ``function`` returns None for content that isn't None (a forgotten
        return), or an ``idempotency_key`` is given: an update is as many requests as it takes.
        """
        tries, shown = self._tries(retries_max, tries_max, terms), None
        terms["show_refused"] = True
        while True:
            before = shown or (yield from self._get_or_none(key, create, tries))
            after = _changed(function, before.value if before else ABSENT)
            terms["timeout_s"] = max(tries.left_s, 0.1)
            try:
                written = yield from self._write_changes(key, before, after, rebase, lists, terms)
                etag = None if (last := written or before) is None else last.etag
                changed = bool(written and written.changed)
                return Updated(key, after, etag, changed, tries.failures + 1, written)
            except PreconditionFailed as error:
                if error.applied != "no" or terms.get("resource_version") is not None:
                    raise  # the catalog has left that revision for good
                shown = self._shown(key, error) if shown is None else None
                pause_s = tries.pause_after(error, passes=True, pauses=shown is None)
                if pause_s is None:
                    raise UpdateFailed(key, tries.failures) from error
                yield Pause(pause_s)

    def _tries(self, retries_max: int, tries_max: int | None, terms: WriteTerms) -> Tries:
        if tries_max is not None:
            warn_renamed("tries_max", "retries_max, which is 1 less", stacklevel=4)
            retries_max = tries_max - 1
        if terms.get("idempotency_key") is not None:
            raise TypeError("an update takes no idempotency_key, because it sends several requests")
        if retries_max < 0:
            raise ValueError("retries_max must be at least 0")
        retry = replace(
            self._calls.retry, retries_max=retries_max, first_s=_FIRST_S, longest_s=_LONGEST_S
        )
        timeout_s = terms.get("timeout_s")
        return retry.tries(self._calls.timeout_s if timeout_s is None else timeout_s)

    def _get_or_none(self, key: str, create: bool, tries: Tries) -> Steps[Document | None]:
        try:
            return (yield from plan_of(self.get)(key, timeout_s=max(tries.left_s, 0.1)))
        except NotFound as error:
            if not create or error.code not in ("document_not_found", "catalog_not_found"):
                raise
            return None

    def _shown(self, key: str, error: PreconditionFailed) -> Document | None:
        """The document that a refusal shows; None if it shows none."""
        value = error.current_value
        if self._part == "attributes" and value is not ABSENT:
            value = dict(error.current_attributes)
        if value is ABSENT or error.current_etag is None or error.current_revision is None:
            return None
        return Document(key, value, error.current_etag, error.current_revision)

    def _write_changes(
        self,
        key: str,
        before: Document | None,
        after: Json | Absent,
        rebase: bool,
        lists: Lists,
        terms: WriteTerms,
    ) -> Steps[Written | None]:
        """Sends what differs; None if nothing does."""
        if before is None:
            if after is ABSENT:
                return None
            return (yield from plan_of(self.put)(key, after, if_absent=True, **terms))
        operations = diff(before.value, after, compact=not rebase, lists=lists)
        if not operations:
            return None
        by_key: dict[str, Sequence[str]] | None = {} if lists else None
        if len(operations) > DEFAULT_LIMITS.operations_max:
            operations, by_key = diff(before.value, after), None
        patch = plan_of(self.patch)(
            key, operations, array_primary_keys=by_key, if_match=before, rebase=rebase, **terms
        )
        return (yield from patch)

    def _rest(self, key: str) -> str:
        return f"/{self._part}/{segment(key)}"

    def _write(
        self,
        method: str,
        key: str,
        body: bytes | None,
        media_type: str,
        if_match: Tokens | None,
        if_absent: bool,
        given: WriteTerms,
        *,
        rebase: bool = False,
    ) -> Steps[Written]:
        if rebase and if_match is None:
            raise ValueError(
                "rebase needs if_match: the version token of what the patch was made for"
            )
        answer = yield from self._calls.write(
            method,
            self._catalog_path,
            self._rest(key),
            given,
            body=body,
            media_type=media_type,
            if_match=if_match,
            if_absent=if_absent,
            rebase=rebase,
            brief=True,
            edit=None if self._part != "documents" else self._edit(method, key, body, media_type),
        )
        return parse_written(key, answer)

    def _edit(self, method: str, key: str, body: bytes | None, media_type: str) -> Edit:
        op, member = _VERBS[media_type] if method == "PATCH" else (method.lower(), b'"value":')
        if body is None:
            return Edit(self._catalog, key, op)
        # An extended patch has the line's members already.
        members = body[1:-1] if media_type == _EXTENDED else member + body
        return Edit(self._catalog, key, op, members)


def time_query(revision: int | None, at: datetime | str | None) -> list[tuple[str, str | int]]:
    """The parameter for either. ValueError for both, and for a time without an offset from UTC."""
    if revision is not None and at is not None:
        raise ValueError("give revision or at, not both")
    if revision is not None:
        return [("revision", revision)]
    if at is None:
        return []
    if isinstance(at, str):
        return [("at", at)]
    if at.tzinfo is None:
        raise ValueError("the time needs an offset from UTC")
    return [("at", at.isoformat())]


def _changed(function: Callable[[Any], Any], content: Json | Absent) -> Json | Absent:
    after: Json | Absent = function(copy.deepcopy(content))
    if after is None and content is not None:
        raise TypeError("the function returned None; it must return the new content, or ABSENT")
    operations = as_operations(after)
    return after if operations is after else apply(content, operations)


_APPLY: Final = "application/vnd.metadata.apply+json"


class Owning:
    """The part of `Catalog` about applies and owners."""

    name: str
    _calls: CallPolicy
    _catalog_path: str

    @called
    def apply(
        self,
        key: str,
        wanted: Mapping[str, Any],
        *,
        manager: str | None = None,
        conflict: OnConflict = "refuse",
        force: Sequence[str] = (),
        if_match: Tokens | None = None,
        if_absent: bool = False,
        rebase: bool = False,
        **terms: Unpack[WriteTerms],
    ) -> Steps[Written]:
        """Send what ``manager`` (by default the principal) wants of the document: it then owns
        these leaves, and what it no longer wants goes, unless others own it. An absent document is
        created.

        ``conflict``: what happens to leaves that others own with another value. "refuse": raises
        Conflict, whose leaves `contested` returns; "skip": they stay, and the result lists them;
        "force": they get this value. ``force``: pointers at and below which they are forced in any
        case.
        """
        if rebase and if_match is None:
            raise ValueError(
                "rebase needs if_match: the version token of what the apply was made for"
            )
        query: list[tuple[str, str | int]] = [("conflict", conflict)]
        query += [("force", pointer) for pointer in force]
        body = encoded(dict(wanted))
        members = {"conflict": conflict, "force": list(force), **dict(_named(manager))}
        answer = yield from self._calls.write(
            "PATCH",
            self._catalog_path,
            f"/documents/{segment(key)}",
            terms,
            body=body,
            media_type=_APPLY,
            if_match=if_match,
            if_absent=if_absent,
            rebase=rebase,
            query=[*_named(manager), *query],
            brief=True,
            edit=Edit(self.name, key, "apply", _inner(members) + b',"value":' + body),
        )
        return parse_written(key, answer)

    @called
    def owners(
        self, key: str, *, revision: int | None = None, at: datetime | str | None = None
    ) -> Steps[tuple[LeafOwners, ...]]:
        """The document's owned leaves, by pointer; as it is, or as it was. Raises NotFound."""
        path = f"{self._catalog_path}/owners/{segment(key)}"
        answer = yield from self._calls.get(path, time_query(revision, at), brief=True)
        content = answer.json()
        with expecting("list of owners"):
            return msgspec.convert(content["owners"], tuple[LeafOwners, ...])

    @called
    def let_go(
        self,
        key: str,
        *,
        manager: str | None = None,
        prune: bool = False,
        if_match: Tokens | None = None,
        **terms: Unpack[WriteTerms],
    ) -> Steps[Written]:
        """``manager`` gives up all that it owns of the document, and what nobody else owns is
        removed. ``prune``: also delete the document if that leaves nothing of it."""
        query = [*_named(manager), *([("prune", "true")] if prune else [])]
        members = {"prune": prune, **dict(_named(manager))}
        edit = Edit(self.name, key, "let_go", _inner(members))
        return (yield from self._disown(key, query, if_match, terms, edit))

    @called
    def give_back(
        self,
        key: str,
        *pointers: str,
        if_match: Tokens | None = None,
        **terms: Unpack[WriteTerms],
    ) -> Steps[Written]:
        """Give back what one's own plain writes (for an admin, anybody's) took over at and below
        ``pointers``. No value changes, and the next apply may change the fields. Raises Conflict if
        only other people's plain writes own something there, which `contested` returns."""
        if not pointers:
            raise ValueError("name at least one pointer to give back; '' is the whole document")
        query: list[tuple[str, str | int]] = [("pointer", each) for each in pointers]
        edit = Edit(self.name, key, "give_back", _inner({"pointers": pointers}))
        return (yield from self._disown(key, query, if_match, terms, edit))

    def _disown(
        self,
        key: str,
        query: list[tuple[str, str | int]],
        if_match: Tokens | None,
        terms: WriteTerms,
        edit: Edit,
    ) -> Steps[Written]:
        answer = yield from self._calls.write(
            "DELETE",
            self._catalog_path,
            f"/owners/{segment(key)}",
            terms,
            if_match=if_match,
            query=query,
            brief=True,
            edit=edit,
        )
        return parse_written(key, answer)

    @listed
    def lost_by(self, manager: str, *, after: int = 0, page_size: int = 100) -> Listing[Takeover]:
        """The fields that others took over from ``manager`` above revision ``after``, as far as
        history goes back, newest first. Without fields that it owns again, or that nobody owns."""
        query: list[tuple[str, str | int]] = [("lost_by", manager), ("limit", page_size)]
        more: list[tuple[str, str | int]] | None = []
        while more is not None:
            path = f"{self._catalog_path}/owners"
            answer = yield from self._calls.get(path, [*query, ("after", after), *more])
            content = answer.json()
            with expecting("page of losses"):
                page = msgspec.convert(content["losses"], tuple[Takeover, ...])
                more = None if content["next"] is None else list(content["next"].items())
            yield from map(PlanItem, page)


def contested(error: Problem) -> tuple[ContestedLeaf, ...]:
    """The first 100 leaves, or places, because of which an apply or a revert was refused; () for
    any other refusal."""
    shapes = error.problem.get("contested")
    if not isinstance(shapes, list):
        return ()
    try:
        return tuple(
            ContestedLeaf(
                shape["pointer"],
                msgspec.convert(shape.get("owners", ()), tuple[Owner, ...]),
                shape.get("value", ABSENT),
                shape.get("wanted", ABSENT),
                shape.get("key"),
                shape.get("part"),
                shape.get("revision"),
            )
            for shape in shapes
        )
    except (KeyError, TypeError, msgspec.ValidationError):
        return ()


def _named(manager: str | None) -> list[tuple[str, str | int]]:
    return [] if manager is None else [("manager", manager)]


def _inner(members: Mapping[str, Any]) -> bytes:
    """``members`` as JSON without the braces."""
    return encoded(members)[1:-1]


class Reverting:
    """The part of `Catalog` that undoes commits, and brings documents back, by a new commit."""

    _calls: CallPolicy
    _catalog_path: str

    @called
    def revert(
        self,
        revisions: int | Collection[int] = (),
        *,
        to: int | None = None,
        since: int | None = None,
        prefix: str = "",
        key: str | None = None,
        conflict: OnConflict = "refuse",
        force: Iterable[SkippedPlace | ContestedLeaf] = (),
        if_match: Tokens | None = None,
        **terms: Unpack[WriteTerms],
    ) -> Steps[Reverted]:
        """Undo the commits that made ``revisions``, or all after revision ``to``, by one new
        commit; with a ``prefix`` only what they did to documents whose keys begin with it, with a
        ``key`` only to that document.

        What others have changed since is kept. If that is in the way, ``conflict`` decides.
        "refuse": raises Conflict, whose places `contested` returns; "skip": they stay, and the
        result lists them; "force": they become as they were. Those at and below the places in
        ``force`` are forced in any case. ``since``, with ``to``: the revision that the caller has
        seen, after which changes count as made since; by default the newest.

        Raises Gone if history was compacted, OverLimit if it is too much for one commit, ValueError
        unless one of ``revisions`` and ``to`` is given.
        """
        commits = [revisions] if isinstance(revisions, int) else sorted(set(revisions))
        if bool(commits) == (to is not None):
            raise ValueError("a revert takes either revisions or 'to'")
        asked: dict[str, Any] = {"revisions": commits} if commits else {"to": to}
        if since is not None:
            asked["from"] = since
        if prefix:
            asked["prefix"] = prefix
        if key is not None:
            asked["key"] = key
        if forced := [_place(each) for each in force]:
            asked["force"] = forced
        body = encoded({**asked, "conflict": conflict})
        answer = yield from self._calls.write(
            "POST", self._catalog_path, "/reverts", terms, body=body, if_match=if_match
        )
        return _reverted(answer)


def _place(each: SkippedPlace | ContestedLeaf) -> dict[str, Any]:
    return {"key": each.key, "part": each.part or "content", "pointer": each.pointer}


def _reverted(answer: HttpAnswer) -> Reverted:
    content = answer.json()
    with expecting("answer to a revert"):
        changes = changes_of(content.get("changes", ()))
        return value_of(Reverted, content, changes=changes, replayed=is_replayed(answer))
