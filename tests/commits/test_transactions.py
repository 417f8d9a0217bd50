"""Requests of many edits: one commit or none, told exactly by history, and nothing half done."""

from __future__ import annotations

import random
from typing import Any

import pytest

import patching
from gateway.decide.compares import Compare, Equals, IsAbsent, RevisionIs, Satisfies, TokenIs
from gateway.decide.decide import decide
from gateway.decide.request import (
    Applied,
    ApplyPatch,
    Bounds,
    Decision,
    Delete,
    Edit,
    EditAttributes,
    Get,
    KeyEdit,
    Merge,
    Move,
    Outcome,
    Put,
    Refused,
    Request,
    Touch,
    Unchanged,
    View,
)
from gateway.errors import (
    AttributesInvalid,
    CommitError,
    DocumentNotFound,
    OverLimit,
    PatchDoesNotFit,
    PreconditionFailed,
    TargetExists,
)
from gateway.model import SETTINGS_KEY, Commit, Document
from gateway.state.replay import advance_all
from patching import ABSENT
from tests.commits.conftest import Ask, patch, put, replace
from tests.commits.conftest import document as a_document

NOW = 1_800_000_000_000_000
KEYS = ("a", "b", "c")


def view(*documents: Document, revision: int = 7, keys: Any = KEYS) -> View:
    known: dict[str, Document | None] = dict.fromkeys((SETTINGS_KEY, *keys))
    known |= {d.key: d for d in documents}
    return View("c", revision, NOW - 1, known)


def run(state: View, bounds: Bounds, *requests: Request) -> Decision:
    return decide(state, requests, [1] * len(requests), now_us=NOW, bounds=bounds)


