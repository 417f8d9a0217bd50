"""DataHub: serialising updates through the metadata service. A catalog is an entity, a document
one of its aspects."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Any, cast

from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService as HeldGateway
from gateway.store.contract import Store
from gateway.store.mongodb import connect
from patching import ABSENT
from patching.client import Follower, Gateway, Snapshot, append
from tests.patience import WAIT_MS
from tests.systems.feeds import applied
from tests.systems.service import (
    EXTENDED_PATCH,
    Answer,
    Catalog,
    Service,
    add,
    put,
    side_by_side,
    statuses,
)
from tests.without_http import WatchedStore, once, wait_until

ROUNDS = 10
TAGS = "/tags/-"


def test_d1_reading_an_aspect_gives_a_token_for_its_state(catalog: Catalog) -> None:
    """A read returns a token for the aspect's state."""
    written = catalog.put("status", {"removed": False}).token
    read = catalog.get("status")
    assert read.token == written
    assert read.headers["ETag"] == f'"{written}"', "strong, and in quotes"
    catalog.put("ownership", {"owners": []})
    assert catalog.get("status").token == written, "another aspect changed"
    catalog.put("status", {"removed": True})
    assert catalog.get("status").token != written
    catalog.put("status", {"removed": False})
    assert catalog.get("status").token != written, "the same content again is another state"


def test_d2_a_stale_token_is_refused_and_no_list_add_is_lost(catalog: Catalog) -> None:
    """A write with a stale token is refused with an error that says so; of two list-adds racing
    through PATCH, neither is lost."""
    stale = catalog.put("tags", {"tags": []}).token
    current = catalog.patch("tags", add(TAGS, "first")).token
    for refused in (
        catalog.put("tags", {}, if_match=stale),
        catalog.patch("tags", add(TAGS, "x"), if_match=stale),
        catalog.merge("tags", {"x": 1}, if_match=stale),
        catalog.delete("tags", if_match=stale),
    ):
        problem = refused.refused(412, "precondition_failed")
        assert stale in problem["expected"]
        assert problem["current"]["etag"] == current
        assert problem["retryable"] is False
    assert catalog.get("tags").done() == {"tags": ["first"]}

    for number in range(ROUNDS):
        pair = [f"{number}a", f"{number}b"]
        answers = side_by_side([partial(catalog.patch, "tags", add(TAGS, each)) for each in pair])
        assert statuses(answers) == [200, 200]
    expected = {"first"} | {f"{number}{side}" for number in range(ROUNDS) for side in "ab"}
    tags = catalog.get("tags").done()["tags"]
    assert (len(tags), set(tags)) == (len(expected), expected)


def test_d3_preconditions_over_several_aspects_are_checked_together(catalog: Catalog) -> None:
    """Preconditions over several aspects, also ones that are not written, through one composite
    ETag."""
    catalog.put("schema;=%", {"fields": 1})
    catalog.put("owner", {"name": "a"})
    composite = catalog.several("schema;=%", "owner", "never").token
    assert composite.endswith(";never=absent")
    assert catalog.put("owner", {"name": "b"}, if_match=composite).status == 200

    composite = catalog.several("schema;=%", "owner", "never").token
    catalog.put("schema;=%", {"fields": 2})
    for refused in (
        catalog.patch("owner", add("/name", "c"), if_match=composite),
        catalog.put("owner", {}, if_match=composite),
        catalog.put("never", {}, if_match=composite),
        catalog.delete("owner", if_match=composite),
    ):
        assert "schema" in refused.refused(412, "precondition_failed")["detail"]
    assert catalog.get("owner").done() == {"name": "b"}

    on_owner = {"catalog": catalog.name, "key": "owner", "if_match": composite}
    (told,) = catalog.service.bulk({**on_owner, "op": "merge", "value": {"name": "c"}})
    assert (told["status"], told["problem"]["code"]) == (412, "precondition_failed")
    for refused in (
        catalog.merge("owner", {"name": "c"}, if_match=composite),
        catalog.put_attributes("owner", {"a": 1}, if_match=composite),
        catalog.open_upload("owner", if_match=composite),
        catalog.touch(if_match=composite),
        catalog.transaction(
            {"action": "merge", "key": "owner", "value": {"name": "c"}}, if_match=composite
        ),
    ):
        refused.refused(412, "precondition_failed")
    assert catalog.get("owner").done() == {"name": "b"}

    composite = catalog.several("owner", "never").token
    catalog.put("never", {})
    catalog.patch("owner", add("/name", "c"), if_match=composite).refused(
        412, "precondition_failed"
    )


