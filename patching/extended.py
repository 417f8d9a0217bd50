"""The extended patch as data: RFC 6902 operations, predicates, set operations and keyed arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from patching._indexed import require_tested_members
from patching._predicates import PREDICATES, Nesting, Predicate, is_number, parse_predicate
from patching.errors import DEFAULT_LIMITS, InvalidPatch, LimitExceeded, Limits
from patching.list_declarations import contradiction, parse_keyed
from patching.list_rules import NO_LISTS, Lists
from patching.operations import (
    PARSERS,
    Add,
    Copy,
    Move,
    Patch,
    Remove,
    Replace,
    Test,
    as_json,
    flag,
    nested,
    pointer_of,
    unknown_operation,
    value_of,
)
from patching.pointers import Tokens, join_pointer
from patching.values import Json, encoded_bytes, rfc3339, shown

_MEMBERS: Final = ("patch", "array_primary_keys")


class AddWithParents(Add, frozen=True, eq=False):
    """`add` with `create_parents`."""

    def to_json(self) -> dict[str, Json]:
        return {**super().to_json(), "create_parents": True}


class RemoveIfExists(Remove, frozen=True, eq=False):
    """`remove` with `if_exists`."""

    def to_json(self) -> dict[str, Json]:
        return {**super().to_json(), "if_exists": True}


class AddToSet(msgspec.Struct, frozen=True, eq=False):
    """Appends `value` to the array at `path` unless it contains an equal item. `growth_bytes` and
    `depth` are as in `Add`, for the item."""

    path: str
    tokens: Tokens
    value: Json
    create_parents: bool
    growth_bytes: int
    depth: int

    def to_json(self) -> dict[str, Json]:
        return {"op": "add_to_set", "path": self.path, "value": self.value, **_option(self)}


class Pull(msgspec.Struct, frozen=True, eq=False):
    """Removes the items that equal `value` from the array at `path`; there may be none."""

    path: str
    tokens: Tokens
    value: Json
    size_bytes: int

    def to_json(self) -> dict[str, Json]:
        return {"op": "pull", "path": self.path, "value": self.value}


class Increment(msgspec.Struct, frozen=True, eq=False):
    """Adds `value` to the number at `path`; with `create_parents` a missing one counts as 0."""

    path: str
    tokens: Tokens
    value: int | float
    create_parents: bool

    def to_json(self) -> dict[str, Json]:
        return {"op": "increment", "path": self.path, "value": self.value, **_option(self)}


class SetValue(Replace, frozen=True, eq=False):
    """Puts `value` at `path`, whether something is there or not. Sending it twice is harmless."""

    create_parents: bool = False

    def to_json(self) -> dict[str, Json]:
        return {"op": "set", "path": self.path, "value": self.value, **_option(self)}


class Watermark(msgspec.Struct, frozen=True, eq=False):
    """Raises the number at `path` to `value` if it is less (`op` "max"), or lowers it if it is more
    ("min"). With `create_parents` a missing one becomes `value`."""

    op: str
    path: str
    tokens: Tokens
    value: int | float
    create_parents: bool

    def to_json(self) -> dict[str, Json]:
        return {"op": self.op, "path": self.path, "value": self.value, **_option(self)}


class AppendText(msgspec.Struct, frozen=True, eq=False):
    """Appends `value` to the text at `path`; with `once`, unless the text contains it already. The
    text may become at most `max_length` characters long."""

    path: str
    tokens: Tokens
    value: str
    create_parents: bool
    once: bool
    max_length: int | None

    def to_json(self) -> dict[str, Json]:
        options: dict[str, Json] = {"once": True} if self.once else {}
        if self.max_length is not None:
            options["max_length"] = self.max_length
        return {
            "op": "append_text", "path": self.path, "value": self.value, **options, **_option(self)
        }  # fmt: skip


class StampCommit(msgspec.Struct, frozen=True, eq=False):
    """Writes the commit's `time`, `revision` or `author`, as `value` says, at `path`. It does so
    only if the patch changes something else, so that a patch sent twice stamps once."""

    path: str
    tokens: Tokens
    value: str
    create_parents: bool

    def to_json(self) -> dict[str, Json]:
        return {"op": "stamp", "path": self.path, "value": self.value, **_option(self)}


class CommitStamp(NamedTuple):
    """What a `stamp` can write about a commit. `time_us` is in microseconds since 1970; a stamp
    writes it as RFC 3339."""

    time_us: int
    revision: int
    author: str

    def of(self, what: str) -> Json:
        """The value that a `stamp` with this `value` writes."""
        return rfc3339(self.time_us) if what == "time" else getattr(self, what)


_STAMPS: Final = ("time", "revision", "author")


def _option(
    operation: AddToSet | Increment | SetValue | Watermark | AppendText | StampCommit,
) -> dict[str, Json]:
    return {"create_parents": True} if operation.create_parents else {}


Change: TypeAlias = (
    Add | AddWithParents | Remove | RemoveIfExists | Replace | Move | Copy
    | AddToSet | Pull | Increment | SetValue | Watermark | AppendText | StampCommit
)  # fmt: skip
ExtendedOperation: TypeAlias = Predicate | Change


class ExtendedPatch(msgspec.Struct, frozen=True, eq=False):
    """A well-formed extended patch: operations in the order they apply. Made by `parse_extended`
    and `parse_tests`. A `test` is stored as a predicate.

    It shares the values of the JSON it was parsed from; neither may be modified afterwards."""

    operations: tuple[ExtendedOperation, ...]
    keyed: Lists

    def __iter__(self) -> Iterator[ExtendedOperation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def under(self, lists: Lists) -> ExtendedPatch:
        """Returns the patch for a document with these `lists`, whose items its paths then name by
        key, too.

        Raises InvalidPatch if its own keys contradict them, and as `parse_extended` for addresses;
        also IndexNeedsTest."""
        for own in self.keyed.rules:
            for declared in lists.rules:
                detail = "" if own == declared else contradiction(declared, own)
                if detail:
                    raise InvalidPatch(
                        f"'array_primary_keys' contradicts the catalog's lists: {detail}",
                        pointer=join_pointer(own[0]),
                        member="array_primary_keys",
                    )
        keyed = lists.extended_by(self.keyed)
        for position, operation in enumerate(self.operations):
            _check_addresses(operation, keyed, position)
        require_tested_members(self.operations, lists)
        return ExtendedPatch(self.operations, keyed)

    def to_json(self) -> dict[str, Json]:
        """The patch as decoded JSON, without members that aren't defined. The values are the
        patch's own, not copies."""
        whole: dict[str, Json] = {"patch": [each.to_json() for each in self.operations]}
        if self.keyed:
            whole["array_primary_keys"] = self.keyed.primary_keys()
        return whole


