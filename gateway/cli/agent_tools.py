"""What an agent can do with documents: find, read, preview, change, apply, undo, see what happened.

Each tool is a call or two of `patching.client`, and its result is bounded in bytes. A refusal of
the gateway comes with the document as it is, so that the next try can be right. Contents of
documents are data of others; each result names the members that may hold any (``untrusted``).

An agent can't overwrite what it hasn't seen: a change needs the token of what was read, or a
`test`; an apply to an existing document the token. A result has a token only if the agent knows
the document then; that of a part names the part. It undoes only its commits, which name it, and
which its principal made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice, takewhile
from typing import Annotated, Any, Final

from pydantic import Field

from patching import (
    ABSENT,
    ExtendedPatch,
    InvalidPatch,
    PatchError,
    join_pointer,
    parse_extended,
    split_pointer,
)
from patching.client import Catalog as ClientCatalog
from patching.client import (
    Change,
    ClientError,
    Commit,
    Conflict,
    Document,
    Gateway,
    NotFound,
    RequestError,
)
from patching.client.errors import NotAuthorized, PreconditionFailed, Problem
from patching.client.results import Written
from patching.client.terms import WriteTerms
from patching.extended import changes_only, says_what_was_read
from patching.pointers import find as found_at
from patching.values import encoded_bytes

# The most bytes of a value, a list, or a minor member, as compact JSON; a result may have each.
_VALUE_BYTES_MAX: Final = 24 * 1024
_LISTED_BYTES_MAX: Final = 12 * 1024
_SHORT_BYTES_MAX: Final = 4 * 1024
RESULT_BYTES_MAX: Final = 48 * 1024
_KEYS_MAX: Final = 500
_COMMITS_MAX: Final = 50
_MEMBERS_MAX: Final = 200
_NAME: Final = re.compile(r"[\w.@:/+ -]{1,100}", re.ASCII).fullmatch
_MARK: Final = "[agent"

# A document's version, and the pointer of the part that was read.
_TOKEN: Final = re.compile(r'("?)([0-9a-f]+-[0-9a-f]{8})\1(?: (/.*))?', re.DOTALL).fullmatch

_NO_KEYS: Final[Mapping[str, Sequence[str]]] = {}

Result = dict[str, Any]

# The members of results that hold only words of this program, numbers, or what the agent said.
_OWN: Final = {
    "applied",
    "bytes",
    "changed",
    "changes_left_out",
    "code",
    "detail",
    "dry_run",
    "errors",
    "members",
    "operation",
    "owners_left_out",
    "pointer",
    "replayed",
    "retryable",
    "revision",
    "token",
    "too_large",
}

# The arguments, as described to the agent.
_CatalogName = Annotated[str, Field(description="the catalog: a named set of documents")]
_Key = Annotated[str, Field(description="the document's key in its catalog")]
_Operations = Annotated[
    Sequence[Mapping[str, Any]],
    Field(
        description=(
            "operations, as in a JSON Patch, applied in order, all or none:"
            ' {"op": "set", "path": "/tier", "value": 1}. "add", "remove", "replace", "move" and'
            ' "copy" are those of RFC 6902; "set" puts a value, whether or not something is there;'
            ' "add_to_set" and "pull" add an item to an array and remove it, by value; "increment",'
            ' "max" and "min" change numbers, "append_text" strings; "stamp" writes the "time",'
            ' "revision" or "author" of the commit. With "create_parents": true, missing parent'
            " objects are created. The others only test, and the change is refused if one is false:"
            ' "test", "defined", "undefined", "contains", "in", "less", "more", "starts", "ends",'
            ' "type", "matches", and "and", "or", "not", which combine those in "apply"'
        )
    ),
]
_Token = Annotated[
    str,
    Field(description="the document's `token`, from when you read it, or from a refusal"),
]
_ListKeys = Annotated[
    Mapping[str, Sequence[str]],
    Field(
        description=(
            "for each array of objects, by its pointer: the members that identify its items;"
            " arrays that the catalog declares need no entry"
        )
    ),
]
# With these and the longest marks, a message and an idempotency key have no more than they may.
_WHY_CHARACTERS_MAX: Final = 600
_CALL_ID: Final = "^[ -~]{0,150}$"
_Why = Annotated[
    str,
    Field(description="the reason, for the commit's message", max_length=_WHY_CHARACTERS_MAX),
]


class ToolRefused(Exception):
    """A tool did nothing; ``result`` says why."""

    def __init__(self, result: Result) -> None:
        super().__init__(result["detail"])
        self.result = result


def _refused(code: str, detail: str, **more: Any) -> ToolRefused:
    return ToolRefused({"code": code, "detail": detail, **more, "applied": "no"})


@dataclass(frozen=True, slots=True)
class Agent:
    """Who acts, as its commits say. Raises ValueError for a name that doesn't fit into a
    message."""

    name: str
    model: str | None = None
    conversation: str | None = None

    def __post_init__(self) -> None:
        for each in (self.name, self.model, self.conversation):
            if each is not None and not _NAME(each):
                allowed = "1 to 100 letters, digits, spaces and .@:/+_-"
                raise ValueError(f"a name must be {allowed}, not {each!r}")

    @property
    def mark(self) -> str:
        """The beginning of the messages of all its commits."""
        return f"{_MARK} {self.name}"

    def message(self, why: str) -> str:
        more = [f"model {self.model}"] if self.model else []
        more += [f"conversation {self.conversation}"] if self.conversation else []
        return "; ".join([self.mark, *more]) + f"] {why}".rstrip()

    def marked(self, commit: Commit) -> bool:
        """Whether the commit says that it is this agent's. Anybody may write such a message."""
        message = commit.message or ""
        return message.startswith((f"{self.mark}]", f"{self.mark};"))


