"""What workers send each other comes through whole, and can be nothing else than what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pytest
from msgspec import msgpack

import patching
import patching.errors
import patching.extended
import patching.ownership
from gateway.access import Principal
from gateway.access.principal import Grant, Role
from gateway.commit.messages import (
    PackerTable,
    PeerAnswer,
    Unreadable,
    answer_bytes,
    answer_of,
    request_bytes,
    request_of,
)
from gateway.conflict import Disputed, FailedCompare, NotRebased, Required, Stale, StateConflict
from gateway.decide import compares, edits, ranges
from gateway.decide.compares import Compare, Equals, IsAbsent, IsUnchanged, RevisionIs, TokenIs
from gateway.decide.conditions import NO_CONDITIONS, CatalogTag, Composite, Preconditions
from gateway.decide.edits import Edit, KeyEdit
from gateway.decide.owning import ApplyWanted, GiveBack, LetGo
from gateway.decide.ranges import RangeAbsent, RangeCount, RangeUnchanged
from gateway.decide.request import (
    ApplicationStep,
    Applied,
    Fence,
    Outcome,
    Refused,
    Request,
    Unchanged,
    Unknown,
)
from gateway.decide.reverting import Forced, Revert, Undo
from gateway.errors import (
    AboveLimit,
    ChangedSince,
    CommitError,
    ConditionFailed,
    DocumentNotFound,
    DocumentsBreakSettings,
    ItemsCollide,
    PatchDoesNotFit,
    QueueFull,
    RefusedBefore,
    SchemaViolation,
    TargetExists,
)
from gateway.model import WITHHELD, ChangeRecord, CommitRecord, DocumentRecord, Idempotency, Skipped
from patching import ABSENT
from patching.owners import OwnersChange, Ownership, OwnerTree
from patching.ownership import Contested
from tests.without_http import ask, put

OWNERS = OwnerTree(((Ownership("ann", 4, True), Ownership("nightly", 2)),), {"a": 0})
DOCUMENT = DocumentRecord("k", {"a": [1, None, 2.5]}, 7, 3, "f" * 32, 9, 1, 20, {"acl": {}}, OWNERS)
EDITS: tuple[Edit, ...] = (
    put({"a": 1}),
    edits.Put(None, 4, {"x": [1]}),
    edits.ApplyPatch(patching.parse([{"op": "test", "path": "/a", "value": {"b": 1}}])),
    edits.ApplyPatch(
        patching.parse_extended(
            {
                "patch": [
                    {"op": "less", "path": "/n", "value": 2},
                    {"op": "add_to_set", "path": "/t", "value": "x", "create_parents": True},
                    {"op": "remove", "path": "/fields/a", "if_exists": True},
                ],
                "array_primary_keys": {"/fields": ["path"]},
            }
        )
    ),
    edits.Merge({"a": None}, 10),
    ApplyWanted({"a": 1}, 7, "nightly", "skip", ("/a",)),
    LetGo("nightly", prune=True),
    GiveBack(("/a",)),
    edits.Delete(),
    edits.EditAttributes(edits.Put({"x": 1}, 7)),
    edits.MoveKey("other"),
    Revert((Undo(DOCUMENT, None), Undo(None, DOCUMENT)), "refuse", Forced(("/a",), ())),
    edits.Get(to_write=True),
    edits.Touch(),
    ranges.RangeDeletion("tables/"),
    ranges.RangeReplacement("tables/", (("tables/a", {"a": 1}, 7),)),
)
COMPARES: tuple[Compare, ...] = (
    TokenIs("k", "7-f"),
    IsAbsent("k"),
    IsUnchanged("k", 7),
    Equals("k", {"a": [1]}),
    compares.Satisfies(
        "k", patching.extended.parse_tests([{"op": "test", "path": "/a", "value": 1}])
    ),
    RevisionIs(7),
    RangeUnchanged("tables/", 7),
    RangeAbsent("tables/"),
    RangeCount("tables/", "less", 3),
)
TERMS: tuple[dict[str, Any], ...] = (
    {
        "conditions": Preconditions(
            frozenset({"a", CatalogTag(3)}),
            frozenset({Composite((("k", "b"), ("l", None)))}),
            1,
            2,
            (RangeUnchanged("tables/", 7),),
        )
    },
    {"compare": COMPARES, "otherwise": (KeyEdit("k", edits.Touch(), (IsAbsent("k"),)),)},
    {"by": Principal("ann", (Grant(Role.WRITE, "a*"),)), "author": "ann", "message": "why"},
    {"idempotency": Idempotency("ann", "key", "digest"), "once": True, "resource_version": 7},
    {"fence": Fence(3, "scope", "name")},
    {"step": ApplicationStep("c", "name", 3, finished=True, principals=("ann",))},
)


def comparable(value: object) -> Any:
    """What ``value`` says, with patches as JSON: they aren't compared by what they hold."""
    if isinstance(value, patching.Patch | patching.ExtendedPatch):
        return type(value), value.to_json()
    if isinstance(value, Exception):
        return type(value), value.args, comparable(vars(value))
    if isinstance(value, Mapping):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(map(comparable, value))
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__match_args__", None)
    if names:
        return type(value), [comparable(getattr(value, name)) for name in names]
    return type(value), value


