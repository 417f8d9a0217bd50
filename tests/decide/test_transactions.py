"""Requests of many edits: one commit or none, exact in the history, and nothing half done."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import pytest

import patching
import patching.extended
from gateway.decide import performing
from gateway.decide.compares import Compare, Equals, IsAbsent, RevisionIs, Satisfies, TokenIs
from gateway.decide.edits import (
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
from gateway.decide.request import Decision, Outcome, Refused, Request, Unchanged, View
from gateway.errors import (
    AboveLimit,
    AttributesInvalid,
    CommitError,
    ConditionFailed,
    DocumentNotFound,
    TargetExists,
)
from gateway.model import SETTINGS_KEY, CommitRecord, DocumentRecord
from gateway.state.replay import advance_all
from patching import ABSENT
from tests.without_http import (
    NOW,
    applied,
    ask,
    extended,
    only,
    patch,
    put,
    refused,
    replace,
    run,
    view,
)
from tests.without_http import add as added
from tests.without_http import document as a_document

_E = TypeVar("_E", bound=CommitError)
KEYS = ("a", "b", "c")


def transaction(
    *edits: tuple[str, Edit],
    compare: tuple[Compare, ...] = (),
    otherwise: list[tuple[str, Edit]] | None = None,
    **fields: Any,
) -> Request:
    return ask(
        Get(),
        edits=tuple(KeyEdit(*each) for each in edits),
        compare=compare,
        otherwise=None if otherwise is None else tuple(KeyEdit(*each) for each in otherwise),
        **fields,
    )


def refusal(decision: Decision, kind: type[_E]) -> _E:
    assert (decision.commits, decision.documents) == ((), {})
    return refused(only(decision), kind)


def changes(decision: Decision) -> dict[str, str]:
    (commit,) = decision.commits
    return {change.key: change.action for change in commit.changes}


def contents(decision: Decision) -> dict[str, Any]:
    return {key: document.content for key, document in decision.documents.items()}


class TestOneCommit:
    def test_all_edits_are_one_commit_at_one_revision(self) -> None:
        request = transaction(("a", put(1)), ("b", put(2)), ("a", put(3)), ("c", Delete()))
        decision = run(view(), request)
        assert [commit.revision for commit in decision.commits] == [8]
        assert changes(decision) == {"a": "put", "b": "put"}
        assert contents(decision) == {"a": 3, "b": 2}

    def test_two_patches_of_one_key_are_recorded_as_one(self) -> None:
        request = transaction(
            ("a", added("/x", [])), ("a", added("/x/-", 1)), ("a", Merge({"y": None}, 10))
        )
        decision = run(view(a_document({"y": 0}, "a")), request)
        assert contents(decision) == {"a": {"x": [1]}}
        (change,) = decision.commits[0].changes
        assert change.action == "patch"
        assert patching.apply({"y": 0}, change.patch) == {"x": [1]}  # type: ignore[arg-type]

    def test_an_impossible_later_edit_undoes_the_earlier_ones(self) -> None:
        request = transaction(("a", put(1)), ("b", Delete()), ("c", replace("/x", 1)))
        error = refusal(run(view(a_document(5, "b")), request), DocumentNotFound)
        assert (error.action, error.otherwise) == (2, False)

    def test_a_transaction_without_a_final_change_makes_no_commit(self) -> None:
        state = view(a_document({"n": 1}, "a"))
        for edits in (
            [("a", replace("/n", 2)), ("a", replace("/n", 1))],
            [("a", MoveKey("b")), ("b", MoveKey("a"))],
            [("b", put(1)), ("b", Delete())],
            [("b", put(1)), ("b", EditAttributes(put({"x": 1}))), ("b", Delete())],
            [("a", Delete()), ("a", put({"n": 1.0}))],
            [("a", EditAttributes(put({}))), ("c", Delete()), ("b", Get())],
            [],
        ):
            outcome = only(run(state, transaction(*edits)))
            assert isinstance(outcome, Unchanged), edits
            assert not outcome.would_change

    def test_put_delete_put_starts_a_new_life(self) -> None:
        state = view(a_document(1, "a"))
        request = transaction(("a", put(2)), ("a", Delete()), ("a", put(3)))
        decision = run(state, request)
        assert changes(decision) == {"a": "put"}
        assert decision.documents["a"].create_revision == 8

    def test_a_touch_makes_a_commit_without_changes(self) -> None:
        decision = run(view(), transaction((SETTINGS_KEY, Touch())))
        assert decision.commits[0].changes == ()


class TestMoves:
    def test_a_chain_of_moves_moves_the_document_to_its_end(self) -> None:
        state = view(a_document(1, "a"))
        decision = run(state, transaction(("a", MoveKey("b")), ("b", MoveKey("c"))))
        assert changes(decision) == {"a": "delete", "c": "put"}
        after = applied(only(decision)).documents["c"]
        assert after is not None
        assert (after.content, after.create_revision) == (1, 8)

    def test_a_move_includes_attributes(self) -> None:
        request = transaction(
            ("a", put(1)), ("a", EditAttributes(put({"o": 1}))), ("a", MoveKey("b"))
        )
        assert run(view(), request).documents["b"].attributes == {"o": 1}

    def test_the_target_of_a_move_must_be_absent_even_if_it_is_the_source(self) -> None:
        state = view(a_document(1, "a"), a_document(2, "b"))
        for to in ("a", "b"):
            error = refusal(
                run(state, transaction(("c", put(0)), ("a", MoveKey(to)))), TargetExists
            )
            assert (error.key, error.action) == (to, 1)

    def test_a_target_deleted_earlier_in_the_request_is_absent(self) -> None:
        state = view(a_document(1, "a"), a_document(2, "b"))
        decision = run(state, transaction(("b", Delete()), ("a", MoveKey("b"))))
        assert changes(decision) == {"b": "put", "a": "delete"}
        assert decision.documents["b"].create_revision == 8

    def test_two_documents_can_be_swapped(self) -> None:
        state = view(a_document(1, "a"), a_document(2, "b"))
        request = transaction(("a", MoveKey("c")), ("b", MoveKey("a")), ("c", MoveKey("b")))
        assert contents(run(state, request)) == {"a": 2, "b": 1}

    def test_a_missing_document_cannot_be_moved(self) -> None:
        refusal(run(view(), transaction(("a", MoveKey("b")))), DocumentNotFound)


class TestAttributes:
    def test_attributes_of_a_document_created_in_the_same_request_can_be_set(self) -> None:
        request = transaction(("a", put(1)), ("a", EditAttributes(put({"o": 1}))))
        decision = run(view(), request)
        (change,) = decision.commits[0].changes
        assert (change.action, change.attributes) == ("put", {"o": 1})

    @pytest.mark.parametrize("attributes", [{"x": "y" * 1000}, {"x" * 1000: 1}])
    def test_attributes_given_with_a_put_must_keep_the_limit(
        self, attributes: dict[str, Any]
    ) -> None:
        request = transaction(("a", Put(1, 1, attributes)))
        error = refusal(run(view(), request), AboveLimit)
        assert error.limit == "attributes_bytes_max"

    def test_attributes_must_be_an_object(self) -> None:
        for edit in (put([]), replace("", 1)):
            request = transaction(("a", put(1)), ("a", EditAttributes(edit)))
            refusal(run(view(), request), AttributesInvalid)


class TestCompares:
    def failed(self, decision: Decision) -> list[tuple[int, str | None]]:
        error = refusal(decision, ConditionFailed)
        return [(each.index, each.key) for each in error.conflict.compares]

    def test_all_false_compares_are_listed(self) -> None:
        here = a_document({"n": 1}, "a")
        compare = (
            TokenIs("a", here.token),
            TokenIs("a", "1-x"),
            TokenIs("b", "1-x"),
            IsAbsent("a"),
            IsAbsent("b"),
            Equals("a", {"n": 1.0}),
            Equals("a", {"n": True}),
            Satisfies(
                "a", patching.extended.parse_tests([{"op": "less", "path": "/n", "value": 2}])
            ),
            Satisfies(
                "a", patching.extended.parse_tests([{"op": "more", "path": "/n", "value": 2}])
            ),
            Satisfies("b", patching.extended.parse_tests([{"op": "undefined", "path": ""}])),
            RevisionIs(7),
            RevisionIs(6),
        )
        request = transaction(("c", put(1)), compare=compare)
        expected = [(1, "a"), (2, "b"), (3, "a"), (6, "a"), (8, "a"), (11, None)]
        assert self.failed(run(view(here), request)) == expected

    def test_else_is_committed_and_marked_as_such(self) -> None:
        request = transaction(
            ("a", put(1)),
            compare=(IsAbsent("b"),),
            otherwise=[("c", put(2)), (SETTINGS_KEY, Touch())],
        )
        decision = run(view(a_document(0, "b")), request)
        (commit,) = decision.commits
        assert (commit.succeeded, contents(decision)) == (False, {"c": 2})

    def test_else_without_effect_makes_no_commit(self) -> None:
        for otherwise in ([], [("b", Get())], [("b", put(0))]):
            request = transaction(("a", put(1)), compare=(IsAbsent("b"),), otherwise=otherwise)
            outcome = only(run(view(a_document(0, "b")), request))
            assert isinstance(outcome, Unchanged)
            assert not outcome.succeeded

    def test_a_failure_in_else_names_the_branch(self) -> None:
        otherwise = [("c", put(2)), ("a", replace("/x", 1))]
        request = transaction(compare=(IsAbsent("b"),), otherwise=otherwise)
        error = refusal(run(view(a_document(0, "b")), request), DocumentNotFound)
        assert (error.action, error.otherwise) == (1, True)

    def test_tests_beyond_the_work_limit_are_refused_instead_of_answered(self) -> None:
        heavy = a_document([1] * 10, "a", size_bytes=2**26)
        tests = patching.extended.parse_tests([{"op": "defined", "path": "/10"}])
        few, many = ((Satisfies("a", tests),) * count for count in (2, 3))
        assert len(self.failed(run(view(heavy), transaction(compare=few)))) == 2
        refusal(run(view(heavy), transaction(compare=many)), AboveLimit)

    def test_a_stale_revision_or_token_names_the_revision_since_then(self) -> None:
        for compare, since, key in ((RevisionIs(4), 4, None), (TokenIs("b", "3-x"), 3, "b")):
            error = refusal(run(view(), transaction(compare=(compare,))), ConditionFailed)
            assert (error.conflict.since_revision, error.conflict.key) == (since, key)


class TestAlreadyDone:
    """Sent again without an idempotency key: a success that changes nothing, if it is so."""

    state = view(a_document({"v": 2}, "a"), a_document(1, "b"))

    def outcome(self, request: Request) -> Outcome:
        return only(run(self.state, request))

    @pytest.mark.parametrize(
        "compare",
        [
            (IsAbsent("a"),),
            (Equals("a", {"v": 1}),),
            (
                Satisfies(
                    "a", patching.extended.parse_tests([{"op": "test", "path": "/v", "value": 1}])
                ),
            ),
            (Equals("a", {"v": 1}), Equals("b", 1), IsAbsent("c")),
        ],
    )
    def test_a_compare_that_is_false_because_of_the_request_itself_is_no_refusal(
        self, compare: tuple[Compare, ...]
    ) -> None:
        request = transaction(("a", put({"v": 2})), compare=compare)
        outcome = self.outcome(request)
        assert isinstance(outcome, Unchanged)
        assert outcome.succeeded

    @pytest.mark.parametrize(
        ("compare", "value"),
        [
            ((IsAbsent("a"),), {"v": 3}),  # somebody else's lock
            ((TokenIs("a", "1-x"),), {"v": 2}),
            ((RevisionIs(6),), {"v": 2}),
            ((IsAbsent("a"), RevisionIs(6)), {"v": 2}),
            ((IsAbsent("a"), IsAbsent("b")), {"v": 2}),  # not a document that it writes
            ((IsAbsent("a"), Equals("c", 1)), {"v": 2}),
        ],
    )
    def test_a_compare_that_is_false_for_another_reason_refuses(
        self, compare: tuple[Compare, ...], value: Any
    ) -> None:
        request = transaction(("a", put(value)), compare=compare)
        assert isinstance(self.outcome(request), Refused)

    def test_a_read_does_not_count_as_an_effect(self) -> None:
        request = transaction(("a", Get()), compare=(IsAbsent("a"),))
        assert isinstance(self.outcome(request), Refused)

    def test_a_touch_never_counts_as_already_done(self) -> None:
        edits = [("a", put({"v": 2})), (SETTINGS_KEY, Touch())]
        request = transaction(*edits, compare=(IsAbsent("a"),))
        assert isinstance(self.outcome(request), Refused)


class TestBounds:
    def test_a_commit_that_is_too_large_is_refused_as_a_whole_even_in_a_dry_run(self) -> None:
        edits = [(key, put("x" * 2_000_000)) for key in KEYS]
        for dry_run in (True, False):
            error = refusal(run(view(), transaction(*edits, dry_run=dry_run)), AboveLimit)
            assert error.limit == "stored_bytes_max"

    def test_full_values_that_are_due_never_make_a_commit_too_large(self) -> None:
        """Of three documents of 2 MB only two fit with their full value; the third one waits."""
        content = {"n": 0, "text": "x" * 2_000_000}
        state = view(*(a_document(content, key=key, patches=3) for key in KEYS))
        request = transaction(*((key, replace("/n", 1)) for key in KEYS))
        decision = run(state, request)
        assert changes(decision) == dict.fromkeys(KEYS, "patch")
        assert [change.is_whole for change in decision.commits[0].changes] == [True, True, False]
        assert [decision.documents[key].patches for key in KEYS] == [0, 0, 4]

    def test_an_extended_patch_in_else_is_measured_by_its_effective_patch(self) -> None:
        """What was sent says nothing of it; the request's own edit is of another kind."""
        content = {"list": [7, "x" * 2_600_000, *[7] * 1500]}
        state = view(a_document(content, "a", patches=3))
        pull = extended({"op": "pull", "path": "/list", "value": 7})
        request = transaction(("b", patch()), compare=(IsAbsent("a"),), otherwise=[("a", pull)])
        (change,) = run(state, request).commits[0].changes
        assert len(str(change.patch)) > 2_600_000
        assert not change.is_whole  # there is no room for the full value too

    def test_patches_of_large_documents_are_bounded_in_sum(self) -> None:
        large = a_document({"n": 0}, "a", size_bytes=2**21)
        edits = [("a", Merge({"n": n}, 8)) for n in range(1, 18)]
        assert run(view(large), transaction(*edits[:15])).commits
        error = refusal(run(view(large), transaction(*edits)), AboveLimit)
        assert error.limit == "patched_bytes_max"

    def test_a_transaction_may_have_thousands_of_edits(self) -> None:
        keys = [f"k{n}" for n in range(4096)]
        decision = run(view(keys=keys), transaction(*((key, put(1)) for key in keys)))
        assert len(decision.commits[0].changes) == 4096
        edits = [("a", added("/-", n)) for n in range(4095)]
        decision = run(view(), transaction(("a", put([])), *edits))
        assert decision.documents["a"].content == list(range(4095))