def parse_extended(value: object, *, limits: Limits = DEFAULT_LIMITS) -> ExtendedPatch:
    """Parses `{"patch": [operations], "array_primary_keys": {pointer: [members]}}`, a decoded JSON
    value. `patch` is required; any other member is refused.

    Operations are predicates, those of RFC 6902 (errors as `parse`), and `add_to_set`, `pull`,
    `increment`, `set`, `max`, `min`, `append_text` and `stamp`, which take `create_parents` (except
    `pull`), as does `add`; `remove` takes `if_exists`. Only stamps may follow a `stamp`. Members
    that an operation doesn't define are ignored. `array_primary_keys` says which arrays have their
    items addressed by key, in `path` and `from` alike.

    Raises InvalidPatch with the operation's index, its pointer and the member at fault; also if an
    address and the value for it contradict each other. LimitExceeded as `parse`; predicates in
    `apply` count as operations."""
    if not isinstance(value, dict):
        raise InvalidPatch(f"an extended patch must be an object, not {shown(as_json(value))}")
    for member in value:
        if member not in _MEMBERS:
            raise InvalidPatch(
                f"unknown member {shown(member)}; known members: {', '.join(_MEMBERS)}",
                member=member,
            )
    if "patch" not in value:
        raise InvalidPatch("the member 'patch' is missing", member="patch")
    keyed = NO_LISTS
    if "array_primary_keys" in value:
        keyed = parse_keyed(value["array_primary_keys"], limits)
    return _parsed(value["patch"], keyed, limits, tests_only=False)


def parse_tests(value: object, *, limits: Limits = DEFAULT_LIMITS) -> ExtendedPatch:
    """Parses `value`, an array of `test` and predicates, as a patch that only tests: applied to any
    document, `ABSENT` included, it changes nothing or raises TestFailed.

    Errors as `parse_extended`; InvalidPatch, with the index, for any other operation."""
    return _parsed(value, NO_LISTS, limits, tests_only=True)


