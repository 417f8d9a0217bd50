"""A line of a bulk request: cut from the body, read as a write, answered with a line.

::

    {"catalog", "key", "op": "put" | "patch" | "merge" | "apply" | "let_go" |
     "give_back" | "delete" | "touch",
     "value" (put, merge, apply), "patch" and "array_primary_keys"? (patch),
     "rebase"? (patch, merge, apply), "manager"?, "conflict"? and "force"? (apply),
     "manager"? and "prune"? (let_go), "pointers" (give_back),
     "attributes"? (put; see ``attributes_mode``),
     "if_match"?, "if_none_match"?, "if_unchanged_under"?, "resource_version"?,
     "idempotency_key"?, "fence"? or "begin"?, "message"?, "author"?, "dry_run"?}

A ``patch`` is of RFC 6902 or an extended one. A touch needs no key; without one, its conditions can
only be about ranges. A ``fence`` is that of an application's version, and makes the idempotency key
the application's (see ``decide.applications``); a ``begin`` begins the version first (see
``begins``). Under one idempotency key, a put (without ``attributes``), patch, merge or delete is
the same request as one that is sent to the document's own route.

The answer's members say what the write's own route says in its status, headers and body.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec.structs import replace

import patching
import patching.extended
from gateway.access import Principal, Role
from gateway.cpu import in_section, interruptible
from gateway.decide.conditions import Preconditions
from gateway.decide.edits import EDIT_KINDS, ApplyPatch, Delete, Edit, KeyEdit, Merge, Put, Touch
from gateway.decide.request import Fence, Request, WriteOutcome, parse_fence
from gateway.decide.strict import SWITCH, Exact
from gateway.errors import CommitError, RefusedBefore, untraced
from gateway.http.door.authorization import author_of, require
from gateway.http.wire import headers as media_types
from gateway.http.wire.apply_terms import (
    apply_members,
    give_back_members,
    let_go_members,
    owning_terms,
    require_wanted,
)
from gateway.http.wire.body import (
    AUTHOR,
    MESSAGE,
    REVISION,
    attributes_of,
    decode_document,
    decode_patch,
    decode_value,
    member,
    refuse_member,
    refuse_repeated,
    require_few_values,
    require_known,
    required,
    required_text,
)
from gateway.http.wire.codes import RequestRefused, over_limit
from gateway.http.wire.conditions import CONDITION_MEMBERS, body_conditions
from gateway.http.wire.headers import Preferences, is_idempotency_key, require_key
from gateway.http.wire.problems import Refusal, problem_content, problem_of
from gateway.http.wire.responses import encode
from gateway.http.wire.shapes import skipped_shape
from gateway.http.write.answer import result_of
from gateway.http.write.ask import NOTHING_SENT, VERBS, Ask, Sent, request_of
from gateway.http.write.begins import BEGIN, BeginNeeded, BeginRefused, read_begin
from gateway.http.write.explain import Represented, outcome_members
from gateway.limits import RequestLimits
from gateway.model import SETTINGS_KEY
from gateway.service import GatewayService
from patching import Limits

# By verb: the members that a line may have in addition to the common ones.
_OPERATIONS: Final = {
    name: verb.members + (("rebase",) if EDIT_KINDS[verb.edits[0]].is_rebased else ())
    for name, verb in VERBS.items()
    if verb.method is not None
}
_COMMON: Final = (
    "catalog",
    "key",
    "op",
    *CONDITION_MEMBERS,
    "resource_version",
    "idempotency_key",
    "fence",
    "begin",
    "message",
    "author",
    "dry_run",
)
_KNOWN: Final = {name: frozenset((*_COMMON, *own)) for name, own in _OPERATIONS.items()}
_CATALOGS_MAX: Final = 1_000
# A member of more bytes may take long to decode.
_LONG_BYTES: Final = 16 * 1024
# Members that are decoded later, as a document, patch or step.
_LARGE: Final = frozenset(("value", "attributes", "patch", "array_primary_keys", "begin"))

_IDEMPOTENCY_KEY: Final = Exact(
    str, f"it must be {media_types.IDEMPOTENCY_KEY_RULE}", is_idempotency_key
)

_FENCE: Final = Exact(str, "it must be the fence of a version that was begun", parse_fence)

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_Large = dict[str, bytes]


class BodyLine(msgspec.Struct, frozen=True):
    """``text`` is without the line end, and None if the line is too long to be held. ``offset``:
    where it begins in the body. ``blank_before``: the number of blank lines since the line before,
    itself included."""

    offset: int
    size_bytes: int
    text: bytes | None
    blank_before: int = 0


class LineSplitter:
    """Cuts a stream of bytes into lines. Blank ones are left out, except each ``blank_max``th in a
    row, so that its caller learns of them. Holds at most one line, of which ``begun_bytes`` have
    come, and which begins at ``offset``."""

    def __init__(self, line_bytes_max: int, blank_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._blank_max = blank_max
        self._blank = 0
        self._begun: list[bytes] = []
        self.begun_bytes = 0
        self.offset = 0

    @interruptible
    def feed(self, piece: bytes) -> list[BodyLine]:
        """The lines that end in ``piece``, which may consist of line ends alone."""
        *ends, rest = piece.split(b"\n")
        lines = []
        for end in ends:
            self._begin(end)
            lines.append(self._end(1))
        self._begin(rest)
        return [line for line in lines if line is not None]

    def finish(self) -> list[BodyLine]:
        """The last line, if it has no line end."""
        line = self._end(0) if self.begun_bytes else None
        return [] if line is None else [line]

    def _begin(self, part: bytes) -> None:
        self.begun_bytes += len(part)
        if self.begun_bytes > self._line_bytes_max:
            self._begun.clear()
        elif part:
            self._begun.append(part)

    def _end(self, end_bytes: int) -> BodyLine | None:
        offset, size = self.offset, self.begun_bytes
        too_long = size > self._line_bytes_max
        text = None if too_long else b"".join(self._begun)
        self._begun.clear()
        self.begun_bytes = 0
        self.offset += size + end_bytes
        if text is not None and not text.strip():
            self._blank += 1
            if self._blank < self._blank_max:
                return None
        blank_before, self._blank = self._blank, 0
        return BodyLine(offset, size, text, blank_before)


@dataclass(frozen=True, slots=True)
class LineTerms:
    """The terms of a bulk request that hold for each of its lines."""

    by: Principal
    limits: RequestLimits
    dry_run: bool
    prefer: Preferences
    writable: set[str] = field(default_factory=set)
    """Catalogs that ``by`` may write, as far as they are known from earlier lines."""
    begun: dict[tuple[str, bytes], Fence | BeginRefused] = field(default_factory=dict)
    """The outcomes of the steps that lines asked for, by catalog and digest of the ``begin``."""

    def writable_catalog(self, name: str) -> str:
        """``name``, if ``by`` may write that catalog. Raises RequestRefused and Forbidden."""
        if name not in self.writable:
            media_types.require_catalog(name, self.limits)
            require(self.by, Role.WRITE, name, "the line")
            if len(self.writable) >= _CATALOGS_MAX:
                self.writable.clear()
            self.writable.add(name)
        return name


@in_section
def line_request(
    gateway: GatewayService, line: BodyLine, terms: LineTerms
) -> Request | BeginNeeded:
    """The request of a line, or BeginNeeded if ``terms`` lack the outcome of the line's begin.

    Raises RequestRefused, BeginRefused, and what decoding a document or a patch raises."""
    if line.text is None:
        maximum = terms.limits.bulk_line_bytes_max
        what, size = f"the line has {line.size_bytes} bytes", line.size_bytes
        raise over_limit(what, "bulk_line_bytes_max", maximum, size, code="body_too_large")
    require_few_values(line.text, terms.limits)
    members, large = _members(line.text, terms.limits)
    operation = required_text(members, "op")
    if operation not in _OPERATIONS:
        refuse_member("/op", f"it must be one of {', '.join(_OPERATIONS)}")
    if not _KNOWN[operation].issuperset((*members, *large)):
        require_known({**members, **large}, (*_COMMON, *_OPERATIONS[operation]))
    catalog = terms.writable_catalog(required_text(members, "catalog"))
    conditions = body_conditions(members)
    key = _key(members, operation, conditions, terms.limits)
    fence = _fence(members, large, catalog, terms)
    if isinstance(fence, BeginNeeded):
        return fence
    ask = Ask(
        by=terms.by,
        method=VERBS[operation].method or operation,
        catalog=catalog,
        key=key,
        conditions=conditions,
        prefer=Preferences(None, terms.prefer.wait_s, member(members, "rebase", SWITCH)),
        dry_run=member(members, "dry_run", SWITCH) or terms.dry_run,
        resource_version=member(members, "resource_version", REVISION),
        idempotency_key=member(members, "idempotency_key", _IDEMPOTENCY_KEY),
        message=member(members, "message", MESSAGE) or None,
        author=author_of(member(members, "author", AUTHOR), terms.by, catalog),
        part="owners" if operation in ("let_go", "give_back") else "content",
        fence=fence,
    )
    edit, sent = _edit(operation, members, large, terms, gateway.limits.patch)
    sent = replace(sent, size_bytes=line.size_bytes)
    return request_of(gateway, ask, (KeyEdit(key, edit),), sent)


def _fence(
    members: dict[str, Any], large: _Large, catalog: str, terms: LineTerms
) -> Fence | BeginNeeded | None:
    text = member(members, "fence", _FENCE)
    if "begin" in large:
        return _begun(members, large["begin"], catalog, terms)
    if text is None:
        return None
    fence = parse_fence(text)
    if "idempotency_key" not in members and not (fence and fence.open):
        refuse_member("/fence", "it needs an idempotency_key")
    return fence


def _begun(
    members: dict[str, Any], raw: bytes, catalog: str, terms: LineTerms
) -> Fence | BeginNeeded:
    if "fence" in members:
        refuse_member(BEGIN, "a line can't have both a begin and a fence")
    if member(members, "dry_run", SWITCH) or terms.dry_run:
        refuse_member(BEGIN, "a dry run can't begin a version")
    # Only the digest is kept: a begin may be as long as a line.
    place = (catalog, blake2b(raw, digest_size=16).digest())
    found = terms.begun.get(place)
    if isinstance(found, BeginRefused):
        raise BeginRefused(found.error)
    begun = found or BeginNeeded(read_begin(raw, catalog, terms.limits), place)
    is_open = begun.open if isinstance(begun, Fence) else begun.step.open
    if "idempotency_key" not in members and not is_open:
        refuse_member(BEGIN, "it needs an idempotency_key")
    return begun


def _members(raw: bytes, limits: RequestLimits) -> tuple[dict[str, Any], _Large]:
    """The line's members that are decoded now, and those that are decoded later."""
    members = {}
    large = {}
    for name, undecoded in _undecoded_members(raw, limits).items():
        value = bytes(undecoded)
        if name in _LARGE:
            large[name] = value
            continue
        try:
            long = len(value) > _LONG_BYTES
            members[name] = decode_value(value, limits, f"/{name}") if long else _decode(value)
        except ValueError as error:
            detail = f"'/{name}': {error}"
            raise RequestRefused("malformed_json", detail[:600], pointer=f"/{name}") from error
        if isinstance(members[name], (dict, list)):
            refuse_repeated(members[name], value, f"/{name}")
    return members, large


