"""Applies: a manager sends what it wants, owns what it sent, and learns who owns the rest."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import TestResponse

from patching.owners import OwnerTree
from tests.http.conftest import Catalog, problem

APPLY = "application/vnd.metadata.apply+json"


class Owned:
    """Document ``k`` of a catalog, and its owners."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.owners_path = f"{catalog.path}/owners/k"

    def apply(self, wanted: Any, manager: str = "", query: str = "", **headers: str) -> Any:
        asked = "&".join(filter(None, [manager and f"manager={quote(manager)}", query]))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.catalog.client.patch(
            f"{self.catalog.document('k')}?{asked}".rstrip("?"),
            data=json.dumps(wanted),
            content_type=APPLY,
            headers=named,
        )

    def owners(self, query: str = "") -> dict[str, list[tuple[str, int, bool]]]:
        answer = self.catalog.client.get(self.owners_path + query)
        assert answer.status_code == 200
        return {
            each["pointer"]: [(o["manager"], o["since"], o["plain"]) for o in each["owners"]]
            for each in answer.get_json()["owners"]
        }

    def let_go(self, query: str = "", **headers: str) -> TestResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.catalog.client.delete(self.owners_path + query, headers=named)

    def content(self) -> Any:
        return self.catalog.get().get_json()


@pytest.fixture
def owned(catalog: Catalog) -> Owned:
    return Owned(catalog)


def test_an_apply_creates_and_owns_and_a_repeated_one_changes_nothing(owned: Owned) -> None:
    first = owned.apply({"tier": 1, "by": {"team": "x"}}, "nightly")
    assert first.status_code == 201
    assert first.headers["Location"] == owned.catalog.document("k")
    assert owned.owners() == {
        "/by/team": [("nightly", 1, False)],
        "/tier": [("nightly", 1, False)],
    }
    again = owned.apply({"tier": 1, "by": {"team": "x"}}, "nightly")
    assert (again.status_code, again.get_json()["changed"]) == (200, False)
    assert again.headers["ETag"] == first.headers["ETag"]


def test_without_a_name_the_manager_is_the_principal(owned: Owned) -> None:
    owned.apply({"tier": 1})
    assert owned.owners() == {"/tier": [("anonymous", 1, False)]}


def test_a_conflict_names_pointer_owner_revision_and_both_values(owned: Owned) -> None:
    owned.apply({"tier": 1, "note": "x"}, "a")
    failed = problem(owned.apply({"tier": 2, "note": "x"}, "b"), 409, "owned_by_others")
    assert failed["pointer"] == "/tier"
    assert failed["applied"] == "no"
    assert failed["contested"] == [
        {
            "pointer": "/tier",
            "owners": [{"manager": "a", "since": 1, "plain": False}],
            "value": 1,
            "wanted": 2,
        }
    ]
    assert failed["contested_count"] == 1
    assert failed["current"]["revision"] == 1
    assert owned.catalog.head_revision() == 1


def test_large_values_are_omitted_from_a_conflict(owned: Owned) -> None:
    owned.apply({"note": "x" * 5000}, "a")
    failed = problem(owned.apply({"note": {"b": 1}}, "b"), 409, "owned_by_others")
    assert failed["contested"][0].keys() == {"pointer", "owners", "wanted"}


def test_the_former_owner_gets_a_conflict_after_a_plain_takeover(owned: Owned) -> None:
    owned.apply({"tier": 1}, "nightly")
    owned.catalog.patch({"op": "replace", "path": "/tier", "value": 5})
    failed = problem(owned.apply({"tier": 1}, "nightly"), 409, "owned_by_others")
    assert failed["contested"][0]["owners"] == [{"manager": "anonymous", "since": 2, "plain": True}]
    assert owned.content() == {"tier": 5}


def test_skipped_places_are_listed_whatever_the_preference(owned: Owned) -> None:
    owned.apply({"tier": 1}, "a")
    skipped = [{"pointer": "/tier", "owners": [{"manager": "a", "since": 1, "plain": False}]}]
    for n, prefer in enumerate(("return=minimal", "return=representation", "x"), 1):
        answer = owned.apply({"tier": 2, "n": n}, "b", "conflict=skip", Prefer=prefer)
        assert answer.status_code == 200
        assert answer.get_json()["skipped"] == skipped
    assert owned.content() == {"tier": 1, "n": 3}
    again = owned.apply({"tier": 2, "n": 3}, "b", "conflict=skip")
    assert (again.get_json()["changed"], again.get_json()["skipped"]) == (False, skipped)


