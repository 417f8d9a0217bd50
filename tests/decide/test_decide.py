"""``decide`` is pure: a state and requests in, commits and one outcome per request out."""

from __future__ import annotations

import copy
import json

import bson
from msgspec.structs import replace as changed

from gateway.decide.conditions import ANY, Preconditions
from gateway.decide.decide import decide
from gateway.decide.edits import Delete, KeyEdit, Merge
from gateway.decide.request import Refused, Unchanged
from gateway.errors import (
    AboveLimit,
    ConditionFailed,
    DocumentNotFound,
    IdempotencyMismatch,
    PatchDoesNotFit,
)
from gateway.model import HeadMove as MoveOfHead
from gateway.model import Idempotency
from gateway.state.replay import advance_all
from gateway.store.mongodb import records
from patching import ABSENT
from tests.without_http import (
    NOW,
    RULES,
    add,
    applied,
    ask,
    bounded,
    document,
    only,
    patch,
    put,
    refused,
    replace,
    run,
    view,
)


def test_later_requests_see_the_changes_of_earlier_ones() -> None:
    decision = run(
        view(document({"n": 1})),
        ask(replace("/n", 2)),
        ask(patch({"op": "test", "path": "/n", "value": 2})),
        ask(add("/m", 0)),
    )
    assert [c.revision for c in decision.commits] == [8, 9]
    after = decision.documents["k"]
    assert (after.content, after.revision, after.create_revision) == ({"n": 2, "m": 0}, 9, 2)


def test_one_refusal_changes_nothing_for_its_neighbours() -> None:
    state = view(document({"n": 1, "list": [1]}))
    half = patch(
        {"op": "add", "path": "/list/0", "value": 9}, {"op": "test", "path": "/n", "value": 9}
    )
    decision = run(state, ask(replace("/n", 2)), ask(half), ask(replace("/n", 3)))
    assert [c.revision for c in decision.commits] == [8, 9]
    refused(decision.outcomes[1], PatchDoesNotFit)
    assert decision.documents["k"].content == {"n": 3, "list": [1]}


def test_the_given_state_is_not_modified() -> None:
    base = document({"n": {"a": [1, 2]}})
    before = copy.deepcopy(base)
    run(view(base), ask(patch({"op": "add", "path": "/n/a/-", "value": 3})))
    assert base == before


def test_times_increase_even_if_the_clock_stands_still_or_goes_back() -> None:
    decision = run(view(time_us=NOW + 50), ask(put(1)), ask(put(2)))
    assert [c.time_us for c in decision.commits] == [NOW + 51, NOW + 52]


def test_a_verdict_is_not_earlier_than_the_commits_before_it() -> None:
    """So it is kept as long as they are, though the clock of who decides is a week behind."""
    state = view(document({"n": 1}), time_us=NOW + 50)
    idempotency = Idempotency("p", "k", "f")
    decision = run(state, ask(put({"n": 1}), idempotency=idempotency, once=True))
    assert [verdict.time_us for verdict in decision.verdicts] == [NOW + 50]


def test_an_equal_value_is_a_no_op() -> None:
    state = view(document({"n": 1, "m": [1.0, {}]}))
    decision = run(state, ask(put({"m": [1, {}], "n": 1.0})), ask(replace("/n", 1)))
    assert decision.commits == ()
    assert [type(o) for o in decision.outcomes] == [Unchanged, Unchanged]


def test_true_and_one_are_different() -> None:
    assert len(run(view(document({"n": 1})), ask(replace("/n", True))).commits) == 1


def test_an_absent_document_is_created_by_add_at_the_root_alone() -> None:
    create = patch({"op": "add", "path": "", "value": {}}, {"op": "add", "path": "/a", "value": 1})
    decision = run(view(), ask(replace("/n", 1)), ask(Merge({"a": 1}, 7)), ask(create))
    for outcome in decision.outcomes[:2]:
        refused(outcome, DocumentNotFound)
    made = applied(decision.outcomes[2]).document
    assert made is not None
    assert (made.content, made.create_revision) == ({"a": 1}, 8)


def test_removing_the_root_leaves_a_tombstone_and_a_new_document_has_a_new_life() -> None:
    remove = patch({"op": "remove", "path": ""})
    decision = run(view(document({"n": 1})), ask(remove), ask(put({"n": 1})))
    assert [c.changes[0].action for c in decision.commits] == ["delete", "put"]
    assert decision.documents["k"].create_revision == 9


