"""Who may undo what: all that a revert goes back to, and from, has to be readable and writable."""

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.test import TestResponse

from gateway.access import Grant, Principal, Role
from gateway.decide.request import Refused
from gateway.decide.reverting import Revert, Undo
from gateway.errors import DocumentForbidden
from tests.access.people import People, Person
from tests.http.conftest import problem
from tests.without_http import ask, document, run, view

SECRET = "Zq7Secret"
ANN_ALONE = {"acl": {"read": ["ann"], "write": ["ann", "wes"]}, "note": SECRET}


@pytest.fixture
def people(whole: People) -> People:
    """1 makes `k`, 2 `open`, 3 closes `k`, 4 changes both, 5 only `open`; 6 sets the catalog up."""
    whole.begin()
    ann = whole("ann")
    ann.put("k", {"n": 1, "s": SECRET})
    ann.put("open", {"n": 1})
    ann.put_attributes("k", ANN_ALONE)
    both = [{"action": "merge", "key": key, "value": {"n": 2}} for key in ("k", "open")]
    assert ann.transaction(then=both).status_code == 200
    assert whole("bob").put("open", {"n": 3}).status_code == 200
    assert whole("root").send("PUT", "", {"require_precondition": False}).status_code == 201
    return whole


def revert(person: Person, **body: Any) -> TestResponse:
    return person.send("POST", "/reverts", body)


@pytest.mark.parametrize("name", ["bob", "wes"])
@pytest.mark.parametrize(
    "body",
    [
        {"revisions": [4]},
        {"revisions": [1]},
        {"revisions": [3], "conflict": "force"},
        {"to": 3},
        {"to": 0, "prefix": "k"},
        {"revisions": [4], "dry_run": True, "conflict": "force"},
    ],
)
def test_a_revert_that_needs_unreadable_documents_is_refused(
    people: People, name: str, body: Any
) -> None:
    answer = revert(people(name), **body)
    found = problem(answer, 403, "forbidden")
    assert SECRET not in answer.get_data(as_text=True)
    assert "key" not in found
    assert people("ann").get("/documents/k").get_json() == {"n": 2, "s": SECRET}


def test_a_revert_of_readable_and_writable_documents_is_applied(people: People) -> None:
    assert revert(people("bob"), revisions=[5]).status_code == 200
    assert revert(people("bob"), to=2, prefix="open").status_code == 200
    assert people("bob").get("/documents/open").get_json() == {"n": 1}
    assert revert(people("ann"), revisions=[4], conflict="skip").status_code == 200
    assert people("ann").get("/documents/k").get_json() == {"n": 1, "s": SECRET}
    problem(revert(people("eve"), revisions=[5]), 403, "forbidden")


def test_the_last_acl_of_a_deleted_document_applies_to_its_revert(people: People) -> None:
    assert people("ann").delete("k").status_code == 204
    problem(revert(people("bob"), revisions=[7]), 403, "forbidden")
    problem(revert(people("bob"), to=6), 403, "forbidden")
    assert revert(people("ann"), revisions=[7]).status_code == 200
    problem(people("bob").get("/documents/k"), 403, "forbidden")


def test_only_an_admin_can_revert_settings(people: People) -> None:
    refused = problem(revert(people("ann"), revisions=[6]), 403, "forbidden")
    assert refused["role"] == "admin"
    assert revert(people("root"), revisions=[6]).status_code == 200
    assert people("root").get("").get_json()["settings"] is None


def test_the_acl_of_the_state_to_be_written_applies() -> None:
    """However it was when history was read."""
    was, now = document({"n": 1}), document({"n": 2})
    closed = document({"n": 2}, attributes={"acl": {"read": ["ann"], "write": ["ann"]}})
    undo = Revert((Undo(now, was),))
    for name, at, is_refused in (
        ("bob", closed, True),
        ("ann", closed, False),
        ("bob", now, False),
    ):
        by = Principal(name, (Grant(Role.WRITE, "*"),))
        (outcome,) = run(view(at), ask(undo, by=by)).outcomes
        forbidden = isinstance(outcome, Refused) and isinstance(outcome.error, DocumentForbidden)
        assert forbidden == is_refused, outcome
