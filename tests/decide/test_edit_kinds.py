"""Each kind of edit says in one place what it requires, and passes through every layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from gateway.decide.edits import EDIT_KINDS, Edit, Get, MoveKey, Touch
from gateway.decide.performing import EDITED
from gateway.decide.ranges import RangeEdit
from gateway.decide.rebase import Rebased
from gateway.decide.reverting import Revert
from gateway.http.write import transactions
from gateway.http.write.ask import VERBS
from gateway.http.write.bulk_lines import _OPERATIONS


def kinds(union: Any) -> Iterator[type]:
    for each in get_args(union):
        yield from kinds(each) if get_args(each) else (each,)


EVERY = set(kinds(Edit))
# Done by ``RequestDrafts.perform`` itself, or document by document.
_OTHERWISE = {Get, Touch, MoveKey, *kinds(RangeEdit)}


def test_every_kind_of_edit_has_a_row() -> None:
    assert EDIT_KINDS.keys() == EVERY


def test_every_kind_of_edit_is_performed() -> None:
    assert EDITED.keys() == EVERY - _OTHERWISE


def test_every_edit_that_can_be_rebased_has_a_footprint() -> None:
    assert {kind for kind, row in EDIT_KINDS.items() if row.is_rebased} == set(kinds(Rebased))


def test_every_weighed_edit_is_of_one_document() -> None:
    assert {kind for kind, row in EDIT_KINDS.items() if row.is_weighed} <= EDITED.keys()


def test_every_kind_of_edit_has_one_verb() -> None:
    said = [edit for verb in VERBS.values() for edit in verb.edits]
    assert len(said) == len(set(said))
    assert set(said) == EVERY - {Revert}, "reverts have a route of their own"


def test_every_verb_is_parsed() -> None:
    with_key = {name for name, verb in VERBS.items() if "key" in verb.place}
    assert transactions._READ.keys() == with_key
    assert _OPERATIONS.keys() == {name for name, verb in VERBS.items() if verb.method}
