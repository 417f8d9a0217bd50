"""The principal that took a field over may give it back, and so may an admin; who sees losses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.access.people import APPLY, MERGE_PATCH, People, Person
from tests.http.conftest import problem


@pytest.fixture
def people(whole: People) -> People:
    """nightly applied /rows and /note of `k`; ann took the one over, bob the other."""
    whole.begin()
    apply(whole, rows=1, note="x")
    for name, taken in (("ann", {"rows": 2}), ("bob", {"note": "y"})):
        assert whole(name).send("PATCH", "/documents/k", taken, MERGE_PATCH).status_code == 200
    return whole


def apply(people: People, **wanted: Any) -> Any:
    return people("root").send("PATCH", "/documents/k?manager=nightly", wanted, APPLY)


def give_back(person: Person, *pointers: str) -> Any:
    query = "&".join(f"pointer={each}" for each in pointers)
    return person.send("DELETE", f"/owners/k?{query}")


def owners(people: People) -> dict[str, str]:
    told = people("root").get("/owners/k").get_json()["owners"]
    return {each["pointer"]: each["owners"][0]["manager"] for each in told}


def test_a_principal_gives_back_only_its_own_fields(people: People) -> None:
    refused = problem(give_back(people("ann"), "/note"), 409, "owned_by_others")
    assert [(each["pointer"], each["owners"][0]["manager"]) for each in refused["contested"]] == [
        ("/note", "bob")
    ]
    problem(give_back(people("ann"), "/rows", "/note"), 409, "owned_by_others")
    assert owners(people) == {"/rows": "ann", "/note": "bob"}
    assert give_back(people("ann"), "").get_json()["changed"] is True
    assert owners(people) == {"/note": "bob"}
    problem(give_back(people("eve"), "/note"), 403, "forbidden")
    problem(apply(people, rows=7, note="x"), 409, "owned_by_others")


def test_an_admin_gives_back_the_fields_of_any_principal(people: People) -> None:
    assert give_back(people("root"), "").get_json()["changed"] is True
    assert owners(people) == {}
    assert apply(people, rows=7, note="z").status_code == 200


def test_a_transaction_and_a_bulk_line_give_back_only_own_fields(people: People) -> None:
    action = {"action": "give_back", "key": "k", "pointers": ["/note"]}
    problem(people("ann").transaction(then=[action]), 409, "owned_by_others")
    line = {"catalog": people.catalog, "op": "give_back", "key": "k", "pointers": ["/note"]}
    (answer,) = people("ann").bulk(line)
    assert answer["problem"]["code"] == "owned_by_others"
    (answer,) = people("bob").bulk(line)
    assert answer["changed"] is True


def test_losses_are_listed_only_for_readable_documents(people: People) -> None:
    def told(name: str) -> list[tuple[str, str]]:
        found = people(name).get("/owners?lost_by=nightly").get_json()["losses"]
        return [(each["key"], each["author"]) for each in found]

    assert told("eve") == told("root") == [("k", "bob"), ("k", "ann")]
    people("ann").put_attributes("k", {"acl": {"read": ["ann"], "write": ["ann"]}})
    assert (told("eve"), told("bob")) == ([], [])
    assert told("ann") == told("root") == [("k", "bob"), ("k", "ann")]


def test_losses_do_not_show_who_owns_a_later_document_that_is_hidden(people: People) -> None:
    assert people("ann").delete("k").status_code == 204
    made = [
        {"action": "apply", "key": "k", "value": {"rows": 3}, "manager": "secret"},
        {"action": "attributes", "key": "k", "value": {"acl": {"read": ["ann"], "write": []}}},
    ]
    assert people("root").transaction(then=made).status_code == 200
    for name, found in (("eve", 0), ("ann", 1), ("root", 1)):
        assert len(people(name).get("/owners?lost_by=nightly").get_json()["losses"]) == found
