"""Who sees a document that has an acl: listed, not listed, admin, on every route that reads.

What lists leaves out what can't be seen; what is asked for by name is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.mongodb import MongoStore
from tests.access.people import APPLY, People, Person, authenticate
from tests.http.conftest import problem
from tests.memory_store import MemoryStore, backup
from tests.retention.history_checks import compaction_of, wait_until_written

ANN_ALONE = {"acl": {"read": ["ann"]}}


@pytest.fixture
def people(whole: People) -> People:
    """1: `k`; 2: `k` is ann's alone; 3: `open`; 4: both at once; 5: `k` alone."""
    whole.begin()
    ann = whole("ann")
    ann.put("k", {"n": 1})
    ann.put_attributes("k", ANN_ALONE)
    ann.put("open", {"n": 1})
    both = [
        {"action": "patch", "key": key, "patch": [{"op": "replace", "path": "/n", "value": 2}]}
        for key in ("k", "open")
    ]
    ann.transaction(then=both, message="both")
    ann.put("k", {"n": 3}, Commit_Message="of k", Idempotency_Key="of-k")
    return whole


BY_NAME = [
    *(
        "/owners/k",
        "/owners/k?revision=1",
        "/documents/k",
        "/attributes/k",
        "/documents/k?revision=1",
        "/documents/k?revision=2",
    ),
    *("/attributes/k?revision=4", "/documents/k?at=2999-01-01T00:00:00Z", "/documents?key=k"),
    *("/documents?key=open&key=k", "/documents?key=k&revision=1", "/commits?key=k"),
    *("/changes?after=0&timeout=1&key=k", "/changes?after=0&timeout=1&key=open&key=k"),
]


@pytest.mark.parametrize("path", BY_NAME)
def test_a_hidden_document_requested_by_name_is_refused(path: str, people: People) -> None:
    # A time that is still to come isn't read at: the last commit's is.
    last = people("root").commits("?after=4")[0]["time"]
    path = path.replace("2999-01-01T00:00:00Z", last)
    for name in ("bob", "eve"):
        refused = problem(people(name).get(path), 403, "forbidden")
        assert (refused["key"], refused["right"]) == ("k", "read")
        assert not people(name).send("HEAD", path).get_data()
    for name in ("ann", "root"):
        assert people(name).get(path).status_code == 200
        if "/changes" not in path:
            assert people(name).send("HEAD", path).status_code == 200


def test_a_condition_reveals_nothing_more(people: People) -> None:
    token = people("ann").get("/documents/k").headers["ETag"]
    for headers in ({"If_None_Match": token}, {"If_Match": token}, {"If_Match": '"1-00000000"'}):
        problem(people("bob").get("/documents/k", **headers), 403, "forbidden")
    assert people("ann").get("/documents/k", If_None_Match=token).status_code == 304


def listed(person: Person, query: str = "") -> list[str]:
    return [each["key"] for each in person.get(f"/documents{query}").get_json()["documents"]]


def exported(person: Person, query: str = "") -> list[str]:
    return list(person.get(f"/export{query}").get_json()["metadata"])


@pytest.mark.parametrize("read", [listed, exported])
def test_lists_omit_hidden_documents(read: Callable[..., list[str]], people: People) -> None:
    for query in ("", "?revision=4", "?prefix=k"):
        for name in ("ann", "root"):
            seen = read(people(name), query)
            assert "k" in seen, (name, query)
        expected = [] if "prefix" in query else ["open"]
        assert read(people("eve"), query) == expected
    assert read(people("eve"), "?revision=1") == [], "the acl as it is now decides"
    assert read(people("ann"), "?revision=1") == ["k"]


def test_a_page_continues_after_hidden_documents(people: People) -> None:
    ann, eve = people("ann"), people("eve")
    for number in range(6):
        ann.put(f"k{number}", number)
        if number != 3:
            ann.put_attributes(f"k{number}", ANN_ALONE)
    keys: list[str] = []
    query, pages = "?limit=2", 0
    while query:
        page = eve.get(f"/documents{query}").get_json()
        keys += [each["key"] for each in page["documents"]]
        more = page["next"]
        query = f"?limit=2&after={more['after']}&revision={more['revision']}" if more else ""
        pages += 1
        assert pages < 10
    assert keys == ["k3", "open"]
    assert exported(eve) == ["k3", "open"]


