"""What the patches and tests of one request may do, they may do together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.decide.compares import Satisfies
from gateway.decide.edits import KeyEdit
from gateway.decide.request import Request, Unchanged
from gateway.errors import AboveLimit
from patching.extended import parse_tests
from tests.without_http import RULES, ask, document, extended, put, refused, run, view

ITEMS = 1_000
RULES_OF_ONE = replace(
    RULES,
    limits=replace(
        RULES.limits, patch=replace(RULES.limits.patch, items_examined_max=int(2.5 * ITEMS))
    ),
)
LOOK = {"op": "in", "path": "/n", "value": list(range(ITEMS))}


def examining(times: int, tested: int = 0) -> Request:
    """A request whose patches, and tests before them, look at so many times the items."""
    edits = tuple(KeyEdit("k", extended(LOOK)) for _ in range(times))
    tests = tuple(Satisfies("k", parse_tests([LOOK])) for _ in range(tested))
    return ask(put(0), edits=edits, compare=tests)


@pytest.mark.parametrize(("times", "tested"), [(2, 0), (1, 1), (1, 0)])
def test_a_request_may_examine_as_many_items_as_one_patch(times: int, tested: int) -> None:
    state = view(document({"n": 0}))
    (outcome,) = run(state, examining(times, tested), rules=RULES_OF_ONE).outcomes
    assert isinstance(outcome, Unchanged)


@pytest.mark.parametrize(("times", "tested"), [(3, 0), (2, 1), (1, 2)])
def test_a_request_may_not_examine_more_items_than_one_patch(times: int, tested: int) -> None:
    state = view(document({"n": 0}))
    error = refused(
        run(state, examining(times, tested), rules=RULES_OF_ONE).outcomes[0], AboveLimit
    )
    assert (error.limit, error.maximum) == ("items_examined_max", int(2.5 * ITEMS))
    assert error.actual > error.maximum


def test_the_next_request_has_its_own_limit() -> None:
    state = view(document({"n": 0}))
    outcomes = run(state, examining(2), examining(2), rules=RULES_OF_ONE).outcomes
    assert all(isinstance(each, Unchanged) for each in outcomes)