@dataclass(frozen=True, slots=True)
class Scope:
    """``prefix``: of the keys that it may see and change. ``dry_run_only``: changes are only
    tried."""

    prefix: str = ""
    read_only: bool = False
    dry_run_only: bool = False

    def require(self, key: str) -> None:
        if not key.startswith(self.prefix):
            detail = f"this server has only the documents whose keys begin with {self.prefix!r}"
            raise _refused("out_of_scope", detail)

    def require_writable(self) -> None:
        if self.read_only:
            raise _refused("read_only", "this server is read-only")


class AgentTools:
    """Thread-safe, as its ``gateway`` is. Every tool raises ToolRefused."""

    def __init__(self, gateway: Gateway, agent: Agent, scope: Scope) -> None:
        self._gateway = gateway
        self.agent = agent
        self.scope = scope

    def find(
        self,
        catalog: _CatalogName,
        prefix: Annotated[str, Field(description="only keys that begin with this")] = "",
        contains: Annotated[
            str,
            Field(description="only keys that contain this, in upper or lower case, in any folder"),
        ] = "",
        after: Annotated[str, Field(description="the `next` of the previous page")] = "",
        limit: Annotated[int, Field(description=f"from 1 to {_KEYS_MAX}")] = 100,
    ) -> Result:
        """List the keys after ``after``, in order; without ``contains``, a deeper folder is listed
        instead of the keys in it. ``next`` is the ``after`` of the next page."""
        prefix = prefix or self.scope.prefix
        self.scope.require(prefix)
        limit = _within("limit", limit, 1, _KEYS_MAX)
        query: list[tuple[str, str | int]] = [("select", "key"), ("limit", limit)]
        query += [("prefix", prefix)] if prefix else []
        query += [("contains", contains)] if contains else [("delimiter", "/")]
        query += [("after", after)] if after else []
        asked = self._catalog(catalog)
        page = _answered(lambda: asked._calls.run(asked._ask("/documents", query)))
        following = page["next"]
        result: Result = {
            "keys": [each["key"] for each in page["documents"]],
            "folders": page.get("folders", []),
            "revision": page["revision"],
            "next": None if following is None else following["after"],
        }
        if encoded_bytes(result) > RESULT_BYTES_MAX:
            detail = "the result is too large: ask for fewer with 'limit'"
            raise ToolRefused({"code": "too_large", "detail": detail})
        return result

    def read(
        self,
        catalog: _CatalogName,
        key: _Key,
        pointer: Annotated[
            str, Field(description="a JSON Pointer, such as /owner/team: read only this value")
        ] = "",
        revision: Annotated[
            int | None,
            Field(description="a revision of the catalog: read the document as it was then"),
        ] = None,
    ) -> Result:
        """Read the value at ``pointer``, with the owners of its fields and a token, which is good
        for changes of this value alone. Values in lists have no token: read the list. If the value
        is too large, the result has the sizes of its members instead, and no token."""
        self.scope.require(key)
        tokens = _tokens(pointer)
        documents = self._catalog(catalog)
        document = _answered(lambda: documents.get(key, revision=revision))
        value = found_at(document.value, tokens)
        if value is ABSENT:
            detail = f"there is nothing at {pointer!r}"
            raise ToolRefused({"code": "path_missing", "detail": detail, **_shown(document)})
        at = document.catalog_revision  # others may have written since
        owners = _answered(lambda: documents.owners(key, revision=at))
        within = [
            {"pointer": leaf.pointer, "owners": [each.manager for each in leaf.owners]}
            for leaf in owners
            if f"{leaf.pointer}/".startswith(f"{pointer}/")
            or f"{pointer}/".startswith(f"{leaf.pointer}/")
        ]
        # The index of an item may be that of another after a change, or the key of one.
        is_item = any(
            isinstance(found_at(document.value, tokens[:depth]), list)
            for depth in range(len(tokens))
        )
        return {
            **_with_token(value, pointer, None if is_item else document.etag),
            "revision": document.catalog_revision,
            "owners": (listed := _fitting(within)),
            "owners_left_out": len(within) - len(listed),
        }

    def preview(
        self,
        catalog: _CatalogName,
        key: _Key,
        operations: _Operations,
        token: _Token = "",
        list_keys: _ListKeys = _NO_KEYS,
    ) -> Result:
        """Show what ``change`` would do: the effective patch, and whose fields it would take over.
        Nothing is written."""
        written = self._patched(catalog, key, operations, token, list_keys, dry_run=True)
        return self._result(written, token)

    def change(
        self,
        catalog: _CatalogName,
        key: _Key,
        operations: _Operations,
        token: _Token = "",
        list_keys: _ListKeys = _NO_KEYS,
        why: _Why = "",
        call_id: Annotated[
            str,
            Field(
                description="a name that you choose for this call, to repeat it", pattern=_CALL_ID
            ),
        ] = "",
    ) -> Result:
        """Change a document by ``operations``. Either send the ``token`` of what you read, or put a
        `test` of what you saw among the operations (`undefined` where there was nothing). Paths
        name the items of lists by key if the catalog or ``list_keys`` declares the keys:
        {"/columns": ["name"]} makes "/columns/id/type" a path. A call that you send again with the
        same ``call_id`` is applied once. The result has a `token` for the next change, unless the
        document holds more than you read or sent: then read it again."""
        dry_run = self.scope.dry_run_only
        self.scope.require_writable()
        self.scope.require(key)
        patch = self._parsed(catalog, key, operations, list_keys)
        has_read = bool(token) and changes_only(patch, _tokens(_split_token(token)[1]))
        if not has_read and not says_what_was_read(patch):
            detail = (
                "send the token of the value that you read and change, or add a 'test' operation of"
                " what you saw ('undefined' where there was nothing)"
            )
            refused: Result = {"code": "precondition_required", "detail": detail, "applied": "no"}
            raise ToolRefused(self._beside(refused, catalog, key))
        written = self._patched(
            catalog, key, operations, token, list_keys, why=why, call_id=call_id, dry_run=dry_run
        )
        return self._result(written, token)

    def apply(
        self,
        catalog: _CatalogName,
        key: _Key,
        wanted: Annotated[
            Mapping[str, Any],
            Field(description="the part of the document that you want, as an object"),
        ],
        token: _Token = "",
        why: _Why = "",
        skip_what_others_own: Annotated[
            bool, Field(description="skip the fields that others own, instead of being refused")
        ] = False,
    ) -> Result:
        """Set the fields that you want in a document, as a manager with the agent's name: you then
        own them, and what others own is kept. If the document exists, send the ``token`` of what
        you read, because fields without an owner are overwritten."""
        self.scope.require_writable()
        self.scope.require(key)
        etag, part = _split_token(token)
        terms = self._terms(why, "", dry_run=self.scope.dry_run_only)
        apply = partial(
            self._catalog(catalog).apply,
            key,
            wanted,
            manager=self.agent.name,
            conflict="skip" if skip_what_others_own else "refuse",
            if_match=etag or None,
            if_absent=not etag,
            rebase=bool(etag),
            **terms,
        )
        written = partial(self._written, catalog, key)
        # An apply also removes what the agent applied before, and leaves out now.
        if part and not (
            _has_only(wanted, part) and _changed_only(written(partial(apply, dry_run=True)), part)
        ):
            detail = f"the token is for changes at {part!r} alone: read the rest, too"
            refused = {"code": "precondition_required", "detail": detail, "applied": "no"}
            raise ToolRefused(self._beside(refused, catalog, key))
        try:
            done = written(apply)
        except ToolRefused as refused:
            if token or refused.result["code"] != "precondition_failed":
                raise
            detail = f"{key!r} exists already: read it, and send its token"
            raise ToolRefused({**refused.result, "detail": detail}) from refused
        result = self._result(done, token)
        result["skipped"] = _fitting([leaf.pointer for leaf in done.skipped])
        return result

    def undo(
        self,
        catalog: _CatalogName,
        revision: Annotated[int, Field(description="the revision that the commit made")],
        why: _Why = "",
    ) -> Result:
        """Undo a commit that this agent made; what others changed since is kept."""
        self.scope.require_writable()
        documents = self._catalog(catalog)
        commit = _answered(lambda: documents.commit(revision))
        if not self._own([commit]):
            detail = (
                f"revision {revision} isn't a commit of agent {self.agent.name!r} by the principal"
                " of its token"
            )
            raise _refused("not_yours", detail)
        for change in commit.changes:
            self.scope.require(change.key or "")
        terms = self._terms(why or f"undo {revision}", "", dry_run=self.scope.dry_run_only)
        reverted = _answered(lambda: documents.revert(revision, **terms))
        return {
            "changed": reverted.changed,
            "dry_run": self.scope.dry_run_only,
            "revision": reverted.revision,
            **self._changes(reverted.changes),
        }

    def history(
        self,
        catalog: _CatalogName,
        key: Annotated[str, Field(description="only commits that change this document")] = "",
        after: Annotated[int, Field(description="only commits above this revision")] = 0,
        limit: Annotated[int, Field(description=f"from 1 to {_COMMITS_MAX}")] = 20,
    ) -> Result:
        """List the commits above revision ``after``, oldest first. ``next`` is the ``after`` of the
        next page."""
        limit = _within("limit", limit, 1, _COMMITS_MAX)
        if key:
            self.scope.require(key)
        commits = self._catalog(catalog).commits(after=after, key=key or None, page_size=limit)
        page = _answered(lambda: list(islice(commits, limit + 1)))
        own = self._own(page)
        shapes = [self._commit(each, yours=each.revision in own) for each in page[:limit]]
        shapes = _fitting(shapes, _VALUE_BYTES_MAX) or shapes[:1]
        shown = [each for each in shapes if each["changes"] or not self.scope.prefix]
        return {
            "commits": shown,
            "next": page[len(shapes) - 1].revision if len(page) > len(shapes) else None,
        }

    def _changes(self, changes: Sequence[Change]) -> Result:
        within = [
            {"key": each.key, "action": each.action, "patch": _short(each.patch)}
            for each in changes
            if (each.key or "").startswith(self.scope.prefix)
        ]
        shown = _fitting(within)
        return {"changes": shown, "changes_left_out": len(within) - len(shown)}

    def _own(self, commits: Sequence[Commit]) -> set[int]:
        """The revisions of those that this agent made."""
        marked = [each for each in commits if self.agent.marked(each)]
        if not marked:
            return set()
        calls = self._gateway._calls
        principal = _answered(lambda: calls.run(calls.get("/v1/principal"))).json()["name"]
        return {each.revision for each in marked if each.author == principal}

    def _commit(self, commit: Commit, *, yours: bool) -> Result:
        return {
            "revision": commit.revision,
            "time": commit.time.isoformat(),
            "author": commit.author,
            "message": commit.message,
            "yours": yours,
            **self._changes(commit.changes),
        }

    def _catalog(self, name: str) -> ClientCatalog:
        return self._gateway.catalog(name)

    def _terms(self, why: str, call_id: str, *, dry_run: bool) -> WriteTerms:
        terms: WriteTerms = {
            "message": self.agent.message(why),
            "show_refused": True,
            "dry_run": dry_run,
        }
        if call_id:
            terms["idempotency_key"] = f"{self.agent.name}/{call_id}".replace(" ", "_")
        return terms

    def _patched(
        self,
        catalog: str,
        key: str,
        operations: Sequence[Mapping[str, Any]],
        token: str,
        list_keys: Mapping[str, Sequence[str]],
        *,
        why: str = "",
        call_id: str = "",
        dry_run: bool,
    ) -> Written:
        self.scope.require(key)
        etag, _ = _split_token(token)
        self._parsed(catalog, key, operations, list_keys)
        terms = self._terms(why, call_id, dry_run=dry_run)
        return self._written(
            catalog,
            key,
            lambda: self._catalog(catalog).patch(
                key,
                operations,
                if_match=etag or None,
                rebase=bool(etag),
                array_primary_keys=list_keys,
                **terms,
            ),
        )

    def _written(self, catalog: str, key: str, write: Any) -> Written:
        try:
            written: Written = write()
        except Problem as error:
            result = _refusal(error)
            if not (error.retryable or isinstance(error, NotAuthorized)):
                result = self._beside(result, catalog, key)
            raise ToolRefused(result) from error
        except (ClientError, ValueError) as error:
            raise ToolRefused(_refusal(error)) from error
        return written

    def _beside(self, refusal: Result, catalog: str, key: str) -> Result:
        """``refusal`` with the document as it is, so that the next try can be right."""
        if "token" in refusal:
            return refusal
        try:
            return {**refusal, **_shown(self._catalog(catalog).get(key))}
        except NotFound:
            return {**refusal, "value": None}
        except ClientError:
            return refusal

    def _parsed(
        self,
        catalog: str,
        key: str,
        operations: Sequence[Mapping[str, Any]],
        list_keys: Mapping[str, Sequence[str]],
    ) -> ExtendedPatch:
        patch = {"patch": list(operations), "array_primary_keys": dict(list_keys)}
        try:
            parsed = parse_extended(patch)
            _require_known(operations, parsed)
            return parsed
        except PatchError as error:
            refused: Result = {"code": error.code, "detail": str(error), "applied": "no"}
            refused |= {"operation": error.operation, "pointer": error.pointer}
            raise ToolRefused(self._beside(refused, catalog, key)) from error

    def _result(self, written: Written, token: str) -> Result:
        """The result of what was written on the document of ``token``, or on what is there."""
        etag, part = _split_token(token)
        changes = [
            {
                "key": each.get("key"),
                "patch": _short(each.get("patch")),
                "owners": _short(each.get("owners")),
            }
            for each in written.changes
        ]
        return {
            "changed": written.changed,
            "dry_run": written.dry_run,
            "token": _joined_token(written.etag, part) if _knows_all(written, etag) else None,
            "revision": written.catalog_revision,
            "replayed": written.replayed,
            **({"changes": changes} if written.dry_run else {}),  # `history` has those of a commit
        }