def _undecoded_members(raw: bytes, limits: RequestLimits) -> dict[str, msgspec.Raw]:
    try:
        members = _decode_members(raw)
        refuse_repeated(members, raw)
        return members
    except msgspec.ValidationError:
        refuse_member("", "a line must be an object")
    except (ValueError, RecursionError):
        # Decode it in the way that says what is wrong, and where.
        value = decode_value(raw, limits)
        if not isinstance(value, dict):
            refuse_member("", "a line must be an object")
        return {name: msgspec.Raw(encode(each)) for name, each in value.items()}


def _edit(
    operation: str, members: dict[str, Any], large: _Large, terms: LineTerms, patch_limits: Limits
) -> tuple[Edit, Sent]:
    """The line's edit, and the body that a request to the document's own route would have."""
    limits = terms.limits
    if operation == "put":
        value, size_bytes = decode_document(required(large, "value"), limits, "/value")
        attributes = None
        if "attributes" in large:
            member = decode_value(large["attributes"], limits, "/attributes")
            attributes = attributes_of({"attributes": member})
        return Put(value, size_bytes, attributes), Sent(value, media_types.JSON, 0, attributes)
    if operation == "merge":
        value = decode_value(required(large, "value"), limits, "/value")
        return Merge(value, len(encode(value))), Sent(value, media_types.MERGE_PATCH, 0)
    if operation == "patch":
        return _patch(required(large, "patch"), large.get("array_primary_keys"), patch_limits)
    if operation == "apply":
        wanted, size_bytes = decode_document(required(large, "value"), limits, "/value")
        require_wanted(wanted, "/value")
        apply_terms = apply_members(members, terms.by.name)
        sent = Sent(wanted, media_types.APPLY, 0, terms=apply_terms.as_json())
        return apply_terms.edit(wanted, size_bytes), sent
    if operation in ("let_go", "give_back"):
        lets_go = operation == "let_go"
        edit = let_go_members(members, terms.by.name) if lets_go else give_back_members(members)
        return edit, replace(NOTHING_SENT, terms=owning_terms(edit))
    return (Delete() if operation == "delete" else Touch()), NOTHING_SENT