def test_deleting_an_absent_document_is_a_no_op_unless_it_must_exist() -> None:
    required = Preconditions(if_match=frozenset({ANY}))
    for state in (view(), view(document(ABSENT))):
        decision = run(state, ask(Delete()), ask(Delete(), conditions=required))
        assert isinstance(decision.outcomes[0], Unchanged)
        refused(decision.outcomes[1], ConditionFailed)


def test_a_refusal_carries_the_current_and_the_expected_token() -> None:
    base = document({"n": 1})
    stale = Preconditions(if_match=frozenset({"3-abababab"}))
    error = refused(only(run(view(base), ask(put(2), conditions=stale))), ConditionFailed)
    conflict = error.conflict
    assert conflict.current == (base.token, 5)
    assert (conflict.expected, conflict.since_revision) == ("3-abababab", 3)


def test_a_token_does_not_come_back_after_delete_and_create() -> None:
    base = document({"n": 1})
    held = Preconditions(if_match=frozenset({base.token}))
    decision = run(view(base), ask(Delete()), ask(put({"n": 1})), ask(put(0), conditions=held))
    refused(decision.outcomes[2], ConditionFailed)


def test_two_requests_with_one_idempotency_key_apply_once() -> None:
    name = Idempotency("ann", "x", "same")
    grow = patch({"op": "add", "path": "/log/-", "value": 1})
    decision = run(
        view(document({"log": []})),
        ask(grow, idempotency=name),
        ask(grow, idempotency=name),
        ask(grow, idempotency=changed(name, fingerprint="other")),
        ask(grow, idempotency=changed(name, principal="bob")),
    )
    first, second, third, fourth = decision.outcomes
    assert applied(second).commit == applied(first).commit
    assert applied(second).replayed
    refused(third, IdempotencyMismatch)
    assert not applied(fourth).replayed
    assert decision.documents["k"].content == {"log": [1, 1]}


def test_a_key_used_before_gives_the_first_result() -> None:
    name = Idempotency("ann", "x", "same")
    first = run(view(), ask(put(1), idempotency=name)).commits[0]
    later = changed(view(document(2)), replies={("ann", "x"): first})
    decision = run(later, ask(put(1), idempotency=name))
    assert decision.commits == ()
    assert applied(decision.outcomes[0]).commit == first


def test_a_refused_request_does_not_use_up_its_key() -> None:
    name = Idempotency("ann", "x", "same")
    absent = Preconditions(if_match=frozenset({ANY}))
    decision = run(
        view(),
        ask(put(1), idempotency=name, conditions=absent),
        ask(put(1)),
        ask(put(2), idempotency=name, conditions=absent),
    )
    refused(decision.outcomes[0], ConditionFailed)
    assert not applied(decision.outcomes[2]).replayed


def test_every_kth_change_records_the_full_value() -> None:
    requests = [ask(put({"n": 0}))] + [ask(replace("/n", n)) for n in range(1, 8)]
    decision = run(view(), *requests)
    whole = [c.changes[0].value is not ABSENT for c in decision.commits]
    assert whole == [True, False, False, True, False, False, True, False]


def test_replaying_the_commits_gives_the_documents() -> None:
    base = document({"n": 0, "x": {"y": [1]}})
    decision = run(
        view(base),
        ask(replace("/n", 1)),
        ask(Merge({"x": {"y": None, "z": 2}}, 25)),
        ask(patch({"op": "move", "from": "/x", "path": "/w"})),
        ask(Delete()),
        ask(patch({"op": "add", "path": "", "value": {"again": 1}})),
        ask(replace("/again", 2)),
    )
    assert advance_all(base, "k", decision.commits) == decision.documents["k"]


def test_a_dry_run_is_decided_and_writes_nothing() -> None:
    decision = run(
        view(document({"n": 1})),
        ask(replace("/n", 2), dry_run=True),
        ask(replace("/m", 2), dry_run=True),
        ask(replace("/n", 1), dry_run=True),
    )
    assert decision.commits == ()
    would, would_not, no_op = decision.outcomes
    assert isinstance(would, Unchanged)
    assert would.would_change
    refused(would_not, PatchDoesNotFit)
    assert isinstance(no_op, Unchanged)
    assert not no_op.would_change