def test_of_two_writers_that_each_read_both_aspects_one_is_refused(catalog: Catalog) -> None:
    """The case that conditions on the written aspect alone let through: write skew."""
    for number in range(ROUNDS):
        catalog.put("a", {"on": True, "round": number})
        catalog.put("b", {"on": True, "round": number})
        composite = catalog.several("a", "b").token
        answers = side_by_side(
            [partial(catalog.put, key, {"on": False}, if_match=composite) for key in "ab"]
        )
        assert statuses(answers) == [200, 412]
        assert any(catalog.get(key).done()["on"] for key in "ab"), "both were switched off"


def test_d4_the_server_retries_a_delta_if_asked(catalog: Catalog) -> None:
    """A delta with server-side retry; refused when its `test` side doesn't match; opt-in; the
    client sees one call."""
    seen = catalog.put("props", {"a": 1, "b": 1, "n": {}}).token
    moved_on = catalog.patch("props", add("/b", 2)).token
    catalog.patch("props", add("/a", 2), if_match=seen).refused(412, "precondition_failed")
    overlapping = catalog.patch("props", add("/b", 3), if_match=seen, prefer="rebase")
    assert overlapping.refused(412, "precondition_failed")["overlap"] == ["/b"]
    rebased = catalog.patch("props", add("/a", 2), if_match=seen, prefer="rebase")
    assert rebased.done()["rebased_from"] == seen
    assert rebased.token not in (seen, moved_on)

    guarded = [{"op": "test", "path": "/a", "value": 1}, add("/a", 9)]
    problem = catalog.patch("props", *guarded).refused(409, "test_failed")
    assert (problem["operation"], problem["pointer"], problem["actual"]) == (0, "/a", 2)
    assert catalog.get("props").done() == {"a": 2, "b": 2, "n": {}}

    # Deltas that don't concern each other get through, each in one call; of those that exclude
    # each other by their tests, one does.
    calls = [partial(catalog.patch, "props", add(f"/n/{name}", name)) for name in range(16)]
    assert statuses(side_by_side(calls)) == [200] * 16
    assert len(catalog.get("props").done()["n"]) == 16
    claims = [
        partial(catalog.patch, "props", {"op": "test", "path": "/a", "value": 2}, add("/a", name))
        for name in "abcdefgh"
    ]
    assert statuses(side_by_side(claims)) == [200] + [409] * 7


def test_d5_a_bulk_request_carries_conditions_per_item(service: Service, catalog: Catalog) -> None:
    """A bulk request carries conditions per item, also two writes to one aspect in one batch."""
    other = Catalog(service, f"{catalog.name}-other")
    seen = catalog.put("aspect", {"n": 0}).token
    stale = other.put("aspect", {"n": 0}).token
    other.put("aspect", {"n": 1})

    def item(in_catalog: Catalog, op: str, **members: Any) -> dict[str, Any]:
        return {"catalog": in_catalog.name, "key": "aspect", "op": op, **members}

    lines = [
        item(catalog, "put", value={"n": 1}, if_match=seen),
        item(catalog, "put", value={"n": 2}, if_match=seen),
        item(catalog, "patch", patch=[add("/n", 3)]),
        item(other, "put", value={"n": 9}, if_match=stale),
        item(other, "put", value={"n": 9}, if_none_match="*"),
        item(other, "delete", if_match=stale),
        item(other, "merge", value={"m": 1}, if_match="*"),
        item(other, "put", value={"n": 9}, resource_version=1),
        {**item(other, "put", value={"n": 5}), "key": "new", "if_none_match": "*"},
    ]
    told = service.bulk(*lines)
    assert [line["status"] for line in told] == [200, 412, 200, 412, 412, 412, 200, 412, 201]
    for line in told:
        if line["status"] == 412:
            assert line["problem"]["code"] == "precondition_failed"
            assert line["problem"]["applied"] == "no"
    assert told[1]["problem"]["current"]["etag"] == told[0]["etag"], "the one written just before"
    assert catalog.get("aspect").done() == {"n": 3}
    assert catalog.get("aspect").token == told[2]["etag"]
    assert other.get("aspect").done() == {"n": 1, "m": 1}


