"""Applying a patch to a document (RFC 6902), copying only the containers on the paths it touches.

Worked example. The document D is {"a": {"x": 1}, "b": {...}}; the patch replaces /a/x and adds
/a/y. The first operation copies D and D["a"], one level each, and sets x in the new "a". The second
finds that both copies are *private* to this run, and sets y in place. The result shares "b" with D,
and D is as it was, even if a third operation fails.

A container is private if this run made it and only one place refers to it. So a value that a patch
inserts isn't private (the patch still holds it), and one that `copy` copies no longer is. A private
container lies in private containers only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from patching._indexed import PinnedItems
from patching.errors import (
    DEFAULT_LIMITS,
    DocumentAbsent,
    LimitExceeded,
    Limits,
    PathMissing,
    TestFailed,
)
from patching.list_rules import NO_LISTS, Lists
from patching.operations import (
    Add,
    Copy,
    Move,
    Operation,
    Operations,
    Patch,
    Remove,
    Replace,
    Test,
    parse,
)
from patching.pointers import Tokens, find, index_of, why_missing
from patching.values import ABSENT, Container, Document, Json, depth, encoded_bytes, equal


def apply(
    document: Document, patch: Patch | Operations, *, limits: Limits = DEFAULT_LIMITS
) -> Document:
    """Returns the document that `patch` makes of `document`: all of the patch is applied, or none.

    `document` and `patch` are never modified; the result shares with them what it didn't change, so
    treat all three as immutable. `ABSENT` stands for no document: `add` at "" makes one, `remove`
    at "" leaves none.

    This function doesn't know how large `document` was, so it measures the result whenever the
    patch may have made it grow (`Patch.growth_bytes`, or a copy): about 1 µs per KB. A patch that
    doesn't make the document larger is never refused for its size. To apply many patches to a large
    document, use `apply_within`, which hardly ever measures.

    Raises TestFailed (also if the tested location doesn't exist), PathMissing, DocumentAbsent;
    LimitExceeded for `depth_max`, `copy_growth_bytes_max` and `result_bytes_max`; and the errors of
    `parse` if `patch` isn't a `Patch` yet."""
    # a document of unknown size counts as full: anything that can grow it is measured
    return apply_within(document, patch, limits=limits, document_bytes=limits.result_bytes_max)[0]


def apply_within(
    document: Document,
    patch: Patch | Operations,
    *,
    limits: Limits = DEFAULT_LIMITS,
    document_bytes: int,
    lists: Lists = NO_LISTS,
) -> tuple[Document, int]:
    """Like `apply`, for a document that has at most `document_bytes` bytes as compact JSON. Returns
    the result and an upper bound of its size in bytes, for the next call.

    The bound grows by the most that each patch can add. The result is measured, and the bound made
    exact, only when the bound would pass `result_bytes_max`. Removals don't lower the bound.

    Also raises IndexNeedsTest if the patch addresses an item of `lists` by index without having
    tested which item it is."""
    if not isinstance(patch, Patch):
        patch = parse(patch, limits=limits)
    application = PatchRun(document, limits, document_bytes)
    if patch.depth > limits.depth_max:  # parsed under laxer limits
        application.refuse_depth(patch)
    pinned = None if lists is NO_LISTS else PinnedItems(lists)
    for operation in patch.operations:
        if pinned:
            pinned.require(application.root, operation, application.position + 1)
        application.perform(operation)
        if pinned:
            pinned.performed(application.root, operation)
    bound = application.checked_bytes(document)
    return application.root, bound


class PatchRun:
    """One run of a patch. `root` is the document as the operations so far have left it."""

    __slots__ = ("bytes_bound", "copied_bytes", "deepened", "limits", "owned", "position", "root")

    def __init__(self, document: Document, limits: Limits, document_bytes: int) -> None:
        self.root: Document = document
        self.limits = limits
        self.bytes_bound = document_bytes
        self.copied_bytes = 0
        self.position = -1
        # by id; the references keep the ids from being used again
        self.owned: dict[int, Container] = {}
        # the moves that may have nested a container deeper than it was, as (position, path)
        self.deepened: list[tuple[int, str]] = []

    def perform(self, operation: Operation) -> None:
        """Applies the next operation. Don't use this object after an error."""
        self.position += 1
        self.bytes_bound += operation.growth_bytes
        if self.root is ABSENT and not (isinstance(operation, Add) and not operation.tokens):
            raise DocumentAbsent(
                "there is no document; only 'add' at \"\" creates one",
                operation=self.position,
                pointer=operation.path,
            )
        _PERFORM[type(operation)](self, operation)

    def checked_bytes(self, document: Document) -> int:
        """Checks the limits that only the whole result shows; returns an upper bound of its size in
        bytes. `document` is the one before the patch.

        `add`, `replace` and `copy` check depth as they happen. A `move` is cheap, but walking the
        value that it moved isn't, so the depth of all moves is checked once, here."""
        limits = self.limits
        root = self.root
        if root is ABSENT:
            return 0
        if self.deepened:
            nested = depth(root)
            if nested > limits.depth_max:
                alone = len(self.deepened) == 1
                position, path = self.deepened[0] if alone else (None, None)
                raise LimitExceeded(
                    "depth_max", limits.depth_max, nested, operation=position, pointer=path
                )
        if self.bytes_bound > limits.result_bytes_max:
            self.bytes_bound = encoded_bytes(root)
            if self.bytes_bound > limits.result_bytes_max and (
                document is ABSENT or self.bytes_bound > encoded_bytes(document)
            ):
                raise LimitExceeded("result_bytes_max", limits.result_bytes_max, self.bytes_bound)
        return self.bytes_bound

    def missing(self, tokens: Tokens, path: str) -> PathMissing:
        assert self.root is not ABSENT
        return PathMissing(why_missing(self.root, tokens), operation=self.position, pointer=path)

    def holder(self, tokens: Tokens, path: str) -> Container:
        """Returns the container that holds, or would hold, the location `tokens` (not the root),
        and makes it private. Raises PathMissing if there is no container."""
        owned = self.owned
        node: Any = self.root
        if id(node) not in owned:
            if not isinstance(node, (dict, list)):
                raise self.missing(tokens, path)
            self.root = node = node.copy()
            owned[id(node)] = node
        for token in tokens[:-1]:
            key: Any = token
            if isinstance(node, list):
                key = index_of(token, len(node))
                child = node[key] if key >= 0 else ABSENT
            else:
                child = node.get(key, ABSENT)
            if id(child) not in owned:
                if not isinstance(child, (dict, list)):
                    raise self.missing(tokens, path)
                child = child.copy()
                owned[id(child)] = child
                node[key] = child
            node = child
        container: Container = node
        return container

    def insert(self, tokens: Tokens, path: str, value: Json) -> None:
        """Adds `value` at `tokens` (section 4.1)."""
        if not tokens:
            self.root = value
            return
        holder = self.holder(tokens, path)
        token = tokens[-1]
        if isinstance(holder, dict):
            holder[token] = value
        elif token == "-":
            holder.append(value)
        else:
            index = index_of(token, len(holder) + 1)
            if index < 0:
                raise self.missing(tokens, path)
            holder.insert(index, value)

    def take(self, tokens: Tokens, path: str) -> Json:
        """Removes what is at `tokens` and returns it. An emptied root is `ABSENT`."""
        if not tokens:
            taken: Any = self.root
            self.root = ABSENT
            return taken  # type: ignore[no-any-return]
        holder = self.holder(tokens, path)
        token = tokens[-1]
        if isinstance(holder, dict):
            taken = holder.pop(token, ABSENT)
            if taken is ABSENT:
                raise self.missing(tokens, path)
        else:
            index = index_of(token, len(holder))
            if index < 0:
                raise self.missing(tokens, path)
            taken = holder.pop(index)
        return taken  # type: ignore[no-any-return]

    def place_moved(self, value: Json, operation: Move) -> None:
        """Adds `value`, just taken from the source of `operation`, at its target."""
        tokens = operation.tokens
        self.insert(tokens, operation.path, value)
        if len(tokens) > len(operation.source_tokens) and isinstance(value, dict | list):
            self.deepened.append((self.position, operation.path))

    def disown(self, value: Json) -> None:
        """Makes `value` and all in it no longer private: a second place is about to hold them."""
        pending: list[Any] = [value]
        owned = self.owned
        while pending and owned:
            container = pending.pop()
            if owned.pop(id(container), None) is not None:
                pending.extend(container.values() if isinstance(container, dict) else container)

    def measure_copy(self, value: Json, operation: Copy) -> None:
        """Adds the size of `value` to the copy growth, and checks how deep the copy will lie."""
        limits = self.limits
        try:
            size = encoded_bytes(value)
        except RecursionError:  # nested by moves, whose depth is checked only at the end
            self.check_depth(depth(value), operation)
            raise
        self.copied_bytes += size
        if self.copied_bytes > limits.copy_growth_bytes_max:
            raise LimitExceeded(
                "copy_growth_bytes_max",
                limits.copy_growth_bytes_max,
                self.copied_bytes,
                operation=self.position,
                pointer=operation.source,
            )
        self.bytes_bound = self.bytes_bound + size if operation.tokens else size
        if len(operation.tokens) > len(operation.source_tokens):
            self.check_depth(len(operation.tokens) + depth(value), operation)

    def refuse_depth(self, patch: Patch) -> None:
        for self.position, operation in enumerate(patch.operations):
            self.check_depth(operation.depth, operation)

    def check_depth(self, nested: int, operation: Operation) -> None:
        if nested > self.limits.depth_max:
            raise LimitExceeded(
                "depth_max",
                self.limits.depth_max,
                nested,
                operation=self.position,
                pointer=operation.path,
            )


def _add(application: PatchRun, operation: Add) -> None:
    application.insert(operation.tokens, operation.path, operation.value)
    if not operation.tokens:
        application.bytes_bound = operation.growth_bytes


def _remove(application: PatchRun, operation: Remove) -> None:
    application.take(operation.tokens, operation.path)


def _replace(application: PatchRun, operation: Replace) -> None:
    tokens = operation.tokens
    if not tokens:
        application.root = operation.value
        application.bytes_bound = operation.growth_bytes
        return
    holder = application.holder(tokens, operation.path)
    token = tokens[-1]
    if isinstance(holder, dict):
        if token not in holder:
            raise application.missing(tokens, operation.path)
        holder[token] = operation.value
    else:
        index = index_of(token, len(holder))
        if index < 0:
            raise application.missing(tokens, operation.path)
        holder[index] = operation.value


def _move(application: PatchRun, operation: Move) -> None:
    source, tokens = operation.source_tokens, operation.tokens
    if source == tokens:  # changes nothing, but the source must exist
        if find(application.root, source) is ABSENT:
            raise application.missing(source, operation.source)
        return
    value = application.take(source, operation.source)
    application.place_moved(value, operation)


def _copy(application: PatchRun, operation: Copy) -> None:
    value = find(application.root, operation.source_tokens)
    if value is ABSENT:
        raise application.missing(operation.source_tokens, operation.source)
    application.measure_copy(value, operation)
    application.disown(value)
    application.insert(operation.tokens, operation.path, value)


def _test(application: PatchRun, operation: Test) -> None:
    actual = find(application.root, operation.tokens)
    if not equal(actual, operation.value):
        raise TestFailed(
            operation.value, actual, operation=application.position, pointer=operation.path
        )


_PERFORM: Final[dict[type, Callable[[PatchRun, Any], None]]] = {
    Add: _add,
    Remove: _remove,
    Replace: _replace,
    Move: _move,
    Copy: _copy,
    Test: _test,
}