def test_a_batch_above_its_size_limit_ends_before_the_next_request() -> None:
    requests = [ask(put("x" * 600), key=key, size_bytes=602) for key in "abc"]
    decision = run(view(), *requests, rules=bounded(batch_bytes_max=1000))
    assert len(decision.outcomes) == len(decision.commits) == 1


def test_a_commit_is_never_larger_than_its_bound() -> None:
    """What grows on the way: numbers written out, and names and messages that are all escapes."""
    many = bounded(full_value_every=1, batch_bytes_max=300_000)
    values = json.loads("[" + ",".join(["1e15"] * 500) + "]")
    raw_bytes = 500 * 5 + 1
    requests = [
        ask(
            patch({"op": "add", "path": "", "value": [*values, n]}),
            key=chr(1 + n % 30) * 50,
            size_bytes=raw_bytes,
            message="\N{GRINNING FACE}" * 200,
            idempotency=Idempotency("ann", f"key-{n}", "same"),
        )
        for n in range(60)
    ]
    decision = run(view(keys=[r.key for r in requests]), *requests, rules=many)
    recorded = len(bson.encode(records.head_move(MoveOfHead("c", 7, decision.commits, 7))))
    assert 1 < len(decision.commits) < 60
    assert recorded < 300_000


def test_the_verdicts_of_a_batch_are_bounded() -> None:
    """Each request has a few bytes of its own, and an outcome that names a thousand documents."""
    keys = [f"k{n}" for n in range(1000)]
    requests = [
        ask(
            put({"n": 1}),
            edits=tuple(KeyEdit(key, put({"n": 1})) for key in keys),
            idempotency=Idempotency("ann", f"key-{n}", "same"),
            once=True,
        )
        for n in range(20)
    ]
    state = view(*[document({"n": 1}, key) for key in keys])
    decision = run(state, *requests, rules=bounded(batch_bytes_max=500_000))
    move = MoveOfHead("c", 7, (), 7, 0, decision.verdicts, 0)
    assert len(decision.outcomes) == len(decision.verdicts)
    assert 1 < len(decision.verdicts) < 20
    assert len(bson.encode(records.head_move(move))) < 500_000
    alone = run(state, *requests, rules=bounded(batch_bytes_max=1))
    assert len(alone.outcomes) == len(alone.verdicts) == 1


def test_a_change_too_large_to_record_is_refused() -> None:
    """Sent in 2 MB, it would be recorded in 9 MB; the document it leaves is small."""
    values = json.loads("[" + ",".join(["1e15"] * 250_000) + "]")
    heavy = patch(
        {"op": "add", "path": "", "value": values},
        {"op": "add", "path": "", "value": values},
        {"op": "add", "path": "", "value": 1},
    )
    refused(only(run(view(), ask(heavy, size_bytes=2_500_100))), AboveLimit)


def test_a_batch_ends_after_enough_work() -> None:
    large = document({"n": 0}, size_bytes=4_000_000)
    requests = [ask(replace("/n", n)) for n in range(1, 13)]
    decision = run(view(large), *requests, rules=bounded(batch_bytes_max=10**9))
    assert 1 < len(decision.outcomes) < 12


def test_merging_again_and_again_does_not_inflate_the_size() -> None:
    state = view(document({"a": "x"}))
    for _ in range(8):
        merge = Merge({"a": "y" * 900_000}, 900_008)
        after = run(state, ask(merge)).documents.get("k")
        merge = Merge({"a": "z" * 900_000}, 900_008)
        after = run(view(after) if after else state, ask(merge)).documents["k"]
        state = view(after)
    assert after.size_bytes <= RULES.limits.patch.result_bytes_max


def test_a_document_that_would_not_fit_is_refused() -> None:
    error = refused(only(run(view(), ask(put("x" * 5_000_001)))), AboveLimit)
    assert error.limit == "stored_bytes_max"


def test_the_attempt_is_recorded_in_the_commit() -> None:
    decision = decide(view(), [ask(put(1)), ask(put(2))], [1, 3], now_us=NOW, rules=RULES)
    assert [c.attempts for c in decision.commits] == [1, 3]


def test_a_kept_refusal_holds_no_stack_frames() -> None:
    """Nor with them what their callers had in their hands."""
    cause = ValueError("why")
    try:
        try:
            raise cause
        except ValueError as error:
            raise DocumentNotFound("c", "k") from error
    except DocumentNotFound as error:
        kept = Refused(error)
    assert kept.error.__cause__ is cause
    assert (kept.error.__traceback__, cause.__traceback__) == (None, None)