def test_d6_only_if_absent_is_a_condition(catalog: Catalog) -> None:
    """ "Only if absent" and an absent aspect's condition; creating an existing one is refused."""
    creators = [partial(catalog.put, "new", {"by": n}, if_none_match="*") for n in range(8)]
    answers = side_by_side(creators)
    assert statuses(answers) == [201] + [412] * 7
    winner = next(answer for answer in answers if answer.status == 201)
    for answer in answers:
        if answer is not winner:
            problem = answer.refused(412, "precondition_failed")
            assert problem["current"]["etag"] == winner.token
    assert catalog.get("new").token == winner.token

    composite = catalog.several("new", "second").token
    assert composite.endswith(";second=absent")
    second = catalog.put("second", 1, if_match=composite)
    assert second.status == 201
    catalog.put("second", 2, if_match=composite).refused(412, "precondition_failed")
    catalog.put("absent", 1, if_match="*").refused(412, "precondition_failed")
    catalog.put("absent", 1, if_match=second.token).refused(412, "precondition_failed")
    catalog.get("absent").refused(404, "document_not_found")


def test_d7_dates_are_conditions_but_only_tokens_distinguish_edits_of_one_moment(
    service: Service, catalog: Catalog
) -> None:
    """If-Modified-Since / If-Unmodified-Since; two edits in one millisecond are told apart by
    token."""
    last_modified = catalog.put("a", 1).headers["Last-Modified"]
    long_ago = "Sun, 06 Nov 1994 08:49:37 GMT"
    assert catalog.get("a", if_modified_since=last_modified).status == 304
    assert catalog.get("a", if_modified_since=long_ago).status == 200
    assert catalog.put("a", 2, if_unmodified_since=last_modified).status == 200
    catalog.put("a", 3, if_unmodified_since=long_ago).refused(412, "precondition_failed")
    far = catalog.put("a", 4, if_unmodified_since="Fri, 31 Dec 2060 23:59:59 GMT")
    assert far.status == 200

    same_moment = 0

    def put(value: Any) -> dict[str, Any]:
        return {"catalog": catalog.name, "key": "a", "op": "put", "value": value}

    for number in range(20):
        one, two = service.bulk(put([number, 1]), put([number, 2]))
        times = [
            datetime.fromisoformat(catalog.commit(each["revision"])["time"]) for each in (one, two)
        ]
        same_moment += (times[1] - times[0]).total_seconds() < 0.001
        assert one["etag"] != two["etag"]
        # The first of the two is stale, whatever the dates say.
        catalog.put("a", "lost", if_match=one["etag"]).refused(412, "precondition_failed")
        assert catalog.get("a", if_none_match=one["etag"]).status == 200
        assert catalog.get("a", if_none_match=two["etag"]).status == 304
    assert same_moment > 0, "no two edits fell into one millisecond: this showed nothing"


def test_d8_an_equal_value_makes_no_new_version(catalog: Catalog) -> None:
    """An equal value makes no new version."""
    first = catalog.put("a", {"x": 1, "y": [True, {"z": None}]})
    for again in (
        catalog.put("a", {"y": [True, {"z": None}], "x": 1.0}),
        catalog.patch("a", {"op": "replace", "path": "/x", "value": 1}),
        catalog.patch("a", add("/w", 1), {"op": "remove", "path": "/w"}),
        catalog.merge("a", {"x": 1}),
        catalog.extended("a", {"op": "add_to_set", "path": "/y", "value": True}),
    ):
        assert again.done()["changed"] is False
        assert again.token == first.token
    assert [commit["revision"] for commit in catalog.commits()] == [1]
    assert catalog.put("a", {"x": True, "y": [True, {"z": None}]}).done()["changed"] is True


