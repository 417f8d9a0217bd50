"""Equality of JSON values."""

from __future__ import annotations

from typing import Any

from ._json import ABSENT, Document


def equal(a: Document, b: Document) -> bool:
    """Whether `a` and `b` are the same JSON value (RFC 6902 section 4.6).

    Numbers by value, exactly (1 is 1.0; 2**53 + 1 is not 2.0**53); true is not 1; the order of
    members is irrelevant; `ABSENT` equals only itself. Iterative, so no value is too deep, and
    subtrees that are one object cost nothing: comparing a document with what a patch made of it
    costs what the patch touched."""
    if a is b:
        return True
    pending: list[tuple[Any, Any]] = []
    if not _alike(a, b, pending):
        return False
    while pending:
        left, right = pending.pop()
        if isinstance(left, dict):
            for name, child in left.items():
                other = right.get(name, ABSENT)
                if child is not other and not _alike(child, other, pending):
                    return False
        else:
            for child, other in zip(left, right, strict=True):
                if child is not other and not _alike(child, other, pending):
                    return False
    return True


def _alike(a: Document, b: Document, pending: list[tuple[Any, Any]]) -> bool:
    """Whether two values may be equal; containers of one kind and size are left to `pending`."""
    if isinstance(a, dict):
        if not isinstance(b, dict) or len(a) != len(b):
            return False
    elif isinstance(a, list):
        if not isinstance(b, list) or len(a) != len(b):
            return False
    elif isinstance(a, bool) or isinstance(b, bool):
        return a is b  # Python takes True for 1
    else:
        return a == b
    pending.append((a, b))
    return True
