"""A simulated client's wish as a request to the gateway, as its HTTP layer would make one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

import patching
import patching.extended
from gateway.access import ANONYMOUS
from gateway.decide import compares as values
from gateway.decide.conditions import ANY_TAG, NO_CONDITIONS, CatalogTag, Composite, Preconditions
from gateway.decide.conditions import Tag as GatewayTag
from gateway.decide.edits import (
    ApplyPatch,
    ContentEdit,
    Delete,
    Edit,
    EditAttributes,
    Get,
    KeyEdit,
    Merge,
    MoveKey,
    Put,
    Touch,
)
from gateway.decide.owning import ApplyWanted, GiveBack, LetGo
from gateway.decide.ranges import (
    RangeAbsent,
    RangeCount,
    RangeDeletion,
    RangeReplacement,
    RangeUnchanged,
)
from gateway.decide.request import Request
from gateway.decide.reverting import Forced
from gateway.model import Idempotency
from gateway.read.reverts import RevertTerms
from gateway.service import GatewayService

from .asks import Action, Ask, Compare, Tag, Undone, Wanted

PRINCIPAL = "p"
_DOCUMENTS_MAX = 100

_encode = msgspec.json.Encoder(enc_hook=str).encode  # of names, too


def request_of(
    gateway: GatewayService, ask: Ask, edits: Sequence[KeyEdit] | None = None
) -> Request:
    """``edits``: those of a revert, which aren't the client's."""
    idempotency = None
    if ask.idempotency_key is not None:
        idempotency = Idempotency(PRINCIPAL, ask.idempotency_key, ask.fingerprint)
    edits = _edits(ask.actions) if edits is None else edits
    return gateway.request(
        ask.catalog,
        edits,
        wait_s=ask.wait_s,
        conditions=_conditions(ask),
        resource_version=ask.resource_version,
        compare=tuple(map(_compare, ask.compare)),
        otherwise=None if ask.otherwise is None else _edits(ask.otherwise),
        rebase=ask.rebase,
        by=ANONYMOUS,
        size_bytes=sum(_size(action.value) for action in ask.actions),
        author=ask.label,
        message=ask.label,
        idempotency=idempotency,
        once=True,
        dry_run=ask.dry_run,
    )


def reverting(gateway: GatewayService, ask: Ask, undone: Undone) -> list[KeyEdit]:
    """What a revert comes to; raises what ``Reverts`` does."""
    forced = {
        key: Forced(*(_pointers(undone, key, of_attributes) for of_attributes in (False, True)))
        for key in {each.key: None for each in undone.forced}
    }
    terms = RevertTerms(
        ask.catalog, undone.prefix, undone.conflict, _DOCUMENTS_MAX, None, forced=forced
    )
    if undone.revisions:
        return gateway.reverts.of_revisions(undone.revisions, terms)
    return gateway.reverts.to_revision(undone.to, undone.since, terms)


def _pointers(undone: Undone, key: str, of_attributes: bool) -> tuple[str, ...]:
    places = ((each.key, each.of_attributes, each.pointer) for each in undone.forced)
    return tuple(pointer for *of, pointer in places if of == [key, of_attributes])


def _conditions(ask: Ask) -> Preconditions:
    if ask.if_match is None and not ask.create_only:
        return NO_CONDITIONS
    return Preconditions(
        if_match=None if ask.if_match is None else frozenset(map(_tag, ask.if_match)),
        if_none_match=ANY_TAG if ask.create_only else None,
    )


def _tag(tag: Tag) -> GatewayTag:
    if isinstance(tag, int):
        return CatalogTag(tag)
    return Composite(tag) if isinstance(tag, tuple) else tag


def _compare(compare: Compare) -> values.Compare:
    key, value = compare.key, compare.value
    match compare.what:
        case "token":
            return values.TokenIs(key, value)
        case "absent":
            return values.IsAbsent(key)
        case "equals":
            return values.Equals(key, value)
        case "tests":
            return values.Satisfies(key, patching.extended.parse_tests(value))
        case "revision":
            return values.RevisionIs(value)
        case "unchanged":
            return values.IsUnchanged(key, value)
        case "range-unchanged":
            return RangeUnchanged(key, value)
        case "range-absent":
            return RangeAbsent(key)
        case "range-count":
            return RangeCount(key, *value)


def _edits(actions: Sequence[Action]) -> tuple[KeyEdit, ...]:
    return tuple(
        KeyEdit(action.key, _edit(action), tuple(map(_compare, action.when))) for action in actions
    )


def _edit(action: Action) -> Edit:
    match action.deed:
        case "move":
            return MoveKey(action.value)
        case "touch":
            return Touch()
        case "get":
            return Get()
        case "delete-range":
            return RangeDeletion(action.value)
        case "replace-range":
            prefix, documents = action.value
            put = tuple((key, value, _size(value)) for key, value in documents.items())
            return RangeReplacement(prefix, put)
        case "apply":
            sent: Wanted = action.value
            size_bytes = _size(sent.content)
            return ApplyWanted(sent.content, size_bytes, sent.manager, sent.conflict, sent.force)
        case "let-go":
            return LetGo(*action.value)
        case "give-back":
            return GiveBack(tuple(map(patching.join_pointer, action.value)))
    part, dash, deed = action.deed.partition("-")
    edit = _content_edit(deed or part, action)
    return EditAttributes(edit) if dash else edit


def _content_edit(deed: str, action: Action) -> ContentEdit:
    value = action.value
    if deed == "put":
        return Put(value, _size(value), action.attributes)
    if deed == "merge":
        return Merge(value, _size(value))
    if deed == "delete":
        return Delete()
    if deed == "edit":
        return ApplyPatch(patching.parse_extended({"patch": value}))
    return ApplyPatch(patching.parse(value))


def _size(value: object) -> int:
    return len(_encode(value))
