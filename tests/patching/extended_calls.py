"""Short ways to apply extended patches; what is applied is always checked against its record."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from patching import (
    ABSENT,
    DEFAULT_LIMITS,
    Extended,
    PatchError,
    apply,
    apply_extended,
    parse_extended,
)
from patching.extended import CommitStamp

COMMIT = CommitStamp(1_764_064_800_000_000, 7, "ada")


def size(document: Any) -> int:
    if document is ABSENT:
        return 0
    return len(msgspec.json.encode(document))


def extended(operations: list[Any], keyed: Any = None, limits: Any = DEFAULT_LIMITS) -> Any:
    whole = {"patch": operations}
    if keyed is not None:
        whole["array_primary_keys"] = keyed
    return parse_extended(whole, limits=limits)


def run(
    document: Any, *operations: Any, keyed: Any = None, limits: Any = DEFAULT_LIMITS
) -> Extended:
    """Applies the operations; holds document and patch to be untouched, and the effective patch to
    be plain and to make the same content."""
    before = copy.deepcopy((document, operations))
    patch = extended(list(operations), keyed, limits)
    try:
        result = apply_extended(
            document, patch, limits=limits, document_bytes=size(document), commit=COMMIT
        )
    finally:
        assert repr((document, operations)) == repr(before)
    again = apply(document, result.effective, limits=limits)
    assert repr(again) == repr(result.content)
    assert all(set(each) <= {"op", "path", "from", "value"} for each in result.effective)
    assert all(each["op"] != "test" for each in result.effective)
    assert size(result.content) <= result.size_bytes
    if not result.effective:
        assert result.content is document
    return result


def content(document: Any, *operations: Any, keyed: Any = None) -> Any:
    return run(document, *operations, keyed=keyed).content


def effective(document: Any, *operations: Any, keyed: Any = None) -> list[dict[str, Any]]:
    return run(document, *operations, keyed=keyed).effective


def refused(error: type[PatchError], document: Any, *operations: Any, **options: Any) -> Any:
    with pytest.raises(error) as caught:
        run(document, *operations, **options)
    return caught.value