@pytest.mark.parametrize(
    "query", ["/documents?", "/documents?select=key&revision=4&", "/changes?initial=true&"]
)
def test_the_end_of_a_page_shows_no_sizes_of_hidden_documents(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.read.digests._CONTENTS_BYTES_MAX", 300)

    def pages(secret: str) -> list[str]:
        limits = ServiceLimits(listing_page_bytes_max=300)
        gateway = GatewayService(MemoryStore(), ThreadRuntime(), limits)
        people = People(create_app(gateway, authenticate=authenticate), gateway)
        ann = people("ann")
        for value in ("", "newer"):
            for key in "abcd":
                ann.put(key, [value, secret * (key in "ac")])
        for key in "ac":
            ann.put_attributes(key, ANN_ALONE)
        found, headers, more = list[str](), dict[str, str](), ""
        while more or not found:
            page = people("eve").get(f"{query}limit=9{more}", **headers).get_json()
            found.append("".join(each["key"] for each in page["documents"]))
            if "position" in page:
                headers = {"Last_Event_ID": page["position"]}
                more = "/" in page["position"] and "&"
            else:
                more = page["next"] and f"&after={page['next']['after']}"
        return found

    assert pages("") == pages("secret" * 100)


def test_a_feed_begins_with_the_state_however_many_documents_are_hidden(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 422 if the hidden ones before the first visible one took a request's time."""
    renewed: list[None] = []
    monkeypatch.setattr("gateway.cpu.is_half_used", lambda: True)
    monkeypatch.setattr("gateway.cpu.renew", lambda: renewed.append(None))
    ann = people("ann")
    for key in "abc":
        ann.put(key, {})
        ann.put_attributes(key, ANN_ALONE)
    ann.put("open", {})
    page = people("eve").get("/changes?initial=true").get_json()
    assert [each["key"] for each in page["documents"]] == ["open"]
    assert len(renewed) >= 4


@pytest.mark.parametrize(
    "query",
    [
        "/documents?",
        "/documents?select=key&",
        "/documents?select=key&revision=5&",
        "/documents?select=digest&delimiter=/&",
        "/documents?select=key&contains=K&",
        "/documents?contains=K&",
        "/differences?from=0&",
        "/differences?from=5&",
        "/changes?initial=true&",
    ],
)
@pytest.mark.parametrize(("limit", "takes_long"), [(1, False), (2, False), (3, False), (3, True)])
def test_a_page_names_no_hidden_key(
    query: str, limit: int, takes_long: bool, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cpu.is_half_used", lambda: takes_long)
    monkeypatch.setattr("gateway.read.digests._KEYS_MAX", 2)
    monkeypatch.setattr("gateway.read.digests._SEEKS_MAX", 2)
    ann, eve = people("ann"), people("eve")
    open_to_all = {"k02", "k05", "k09", "k2/1", "open"}
    hidden = {f"k{number:02}" for number in range(12)} | {"k1/1", "k1/2", "k2/2", "z/1", "z/2"}
    for key in sorted(open_to_all | hidden):
        ann.put(key, {"n": 1})
        if key not in open_to_all:
            ann.put_attributes(key, ANN_ALONE)
    ann.patch("k02", {"op": "add", "path": "/n", "value": 2})
    ann.patch("k02", {"op": "add", "path": "/n", "value": 1})
    told: list[str] = []
    path, more = f"{query}limit={limit}", ""
    headers: dict[str, str] = {}
    for _ in range(40):
        page = eve.get(path + more, **headers).get_json()
        if "position" in page:
            place = page["position"].partition("/")[2]
            headers = {"Last_Event_ID": page["position"]}
        else:
            place = (page["next"] or {}).get("after", "")
            more = f"&after={quote(place)}"
        shown = [each["key"] for each in page.get("documents", page.get("differences", []))]
        shown += page.get("folders", [])
        assert len([key for key in shown if key is not None]) <= limit
        told += shown
        seen = place.removesuffix("\U0010ffff")
        assert not place or seen in open_to_all or seen in page.get("folders", []), place
        if not place:
            break
    else:
        raise AssertionError("the pages don't end")
    expected = {key for key in open_to_all if "contains" not in query or "k" in key}
    if "delimiter" in query:
        expected = {f"{key.partition('/')[0]}/" if "/" in key else key for key in expected}
    if "revision=5" in query:
        expected = {"open"}
    assert set(told) - {None} == expected
    assert len(told) == len(set(told))


@pytest.mark.parametrize(
    "query",
    [
        "/documents?",
        "/documents?select=key&",
        "/documents?select=key&delimiter=/&",
        "/documents?select=key&contains=k&",
        "/differences?from=0&",
        "/changes?initial=true&",
    ],
)
def test_hidden_documents_are_not_read_one_by_one(
    query: str, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, eve = people("ann"), people("eve")
    hidden = {"op": "put", "catalog": people.catalog, "value": 1}
    hidden["attributes"] = {"mode": "replace", "value": ANN_ALONE}
    ann.bulk(*[{**hidden, "key": f"k{number:03}"} for number in range(300)])
    ann.put("z/k", 1)
    questions: list[str] = []
    for name in ("scan_documents", "scan_digests", "digests_of", "list_commits"):
        asked = getattr(MongoStore, name)

        def counted(*given: Any, name: str = name, asked: Any = asked, **named: Any) -> Any:
            questions.append(name)
            return asked(*given, **named)

        monkeypatch.setattr(MongoStore, name, counted)
    monkeypatch.setattr("gateway.read.listing._EXAMINED_MAX", 100)
    page = eve.get(f"{query}limit=1&prefix=k").get_json()
    assert not any(page.get(name) for name in ("documents", "differences", "folders")), page
    assert 1 <= len(questions) < 30, questions


def changed(commits: list[Any]) -> list[tuple[int, list[str]]]:
    return [(c["revision"], [each["key"] for each in c["changes"]]) for c in commits]


ALL = [(1, ["k"]), (2, ["k"]), (3, ["open"]), (4, ["k", "open"]), (5, ["k"])]
SEEN = [(1, []), (2, []), (3, ["open"]), (4, ["open"]), (5, [])]


def polled(person: Person, query: str = "") -> list[Any]:
    answer = person.get(f"/changes?after=0&timeout=1{query}").get_json()
    assert answer["revision"] >= 4
    return list(answer["commits"])


def streamed(person: Person, query: str = "") -> list[Any]:
    """What an event stream begins with, up to the last revision that it tells at once."""
    last = "4" if "key=open" in query else "5"
    answer = person.get(f"/changes?after=0{query}", Accept="text/event-stream")
    commits: list[Any] = []
    try:
        buffer = ""
        for piece in answer.response:
            buffer += piece.decode() if isinstance(piece, bytes) else piece
            *whole, buffer = buffer.split("\n\n")
            for event in whole:
                fields = dict(line.split(": ", 1) for line in event.splitlines())
                if fields.get("event") == "commit":
                    commits.append(json.loads(fields["data"]))
                if fields.get("id") == last:
                    return commits
    finally:
        answer.close()
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("read", [Person.commits, polled, streamed])
def test_hidden_changes_are_omitted_from_commits(
    read: Callable[..., list[Any]], people: People
) -> None:
    """Every revision is listed. One whose changes are all hidden looks like one without changes."""
    for name in ("ann", "root"):
        assert changed(read(people(name))) == ALL
    commits = read(people("eve"))
    assert changed(commits) == SEEN
    assert [c["author"] for c in commits] == ["ann"] * 5
    for commit in commits:
        if commit["revision"] != 3:
            assert (commit["message"], commit["idempotency_key"]) == (None, None)
    everything = read(people("root"))
    assert (everything[4]["message"], everything[4]["idempotency_key"]) == ("of k", "of-k")
    assert commits[2] == everything[2]


@pytest.mark.parametrize("read", [polled, streamed])
def test_a_selection_contains_only_visible_changes(
    read: Callable[..., list[Any]], people: People
) -> None:
    assert changed(read(people("eve"), "&key=open")) == [(3, ["open"]), (4, ["open"])]
    assert changed(read(people("eve"), "&prefix=k")) == [], "a bookmark tells how far it came"
    assert changed(read(people("ann"), "&prefix=k")) == [each for each in ALL if "k" in each[1]]


def test_a_single_commit_is_shown_as_in_the_list(people: People) -> None:
    for revision in range(1, 6):
        (of_list,) = people("eve").commits(f"?after={revision - 1}&limit=1")
        assert people("eve").get(f"/commits/{revision}").get_json() == of_list


def test_the_outcome_of_a_request_is_shown_to_its_sender_only(people: People) -> None:
    bob = people("bob")
    people("ann").put_attributes("open", {"acl": {"read": ["ann"]}})
    assert bob.put("open", {"n": 9}, Idempotency_Key="mine").status_code == 200
    told = bob.get("/outcomes/mine").get_json()
    assert (told["applied"], told["changes"], told["idempotency_key"]) == (True, [], "mine")
    replayed = bob.put("open", {"n": 9}, Idempotency_Key="mine", Prefer="return=representation")
    assert replayed.headers["Idempotency-Replayed"] == "true"
    assert "n" not in replayed.get_json()
    problem(bob.get("/outcomes/of-k"), 404, "outcome_not_found")


def test_a_transaction_shows_only_documents_its_author_may_read(people: People) -> None:
    people("ann").put_attributes("open", {"acl": {"read": ["ann"]}})
    bob = people("bob")
    put = {"action": "put", "key": "open", "value": {"n": 9}}
    shown = {"Prefer": "return=representation", "Idempotency-Key": "t"}
    for replayed in (None, "true"):
        answer = bob.send("POST", "/transactions", {"then": [put]}, headers=shown)
        assert answer.headers.get("Idempotency-Replayed") == replayed
        (result,) = answer.get_json()["results"]
        assert result["forbidden"] is True
        assert "value" not in result
        assert "attributes" not in result
    dry = {"action": "put", "key": "open", "value": {"n": 10}}
    asked = bob.send("POST", "/transactions", {"then": [dry], "dry_run": True})
    assert asked.get_json()["changed"] is True
    assert asked.get_json()["changes"] == []
    own = people("ann").send("POST", "/transactions", {"then": [dry], "dry_run": True})
    assert [each["key"] for each in own.get_json()["changes"]] == ["open"]


OPENING = [
    {"action": "delete", "key": "mine"},
    {"action": "delete", "prefix": "mine"},
    {"action": "put", "key": "mine", "value": {"n": 1}, "attributes": {"mode": "clear"}},
    {"action": "attributes", "key": "mine", "value": {}},
    {"action": "attributes", "key": "mine", "value": {"acl": {"read": ["ann", "wes"]}}},
]


@pytest.mark.parametrize("action", OPENING)
def test_a_dry_run_shows_only_documents_its_author_may_read_now(
    action: dict[str, Any], people: People
) -> None:
    """Whoever may write could delete it, or open it; but then it is done, and everybody sees."""
    ann, wes = people("ann"), people("wes")
    wanted = {"salary_of_ann": 7, "s": ["S3CR3T"]}
    applied = ann.send("PATCH", "/documents/mine", wanted, APPLY)
    assert applied.status_code == 201
    ann.put_attributes("mine", {"acl": {"read": ["ann"], "write": ["ann", "wes"]}})
    body = {"then": [action], "dry_run": True}
    shown = {"Prefer": "return=representation"}
    dry = wes.send("POST", "/transactions", body, headers=shown)
    assert dry.status_code == 200
    told = dry.get_data(as_text=True)
    assert "S3CR3T" not in told
    assert "salary_of_ann" not in told
    assert dry.get_json()["changes"] == []
    own = ann.send("POST", "/transactions", body, headers=shown).get_json()
    assert [each["key"] for each in own["changes"]] == ["mine"]


@pytest.mark.parametrize("asked", ["PUT /documents", "PUT /attributes", "DELETE /documents"])
def test_a_dry_run_of_a_single_write_shows_no_hidden_document(asked: str, people: People) -> None:
    ann, wes = people("ann"), people("wes")
    ann.send("PATCH", "/documents/mine", {"salary_of_ann": 7}, APPLY)
    ann.put_attributes("mine", {"acl": {"read": ["ann"], "write": ["ann", "wes"]}})
    method, _, part = asked.partition(" ")
    body = None if method == "DELETE" else {"acl": {"write": ["wes"]}}
    dry = wes.send(method, f"{part}/mine?dry_run=true", body)
    assert dry.status_code == 200
    assert "changes" not in dry.get_json()
    assert "salary_of_ann" not in dry.get_data(as_text=True)


def test_a_dry_run_shows_a_new_document_under_the_key_of_a_closed_one(people: People) -> None:
    ann, wes = people("ann"), people("wes")
    ann.put("mine", {"n": 1})
    ann.put_attributes("mine", ANN_ALONE)
    ann.delete("mine")
    body = {"then": [{"action": "put", "key": "mine", "value": {"n": 2}}], "dry_run": True}
    dry = wes.send("POST", "/transactions", body).get_json()
    assert [each["key"] for each in dry["changes"]] == ["mine"]


def test_a_refusal_lists_only_visible_changes(people: People) -> None:
    """412: what happened since the client's token, as far as it may know."""
    stale = people("bob").put("new", 1, If_Match='"@1"')
    since = problem(stale, 412, "precondition_failed")["changes_since"]
    assert [[each["key"] for each in c["changes"]] for c in since] == [[], ["open"], ["open"], []]
    assert {c["message"] for c in since} == {None}
    people("ann").put_attributes("open", {"acl": {"read": ["ann"]}})
    of_one = problem(
        people("bob").put("open", 1, If_Match='"3-00000000"'), 412, "precondition_failed"
    )
    assert of_one["changes_since"] == []


def test_the_current_acl_applies_to_the_past(people: People) -> None:
    ann, eve = people("ann"), people("eve")
    ann.put_attributes("k", {"acl": {"read": ["ann", "e*"]}})
    assert eve.get("/documents/k?revision=2").get_json() == {"n": 1}
    assert changed(eve.commits())[:5] == ALL
    ann.put_attributes("k", ANN_ALONE)
    problem(eve.get("/documents/k?revision=6"), 403, "forbidden")
    assert changed(eve.commits())[:5] == SEEN


def test_the_last_acl_of_a_deleted_document_applies(people: People) -> None:
    ann, eve = people("ann"), people("eve")
    ann.delete("k")
    problem(eve.get("/documents/k"), 404, "document_not_found")
    problem(eve.get("/documents/k?revision=1"), 403, "forbidden")
    problem(eve.get("/commits?key=k"), 403, "forbidden")
    assert exported(eve, "?revision=5") == ["open"]
    assert changed(eve.commits()) == [*SEEN, (6, [])]
    assert ann.get("/documents/k?revision=1").get_json() == {"n": 1}


@pytest.mark.parametrize("at_once", [False, True])
def test_the_acl_of_a_re_created_document_does_not_apply_to_its_predecessor(
    at_once: bool, people: People
) -> None:
    """Under one key there can be several documents; the acl of each is its own."""
    ann, bob, eve = people("ann"), people("bob"), people("eve")
    again = {"action": "put", "key": "k", "value": {"n": 100}}
    if at_once:
        assert ann.transaction(then=[{"action": "delete", "key": "k"}, again]).status_code == 200
    else:
        ann.delete("k")
        assert bob.transaction(then=[again]).status_code == 200
    made = people("root").get("").get_json()["revision"]
    for person in (bob, eve):
        assert person.get("/documents/k").get_json() == {"n": 100}
        assert person.get(f"/documents/k?revision={made}").get_json() == {"n": 100}
        for revision in range(1, 6):
            problem(person.get(f"/documents/k?revision={revision}"), 403, "forbidden")
            assert "k" not in exported(person, f"?revision={revision}")
            problem(person.get(f"/documents?key=k&revision={revision}"), 403, "forbidden")
        assert changed(person.commits())[:5] == SEEN
        assert changed(person.commits())[-1] == (made, ["k"])
        assert changed(person.commits("?key=k"))[-1] == (made, ["k"])
    assert ann.get("/documents/k?revision=1").get_json() == {"n": 1}
    # A third one, closed again, doesn't close the second's successor's past, and so on.
    bob.delete("k")
    bob.put("k", {"n": 200})
    assert eve.get(f"/documents/k?revision={made}").get_json() == {"n": 100}
    problem(eve.get("/documents/k?revision=5"), 403, "forbidden")


@pytest.mark.parametrize("swept", [False, True])
def test_compaction_reveals_nothing(people: People, swept: bool) -> None:
    """Nor does it while the history that the floor has passed is still there."""
    ann, eve, root = people("ann"), people("eve"), people("root")
    ann.delete("k")
    people("bob").put("k", {"n": 100})
    ann.put("open", {"n": 3})
    assert root.send("POST", "/compactions", {"revision": 5}).status_code == 200
    if swept:
        wait_until_written(people.gateway, people.catalog)
        compaction = compaction_of(people.gateway._store, idempotency_retention_s=1000)
        assert compaction.finish(people.catalog, lambda: None) > 0
    problem(eve.get("/documents/k?revision=5"), 403, "forbidden")
    assert exported(eve, "?revision=5") == ["open"]
    assert changed(eve.commits("?after=5")) == [(6, []), (7, ["k"]), (8, ["open"])]
    assert ann.get("/documents/k?revision=5").get_json() == {"n": 3}
    outcome = ann.get("/outcomes/of-k").get_json()
    assert outcome["revision"] == 5, "below the floor by now"


def test_a_stored_acl_that_is_malformed_leaves_the_document_to_admins(people: People) -> None:
    """As data that is older than acls."""
    store: Any = people.gateway._store
    people.gateway._settler.settle(people.catalog)
    name = f"{people.catalog}\0open"
    stored = {"$set": {"state.attributes": {"acl": ["ann"]}}}
    assert store._on.documents.update_one({"_id": name}, stored).modified_count == 1
    others = of_another_process(people)
    problem(others("ann").get("/documents/open"), 403, "forbidden")
    problem(others("ann").put("open", 1), 403, "forbidden")
    assert others("root").get("/documents/open").status_code == 200
    assert others("root").put_attributes("open", {}).status_code == 200
    assert others("ann").get("/documents/open").status_code == 200


def of_another_process(people: People) -> People:
    gateway = GatewayService(people.gateway._store, ThreadRuntime(), ServiceLimits())
    others = People(create_app(gateway, authenticate=authenticate), gateway)
    others.catalog = people.catalog
    return others


def test_an_acl_of_a_lost_future_reveals_nothing() -> None:
    """The database was set back, and the life of `k` continues and ends in another way."""
    store = MemoryStore()
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits())
    people = People(create_app(gateway, authenticate=authenticate), gateway)
    ann, bob = people("ann"), people("bob")
    ann.put("k", {"n": 1})
    wait_until_written(gateway, people.catalog)
    put_back = backup(store)
    ann.put("k", {"n": 2})
    ann.delete("k")
    assert bob.get("/documents/k?revision=2").get_json() == {"n": 2}
    wait_until_written(gateway, people.catalog)
    put_back()
    ann.put_attributes("k", ANN_ALONE)
    ann.delete("k")
    problem(bob.get("/documents/k?revision=2"), 403, "forbidden")
    assert ann.get("/documents/k?revision=2").get_json() == {"n": 1}


def test_documents_without_an_acl_are_read_without_an_acl_lookup(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody pays for what others protect: an admin never, the others not for what is there now."""

    def looked(*_: Any) -> Any:
        raise AssertionError("an acl was looked up")

    monkeypatch.setattr(people.gateway.acls, "present", looked)
    bob, root = people("bob"), people("root")
    for path in ("/documents/open", "/documents", "/export", "/documents?key=open"):
        assert bob.get(path).status_code == 200, path
    assert bob.put("open", 5, Prefer="return=representation").get_json() == 5
    assert bob.transaction(then=[{"action": "get", "key": "open"}]).status_code == 200
    problem(bob.get("/documents/k"), 403, "forbidden")
    for path in ("/commits", "/changes?after=0&timeout=1", "/documents/k?revision=1", "/export"):
        assert root.get(path).status_code == 200, path


def test_the_past_of_a_document_is_found_across_many_changes_and_deletions(people: People) -> None:
    """What is looked back over are documents, not their changes; some hundred at the most."""
    ann, bob = people("ann"), people("bob")
    ann.delete("k")

    def lines(*more: dict[str, Any]) -> list[int]:
        whole = ({"catalog": people.catalog, "key": "k", **line} for line in more)
        return [answer["status"] for answer in bob.bulk(*whole)]

    assert lines(*({"op": "put", "value": n} for n in range(250))) == [201] + [200] * 249
    assert ann.get("/documents/k?revision=1").get_json() == {"n": 1}
    problem(bob.get("/documents/k?revision=1"), 403, "forbidden")
    again = [{"op": "delete"}, {"op": "put", "value": 1}]
    lines(*again * 60)
    assert ann.get("/documents/k?revision=1").get_json() == {"n": 1}
    lines(*again * 150)
    problem(ann.get("/documents/k?revision=1"), 403, "forbidden")
    assert people("root").get("/documents/k?revision=1").get_json() == {"n": 1}
