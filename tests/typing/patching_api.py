"""Never run: mypy checks that the public API of `patching` types as its users expect."""

from __future__ import annotations

from typing import assert_type

from patching import (
    ABSENT,
    DEFAULT_LIMITS,
    NO_LISTS,
    Document,
    Extended,
    ExtendedPatch,
    Json,
    LimitExceeded,
    Limits,
    Lists,
    Patch,
    PatchError,
    TestFailed,
    apply,
    apply_extended,
    apply_within,
    diff,
    equal,
    join_pointer,
    merge,
    parse,
    parse_extended,
    parse_lists,
    split_pointer,
)
from patching.extended import is_conditional, parse_tests
from patching.footprints import Footprint, footprint, overlap
from patching.list_rules import ListRule
from patching.owners import OwnersChange, OwnerTree, change_between
from patching.ownership import ApplyResult, Contested, apply_wanted, taken_over

counts: dict[str, int] = {"a": 1}  # invariant containers are documents too
limits = Limits(operations_max=10)
patch = parse([{"op": "remove", "path": "/a"}], limits=limits)
assert_type(patch, Patch)
assert_type(patch.without_tests(), Patch)
assert_type(patch.to_json(), list[dict[str, Json]])
assert_type(patch.growth_bytes, int)
for operation in patch:
    assert_type(operation.path, str)

assert_type(apply(counts, patch), Document)
assert_type(apply(ABSENT, [{"op": "remove", "path": "/a"}], limits=DEFAULT_LIMITS), Document)
assert_type(apply_within(counts, patch, document_bytes=7), tuple[Document, int])
assert_type(merge(counts, {"a": None}), Document)
assert_type(diff(counts, ABSENT), list[dict[str, Json]])
assert_type(equal(counts, ABSENT), bool)
assert_type(footprint(patch, counts) | footprint(patch), Footprint)
assert_type(overlap(Footprint(), Footprint(writes=frozenset({""}))), list[str])
assert_type(join_pointer(split_pointer("/a")), str)

extended = parse_extended({"patch": []}, limits=limits)
assert_type(extended, ExtendedPatch)
assert_type(parse_tests([], limits=limits), ExtendedPatch)
assert_type(extended.to_json(), dict[str, Json])
assert_type(is_conditional(extended) or is_conditional(patch), bool)
assert_type(footprint(extended, counts), Footprint)
result = apply_extended(counts, extended, limits=limits, document_bytes=7)
assert_type(result, Extended)
assert_type(result.content, Document)
assert_type(result.size_bytes, int)
assert_type(result.effective, list[dict[str, Json]])

lists = parse_lists([{"pointer": "/tags", "set": True}], limits=limits) or NO_LISTS
assert_type(lists.below("tags"), Lists)
assert_type(lists.at(("tags",)), ListRule | None)
assert_type(lists.require(counts, ABSENT), int)

done = apply_wanted(counts, None, {"a": 1}, manager="nightly", revision=1, conflict="skip")
assert_type(done, ApplyResult)
assert_type(done.owners, OwnerTree | None)
assert_type(done.skipped, tuple[Contested, ...])
assert_type(taken_over(done.owners, counts, ABSENT, author="ann", revision=2), OwnerTree | None)
assert_type(change_between(None, done.owners), OwnersChange | None)


def narrowed(document: Document) -> Json:
    if document is ABSENT:
        return None
    return document


def fields(error: PatchError) -> object:
    if isinstance(error, TestFailed):
        return error.expected, error.actual
    if isinstance(error, LimitExceeded):
        return error.limit, error.maximum + error.actual
    return error.code, error.detail, error.operation, error.pointer