def test_force_takes_over_everything_or_the_named_places(owned: Owned) -> None:
    owned.apply({"a": 1, "b/c": {"x": 1, "y": 1}}, "a")
    wanted = {"a": 2, "b/c": {"x": 2, "y": 2}}
    failed = problem(owned.apply(wanted, "b", "force=/b~1c/x&force=/a"), 409, "owned_by_others")
    assert [each["pointer"] for each in failed["contested"]] == ["/b~1c/y"]
    answer = owned.apply(wanted, "b", "force=/b~1c/x&conflict=skip")
    assert [each["pointer"] for each in answer.get_json()["skipped"]] == ["/a", "/b~1c/y"]
    assert owned.apply(wanted, "b", "conflict=force").status_code == 200
    assert owned.content() == wanted
    assert {by for _, owners in owned.owners().items() for by, *_ in owners} == {"b"}


def test_a_dry_run_shows_values_and_owners_and_changes_nothing(owned: Owned) -> None:
    owned.apply({"tier": 1}, "a")
    answer = owned.apply({"tier": 2}, "b", "dry_run=true&conflict=force").get_json()
    assert (answer["dry_run"], answer["changed"], answer["etag"]) == (True, True, None)
    (change,) = answer["changes"]
    assert change["patch"] == [{"op": "replace", "path": "/tier", "value": 2}]
    assert change["owners"] == [
        {"manager": "a", "plain": False, "gained": [], "lost": ["/tier"]},
        {"manager": "b", "plain": False, "gained": ["/tier"], "lost": []},
    ]
    assert owned.content() == {"tier": 1}
    assert owned.catalog.head_revision() == 1


def test_history_and_feed_show_changes_of_owners(owned: Owned) -> None:
    owned.apply({"tier": 1}, "a")
    owned.catalog.patch({"op": "add", "path": "/note", "value": 1})
    owned.catalog.patch({"op": "replace", "path": "/tier", "value": 5}, Commit_Author="anonymous")
    path = owned.catalog.path
    told = owned.catalog.client.get(f"{path}/commits").get_json()["commits"]
    fed = owned.catalog.client.get(f"{path}/changes?after=0&timeout=0").get_json()["commits"]
    assert told == fed
    changes = [commit["changes"][0] for commit in told]
    assert changes[0]["owners"] == [
        {"manager": "a", "plain": False, "gained": ["/tier"], "lost": []}
    ]
    assert "owners" not in changes[1]
    assert changes[2]["owners"] == [
        {"manager": "a", "plain": False, "gained": [], "lost": ["/tier"]},
        {"manager": "anonymous", "plain": True, "gained": ["/tier"], "lost": []},
    ]


def test_owners_can_be_read_at_an_earlier_revision_or_time(owned: Owned) -> None:
    owned.apply({"tier": 1}, "a")
    time = owned.catalog.client.get(f"{owned.catalog.path}/commits/1").get_json()["time"]
    owned.apply({"tier": 2}, "b", "conflict=force")
    assert owned.owners() == {"/tier": [("b", 2, False)]}
    assert owned.owners("?revision=1") == {"/tier": [("a", 1, False)]}
    assert owned.owners(f"?at={time}") == {"/tier": [("a", 1, False)]}
    answer = owned.catalog.client.get(owned.owners_path)
    assert answer.headers["ETag"] == owned.catalog.get().headers["ETag"]
    tag = answer.headers["ETag"]
    unchanged = owned.catalog.client.get(owned.owners_path, headers={"If-None-Match": tag})
    assert unchanged.status_code == 304


def test_a_document_without_applies_has_no_owners(owned: Owned) -> None:
    problem(owned.catalog.client.get(owned.owners_path), 404, "document_not_found")
    owned.catalog.put({"x": 1})
    assert owned.owners() == {}