def test_d9_the_default_retry_budget_suffices_and_running_out_is_reported(catalog: Catalog) -> None:
    """Retries exhausted: 503 with Retry-After, certainly not applied; the default budget holds
    under 64 clients on one aspect."""
    catalog.put("hot", {"tags": []})
    answers = side_by_side([partial(catalog.patch, "hot", add(TAGS, n)) for n in range(64)])
    assert Counter(answer.status for answer in answers) == {200: 64}
    assert sorted(catalog.get("hot").done()["tags"]) == list(range(64))

    # Without any budget some are refused, and then they weren't applied: a 503 is the truth, also
    # in the middle of a race, and so is a 200.
    spent, landed = [], list[str]()
    while not spent:
        names = [f"{len(landed)} {n}" for n in range(64)]
        none = [{"prefer": "wait=0"}, {}] * 32
        racing = side_by_side(
            partial(catalog.patch, "hot", add(TAGS, name), **budget)
            for name, budget in zip(names, none, strict=True)
        )
        spent = [answer for answer in racing if answer.status == 503]
        assert {answer.status for answer in racing[1::2]} == {200}, "these had time"
        landed += [n for n, answer in zip(names, racing, strict=True) if answer.status == 200]
    for answer in spent:
        assert answer.refused(503, "deadline_exceeded")["retryable"] is True
        assert int(answer.headers["Retry-After"]) >= 1
    tags = catalog.get("hot").done()["tags"]
    assert sorted(tag for tag in tags if isinstance(tag, str)) == sorted(landed)


def test_d10_list_items_are_addressed_by_primary_key(catalog: Catalog) -> None:
    """Patches address list items by primary key (composite and nested too); move, copy and setting
    null work."""
    keys = {"/fields": ["path"], "/fields/*/tags": ["scheme", "tag"]}
    user = {"path": "user.name", "tags": [{"scheme": "s", "tag": "pii", "by": "x"}]}
    catalog.put("schema", {"fields": [{"path": "id"}, user], "archive": []})

    def patch(*operations: Any) -> Answer:
        return catalog.extended("schema", *operations, array_primary_keys=keys)

    def fields() -> dict[str, Any]:
        return {field["path"]: field for field in catalog.get("schema").done()["fields"]}

    patch(add("/fields/new", {"type": "int"})).done()
    patch({"op": "remove", "path": "/fields/id"}).done()  # the indices of all others shift
    patch(add("/fields/user.name/description", "d")).done()
    assert list(fields()) == ["user.name", "new"]
    assert fields()["user.name"]["description"] == "d"

    by = "/fields/user.name/tags/s␟pii/by"  # nested, and a composite key
    patch({"op": "test", "path": by, "value": "x"}, add(by, "y")).done()
    patch(add("/fields/user.name/tags/s␟gdpr", {"by": "z"})).done()
    assert fields()["user.name"]["tags"] == [
        {"scheme": "s", "tag": "pii", "by": "y"},
        {"scheme": "s", "tag": "gdpr", "by": "z"},
    ]

    patch(add("/fields/user.name/description", None)).done()
    assert fields()["user.name"]["description"] is None
    patch({"op": "copy", "from": "/fields/user.name/tags/s␟pii", "path": "/archive/0"}).done()
    assert catalog.get("schema").done()["archive"] == [{"scheme": "s", "tag": "pii", "by": "y"}]
    tag = "/fields/{}/tags/s␟gdpr"
    patch(add("/fields/new/tags", [])).done()
    patch({"op": "move", "from": tag.format("user.name"), "path": tag.format("new")}).done()
    assert [len(fields()[name]["tags"]) for name in ("user.name", "new")] == [1, 1]
    patch({"op": "remove", "path": "/fields/nobody"}).refused(409, "path_missing")
    patch({"op": "remove", "path": "/fields/nobody", "if_exists": True}).done()

    # By key, two that edit different items at once don't meet, whatever the order of the list.
    calls = [partial(patch, add(f"/fields/f{n}", {"type": n})) for n in range(8)]
    calls.append(partial(patch, {"op": "remove", "path": "/fields/new"}))
    assert statuses(side_by_side(calls)) == [200] * 9
    assert set(fields()) == {"user.name"} | {f"f{n}" for n in range(8)}


