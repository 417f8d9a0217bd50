"""Who may write a document that has an acl: listed, not listed, admin, on every route that writes.

An acl is checked on the state that is written, so a change of it and a write are in one order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from werkzeug.test import TestResponse

from gateway.access import Grant, Principal, Role
from gateway.decide.edits import EditAttributes
from gateway.decide.request import Applied, Refused, View
from gateway.errors import DocumentForbidden
from tests.access.people import APPLY, EXTENDED_PATCH, MERGE_PATCH, People, Person
from tests.access.test_acl import MALFORMED
from tests.http.conftest import problem
from tests.patience import WAIT_S
from tests.without_http import ask, patch, put, run

ANN_ALONE = {"acl": {"read": ["ann"], "write": ["ann"]}, "team": "x"}


@pytest.fixture
def people(whole: People) -> People:
    """`k` is ann's alone; everybody who may write the catalog may write `open`."""
    whole.begin()
    ann = whole("ann")
    ann.put("k", {"n": 1})
    ann.put_attributes("k", ANN_ALONE)
    ann.put("open", {"n": 1})
    return whole


def upload(person: Person, **terms: Any) -> TestResponse:
    """Opens one on `k` and commits it."""
    opened = person.send("POST", "/uploads", {"key": "k", **terms})
    if opened.status_code != 201:
        return opened
    place = f"/uploads/{opened.get_json()['upload']}"
    person.send("PUT", f"{place}/parts/1", b'{"n":2}', "application/octet-stream")
    return person.send("POST", f"{place}/commit")


def then(*actions: dict[str, Any], **more: Any) -> Callable[[Person], TestResponse]:
    return lambda person: person.transaction(then=list(actions), **more)


REPLACE = {"op": "replace", "path": "/n", "value": 2}
WRITES: dict[str, Callable[[Person], TestResponse]] = {
    "put": lambda p: p.put("k", {"n": 2}),
    "put_if_match": lambda p: p.put("k", {"n": 2}, If_Match="*"),
    "patch": lambda p: p.patch("k", REPLACE),
    "merge": lambda p: p.send("PATCH", "/documents/k", {"n": 2}, MERGE_PATCH),
    "extended": lambda p: p.send(
        "PATCH", "/documents/k", {"patch": [{"op": "increment", "path": "/n"}]}, EXTENDED_PATCH
    ),
    "apply": lambda p: p.send("PATCH", "/documents/k", {"n": 2}, APPLY),
    "let_go": lambda p: p.send("DELETE", "/owners/k"),
    "give_back": lambda p: p.send("DELETE", "/owners/k?pointer="),
    "delete": lambda p: p.delete("k"),
    "remove": lambda p: p.patch("k", {"op": "remove", "path": ""}),
    "put_attributes": lambda p: p.put_attributes("k", {}),
    "patch_attributes": lambda p: p.send("PATCH", "/attributes/k", {"team": "y"}, MERGE_PATCH),
    "delete_attributes": lambda p: p.send("DELETE", "/attributes/k"),
    "dry_run": lambda p: p.send("PUT", "/documents/k?dry_run=true", {"n": 2}),
    "no_op": lambda p: p.put("k", {"n": 1}),
    "upload": upload,
    "upload_if_match": lambda p: upload(p, if_match="*"),
    "upload_clear": lambda p: upload(p, attributes={"mode": "clear"}),
    "upload_replace": lambda p: upload(p, attributes={"mode": "replace", "value": {"a": 1}}),
    "then_put": then({"action": "put", "key": "k", "value": 2}),
    "then_put_clear": then(
        {"action": "put", "key": "k", "value": 2, "attributes": {"mode": "clear"}}
    ),
    "then_patch": then({"action": "patch", "key": "k", "patch": [REPLACE]}),
    "then_merge": then({"action": "merge", "key": "k", "value": {"n": 2}}),
    "then_delete": then({"action": "delete", "key": "k"}),
    "then_attributes": then({"action": "attributes", "key": "k", "value": {}}),
    "then_get": then({"action": "get", "key": "k"}),
    "move_from": then({"action": "move", "from": "k", "to": "moved"}),
    "second_action": then({"action": "touch"}, {"action": "put", "key": "k", "value": 2}),
    "after_a_move": then(
        {"action": "put", "key": "k", "value": 2}, {"action": "move", "from": "k", "to": "moved"}
    ),
    "compare_etag": then(compare=[{"key": "k", "etag": "1-00000000"}], **{"else": []}),
    "compare_absent": then(compare=[{"key": "k", "absent": True}], **{"else": []}),
    "compare_equals": then(compare=[{"key": "k", "equals": {"n": 1}}]),
    "compare_test": then(
        compare=[{"key": "k", "test": [{"op": "test", "path": "/n", "value": 1}]}]
    ),
    "else_get": then(
        compare=[{"key": "open", "absent": True}], **{"else": [{"action": "get", "key": "k"}]}
    ),
    "composite": lambda p: p.put("open", 2, If_Match='"k=1-00000000"'),
}