def transaction(
    ask: Ask,
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


def only(decision: Decision) -> Outcome:
    (outcome,) = decision.outcomes
    return outcome


def refusal(decision: Decision) -> CommitError:
    outcome = only(decision)
    assert isinstance(outcome, Refused), outcome
    assert decision.commits == ()
    assert decision.documents == {}
    return outcome.error


def changes(decision: Decision) -> dict[str, str]:
    (commit,) = decision.commits
    return {change.key: change.action for change in commit.changes}


def contents(decision: Decision) -> dict[str, Any]:
    return {key: document.content for key, document in decision.documents.items()}


def extended(*operations: dict[str, Any]) -> ApplyPatch:
    return ApplyPatch(patching.parse_extended({"patch": list(operations)}))


class TestOneCommit:
    def test_all_edits_are_one_commit_at_one_revision(self, bounds: Bounds, ask: Ask) -> None:
        request = transaction(ask, ("a", put(1)), ("b", put(2)), ("a", put(3)), ("c", Delete()))
        decision = run(view(), bounds, request)
        assert [commit.revision for commit in decision.commits] == [8]
        assert changes(decision) == {"a": "put", "b": "put"}
        assert contents(decision) == {"a": 3, "b": 2}

    def test_two_patches_of_one_key_are_recorded_as_one(self, bounds: Bounds, ask: Ask) -> None:
        request = transaction(
            ask,
            ("a", patch({"op": "add", "path": "/x", "value": []})),
            ("a", patch({"op": "add", "path": "/x/-", "value": 1})),
            ("a", Merge({"y": None}, 10)),
        )
        decision = run(view(a_document({"y": 0}, key="a")), bounds, request)
        assert contents(decision) == {"a": {"x": [1]}}
        (change,) = decision.commits[0].changes
        assert change.action == "patch"
        assert patching.apply({"y": 0}, change.patch) == {"x": [1]}  # type: ignore[arg-type]

    def test_a_later_edit_that_cant_be_done_undoes_the_earlier_ones(
        self, bounds: Bounds, ask: Ask
    ) -> None:
        request = transaction(ask, ("a", put(1)), ("b", Delete()), ("c", replace("/x", 1)))
        error = refusal(run(view(a_document(5, key="b")), bounds, request))
        assert isinstance(error, DocumentNotFound)
        assert (error.action, error.otherwise) == (2, False)

    def test_what_changes_nothing_in_the_end_makes_no_commit(
        self, bounds: Bounds, ask: Ask
    ) -> None:
        state = view(a_document({"n": 1}, key="a"))
        for edits in (
            [("a", replace("/n", 2)), ("a", replace("/n", 1))],
            [("a", Move("b")), ("b", Move("a"))],
            [("b", put(1)), ("b", Delete())],
            [("b", put(1)), ("b", EditAttributes(put({"x": 1}))), ("b", Delete())],
            [("a", Delete()), ("a", put({"n": 1.0}))],
            [("a", EditAttributes(put({}))), ("c", Delete()), ("b", Get())],
            [],
        ):
            outcome = only(run(state, bounds, transaction(ask, *edits)))
            assert isinstance(outcome, Unchanged), edits
            assert not outcome.would_change

    def test_put_delete_put_makes_another_document(self, bounds: Bounds, ask: Ask) -> None:
        state = view(a_document(1, key="a"))
        request = transaction(ask, ("a", put(2)), ("a", Delete()), ("a", put(3)))
        decision = run(state, bounds, request)
        assert changes(decision) == {"a": "put"}
        assert decision.documents["a"].create_revision == 8

    def test_a_touch_makes_a_commit_without_changes(self, bounds: Bounds, ask: Ask) -> None:
        decision = run(view(), bounds, transaction(ask, (SETTINGS_KEY, Touch())))
        assert decision.commits[0].changes == ()

    def test_settings_are_checked_where_they_are_written(self, bounds: Bounds, ask: Ask) -> None:
        error = refusal(run(view(), bounds, transaction(ask, (SETTINGS_KEY, put({"x": 1})))))
        assert error.code == "invalid_settings"


class TestMoves:
    def test_a_chain_moves_the_document_to_its_end(self, bounds: Bounds, ask: Ask) -> None:
        state = view(a_document(1, key="a"))
        decision = run(state, bounds, transaction(ask, ("a", Move("b")), ("b", Move("c"))))
        assert changes(decision) == {"a": "delete", "c": "put"}
        outcome = only(decision)
        assert isinstance(outcome, Applied)
        after = outcome.documents["c"]
        assert after is not None
        assert (after.content, after.create_revision) == (1, 8)

    def test_attributes_move_too(self, bounds: Bounds, ask: Ask) -> None:
        request = transaction(
            ask, ("a", put(1)), ("a", EditAttributes(put({"o": 1}))), ("a", Move("b"))
        )
        assert run(view(), bounds, request).documents["b"].attributes == {"o": 1}

    def test_the_target_must_be_absent_also_where_it_is_the_source(
        self, bounds: Bounds, ask: Ask
    ) -> None:
        state = view(a_document(1, key="a"), a_document(2, key="b"))
        for to in ("a", "b"):
            error = refusal(run(state, bounds, transaction(ask, ("c", put(0)), ("a", Move(to)))))
            assert isinstance(error, TargetExists)
            assert (error.key, error.action) == (to, 1)

    def test_a_target_deleted_earlier_is_absent(self, bounds: Bounds, ask: Ask) -> None:
        state = view(a_document(1, key="a"), a_document(2, key="b"))
        decision = run(state, bounds, transaction(ask, ("b", Delete()), ("a", Move("b"))))
        assert changes(decision) == {"b": "put", "a": "delete"}
        assert decision.documents["b"].create_revision == 8

    def test_two_documents_change_places(self, bounds: Bounds, ask: Ask) -> None:
        state = view(a_document(1, key="a"), a_document(2, key="b"))
        request = transaction(ask, ("a", Move("c")), ("b", Move("a")), ("c", Move("b")))
        assert contents(run(state, bounds, request)) == {"a": 2, "b": 1}

    def test_what_isnt_there_cant_be_moved(self, bounds: Bounds, ask: Ask) -> None:
        error = refusal(run(view(), bounds, transaction(ask, ("a", Move("b")))))
        assert isinstance(error, DocumentNotFound)


class TestAttributes:
    def test_of_a_document_made_in_the_same_request(self, bounds: Bounds, ask: Ask) -> None:
        request = transaction(ask, ("a", put(1)), ("a", EditAttributes(put({"o": 1}))))
        decision = run(view(), bounds, request)
        (change,) = decision.commits[0].changes
        assert (change.action, change.attributes) == ("put", {"o": 1})

    @pytest.mark.parametrize("attributes", [{"x": "y" * 1000}, {"x" * 1000: 1}])
    def test_what_a_put_brings_along_is_held_to_the_limit(
        self, bounds: Bounds, ask: Ask, attributes: dict[str, Any]
    ) -> None:
        request = transaction(ask, ("a", Put(1, 1, attributes)))
        error = refusal(run(view(), bounds, request))
        assert isinstance(error, OverLimit)
        assert error.limit == "attributes_bytes_max"

    def test_they_are_an_object(self, bounds: Bounds, ask: Ask) -> None:
        for edit in (put([]), patch({"op": "replace", "path": "", "value": 1})):
            request = transaction(ask, ("a", put(1)), ("a", EditAttributes(edit)))
            assert isinstance(refusal(run(view(), bounds, request)), AttributesInvalid)


class TestCompares:
    def failed(self, decision: Decision) -> list[tuple[int, str | None]]:
        error = refusal(decision)
        assert isinstance(error, PreconditionFailed)
        return [(each.index, each.key) for each in error.conflict.compares]

    def test_all_that_are_false_are_told(self, bounds: Bounds, ask: Ask) -> None:
        here = a_document({"n": 1}, key="a")
        compare = (
            TokenIs("a", here.token),
            TokenIs("a", "1-x"),
            TokenIs("b", "1-x"),
            IsAbsent("a"),
            IsAbsent("b"),
            Equals("a", {"n": 1.0}),
            Equals("a", {"n": True}),
            Satisfies("a", patching.parse_tests([{"op": "less", "path": "/n", "value": 2}])),
            Satisfies("a", patching.parse_tests([{"op": "more", "path": "/n", "value": 2}])),
            Satisfies("b", patching.parse_tests([{"op": "undefined", "path": ""}])),
            RevisionIs(7),
            RevisionIs(6),
        )
        request = transaction(ask, ("c", put(1)), compare=compare)
        assert self.failed(run(view(here), bounds, request)) == [
            (1, "a"),
            (2, "b"),
            (3, "a"),
            (6, "a"),
            (8, "a"),
            (11, None),
        ]

    def test_else_is_committed_instead_and_says_so(self, bounds: Bounds, ask: Ask) -> None:
        request = transaction(
            ask,
            ("a", put(1)),
            compare=(IsAbsent("b"),),
            otherwise=[("c", put(2)), (SETTINGS_KEY, Touch())],
        )
        decision = run(view(a_document(0, key="b")), bounds, request)
        (commit,) = decision.commits
        assert (commit.succeeded, contents(decision)) == (False, {"c": 2})

    def test_else_without_effect_costs_no_revision(self, bounds: Bounds, ask: Ask) -> None:
        for otherwise in ([], [("b", Get())], [("b", put(0))]):
            request = transaction(ask, ("a", put(1)), compare=(IsAbsent("b"),), otherwise=otherwise)
            outcome = only(run(view(a_document(0, key="b")), bounds, request))
            assert isinstance(outcome, Unchanged)
            assert not outcome.succeeded

    def test_a_failure_in_else_says_that_it_was_there(self, bounds: Bounds, ask: Ask) -> None:
        otherwise = [("c", put(2)), ("a", replace("/x", 1))]
        request = transaction(ask, compare=(IsAbsent("b"),), otherwise=otherwise)
        error = refusal(run(view(a_document(0, key="b")), bounds, request))
        assert (error.action, error.otherwise) == (1, True)

    def test_tests_too_dear_to_tell_are_neither_true_nor_false(
        self, bounds: Bounds, ask: Ask
    ) -> None:
        large = a_document([1] * 10, key="a")
        heavy = Document(**{n: getattr(large, n) for n in large.__slots__} | {"size_bytes": 2**26})
        tests = patching.parse_tests([{"op": "defined", "path": "/10"}])
        few, many = ((Satisfies("a", tests),) * count for count in (2, 3))
        assert len(self.failed(run(view(heavy), bounds, transaction(ask, compare=few)))) == 2
        error = refusal(run(view(heavy), bounds, transaction(ask, compare=many)))
        assert isinstance(error, OverLimit)

    def test_a_stale_revision_or_token_says_since_when(self, bounds: Bounds, ask: Ask) -> None:
        for compare, since, key in ((RevisionIs(4), 4, None), (TokenIs("b", "3-x"), 3, "b")):
            error = refusal(run(view(), bounds, transaction(ask, compare=(compare,))))
            assert isinstance(error, PreconditionFailed)
            assert (error.conflict.since_revision, error.conflict.key) == (since, key)


class TestWhatHoldsAlready:
    """Sent again without an idempotency key: a success that changes nothing, if it is so."""

    state = view(a_document({"v": 2}, key="a"), a_document(1, key="b"))

    def outcome(self, bounds: Bounds, request: Request) -> Outcome:
        return only(run(self.state, bounds, request))

    @pytest.mark.parametrize(
        "compare",
        [
            (IsAbsent("a"),),
            (Equals("a", {"v": 1}),),
            (Satisfies("a", patching.parse_tests([{"op": "test", "path": "/v", "value": 1}])),),
            (Equals("a", {"v": 1}), Equals("b", 1), IsAbsent("c")),
        ],
    )
    def test_its_own_effect_is_no_refusal(
        self, bounds: Bounds, ask: Ask, compare: tuple[Compare, ...]
    ) -> None:
        request = transaction(ask, ("a", put({"v": 2})), compare=compare)
        outcome = self.outcome(bounds, request)
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
    def test_other_guards_stay_strict(
        self, bounds: Bounds, ask: Ask, compare: tuple[Compare, ...], value: Any
    ) -> None:
        request = transaction(ask, ("a", put(value)), compare=compare)
        assert isinstance(self.outcome(bounds, request), Refused)

    def test_reading_is_no_writing(self, bounds: Bounds, ask: Ask) -> None:
        request = transaction(ask, ("a", Get()), compare=(IsAbsent("a"),))
        assert isinstance(self.outcome(bounds, request), Refused)

    def test_a_touch_never_holds_already(self, bounds: Bounds, ask: Ask) -> None:
        edits = [("a", put({"v": 2})), (SETTINGS_KEY, Touch())]
        request = transaction(ask, *edits, compare=(IsAbsent("a"),))
        assert isinstance(self.outcome(bounds, request), Refused)


class TestBounds:
    def test_a_commit_too_heavy_is_refused_whole_dry_run_or_not(
        self, bounds: Bounds, ask: Ask
    ) -> None:
        edits = [(key, put("x" * 2_000_000)) for key in KEYS]
        for dry_run in (True, False):
            error = refusal(run(view(), bounds, transaction(ask, *edits, dry_run=dry_run)))
            assert isinstance(error, OverLimit)
            assert error.limit == "stored_bytes_max"

    def test_full_values_that_are_due_never_make_it_too_heavy(
        self, bounds: Bounds, ask: Ask
    ) -> None:
        """Of three documents of 2 MB only two fit with their full value; the third one waits."""
        content = {"n": 0, "text": "x" * 2_000_000}
        state = view(*(a_document(content, key=key, patches=3) for key in KEYS))
        request = transaction(ask, *((key, replace("/n", 1)) for key in KEYS))
        decision = run(state, bounds, request)
        assert changes(decision) == dict.fromkeys(KEYS, "patch")
        assert [change.is_whole for change in decision.commits[0].changes] == [True, True, False]
        assert [decision.documents[key].patches for key in KEYS] == [0, 0, 4]

    def test_an_extended_patch_in_else_is_measured_by_what_it_came_to(
        self, bounds: Bounds, ask: Ask
    ) -> None:
        """What was sent says nothing of it; the request's own edit is of another kind."""
        content = {"list": [7, "x" * 2_600_000, *[7] * 1500]}
        state = view(a_document(content, key="a", patches=3))
        pull = extended({"op": "pull", "path": "/list", "value": 7})
        request = transaction(
            ask, ("b", patch()), compare=(IsAbsent("a"),), otherwise=[("a", pull)]
        )
        (change,) = run(state, bounds, request).commits[0].changes
        assert len(str(change.patch)) > 2_600_000
        assert not change.is_whole  # there is no room for the full value too

    def test_patches_of_large_documents_are_bounded_in_sum(self, bounds: Bounds, ask: Ask) -> None:
        small = a_document({"n": 0}, key="a")
        large = Document(**{n: getattr(small, n) for n in small.__slots__} | {"size_bytes": 2**21})
        edits = [("a", Merge({"n": n}, 8)) for n in range(1, 18)]
        assert run(view(large), bounds, transaction(ask, *edits[:15])).commits
        error = refusal(run(view(large), bounds, transaction(ask, *edits)))
        assert isinstance(error, OverLimit)
        assert error.limit == "patched_bytes_max"

    def test_thousands_of_edits(self, bounds: Bounds, ask: Ask) -> None:
        keys = [f"k{n}" for n in range(4096)]
        decision = run(view(keys=keys), bounds, transaction(ask, *((key, put(1)) for key in keys)))
        assert len(decision.commits[0].changes) == 4096
        edits = [("a", patch({"op": "add", "path": "/-", "value": n})) for n in range(4095)]
        decision = run(view(), bounds, transaction(ask, ("a", put([])), *edits))
        assert decision.documents["a"].content == list(range(4095))


class TestDryRuns:
    def test_it_says_what_would_change(self, bounds: Bounds, ask: Ask) -> None:
        edits = [("a", Move("b")), ("b", replace("", 2))]
        request = transaction(ask, *edits, dry_run=True)
        decision = run(view(a_document(1, key="a")), bounds, request)
        outcome = only(decision)
        assert isinstance(outcome, Unchanged)
        assert decision.commits == ()
        assert outcome.would_change
        assert [(each.key, each.action) for each in outcome.changes] == [
            ("a", "delete"),
            ("b", "put"),
        ]
        assert outcome.documents["a"] is None
        assert outcome.documents["b"] is not None

    def test_a_refusal_is_the_same(self, bounds: Bounds, ask: Ask) -> None:
        request = transaction(ask, ("a", put(1)), ("a", replace("/x", 1)), dry_run=True)
        assert isinstance(refusal(run(view(), bounds, request)), PatchDoesNotFit)


def random_edit(random_: random.Random) -> tuple[str, Edit]:
    key = random_.choice(KEYS)
    value = random_.randrange(3)
    name = random_.choice("xy")
    edits: list[Edit] = [
        put({"x": value}),
        put({"x": value, "list": [value]}),
        Put({"y": value}, 8, random_.choice([None, {}, {"o": value}])),
        patch({"op": "add", "path": f"/{name}", "value": value}),
        patch({"op": "add", "path": "", "value": {"x": value}}),
        patch({"op": "remove", "path": ""}),
        extended({"op": "increment", "path": f"/{name}", "create_parents": True}),
        extended({"op": "add_to_set", "path": "/list", "value": value, "create_parents": True}),
        Merge({name: random_.choice([None, value])}, 10),
        Delete(),
        Move(random_.choice(KEYS)),
        EditAttributes(put({"o": value} if value else {})),
        EditAttributes(patch({"op": "add", "path": "/p", "value": value})),
        EditAttributes(Delete()),
        Get(),
    ]
    return key, random_.choice(edits)


@pytest.mark.parametrize("seed", range(30))
def test_history_tells_every_state_exactly(seed: int, bounds: Bounds, ask: Ask) -> None:
    """Each revision rebuilt from the recorded commits is the document that was decided.

    From the beginning, and from each change that says everything, as time travel does it.
    """
    random_ = random.Random(seed)
    commits: list[Commit] = []
    states: list[dict[str, Document | None]] = [dict.fromkeys((SETTINGS_KEY, *KEYS))]
    while len(commits) < 40:
        before = states[-1]
        edits = [random_edit(random_) for _ in range(random_.randrange(1, 6))]
        decision = run(View("c", len(commits), NOW, before), bounds, transaction(ask, *edits))
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


def _rebuilt(commits: list[Commit], key: str) -> Document | None:
    """As ``rebuild`` does it: from the newest change that needs no state before it."""
    needed: list[Commit] = []
    for commit in reversed(commits):
        change = next((each for each in commit.changes if each.key == key), None)
        if change is not None:
            needed.append(commit)
            if change.begins_at(commit.revision):
                break
    return advance_all(None, key, reversed(needed))


def test_the_states_that_history_tells_hold_tombstones_and_attributes(
    bounds: Bounds, ask: Ask
) -> None:
    request = transaction(ask, ("a", put(1)), ("a", EditAttributes(put({"o": 1}))))
    decision = run(view(), bounds, request)
    gone = run(view(decision.documents["a"], revision=8), bounds, transaction(ask, ("a", Delete())))
    assert gone.documents["a"].content is ABSENT
    assert gone.documents["a"].attributes is None