def test_d11_the_outcome_of_a_write_can_be_read_after_a_lost_answer(
    service: Service, catalog: Catalog
) -> None:
    """After a lost answer a client can ask what became of its write; feed and store never
    disagree."""
    catalog.put("a", {"tags": []})
    catalog.outcome("never").refused(404, "outcome_not_found")
    for number in range(ROUNDS):
        name = f"key-{number}"
        sending: dict[str, Any] = {
            "content_type": "application/json-patch+json",
            "idempotency_key": name,
        }
        request = catalog.request("PATCH", "/documents/a", [add(TAGS, number)], **sending)
        service.send_and_hang_up(*request)  # the answer is lost, perhaps the request too
        asked = catalog.outcome(name)
        again = service.send(*request).done()
        if asked.status == 200:
            assert asked.json()["revision"] == again["revision"]
        told = catalog.outcome(name).done()
        assert (told["applied"], told["revision"]) == (True, again["revision"])
        assert told["idempotency_key"] == name
    assert catalog.get("a").done() == {"tags": list(range(ROUNDS))}, "each once, in order"

    other = catalog.request("PATCH", "/documents/a", [add(TAGS, "x")], **sending)
    service.send(*other).refused(422, "idempotency_key_reused")
    catalog.delete("a")
    catalog.put("b", {"x": 1})
    told = catalog.changes(0, limit=1000).done()
    assert (applied({}, told["commits"]), told["revision"]) == (
        catalog.export()["metadata"],
        catalog.revision,
    )


def test_d12_clients_of_one_aspect_do_not_wait_for_each_other_in_turn(
    catalog: Catalog, mongodb_uri: str, database_name: str
) -> None:
    """The contention formula of the RFC (the n-th client waits n round trips) doesn't hold: n
    clients on one aspect cost few round trips, and few attempts each."""
    catalog.put("hot", {"n": 0})
    increment = {"op": "increment", "path": "/n"}
    answers = side_by_side([partial(catalog.extended, "hot", increment)] * 64)
    assert statuses(answers) == [200] * 64
    assert catalog.get("hot").done() == {"n": 64}

    # All that come while the first of them is written are written together.
    store = WatchedStore(connect(mongodb_uri, database_name, timeout_ms=WAIT_MS))
    held = HeldGateway(cast(Store, store), ThreadRuntime(), ServiceLimits())
    client = create_app(held).test_client
    hot = f"{catalog.path}/documents/hot"
    assert client().put(hot, json={"n": 0}).status_code == 201
    one_more = {"data": json.dumps({"patch": [increment]}), "content_type": EXTENDED_PATCH}
    for clients in (1, 4, 16, 64):
        store.calls.clear()
        is_complete = partial(lambda count: held.readings().queue_requests == count, clients)
        store.before["move_heads"] = once(partial(wait_until, is_complete))
        told = side_by_side([lambda: client().patch(hot, **one_more)] * clients)
        # Clients that retry by themselves need about half of n times n.
        assert {(each.status_code, each.headers["Attempts"]) for each in told} == {(200, "1")}
        assert store.calls.count("move_heads") <= 2, "round trips"
    assert client().get(hot).get_json() == {"n": 1 + 4 + 16 + 64}
    store.close()