def passed(request: Request) -> Request:
    return request_of(request_bytes(request))


def passed_outcome(outcome: Outcome) -> Outcome | None:
    return answer_of(answer_bytes(PeerAnswer(outcome, 3, goes_on=True))).outcome


def test_there_is_a_sample_of_every_kind_of_edit_and_compare() -> None:
    assert {type(each) for each in EDITS} == set(get_args(Edit))
    assert {type(each) for each in COMPARES} == set(get_args(Compare))


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: type(edit).__name__)
def test_a_request_survives_encoding(edit: Edit) -> None:
    for terms in ({}, *TERMS):
        request = ask(edit, **terms)
        assert comparable(passed(request)) == comparable(request)


def test_singletons_keep_their_identity() -> None:
    """It is compared by ``is``."""
    assert passed(ask(put(1))).conditions is NO_CONDITIONS
    for only in (WITHHELD, ABSENT):
        document = DocumentRecord("k", only, 7, 3, "f" * 32, 9)  # type: ignore[arg-type]
        outcome = passed_outcome(Unchanged({"k": document, "l": None}, 7))
        assert isinstance(outcome, Unchanged)
        assert outcome.document is not None
        assert outcome.document.content is only


COMMIT = CommitRecord(
    "c", 7, 9, "f" * 32, "ann", "why", Idempotency("ann", "key", "digest"), 2,
    (
        ChangeRecord("k", "patch", 3, [{"op": "add", "path": "/a", "value": 1}], size_bytes=7),
        ChangeRecord("l", "put", 7, None, {"a": 1}, 7, {"x": 1}, OWNERS),
        ChangeRecord("m", "delete", 2, owners_change=OwnersChange((("ann", False, {"a": 0}),), ())),
    ),
    skipped=(Skipped("k", "/a", (Ownership("ann", 4),), of_attributes=True),),
    left_out=(1, 2),
)  # fmt: skip
CONFLICT = StateConflict(
    Required.IF_MATCH, ("a", "b"), "k", document=DOCUMENT, since_revision=3, catalog_revision=9,
    stale=(Stale("k", None, DOCUMENT),),
    compares=(FailedCompare(0, "k", "it is otherwise", DOCUMENT),),
    overlap=("/a",), not_rebased=NotRebased.OVERLAPS,
)  # fmt: skip


def patch_error(*operations: dict[str, Any], of: Any = ABSENT) -> patching.PatchError:
    with pytest.raises(patching.PatchError) as raised:
        patching.apply(of, list(operations))
    return raised.value


