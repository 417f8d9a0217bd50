"""The compares of a transaction: its conditions, and for each false one the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import patching
from gateway.conflict import FailedCompare
from gateway.errors import OverLimit
from gateway.model import Document, living
from patching import ABSENT, ExtendedPatch, Json, LimitExceeded, PatchError

Look = Callable[[str], Document | None]


@dataclass(frozen=True, slots=True)
class TokenIs:
    """The document's version token is ``token``."""

    key: str
    token: str


@dataclass(frozen=True, slots=True)
class IsAbsent:
    key: str


@dataclass(frozen=True, slots=True)
class Equals:
    """The document's content equals ``value``, as JSON: member order is irrelevant."""

    key: str
    value: Json


@dataclass(frozen=True, slots=True)
class Satisfies:
    """The document passes ``tests``: RFC 6902 tests and predicates, nothing else."""

    key: str
    tests: ExtendedPatch


@dataclass(frozen=True, slots=True)
class RevisionIs:
    """The catalog is at ``revision``."""

    revision: int


# Bytes of documents that the tests of one request may read. Each compare counts its document.
_TESTED_BYTES_MAX = 128 * 1024 * 1024
# One array item takes as long to examine as so many bytes of a document take to read.
ITEM_BYTES = 20


@dataclass(frozen=True, slots=True)
class CompareLimits:
    """``spend`` is called with the work of the tests beside reading documents, in their bytes."""

    patch: patching.Limits
    spend: Callable[[int], None]


Compare = TokenIs | IsAbsent | Equals | Satisfies | RevisionIs


def compared_keys(compares: Iterable[Compare]) -> frozenset[str]:
    return frozenset(each.key for each in compares if not isinstance(each, RevisionIs))


def is_about_content(compare: Compare) -> bool:
    """Whether the compare is about a document's content or existence, not about a revision."""
    return isinstance(compare, IsAbsent | Equals | Satisfies)


def failed_compares(
    compares: Sequence[Compare],
    look: Look,
    revision: int,
    limits: CompareLimits,
) -> list[FailedCompare]:
    """The false compares, in order; ``revision`` is the catalog's.

    ``look`` returns a key's document. Raises OverLimit where the tests are too much work.
    """
    failed = []
    tested_bytes = 0

    def examined(items: int) -> None:
        nonlocal tested_bytes
        tested_bytes += items * ITEM_BYTES
        limits.spend(items * ITEM_BYTES)

    for index, compare in enumerate(compares):
        if isinstance(compare, RevisionIs):
            if compare.revision != revision:
                reason = f"the catalog is at revision {revision}, not {compare.revision}"
                failed.append(FailedCompare(index, None, reason, None))
            continue
        document = look(compare.key)
        live = living(document)
        if isinstance(compare, Satisfies) and live is not None:
            tested_bytes += live.size_bytes
            if tested_bytes > _TESTED_BYTES_MAX:
                raise _too_much(tested_bytes)
        reason = _why_false(compare, live, limits.patch, examined)
        if reason:
            failed.append(FailedCompare(index, compare.key, reason, live))
    return failed


def _why_false(
    compare: TokenIs | IsAbsent | Equals | Satisfies,
    live: Document | None,
    limits: patching.Limits,
    examined: Callable[[int], None],
) -> str:
    """The reason, as text; empty where the compare is true."""
    match compare:
        case IsAbsent():
            return "there is such a document" if live else ""
        case Satisfies():
            return _why_unsatisfied(compare.tests, live, limits, examined)
        case _ if live is None:
            return "there is no such document"
        case TokenIs():
            return "" if live.token == compare.token else f"its token is {live.token}"
        case Equals():
            assert live.content is not ABSENT
            return "" if patching.equal(live.content, compare.value) else "it holds another value"


def _why_unsatisfied(
    tests: ExtendedPatch,
    live: Document | None,
    limits: patching.Limits,
    examined: Callable[[int], None],
) -> str:
    content = live.content if live else ABSENT
    size_bytes = live.size_bytes if live else 0
    try:
        done = patching.apply_extended(content, tests, limits=limits, document_bytes=size_bytes)
        examined(done.examined)
    except LimitExceeded as error:
        examined(error.examined)
        # A test that was broken off is neither true nor false.
        raise OverLimit(
            error.detail, limit=error.limit, maximum=error.maximum, actual=error.actual
        ) from error
    except PatchError as error:
        examined(error.examined)
        return str(error)
    return ""


def _too_much(actual: int) -> OverLimit:
    return OverLimit(
        f"the tests would look through {actual} bytes of documents, more than the"
        f" {_TESTED_BYTES_MAX} that one transaction may",
        limit="tested_bytes_max",
        maximum=_TESTED_BYTES_MAX,
        actual=actual,
    )