def is_conditional(patch: Patch | ExtendedPatch) -> bool:
    """Whether `patch` has a `test` or another predicate, so that a value can make it fail."""
    return any(isinstance(each, Test | Predicate) for each in patch.operations)


def says_what_was_read(patch: ExtendedPatch) -> bool:
    """Whether `patch` shows that its sender read the document: by a `test`, or by an `undefined` of
    a place that it writes. Other predicates can be true of a document that nobody read."""
    written = [each.tokens for each in patch if not isinstance(each, Predicate)]

    def says(predicate: Predicate) -> bool:
        if predicate.op == "and":
            return any(map(says, predicate.apply))
        if predicate.op == "undefined":
            at = predicate.tokens
            return any(tokens[: len(at)] == at for tokens in written)
        return predicate.op == "test"

    return any(isinstance(each, Predicate) and says(each) for each in patch)


def changes_only(patch: ExtendedPatch, at: Tokens) -> bool:
    """Whether `patch` changes nothing outside of the value at `at`."""
    changed = [each.tokens for each in patch if not isinstance(each, Predicate)]
    changed += [each.source_tokens for each in patch if isinstance(each, Move)]
    return all(tokens[: len(at)] == at for tokens in changed)


def is_extended(patch: object) -> bool:
    """Whether `patch`, decoded JSON, needs `parse_extended`: it is a list in which an operation
    isn't one of RFC 6902's, or has the option `create_parents` or `if_exists`. Malformed operations
    don't count: `parse` says what is wrong with them."""
    return isinstance(patch, list) and any(map(_is_extension, patch))


def _is_extension(operation: object) -> bool:
    if not isinstance(operation, dict):
        return False
    op = operation.get("op")
    if isinstance(op, str) and op not in PARSERS:
        return True
    return "create_parents" in operation or "if_exists" in operation


def _parsed(value: object, keyed: Lists, limits: Limits, *, tests_only: bool) -> ExtendedPatch:
    if not isinstance(value, list):
        raise InvalidPatch(
            f"a patch must be an array of operations, not {shown(as_json(value))}",
            member=None if tests_only else "patch",
        )
    if len(value) > limits.operations_max:  # before any is parsed
        raise LimitExceeded("operations_max", limits.operations_max, len(value))
    nesting = Nesting(limits, operations=len(value))
    known = tuple(PREDICATES) if tests_only else (*_PARSERS, *PREDICATES)
    operations: list[ExtendedOperation] = []
    for position, members in enumerate(value):
        if not isinstance(members, dict):
            raise InvalidPatch(
                f"an operation must be an object, not {shown(as_json(members))}", operation=position
            )
        op = members.get("op")
        if not isinstance(op, str) or op not in known:
            raise unknown_operation(members, position, known)
        operation = (
            parse_predicate(members, position, nesting)
            if op in PREDICATES
            else _PARSERS[op](members, position, limits)
        )
        if keyed:
            _check_addresses(operation, keyed, position)
        if operations and isinstance(operations[-1], StampCommit):
            _require_stamp(operation, position)
        operations.append(operation)
    return ExtendedPatch(tuple(operations), keyed)


def _require_stamp(operation: ExtendedOperation, position: int) -> None:
    if not isinstance(operation, StampCommit):
        raise InvalidPatch(
            "only another 'stamp' may follow a 'stamp'",
            operation=position,
            pointer=operation.path,
            member="op",
        )


def _check_addresses(operation: ExtendedOperation, keyed: Lists, position: int) -> None:
    """Refuses what is wrong in any document: composite keys that lack parts, and a value whose keys
    differ from those in its address."""
    member, pointer = "path", join_pointer(operation.tokens)
    try:
        for each in operation.apply if isinstance(operation, Predicate) else ():
            _check_addresses(each, keyed, position)
        keyed.check(operation.tokens)
        keys = keyed.keys_at(operation.tokens[:-1]) if operation.tokens else None
        if keys and isinstance(operation, Add | Replace):
            member = "value"
            keys.check(operation.value, operation.tokens[-1])
        if isinstance(operation, Move | Copy):
            member, pointer = "from", operation.source
            keyed.check(operation.source_tokens)
    except InvalidPatch as error:
        error.operation = position
        error.pointer = error.pointer or pointer
        error.member = error.member or member
        raise