def test_letting_go_removes_values_without_another_owner(owned: Owned) -> None:
    owned.apply({"x": 1, "y": 1}, "a")
    owned.apply({"y": 1}, "b")
    shown = owned.let_go("?manager=a&dry_run=true").get_json()
    assert shown["changes"][0]["patch"] == [{"op": "remove", "path": "/x"}]
    assert owned.let_go("?manager=a").status_code == 200
    assert (owned.content(), owned.owners()) == ({"y": 1}, {"/y": [("b", 2, False)]})
    assert owned.let_go("?manager=a").get_json()["changed"] is False  # nothing to do
    assert owned.catalog.head_revision() == 3
    (gone,) = owned.let_go("?manager=b&prune=true&dry_run=true").get_json()["changes"]
    assert (gone["key"], gone["action"]) == ("k", "delete")
    assert "owners" not in gone  # a deletion doesn't read them, except from the cache
    assert owned.let_go("?manager=b&prune=true").status_code == 200
    problem(owned.catalog.get(), 404, "document_not_found")


def test_letting_go_keeps_an_emptied_document_without_prune(owned: Owned) -> None:
    owned.apply({"x": {"y": 1}})
    assert owned.let_go().status_code == 200
    assert (owned.content(), owned.owners()) == ({}, {})


def take_over(owned: Owned, author: str = "anonymous", **members: Any) -> None:
    content = json.dumps(members)
    answer = owned.catalog.client.patch(
        owned.catalog.document("k"),
        data=content,
        content_type="application/merge-patch+json",
        headers={"Commit-Author": author},
    )
    assert answer.status_code == 200


def test_a_field_is_given_back(owned: Owned) -> None:
    """It keeps its value, and the manager's next apply may change it."""
    owned.apply({"rows": 1, "by": {"team": "x"}}, "nightly")
    take_over(owned, rows=2, by={"team": "y"})
    shown = owned.let_go("?pointer=/rows&dry_run=true").get_json()["changes"][0]
    assert (shown["patch"], shown["owners"]) == (
        [],
        [{"manager": "anonymous", "plain": True, "gained": [], "lost": ["/rows"]}],
    )
    assert owned.let_go("?pointer=/rows").get_json()["changed"] is True
    assert owned.owners() == {"/by/team": [("anonymous", 2, True)]}
    assert owned.content() == {"rows": 2, "by": {"team": "y"}}
    problem(owned.apply({"rows": 5, "by": {"team": "x"}}, "nightly"), 409, "owned_by_others")
    assert owned.let_go("?pointer=/by&pointer=/rows").status_code == 200
    assert owned.apply({"rows": 5, "by": {"team": "x"}}, "nightly").status_code == 200
    assert owned.content() == {"rows": 5, "by": {"team": "x"}}
    again = owned.let_go("?pointer=/rows")  # as it is the manager's
    assert (again.status_code, again.get_json()["changed"]) == (200, False)


def test_giving_back_keeps_the_owners_by_apply(owned: Owned) -> None:
    owned.apply({"rows": 1}, "nightly")
    take_over(owned, rows=2)
    owned.apply({"rows": 2}, "b")
    owned.let_go("?pointer=")
    assert owned.owners() == {"/rows": [("b", 3, False)]}


def test_letting_go_of_plainly_owned_values_is_refused_with_how_to_give_them_back(
    owned: Owned,
) -> None:
    """It answered that all was well, and released nothing."""
    owned.apply({"rows": 1, "n": 1}, "nightly")
    take_over(owned, rows=2)
    failed = problem(owned.let_go("?manager=anonymous"), 409, "owned_by_others")
    assert [each["pointer"] for each in failed["contested"]] == ["/rows"]
    assert "pointer" in failed["detail"]
    assert owned.let_go("?manager=nobody").get_json()["changed"] is False
    assert owned.let_go("?manager=nightly").get_json()["changed"] is True
    assert (owned.content(), owned.owners()) == ({"rows": 2}, {"/rows": [("anonymous", 2, True)]})


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("pointer=rows", "pointer"),
        ("pointer=/rows&manager=nightly", "manager"),
        ("pointer=/rows&prune=true", "prune"),
    ],
)
def test_the_values_to_give_back_are_named_by_pointers(
    owned: Owned, query: str, parameter: str
) -> None:
    owned.apply({"rows": 1}, "nightly")
    failed = problem(owned.let_go(f"?{query}"), 400, "invalid_parameter")
    assert failed["parameter"] == parameter


def losses(owned: Owned, query: str = "") -> Any:
    answer = owned.catalog.client.get(f"{owned.catalog.path}/owners?lost_by=nightly{query}")
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()


def lost(page: Any) -> list[tuple[str, int, list[str]]]:
    return [
        (each["key"], each["revision"], [one["pointer"] for one in each["fields"]])
        for each in page["losses"]
    ]