def test_d13_two_producers_keep_their_own_fields(catalog: Catalog) -> None:
    """Two producers keep their own fields of one aspect: each sends what it wants; neither removes
    nor overwrites the other's; taking over is explicit and shows in the history."""

    def send(manager: str, wanted: Any, **query: Any) -> Answer:
        return catalog.send(
            "PATCH",
            "/documents/properties",
            wanted,
            query={"manager": manager, **query},
            content_type="application/vnd.metadata.apply+json",
        )

    def owners() -> dict[str, list[str]]:
        told = catalog.send("GET", "/owners/properties").done()["owners"]
        return {each["pointer"]: [one["manager"] for one in each["owners"]] for each in told}

    schema = {"schema": {"id": "long", "total": "double"}, "rows": 10}
    quality = {"quality": {"score": 3}, "rows": 10}
    send("ingestion", schema).done(201)
    send("quality", quality).done()
    assert owners() == {
        "/schema/id": ["ingestion"],
        "/schema/total": ["ingestion"],
        "/quality/score": ["quality"],
        "/rows": ["ingestion", "quality"],
    }

    # Both at once, again and again: each finds its own fields as it wants them.
    for number in range(ROUNDS):
        mine = {"schema": {"id": f"long-{number}"}, "rows": 10}
        theirs = {"quality": {"score": number}, "rows": 10}
        both = [partial(send, "ingestion", mine), partial(send, "quality", theirs)]
        assert statuses(side_by_side(both)) == [200, 200]
        assert catalog.get("properties").done() == {**mine, **theirs}
    revision = catalog.revision
    assert not send("ingestion", mine).done()["changed"], "the same again"
    assert catalog.revision == revision

    # A person edits what the ingestion brought: it isn't overwritten, and the ingestion is told.
    catalog.patch("properties", {"op": "replace", "path": "/schema/id", "value": "uuid"}).done()
    problem = send("ingestion", mine).refused(409, "owned_by_others")
    (leaf,) = problem["contested"]
    assert (leaf["pointer"], leaf["value"]) == ("/schema/id", "uuid")
    assert (leaf["owners"][0]["plain"], leaf["owners"][0]["since"]) == (True, revision + 1)
    left = send("ingestion", mine, conflict="skip").done()
    assert [each["pointer"] for each in left["skipped"]] == ["/schema/id"]
    assert catalog.get("properties").done()["schema"] == {"id": "uuid"}

    # Taking over is explicit, by pointer, and shows in the history.
    send("ingestion", mine, force=["/schema"]).done()
    (change,) = catalog.commits()[-1]["changes"]
    assert [(each["manager"], each["gained"], each["lost"]) for each in change["owners"]] == [
        (leaf["owners"][0]["manager"], [], ["/schema/id"]),
        ("ingestion", ["/schema/id"], []),
    ]
    assert catalog.get("properties").done() == {**mine, **theirs}

    # What a producer no longer sends goes, and nothing else.
    catalog.patch("properties", add("/note", "by hand")).done()
    catalog.send("DELETE", "/owners/properties", query={"manager": "ingestion"}).done()
    assert catalog.get("properties").done() == {**theirs, "note": "by hand"}