def _knows_all(written: Written, etag: str) -> bool:
    """Whether the agent knows the document afterwards, if it knew that of ``etag``: what others
    changed meanwhile, or what it never read, isn't in there."""
    if written.created:
        return not written.replayed
    if not written.changed:
        return etag == written.etag
    return bool(etag) and written.rebased_from is None


def _split_token(token: str) -> tuple[str, str]:
    """The document's version and the pointer of its part in ``token``. Refuses other tags: they
    match documents that weren't read, or are about others."""
    if not token:
        return "", ""
    found = _TOKEN(token)
    if found is None:
        detail = "it must be the document's token, as 'read' returned it"
        raise _refused("invalid_argument", detail, pointer="/token")
    return found[2], found[3] or ""


def _joined_token(etag: str | None, part: str) -> str | None:
    return f"{etag} {part}" if etag and part else etag


def _has_only(wanted: Any, part: str) -> bool:
    """Whether ``wanted`` is about nothing outside of ``part``."""
    for token in _tokens(part):
        if not isinstance(wanted, Mapping) or {*wanted} != {token}:
            return False
        wanted = wanted[token]
    return True


def _changed_only(written: Written, part: str) -> bool:
    """Whether nothing outside of ``part`` changed."""
    patches = chain.from_iterable(each["patch"] for each in written.changes)
    return all(f"{each['path']}/".startswith(f"{part}/") for each in patches)