def _patch(raw: bytes, keys: bytes | None, limits: Limits) -> tuple[ApplyPatch, Sent]:
    operations = decode_patch(raw, "/patch")
    if keys is None and not patching.extended.is_extended(operations):
        patch = patching.parse(operations, limits=limits)
        return ApplyPatch(patch), Sent(operations, media_types.JSON_PATCH, 0)
    with_keys = b"" if keys is None else b',"array_primary_keys":' + keys
    whole = decode_patch(b'{"patch":' + raw + with_keys + b"}", extended=True)
    extended = patching.parse_extended(whole, limits=limits)
    return ApplyPatch(extended), Sent(whole, media_types.EXTENDED_PATCH, 0)


def _key(
    members: dict[str, Any], operation: str, conditions: Preconditions, limits: RequestLimits
) -> str:
    if operation == "touch" and "key" not in members:
        if not conditions.are_about_ranges:
            refuse_member("/key", "it is missing; only conditions about ranges need no key")
        return SETTINGS_KEY
    return require_key(required_text(members, "key"), limits)


_log = logging.getLogger(__name__)


class LineAnswer(msgspec.Struct, frozen=True):
    """The answer to a line that was applied or unchanged; see ``write.answer.WriteAnswer``.

    ``status`` is 201 if the document was created, else 200.
    """

    index: int
    status: int
    etag: str | None
    revision: int | None
    create_revision: int | None
    catalog_revision: int
    commit_id: str | None
    changed: bool
    attempts: int
    rebased_from: str | msgspec.UnsetType = msgspec.UNSET
    replayed: bool | msgspec.UnsetType = msgspec.UNSET
    dry_run: bool | msgspec.UnsetType = msgspec.UNSET
    skipped: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    fence: str | msgspec.UnsetType = msgspec.UNSET