def test_a_manager_can_list_everything_that_it_lost(owned: Owned) -> None:
    owned.apply({"rows": 1, "note": "x", "by": {"team": "x"}, "own": 1}, "nightly")
    take_over(owned, "ann", rows=2)
    take_over(owned, "bob", note="y", by=None)
    owned.apply({"own": 2}, "b", "conflict=force")
    page = losses(owned)
    assert lost(page) == [("k", 4, ["/own"]), ("k", 3, ["/note"]), ("k", 2, ["/rows"])]
    assert page["losses"][-1]["author"] == "ann"
    owner = {"manager": "ann", "since": 2, "plain": True}
    assert page["losses"][-1]["fields"] == [{"pointer": "/rows", "owners": [owner]}]
    assert (page["manager"], page["next"]) == ("nightly", None)
    owned.let_go("?pointer=/rows")
    owned.apply({"own": 2}, "nightly", "conflict=skip")  # it lets go of what it had besides
    assert lost(losses(owned)) == [("k", 3, ["/note"])]
    assert lost(losses(owned, "&after=3")) == []
    owned.catalog.delete()
    assert lost(losses(owned)) == []


def test_the_owners_of_a_document_are_read_once_however_many_fields_it_lost(
    owned: Owned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took time that grew with the square: some thousand fields were too much work for ever."""
    owned.apply({str(n): 0 for n in range(20)}, "nightly")
    take_over(owned, "ann", **{str(n): 1 for n in range(20)})
    read: list[OwnerTree] = []
    leaves = OwnerTree.leaves
    monkeypatch.setattr(OwnerTree, "leaves", lambda tree: read.append(tree) or leaves(tree))
    assert len(losses(owned)["losses"][0]["fields"]) == 20
    assert len(read) == 1


def test_losses_are_paged_even_within_a_commit(owned: Owned) -> None:
    applies = [
        {"action": "apply", "key": key, "value": {"n": 1}, "manager": "nightly"} for key in "cab"
    ]
    transact(owned, *applies)
    transact(owned, *({"action": "merge", "key": key, "value": {"n": 2}} for key in "cab"))
    transact(owned, {"action": "merge", "key": "a", "value": {"n": 3}})
    owned.apply({"x": 1}, "nightly")
    take_over(owned, x=2)
    found, query = [], "&limit=1"
    while True:
        page = losses(owned, query)
        found += lost(page)
        if page["next"] is None:
            break
        query = "&limit=1" + "".join(f"&{name}={to}" for name, to in page["next"].items())
    assert [(key, revision) for key, revision, _ in found] == [
        ("k", 5), ("a", 2), ("b", 2), ("c", 2),
    ]  # fmt: skip
    bare = owned.catalog.client.get(f"{owned.catalog.path}/owners")
    assert problem(bare, 400, "invalid_parameter")["parameter"] == "lost_by"
    behind = owned.catalog.client.get(f"{owned.catalog.path}/owners?lost_by=nightly&after_key=a")
    assert problem(behind, 400, "invalid_parameter")["parameter"] == "after_key"


def test_applies_and_letting_go_can_be_conditional(owned: Owned) -> None:
    token = owned.apply({"x": 1}, "a").headers["ETag"]
    owned.apply({"x": 2}, "a")
    problem(owned.apply({"x": 3}, "a", If_Match=token), 412, "precondition_failed")
    problem(owned.let_go("?manager=a", If_Match=token), 412, "precondition_failed")
    owned.apply({"y": 1}, "b")
    now = owned.apply({"x": 2}, "a").headers["ETag"]
    owned.catalog.patch({"op": "add", "path": "/z", "value": 1})
    answer = owned.apply({"x": 4}, "a", If_Match=now, Prefer="rebase")
    assert answer.get_json()["rebased_from"] == now.strip('"')


def test_an_idempotency_key_covers_manager_and_terms(owned: Owned) -> None:
    owned.apply({"x": 1}, "a")
    first = owned.apply({"x": 2, "y": 1}, "b", "conflict=skip", Idempotency_Key="k1")
    owned.apply({"z": 1}, "c")
    again = owned.apply({"x": 2, "y": 1}, "b", "conflict=skip", Idempotency_Key="k1")
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.get_json()["skipped"] == first.get_json()["skipped"] != []
    assert again.get_json()["revision"] == first.get_json()["revision"]
    for query, manager in (("", "b"), ("conflict=skip", "c"), ("conflict=skip&force=/x", "b")):
        failed = owned.apply({"x": 2, "y": 1}, manager, query, Idempotency_Key="k1")
        problem(failed, 422, "idempotency_key_reused")


def test_a_refusal_under_a_key_is_replayed(owned: Owned) -> None:
    owned.apply({"x": 1}, "a")
    failed = problem(owned.apply({"x": 2}, "b", Idempotency_Key="k"), 409, "owned_by_others")
    owned.apply({}, "a")
    again = problem(owned.apply({"x": 2}, "b", Idempotency_Key="k"), 409, "owned_by_others")
    assert again["contested"] == failed["contested"]


BAD = [
    ("manager=", "manager"),
    ("manager=%20a", "manager"),
    ("manager=a%00b", "manager"),
    ("manager=" + "x" * 2000, "manager"),
    ("manager=a&manager=b", "manager"),
    ("conflict=maybe", "conflict"),
    ("force=x", "force"),
    ("force=/a~2", "force"),
    ("prune=true", "prune"),
]


@pytest.mark.parametrize(("query", "parameter"), BAD)
def test_invalid_parameters_of_an_apply_are_refused(
    owned: Owned, query: str, parameter: str
) -> None:
    failed = problem(owned.apply({"x": 1}, query=query), 400, "invalid_parameter")
    assert failed["parameter"] == parameter
    assert owned.catalog.head_revision() == 0


@pytest.mark.parametrize("wanted", [None, 1, "x", [], [{"x": 1}]])
def test_an_apply_must_be_an_object(owned: Owned, wanted: Any) -> None:
    owned.catalog.put({"x": 1})
    assert problem(owned.apply(wanted), 400, "invalid_body")["pointer"] == ""
    assert owned.content() == {"x": 1}


def test_an_apply_with_unstorable_values_or_repeated_members_is_refused(owned: Owned) -> None:
    path = owned.catalog.document("k")
    for raw, status, code in (
        (b'{"a": 1, "a": 2}', 400, "malformed_json"),
        (b'{"a": 1e999}', 422, "unstorable_value"),
        (b'{"\\u0000": 1}', 422, "unstorable_value"),
        (b"{", 400, "malformed_json"),
    ):
        answer = owned.catalog.client.patch(path, data=raw, content_type=APPLY)
        problem(answer, status, code)


def test_attributes_take_no_applies(owned: Owned) -> None:
    owned.catalog.put({"x": 1})
    path = f"{owned.catalog.path}/attributes/k"
    answer = owned.catalog.client.patch(path, data=b"{}", content_type=APPLY)
    problem(answer, 415, "unsupported_media_type")
    assert APPLY not in answer.headers["Accept-Patch"]
    options = owned.catalog.client.options(owned.catalog.document("k"))
    assert APPLY in options.headers["Accept-Patch"]


def test_ownership_beyond_its_bounds_changes_nothing(owned: Owned) -> None:
    failed = problem(owned.apply({str(n): n for n in range(10_001)}), 413, "over_limit")
    assert (failed["limit"], failed["maximum"]) == ("owned_leaves_max", 10_000)
    assert owned.catalog.head_revision() == 0


def transact(owned: Owned, *actions: Any, query: str = "") -> TestResponse:
    path = f"{owned.catalog.path}/transactions{query}"
    return owned.catalog.client.post(path, json={"then": list(actions)})


def test_a_transaction_can_apply_and_let_go(owned: Owned) -> None:
    owned.apply({"tier": 1}, "a")
    answer = transact(
        owned,
        {"action": "apply", "key": "new", "value": {"x": 1}, "manager": "b"},
        {
            "action": "apply",
            "key": "k",
            "value": {"tier": 2, "n": 1},
            "manager": "b",
            "conflict": "skip",
        },
        {"action": "let_go", "key": "k", "manager": "a"},
    ).get_json()
    assert [each["action"] for each in answer["results"]] == ["apply", "apply", "let_go"]
    assert [(each["key"], each["pointer"]) for each in answer["skipped"]] == [("k", "/tier")]
    assert owned.content() == {"n": 1}


def test_a_transaction_can_give_back(owned: Owned) -> None:
    owned.apply({"tier": 1}, "a")
    take_over(owned, tier=2)
    answer = transact(
        owned,
        {"action": "give_back", "key": "k", "pointers": ["/tier"]},
        {"action": "apply", "key": "k", "value": {"tier": 1}, "manager": "a"},
    ).get_json()
    assert [each["action"] for each in answer["results"]] == ["give_back", "apply"]
    assert owned.owners() == {"/tier": [("a", 3, False)]}


def test_a_conflict_over_owners_refuses_the_whole_transaction(owned: Owned) -> None:
    owned.apply({"tier": 1}, "a")
    failed = problem(
        transact(
            owned,
            {"action": "put", "key": "other", "value": 1},
            {"action": "apply", "key": "k", "value": {"tier": 2}},
        ),
        409,
        "owned_by_others",
    )
    assert (failed["action"], failed["contested"][0]["pointer"]) == (1, "/tier")
    problem(owned.catalog.get("other"), 404, "document_not_found")


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"value": [1]}, "/then/0/value"),
        ({"value": {}, "manager": ""}, "/then/0/manager"),
        ({"value": {}, "manager": None}, "/then/0/manager"),
        ({"value": {}, "conflict": "x"}, "/then/0/conflict"),
        ({"value": {}, "force": "/a"}, "/then/0/force"),
        ({"value": {}, "force": ["/a", "b"]}, "/then/0/force/1"),
        ({"value": {}, "prune": True}, "/then/0/prune"),
    ],
)
def test_an_invalid_action_is_refused_with_its_pointer(
    owned: Owned, more: Any, pointer: str
) -> None:
    failed = problem(transact(owned, {"action": "apply", "key": "k", **more}), 400, "invalid_body")
    assert failed["pointer"] == pointer


def bulk(owned: Owned, *lines: Any) -> list[Any]:
    named = [{"catalog": owned.catalog.name, "key": "k", **line} for line in lines]
    answer = owned.catalog.client.post(
        "/v1/bulk",
        data="".join(json.dumps(line) + "\n" for line in named),
        content_type="application/x-ndjson",
    )
    return [json.loads(line) for line in answer.get_data().splitlines()]


def test_a_bulk_line_can_apply_and_let_go(owned: Owned) -> None:
    first, second, third, fourth, fifth = bulk(
        owned,
        {"op": "apply", "value": {"x": 1}, "manager": "a"},
        {"op": "apply", "value": {"x": 2}, "manager": "b"},
        {"op": "apply", "value": {"x": 2, "y": 1}, "manager": "b", "conflict": "skip"},
        {"op": "let_go", "manager": "a"},
        {"op": "apply", "value": {"x": 2}, "manager": "b", "force": ["x"]},
    )
    assert first["status"] == 201
    assert second["problem"]["code"] == "owned_by_others"
    assert second["problem"]["contested"][0]["owners"][0]["manager"] == "a"
    assert [each["pointer"] for each in third["skipped"]] == ["/x"]
    assert fourth["changed"] is True
    assert (fifth["status"], fifth["problem"]["pointer"]) == (400, "/force/0")
    assert owned.content() == {"y": 1}


def test_a_bulk_line_can_give_back(owned: Owned) -> None:
    owned.apply({"x": 1}, "a")
    take_over(owned, x=2)
    first, second = bulk(
        owned,
        {"op": "give_back", "pointers": ["/x"], "idempotency_key": "k"},
        {"op": "give_back"},
    )
    assert (first["changed"], second["problem"]["code"]) == (True, "invalid_body")
    assert owned.owners() == {}
    again = owned.let_go("?pointer=/x", Idempotency_Key="k")
    assert again.headers["Idempotency-Replayed"] == "true"
    other = owned.let_go("?pointer=/y", Idempotency_Key="k")
    problem(other, 422, "idempotency_key_reused")


def test_a_line_and_the_route_are_one_request_under_a_key(owned: Owned) -> None:
    owned.apply({"x": 1}, "b", "conflict=skip", Idempotency_Key="k")
    line = {"op": "apply", "value": {"x": 1}, "manager": "b", "conflict": "skip"}
    (answer,) = bulk(owned, {**line, "idempotency_key": "k"})
    assert answer["replayed"] is True
    owned.let_go("?manager=b", Idempotency_Key="k2")
    (answer,) = bulk(owned, {"op": "let_go", "manager": "b", "idempotency_key": "k2"})
    assert answer["replayed"] is True