def marked(result: Result) -> Result:
    """``result`` with ``untrusted``: the pointers of members that may hold what others wrote."""
    own = _OWN
    if "retryable" in result:  # the gateway's refusal: its words quote what is in documents
        own = own - {"detail"}
    others = [join_pointer((name,)) for name in result if name not in own]
    return {**result, "untrusted": others} if others else result


def _require_known(operations: Sequence[Mapping[str, Any]], parsed: ExtendedPatch) -> None:
    """Raise InvalidPatch for a member that means nothing. The patch language ignores it, and the
    agent, which made it up, would take something else for done."""
    for position, sent in enumerate(operations):
        for op, name in _ignored(sent, parsed.operations[position].to_json()):
            detail = f"the operation '{op}' has no member {name!r}"
            raise InvalidPatch(detail, operation=position, pointer=sent.get("path"), member=name)


def _ignored(sent: Mapping[str, Any], kept: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in sent.items():
        if name not in kept and value is not False:
            yield sent["op"], name
    if "apply" in kept:
        for inner, of in zip(sent["apply"], kept["apply"], strict=True):
            yield from _ignored(inner, of)


def _answered(call: Any) -> Any:
    try:
        return call()
    except (ClientError, ValueError) as error:
        raise ToolRefused(_refusal(error)) from error


def _refusal(error: Exception) -> Result:
    result: Result = {"code": "invalid_argument", "detail": str(error), "applied": "no"}
    if isinstance(error, RequestError):
        result.update(code=error.code, detail=error.detail, applied=error.applied)
        result["retryable"] = error.retryable
        if error.code == "idempotency_key_reused":
            result["detail"] = "another call had this `call_id`: choose a new one for this call"
    if isinstance(error, Problem):
        result["problem"] = _short(error.problem)
        if isinstance(error, Conflict | PreconditionFailed) and error.current_value is not ABSENT:
            result.update(_with_token(error.current_value, "", error.current_etag))
    return result


def _shown(document: Document) -> Result:
    return _with_token(document.value, "", document.etag)


def _with_token(value: Any, pointer: str, etag: str | None) -> Result:
    """``value`` at ``pointer`` of the document of ``etag``, with a token if it's whole."""
    shown = _value(value, pointer)
    return {**shown, "token": _joined_token(etag, pointer) if "value" in shown else None}


def _value(value: Any, pointer: str) -> Result:
    """``value``; if it is too large, the parts of it that can be read by pointer."""
    size = encoded_bytes(value)
    if size <= _VALUE_BYTES_MAX:
        return {"value": value}
    if isinstance(value, str):
        cut = value[: _VALUE_BYTES_MAX // 6]  # a character takes six bytes at most
        return {"beginning": cut, "bytes": size}
    named: Any = value.items() if isinstance(value, dict) else enumerate(value)
    parts = [[str(name), encoded_bytes(part)] for name, part in islice(named, _MEMBERS_MAX)]
    return {
        "too_large": f"the value has {size} bytes: read its parts, by 'pointer'",
        "pointer": _short(pointer),
        "bytes_by_member": dict(_fitting(parts)),
        "members": len(value),
    }


def _fitting(items: list[Any], bytes_max: int = _LISTED_BYTES_MAX) -> list[Any]:
    """The first of ``items``, as many as fit."""
    sizes = accumulate(encoded_bytes(each) + 1 for each in items)
    return items[: sum(1 for _ in takewhile(lambda size: size <= bytes_max, sizes))]


def _short(value: Any) -> Any:
    """``value``, unless it is large: it is only a minor part of a result."""
    return value if encoded_bytes(value) <= _SHORT_BYTES_MAX else {"left_out": "too large"}


def _within(name: str, given: int, least: int, most: int) -> int:
    if not least <= given <= most:
        detail = f"it must be from {least} to {most}, not {given}"
        raise _refused("invalid_argument", detail, pointer=f"/{name}")
    return given


def _tokens(pointer: str) -> tuple[str, ...]:
    try:
        return split_pointer(pointer)
    except InvalidPatch as error:
        raise _refused(error.code, str(error), pointer="/pointer") from error