REFUSALS: tuple[CommitError, ...] = (
    DocumentNotFound("c", "k").at(0),
    AboveLimit("too much", limit="x", maximum=1, actual=2),
    QueueFull("it is full"),
    ConditionFailed(CONFLICT),
    PatchDoesNotFit(
        patch_error({"op": "test", "path": "/a", "value": [1, {"b": 2}]}, of={"a": [1]}),
        "k",
        DOCUMENT,
    ),
    PatchDoesNotFit(patch_error({"op": "test", "path": "/b", "value": 1}, of={}), "k", None),
    PatchDoesNotFit(
        patching.ownership.OwnedByOthers(
            (Contested("/a", (Ownership("ann", 4),), [1], ABSENT, ""),)
        ),
        "k",
        None,
    ),
    TargetExists("k", DOCUMENT),
    SchemaViolation("k", "*", [{"pointer": "/a", "message": "no"}]),
    ChangedSince([Disputed("k", False, "/a", 7, {"x": 1}, ABSENT)]),
    DocumentsBreakSettings([{"key": "k", "pointer": "/a"}], complete=True),
    ItemsCollide("k", patching.errors.ListViolation("two", pointer="/a/1", other="/a/0")),
    RefusedBefore("test_failed", "it failed", {"expected": [1, {"a": None}]}),
)


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_refusal_survives_encoding(error: CommitError) -> None:
    error.action = 2
    outcome = passed_outcome(Refused(error))
    assert isinstance(outcome, Refused)
    assert comparable(outcome.error) == comparable(error)
    assert str(outcome.error) == str(error)


@pytest.mark.parametrize(
    "outcome",
    [
        Applied(COMMIT, {"k": DOCUMENT, "l": None}),
        Applied(COMMIT, {}, replayed=True),
        Unchanged({"k": DOCUMENT}, 7, skipped=COMMIT.skipped, changes=COMMIT.changes),
        Unknown("f" * 32),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_an_outcome_survives_encoding(outcome: Outcome) -> None:
    assert comparable(passed_outcome(outcome)) == comparable(outcome)


def test_a_full_queue_survives_encoding() -> None:
    handed = PeerAnswer(None, 1, goes_on=True, error=QueueFull("it is full"))
    assert comparable(answer_of(answer_bytes(handed))) == comparable(handed)


def variants(packed: Any) -> Any:
    """The message with something else in one place, for each of its places."""
    yield from (None, 7, -1, "x", b"x", [], {}, ["os.system", ["x"], {}])
    if isinstance(packed, list):
        yield packed[:-1]
        yield [*packed, 1]
        for place, each in enumerate(packed):
            for changed in variants(each):
                yield [*packed[:place], changed, *packed[place + 1 :]]


def test_an_invalid_message_is_refused_without_other_effects() -> None:
    """Either it is read as a request of the declared types, or Unreadable is raised."""
    good = msgpack.decode(request_bytes(ask(EDITS[2], **TERMS[0])))
    refused = 0
    for packed in variants(good):
        try:
            assert type(request_of(msgpack.encode(packed))) is Request
        except Unreadable:
            refused += 1
    assert refused > 400
    for bad in (b"", b"\xc1", b"\x80\x04\x95", msgpack.encode(good)[:-1]):
        with pytest.raises(Unreadable):
            request_of(bad)


@pytest.mark.parametrize("name", ["SystemExit", "Exception", "os.system", "", "CommitErro"])
def test_a_message_can_only_name_refusals(name: str) -> None:
    sent = msgpack.decode(answer_bytes(PeerAnswer(Refused(REFUSALS[0]), 1, goes_on=True)))
    place, (error,) = sent[0]
    error[0] = name
    with pytest.raises(Unreadable):
        answer_of(msgpack.encode([[place, [error]], *sent[1:]]))


def test_sets_are_encoded_in_a_fixed_order() -> None:
    texts = [f"key-{number}" for number in range(200)]
    packer = PackerTable().of(frozenset[str])
    assert packer.pack is not None
    assert packer.pack(frozenset(texts)) == packer.pack(frozenset(reversed(texts)))