ACTIONS: list[dict[str, Any]] = [
    {"action": "put", "key": "k", "value": 2},
    {"action": "patch", "key": "k", "patch": [REPLACE]},
    {"action": "merge", "key": "k", "value": {"n": 2}},
    {"action": "delete", "key": "k"},
    {"action": "give_back", "key": "k", "pointers": [""]},
    {"action": "attributes", "key": "k", "value": {}},
    {"action": "attributes", "key": "k", "patch": [{"op": "remove", "path": "/team"}]},
    {"action": "move", "from": "k", "to": "moved"},
    {"action": "get", "key": "k"},
]


def kept(people: People) -> Any:
    return people("root").get("/documents?key=k&key=open&key=moved").get_json()


@pytest.mark.parametrize("name", WRITES)
def test_only_a_listed_principal_may_write(name: str, people: People) -> None:
    before = kept(people)
    refused = problem(WRITES[name](people("bob")), 403, "forbidden")
    assert refused["key"] == "k"
    assert refused["right"] in ("read", "write")
    assert kept(people) == before
    for allowed in ("ann", "root"):
        people.begin()
        people("ann").put("k", {"n": 1})
        people("ann").put_attributes("k", ANN_ALONE)
        people("ann").put("open", {"n": 1})
        answer = WRITES[name](people(allowed))
        # The composite's token is stale.
        assert answer.status_code in ((412,) if name == "composite" else (200, 204)), name


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action["action"])
def test_the_actions_after_the_compares_are_checked_too(action: Any, people: People) -> None:
    """In the branch that is taken, and only in that one."""
    holds, fails = {"key": "new", "absent": True}, {"key": "open", "absent": True}
    before = kept(people)
    bob, touch = people("bob"), [{"action": "touch"}]
    for taken in ({"compare": [holds], "then": [action]}, {"compare": [fails], "else": [action]}):
        problem(bob.transaction(**taken), 403, "forbidden")
    for other in (
        {"compare": [fails], "then": [action], "else": touch},
        {"compare": [holds], "then": touch, "else": [action]},
    ):
        assert bob.transaction(**other).status_code == 200
    assert kept(people)["documents"] == before["documents"]
    assert people("ann").transaction(compare=[holds], then=[action]).status_code == 200


def test_the_refusal_names_the_action_at_fault(people: People) -> None:
    bob = people("bob")
    refused = problem(WRITES["second_action"](bob), 403, "forbidden")
    assert (refused["action"], refused["right"]) == (1, "write")
    for action in ACTIONS:
        assert problem(bob.transaction(then=[action]), 403, "forbidden")["action"] == 0
    else_get = problem(WRITES["else_get"](bob), 403, "forbidden")
    assert (else_get["action"], else_get["branch"], else_get["right"]) == (0, "else", "read")


def test_each_line_of_a_bulk_request_is_checked_by_itself(people: People) -> None:
    lines: list[dict[str, Any]] = [
        {"op": "put", "key": "k", "value": 2},
        {"op": "put", "key": "open", "value": 2},
        {"op": "patch", "key": "k", "patch": [REPLACE]},
        {"op": "merge", "key": "k", "value": {"n": 2}},
        {"op": "delete", "key": "k"},
        {"op": "touch", "key": "k", "if_match": "1-00000000"},
        {"op": "touch"},
    ]
    answers = people("bob").bulk(*({"catalog": people.catalog, **line} for line in lines))
    assert [answer["status"] for answer in answers] == [403, 200, 403, 403, 403, 403, 200]
    assert answers[0]["problem"]["key"] == "k"
    own = people("ann").bulk({"catalog": people.catalog, "op": "put", "key": "k", "value": 2})
    assert own[0]["status"] == 200