def _add(members: dict[str, Any], position: int, limits: Limits) -> Add:
    add = PARSERS["add"](members, position, limits)
    assert isinstance(add, Add)
    if flag(members, "create_parents", position):
        return AddWithParents(add.path, add.tokens, add.value, add.growth_bytes, add.depth)
    return add


def _remove(members: dict[str, Any], position: int, limits: Limits) -> Remove:
    path, tokens = pointer_of(members, "path", position, limits)
    kind = RemoveIfExists if flag(members, "if_exists", position) else Remove
    return kind(path, tokens)


def _add_to_set(members: dict[str, Any], position: int, limits: Limits) -> AddToSet:
    path, tokens = pointer_of(members, "path", position, limits)
    value = value_of(members, position)
    levels = nested(value, path, (*tokens, "-"), position, limits)
    create = flag(members, "create_parents", position)
    return AddToSet(path, tokens, value, create, encoded_bytes(value) + 1, levels)


def _pull(members: dict[str, Any], position: int, limits: Limits) -> Pull:
    path, tokens = pointer_of(members, "path", position, limits)
    value = value_of(members, position)
    nested(value, path, (*tokens, "-"), position, limits)
    return Pull(path, tokens, value, encoded_bytes(value))


def _increment(members: dict[str, Any], position: int, limits: Limits) -> Increment:
    path, tokens = pointer_of(members, "path", position, limits)
    create = flag(members, "create_parents", position)
    value = members.get("value", 1)
    if not is_number(value):
        raise _malformed(members, "value", "a number", position)
    return Increment(path, tokens, value, create)


def _set(members: dict[str, Any], position: int, limits: Limits) -> SetValue:
    replace = PARSERS["replace"](members, position, limits)
    assert isinstance(replace, Replace)
    create = flag(members, "create_parents", position)
    return SetValue(
        replace.path, replace.tokens, replace.value, replace.growth_bytes, replace.depth, create
    )


def _watermark(members: dict[str, Any], position: int, limits: Limits) -> Watermark:
    path, tokens = pointer_of(members, "path", position, limits)
    create = flag(members, "create_parents", position)
    value = value_of(members, position)
    if not is_number(value):
        raise _malformed(members, "value", "a number", position)
    assert isinstance(value, int | float)
    return Watermark(members["op"], path, tokens, value, create)


def _append_text(members: dict[str, Any], position: int, limits: Limits) -> AppendText:
    path, tokens = pointer_of(members, "path", position, limits)
    create, once = (flag(members, name, position) for name in ("create_parents", "once"))
    value, longest = value_of(members, position), members.get("max_length")
    if not isinstance(value, str):
        raise _malformed(members, "value", "a string", position)
    if "max_length" in members and (type(longest) is not int or longest < 1):
        raise _malformed(members, "max_length", "a whole number of at least 1", position)
    return AppendText(path, tokens, value, create, once, longest)


def _stamp(members: dict[str, Any], position: int, limits: Limits) -> StampCommit:
    path, tokens = pointer_of(members, "path", position, limits)
    create = flag(members, "create_parents", position)
    value = value_of(members, position)
    if not isinstance(value, str) or value not in _STAMPS:
        raise _malformed(members, "value", f"one of {', '.join(_STAMPS)}", position)
    return StampCommit(path, tokens, value, create)


def _malformed(members: dict[str, Any], name: str, wanted: str, position: int) -> InvalidPatch:
    op, given = members["op"], shown(as_json(members[name]))
    return InvalidPatch(
        f"the member '{name}' of '{op}' must be {wanted}, not {given}",
        operation=position,
        pointer=members["path"],
        member=name,
    )


_PARSERS: Final[dict[str, Callable[[dict[str, Any], int, Limits], Change]]] = {
    "add": _add,
    "remove": _remove,
    "replace": PARSERS["replace"],  # type: ignore[dict-item]  # never a Test
    "move": PARSERS["move"],  # type: ignore[dict-item]
    "copy": PARSERS["copy"],  # type: ignore[dict-item]
    "add_to_set": _add_to_set,
    "pull": _pull,
    "increment": _increment,
    "set": _set,
    "max": _watermark,
    "min": _watermark,
    "append_text": _append_text,
    "stamp": _stamp,
}

EXTENDED_OPERATIONS: Final = frozenset((*_PARSERS, *PREDICATES)) - frozenset(PARSERS)
"""The names of operations that `parse_extended` takes and `parse` doesn't."""