class TestDryRuns:
    def test_a_dry_run_lists_the_changes(self) -> None:
        edits = [("a", MoveKey("b")), ("b", replace("", 2))]
        request = transaction(*edits, dry_run=True)
        decision = run(view(a_document(1, "a")), request)
        outcome = only(decision)
        assert isinstance(outcome, Unchanged)
        assert decision.commits == ()
        assert outcome.would_change
        assert [(e.key, e.action) for e in outcome.changes] == [("a", "delete"), ("b", "put")]
        assert [key for key, left in outcome.documents.items() if left] == ["b"]


def random_edit(random_: random.Random) -> tuple[str, Edit]:
    key = random_.choice(KEYS)
    value = random_.randrange(3)
    name = random_.choice("xy")
    edits: list[Edit] = [
        put({"x": value}),
        put({"x": value, "list": [value]}),
        Put({"y": value}, 8, random_.choice([None, {}, {"o": value}])),
        added(f"/{name}", value),
        added("", {"x": value}),
        patch({"op": "remove", "path": ""}),
        extended({"op": "increment", "path": f"/{name}", "create_parents": True}),
        extended({"op": "add_to_set", "path": "/list", "value": value, "create_parents": True}),
        Merge({name: random_.choice([None, value])}, 10),
        Delete(),
        MoveKey(random_.choice(KEYS)),
        EditAttributes(put({"o": value} if value else {})),
        EditAttributes(added("/p", value)),
        EditAttributes(Delete()),
        Get(),
    ]
    return key, random_.choice(edits)