def test_write_access_does_not_include_read_access(people: People) -> None:
    """A principal may write a whole value without reading the old one, but nothing that depends on
    it."""
    people("ann").put_attributes("k", {"acl": {"read": ["ann"]}})
    bob = people("bob")
    assert bob.put("k", {"n": 3}).status_code == 200
    assert upload(bob, if_match="*").status_code == 200
    for blind in ("patch", "merge", "extended", "patch_attributes", "then_get", "move_from"):
        assert problem(WRITES[blind](bob), 403, "forbidden")["right"] == "read", blind
    shown = bob.put("k", {"n": 4}, Prefer="return=representation")
    assert shown.get_json()["revision"], "the write's answer, not the document"
    assert "Preference-Applied" not in shown.headers
    assert bob.delete("k").status_code == 204


def test_read_access_does_not_include_write_access(people: People) -> None:
    people("ann").put_attributes("k", {"acl": {"write": ["ann"]}})
    bob = people("bob")
    for name, write in WRITES.items():
        if name == "composite" or name.startswith(("compare", "then_get", "else_get")):
            assert write(bob).status_code != 403, name
        else:
            assert problem(write(bob), 403, "forbidden")["right"] == "write", name


def test_an_acl_survives_replaces(people: People) -> None:
    """Row O3: whatever replaces the content keeps the attributes, and the acl with them."""
    ann = people("ann")
    for write in ("put", "merge", "upload", "upload_if_match", "then_put", "then_merge"):
        assert WRITES[write](ann).status_code == 200, write
        assert ann.get("/attributes/k").get_json() == ANN_ALONE
        problem(people("bob").get("/documents/k"), 403, "forbidden")
    assert WRITES["move_from"](ann).status_code == 200
    problem(people("bob").get("/documents/moved"), 403, "forbidden")
    problem(people("bob").put("moved", 1), 403, "forbidden")
    ann.delete("moved")
    assert people("bob").put("moved", 1).status_code == 201, "what is made anew has none"


def test_a_move_needs_write_access_to_both_keys(people: People) -> None:
    ann, bob = people("ann"), people("bob")
    move = {"action": "move", "from": "open", "to": "k"}
    assert problem(bob.transaction(then=[move]), 403, "forbidden")["key"] == "k"
    problem(ann.transaction(then=[move]), 409, "target_exists")
    # Behind a move the acl that came along holds.
    both: list[dict[str, Any]] = [
        {"action": "move", "from": "k", "to": "moved"},
        {"action": "attributes", "key": "moved", "value": {"acl": {"write": ["bob"]}}},
        {"action": "put", "key": "moved", "value": 1},
    ]
    refused = problem(ann.transaction(then=both), 403, "forbidden")
    assert (refused["key"], refused["action"]) == ("moved", 2)


def test_an_acl_can_be_changed_only_by_writers_of_the_old_one(people: People) -> None:
    ann, bob = people("ann"), people("bob")
    problem(bob.put_attributes("k", {"acl": {"write": ["bob"]}}), 403, "forbidden")
    assert ann.put_attributes("k", {"acl": {"write": ["bob"]}}).status_code == 200
    problem(ann.put_attributes("k", {}), 403, "forbidden")
    assert bob.put("k", 2).status_code == 200
    assert people("root").put_attributes("k", {}).status_code == 200
    assert ann.put("k", 3).status_code == 200


@pytest.mark.parametrize(("acl", "pointer"), MALFORMED)
def test_a_malformed_acl_is_refused_on_every_route(acl: Any, pointer: str, people: People) -> None:
    ann, malformed = people("ann"), {"acl": acl}
    attributes = {"mode": "replace", "value": malformed}
    patched = {"patch": [{"op": "add", "path": "/acl", "value": acl}]}
    for answer in (
        ann.put_attributes("open", malformed),
        ann.send("PATCH", "/attributes/open", patched, EXTENDED_PATCH),
        ann.send("POST", "/uploads", {"key": "open", "attributes": attributes}),
        ann.transaction(then=[{"action": "attributes", "key": "open", "value": malformed}]),
        ann.transaction(
            then=[{"action": "put", "key": "new", "value": 1, "attributes": attributes}]
        ),
    ):
        refused = problem(answer, 422, "invalid_attributes")
        assert refused["pointer"] == pointer
    assert ann.get("/attributes/open").get_json() == {}