@interruptible
def written_line(
    index: int,
    request: Request,
    written: WriteOutcome,
    request_name: str,
    represented: Represented | None = None,
    *,
    with_fence: bool = False,
) -> bytes:
    """The answer to a line that was decided; a refusal shows the document if ``represented``."""
    try:
        result = result_of(written, request.key, dry_run=request.dry_run)
    except CommitError as error:
        # An application's key has no path to ask for the outcome: the client sends the line again.
        of_application = request.fence is not None and not request.fence.open
        own = None if of_application else request.idempotency
        key = own.key if own else None
        more = outcome_members(request.catalog, error, key)
        if represented is not None:
            more |= represented.members(request.catalog, request.key, error)
        return problem_line(index, untraced(error), request_name, **more)
    document, commit_id, skipped = result.document, None, result.skipped
    if result.commit is not None:
        commit_id = result.commit.id
    elif document is not None:
        commit_id = document.commit_id
    return _line(
        LineAnswer(
            index=index,
            status=201 if result.created else 200,
            etag=document.token if document else None,
            revision=document.revision if document else None,
            create_revision=document.create_revision if document else None,
            catalog_revision=result.catalog_revision,
            commit_id=commit_id,
            changed=result.changed,
            attempts=result.attempts,
            rebased_from=result.rebased_from or msgspec.UNSET,
            replayed=result.replayed or msgspec.UNSET,
            dry_run=request.dry_run or msgspec.UNSET,
            skipped=skipped_shape(skipped) if skipped else msgspec.UNSET,
            fence=request.fence.text if request.fence and with_fence else msgspec.UNSET,
        )
    )


def problem_line(index: int, error: Exception, request_name: str, **more: Any) -> bytes:
    """The answer to a line that was refused, with ``more`` members in its problem."""
    problem = problem_of(error)
    if problem is None:
        _log.error("line %s of request %s failed", index, request_name, exc_info=error)
        problem = Refusal("internal_error", "the gateway has a defect; it was logged")
    problem.members.update(more)
    content = problem_content(problem, request_name)
    line = {"index": index, "status": content["status"], "problem": content}
    if isinstance(error, RefusedBefore):
        line["replayed"] = True
    return _line(line)


def _line(content: Any) -> bytes:
    return encode(content) + b"\n"
