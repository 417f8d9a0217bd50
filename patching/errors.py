"""The errors of the patch language, and the limits of what one patch may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from patching.values import Document, shown

_POINTER_SHOWN_MAX = 200


class PatchError(Exception):
    """A patch that is malformed, doesn't fit the document, or goes over a limit.

    ::

        PatchError
        ├── InvalidPatch        invalid_patch, unknown_operation, invalid_pointer
        ├── IndexNeedsTest      index_needs_test
        ├── PatchConflict       well formed, but the document is not in the state it needs;
        │   │                   patch_conflict if it is none of these:
        │   ├── TestFailed      test_failed
        │   ├── PathMissing     path_missing
        │   ├── DocumentAbsent  document_absent
        │   ├── OwnedByOthers   owned_by_others
        │   └── ListViolation   list_violation
        └── LimitExceeded       limit_exceeded

    `code` is stable and meant for programs, `detail` for people. `operation` is the index of the
    operation in the patch and `pointer` the JSON Pointer concerned; None if there is none. `detail`
    and `str()` show at most about 200 characters of any value. Errors can be pickled. `examined` is
    how many array items an extended patch had examined by then.
    """

    code: str = "patch_error"
    examined: int = 0

    def __init__(
        self, detail: str, *, operation: int | None = None, pointer: str | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.operation = operation
        self.pointer = pointer

    def __str__(self) -> str:
        place = "" if self.operation is None else f"operation {self.operation}"
        if self.pointer is not None:
            pointer = self.pointer
            if len(pointer) > _POINTER_SHOWN_MAX:
                pointer = pointer[:_POINTER_SHOWN_MAX] + "…"
            place = f"{place} at '{pointer}'" if place else f"'{pointer}'"
        return f"{place}: {self.detail}" if place else self.detail

    def __reduce__(self) -> tuple[Any, ...]:
        # the default would call the class with `args` alone, which lack the keyword arguments
        return (_rebuilt, (type(self), self.args, self.__dict__))


def _rebuilt(cls: type[PatchError], args: tuple[Any, ...], fields: dict[str, Any]) -> PatchError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error


class InvalidPatch(PatchError):
    """The patch is malformed, whatever the document. `member` names the member at fault, if any."""

    code = "invalid_patch"

    def __init__(
        self,
        detail: str,
        *,
        code: str = "invalid_patch",
        operation: int | None = None,
        pointer: str | None = None,
        member: str | None = None,
    ) -> None:
        super().__init__(detail, operation=operation, pointer=pointer)
        self.code = code
        self.member = member


class IndexNeedsTest(PatchError):
    """An operation addresses an item of a list (see `Lists`) by index, and nothing in the patch
    says which item that is. A `test` of each of the pointers `tests`, before it, would."""

    code = "index_needs_test"

    def __init__(self, detail: str, *, operation: int, pointer: str, tests: Sequence[str]) -> None:
        super().__init__(detail, operation=operation, pointer=pointer)
        self.tests = tuple(tests)


class PatchConflict(PatchError):
    """The patch doesn't fit the document as it is; it may fit another state."""

    code = "patch_conflict"


class TestFailed(PatchConflict):
    """A `test` expected the value `expected` and found `actual`: `ABSENT` if the location doesn't
    exist. Both are the values themselves, of any size. For any other predicate, `expected` is the
    predicate as JSON without its path: {"op": "less", "value": 5}."""

    __test__: Final = False  # no test class, whatever pytest thinks of the name
    code = "test_failed"

    def __init__(self, expected: Document, actual: Document, *, operation: int, pointer: str):
        super().__init__(
            f"expected {shown(expected)}, found {shown(actual)}",
            operation=operation,
            pointer=pointer,
        )
        self.expected = expected
        self.actual = actual


class PathMissing(PatchConflict):
    """A location that the operation needs doesn't exist in the document."""

    code = "path_missing"


class DocumentAbsent(PatchConflict):
    """There is no document, and the operation doesn't make one, as `add` at "" does."""

    code = "document_absent"


class ListViolation(PatchConflict):
    """A list (see `Lists`) has two items with one key, or an item without a key.

    `pointer` is that of the later item, or of the one without a key; `other` that of the earlier
    item, or of the missing key member."""

    code = "list_violation"

    def __init__(
        self, detail: str, *, operation: int | None = None, pointer: str, other: str
    ) -> None:
        super().__init__(detail, operation=operation, pointer=pointer)
        self.other = other


class LimitExceeded(PatchError):
    """The patch or its result is too large. `limit` is the field of `Limits`, `maximum` its value,
    `actual` what was needed (a lower bound if counting further would have cost too much)."""

    code = "limit_exceeded"

    def __init__(
        self,
        limit: str,
        maximum: int,
        actual: int,
        *,
        operation: int | None = None,
        pointer: str | None = None,
    ) -> None:
        super().__init__(
            f"{limit} is {maximum}, but this needs {actual}", operation=operation, pointer=pointer
        )
        self.limit = limit
        self.maximum = maximum
        self.actual = actual


_DEPTH_MAX = 300  # `diff` takes two frames per level, and the interpreter's default allows 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one patch. Sizes are in bytes of compact UTF-8 JSON.

    A document's size as JSON doesn't bound its size in another encoding: a store checks its own.
    Raises ValueError if a bound is negative, or `depth_max` over 300.
    """

    operations_max: int = 1000
    """Operations in one patch; checked by `parse`."""

    copy_growth_bytes_max: int = 1_048_576
    """The size of all that `copy` copies (CVE-2019-1002100: doubling by repeated copies)."""

    depth_max: int = 100
    """The nesting of containers, counted from the root, of what a patch inserts."""

    result_bytes_max: int = 4_194_304
    """The size of the whole document after the patch."""

    items_examined_max: int = 2_000_000
    """Array items that the predicates, set operations and keyed addresses of an extended patch
    examine, all together, at about 100 ns each. Comparing with a large value and searching a long
    text count as several."""

    owned_leaves_max: int = 10_000
    """Leaves of one document that have owners."""

    owners_bytes_max: int = 1_048_576
    """The size of the owners of one document after an apply."""

    managers_max: int = 100
    """Managers that own anything in one document."""

    owners_max: int = 200_000
    """Owners of all leaves of one document, summed over the leaves."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(f"{field.name} is negative")
        if self.depth_max > _DEPTH_MAX:
            raise ValueError(f"depth_max is over {_DEPTH_MAX}")


DEFAULT_LIMITS = Limits()