ANN = Principal("ann", (Grant(Role.WRITE, "c"),))
BOB = Principal("bob", (Grant(Role.WRITE, "c"),))


def test_a_change_of_the_acl_applies_to_later_writes_of_its_batch() -> None:
    """In one batch, what comes behind a change of the acl is decided by the new one."""
    requests = [
        ask(put({"n": 1}), by=ANN),
        ask(put({"n": 2}), by=BOB),
        ask(EditAttributes(put({"acl": {"write": ["ann"]}})), by=ANN),
        ask(put({"n": 3}), by=BOB),
        ask(patch({"op": "replace", "path": "/n", "value": 4}), by=ANN),
        ask(EditAttributes(put({"acl": {}})), by=ANN),
        ask(put({"n": 5}), by=BOB),
    ]
    view = View("c", 0, 0, {"k": None, "": None})
    decision = run(view, *requests, now_us=1)
    assert [isinstance(outcome, Applied) for outcome in decision.outcomes] == [
        True, True, True, False, True, True, True,
    ]  # fmt: skip
    refused = decision.outcomes[3]
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, DocumentForbidden)


def test_no_write_is_applied_after_an_acl_that_forbids_it(people: People) -> None:
    """Raced over HTTP: the history has none of bob's writes behind the change that shut him out."""
    writers = 4
    ready = threading.Barrier(writers + 1)
    statuses: list[int] = []

    def write(number: int) -> None:
        bob = people("bob")
        ready.wait()
        for each in range(10):
            statuses.append(bob.put("open", {"n": 10 * number + each + 100}).status_code)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    ready.wait()
    ann = people("ann")
    for n in range(3):
        ann.patch("open", {"op": "test", "path": "", "value": n})  # a little later
    assert ann.put_attributes("open", {"acl": {"write": ["ann"]}}).status_code == 200
    for thread in threads:
        thread.join(WAIT_S)
    assert len(statuses) == 10 * writers
    assert set(statuses) <= {200, 403}
    log = people("root").commits("?key=open")
    shut = next(c["revision"] for c in log if c["changes"][0]["action"] == "attributes")
    bobs = [commit["revision"] for commit in log if commit["author"] == "bob"]
    assert len(bobs) == statuses.count(200)
    assert all(revision < shut for revision in bobs)


def test_deleting_or_replacing_a_range_needs_write_access_to_all_of_it(people: People) -> None:
    bob, ann = people("bob"), people("ann")
    delete = {"action": "delete", "prefix": ""}
    replace = {"action": "replace", "prefix": "", "documents": {"open": {"n": 2}}}
    for action in (delete, replace):
        told = problem(bob.transaction(then=[action]), 403, "forbidden")
        assert (told["prefix"], told["right"], "key" in told) == ("", "write", False), "not named"
    told = problem(
        bob.transaction(then=[{**replace, "documents": {"k": {"n": 3}}}]), 403, "forbidden"
    )
    assert told["key"] == "k", "whose name was sent"
    ann.put_attributes("k", {"acl": {"write": ["ann"]}})
    assert problem(bob.transaction(then=[delete]), 403, "forbidden")["key"] == "k"
    ann.put_attributes("k", {"acl": {"read": ["ann"]}})
    dry = bob.transaction(then=[delete], dry_run=True).get_json()
    assert dry["results"][0]["deleted"] == 2
    assert [each["key"] for each in dry["changes"]] == ["open"], "what it may not read isn't named"
    for who, told_more in ((bob, False), (ann, True)):
        dry = who.delete("k?dry_run=true").get_json()
        assert (dry["changed"], "changes" in dry) == (True, told_more)
    ann.put_attributes("k", ANN_ALONE)
    only_open = {"action": "delete", "prefix": "o"}
    assert bob.transaction(then=[only_open]).status_code == 200
    assert ann.transaction(then=[delete]).status_code == 200


def test_a_condition_of_an_action_needs_read_access(people: People) -> None:
    bob = people("bob")
    action = {"action": "put", "key": "open", "value": 1, "if": [{"key": "k", "absent": True}]}
    told = problem(bob.transaction(then=[{"action": "touch"}, action]), 403, "forbidden")
    assert (told["key"], told["right"], told["action"]) == ("k", "read", 1)
    counted = {**action, "if": [{"prefix": "k", "count": {"equal": 1}}]}
    assert bob.transaction(then=[counted]).status_code == 200, "how many there are is no secret"