@pytest.mark.parametrize("seed", range(30))
def test_history_reproduces_every_state_exactly(seed: int) -> None:
    """Each revision rebuilt from the recorded commits is the document that was decided.

    From the beginning, and from each change that says everything, as time travel does it.
    """
    random_ = random.Random(seed)
    commits: list[CommitRecord] = []
    states: list[dict[str, DocumentRecord | None]] = [dict.fromkeys((SETTINGS_KEY, *KEYS))]
    while len(commits) < 40:
        before = states[-1]
        edits = [random_edit(random_) for _ in range(random_.randrange(1, 6))]
        decision = run(View("c", len(commits), NOW, before), transaction(*edits))
        if isinstance(only(decision), Refused):
            assert decision.commits == ()
            continue
        commits += decision.commits
        if decision.commits:
            states.append({**before, **decision.documents})
    for revision, state in enumerate(states):
        for key in KEYS:
            assert _rebuilt(commits[:revision], key) == state[key], (revision, key)
            for since in range(revision):
                rest = commits[since:revision]
                assert advance_all(states[since][key], key, rest) == state[key]


def _rebuilt(commits: list[CommitRecord], key: str) -> DocumentRecord | None:
    """As ``rebuild`` does it: from the newest change that needs no state before it."""
    needed: list[CommitRecord] = []
    for commit in reversed(commits):
        change = next((each for each in commit.changes if each.key == key), None)
        if change is not None:
            needed.append(commit)
            if change.begins_at(commit.revision):
                break
    return advance_all(None, key, reversed(needed))


def test_states_in_history_include_tombstones_and_attributes() -> None:
    request = transaction(("a", put(1)), ("a", EditAttributes(put({"o": 1}))))
    made = run(view(), request).documents["a"]
    gone = run(view(made, revision=8), transaction(("a", Delete()))).documents["a"]
    assert (gone.content, gone.attributes) == (ABSENT, None)


def test_conditions_of_actions_compare_each_document_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many of them ask what the actions before have left."""
    compared: list[object] = []
    monkeypatch.setattr(performing, "equal_content", lambda *both: bool(compared.append(both)))
    when = (TokenIs("k", "1-00000000"),)
    edits = (KeyEdit("k", put(1)), *(KeyEdit("k", put(2), when) for _ in range(20)))
    applied(only(run(view(a_document(0)), ask(Get(), edits=edits))))
    assert len(compared) == 2, "for all conditions, and for the commit"