def test_d14_a_retried_patch_never_edits_another_item(catalog: Catalog) -> None:
    """An aspect's lists declare their primary key once for the catalog; a patch that was retried on
    newer state never edits another item."""
    declared = {"keys": "schemaMetadata", "pointer": "/fields", "item_key": ["fieldPath"]}
    catalog.put("schemaMetadata", {"fields": [{"fieldPath": "id"}, {"fieldPath": "id"}]})
    told = catalog.settings({"arrays": [declared]}).refused(422, "documents_break_settings")
    assert [each["key"] for each in told["documents"]] == ["schemaMetadata"]
    names = ["id", "total", "user.name"]
    seen = catalog.put("schemaMetadata", {"fields": [{"fieldPath": each} for each in names]})
    catalog.settings({"arrays": [declared]}).done(201)

    def fields() -> dict[str, Any]:
        found = catalog.get("schemaMetadata").done()["fields"]
        assert len({each["fieldPath"] for each in found}) == len(found)
        return {each["fieldPath"]: each.get("description") for each in found}

    def describe(name: str, place: str, number: int) -> Answer:
        """By index, as of the fields that this writer saw, and saying which it means."""
        return catalog.patch(
            "schemaMetadata",
            {"op": "test", "path": f"/fields/{place}/fieldPath", "value": name},
            add(f"/fields/{place}/description", f"{name} {number}"),
        )

    def insert(number: int) -> Answer:
        return catalog.patch("schemaMetadata", add("/fields/0", {"fieldPath": f"new{number}"}))

    def by_key(number: int) -> Answer:
        path = "/fields/user.name/description"
        return catalog.extended("schemaMetadata", add(path, f"user.name {number}"))

    # Others insert fields in front, while some describe theirs by index and one by key.
    by_index = Counter[int]()
    for number in range(ROUNDS):
        calls = [partial(insert, number), partial(by_key, number)]
        calls += [partial(describe, name, str(at), number) for at, name in enumerate(names[:2])]
        inserted, keyed, *described = side_by_side(calls)
        assert (inserted.status, keyed.status) == (200, 200)
        by_index.update(statuses(described))
        for name, description in fields().items():
            assert description is None or description.startswith(f"{name} "), "another's"
        assert fields()["user.name"] == f"user.name {number}"
    assert set(by_index) <= {200, 409}
    assert by_index[409] >= 2 * (ROUNDS - 1), "after the first insertion no index is right"

    # Without a test, an index is refused; with the token that it was seen with, it isn't rebased.
    blind = add("/fields/1/description", "blind")
    told = catalog.patch("schemaMetadata", blind).refused(422, "index_needs_test")
    assert told["tests"] == ["/fields/1/fieldPath"]
    stale = catalog.patch("schemaMetadata", blind, if_match=seen.token, prefer="rebase")
    assert "/fields" in stale.refused(412, "precondition_failed")["overlap"], "its items have moved"
    current = catalog.get("schemaMetadata").token
    catalog.patch("schemaMetadata", blind, if_match=current).done()

    # Two fields never have one path, whoever adds the second.
    twice = [partial(catalog.patch, "schemaMetadata", add("/fields/-", {"fieldPath": "once"}))] * 2
    assert sorted(statuses(side_by_side(twice))) == [200, 422]
    assert "once" in fields()


def test_d15_a_writer_that_validates_first_conflicts_only_with_what_it_read(
    catalog: Catalog,
) -> None:
    """n clients that validate before they write (`append`, `update` of the Python client) don't do
    n² work either: what they validated against is all that they conflict with."""
    url = f"http://127.0.0.1:{catalog.service.port}"
    writers, rounds = 8, 10

    def entries(name: str, now: Snapshot) -> list[dict[str, Any]]:
        own = now.under(f"{name}/")
        assert all(value == name for value in own.values())
        return [put(f"{name}/{len(own)}", name)]

    with Follower(url, catalog.name) as copy, Gateway(url) as gateway:
        names = [f"writer-{n}" for n in range(writers)]

        def append_all(name: str) -> int:
            return sum(append(copy, partial(entries, name)).attempts for _ in range(rounds))

        assert side_by_side([partial(append_all, name) for name in names]) == [rounds] * writers
        assert catalog.revision == writers * rounds

        part = gateway.catalog(catalog.name)

        def count(content: Any) -> Any:
            return 1 if content is ABSENT else content + 1

        def update_all(name: str) -> int:
            return sum(part.update(name, count, create=True).tries for _ in range(rounds))

        assert side_by_side([partial(update_all, name) for name in names]) == [rounds] * writers
        assert [catalog.get(name).done() for name in names] == [rounds] * writers

        # Those who look at the same thing are serialized by it, and nothing is lost.
        def shared(now: Snapshot) -> list[dict[str, Any]]:
            return [put("shared", now.documents.get("shared", 0) + 1)]  # type: ignore[operator]

        side_by_side([partial(append, copy, shared)] * writers)
        assert catalog.get("shared").done() == writers
