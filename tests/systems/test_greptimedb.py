"""GreptimeDB: metadata in a single transaction. A table is several keys that change together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.systems.service import Answer, Catalog, put, side_by_side, statuses

Action = dict[str, Any]


def name_key(name: str) -> str:
    return f"__table_name/greptime/public/{name}"


INFO = "__table_info/1024"
ROUTE = "__table_route/1024"


def absent(key: str) -> Action:
    return {"key": key, "absent": True}


def equals(key: str, value: Any) -> Action:
    return {"key": key, "equals": value}


def get(key: str) -> Action:
    return {"action": "get", "key": key}


def create(catalog: Catalog, name: str = "t", number: int = 0, **headers: str) -> Answer:
    """All keys of a table. TableInfo and TableRoute must be absent."""
    return catalog.transaction(
        put(name_key(name), {"table_id": 1024}),
        put(INFO, {"name": name, "version": 0, "by": number}),
        put(ROUTE, {"regions": [{"peer": number}]}),
        compare=[absent(INFO), absent(ROUTE)],
        otherwise=[get(INFO), get(ROUTE)],
        **headers,
    )


def rename(catalog: Catalog, snapshot: Any, new: str) -> Answer:
    """TableInfo equals the snapshot and the new name is free."""
    return catalog.transaction(
        {"action": "delete", "key": name_key(snapshot["name"])},
        put(name_key(new), {"table_id": 1024}),
        put(INFO, {**snapshot, "name": new}),
        compare=[equals(INFO, snapshot), absent(name_key(new))],
    )


def test_g1_creating_a_table_is_one_transaction(catalog: Catalog) -> None:
    """Create: all keys of a table in one transaction; TableInfo and TableRoute must be absent."""
    answers = side_by_side([partial(create, catalog, number=n) for n in range(8)])
    told = [answer.done() for answer in answers]
    winners = [n for n, each in enumerate(told) if each["succeeded"]]
    assert len(winners) == 1
    assert catalog.revision == 1
    assert {change["key"] for change in catalog.commit(1)["changes"]} == {
        name_key("t"), INFO, ROUTE,
    }  # fmt: skip
    for number, each in enumerate(told):
        if number not in winners:
            assert (each["changed"], each["commit_id"]) == (False, None)
            info, route = each["results"]
            assert info["value"]["by"] == winners[0]
            assert route["value"] == {"regions": [{"peer": winners[0]}]}

    # One of the two is there: nothing is created, not the other one either.
    catalog.delete(INFO)
    assert create(catalog).done()["succeeded"] is False
    catalog.get(INFO).refused(404, "document_not_found")


def test_g2_renaming_a_table_needs_its_snapshot_and_a_free_name(catalog: Catalog) -> None:
    """Rename: TableInfo equals the snapshot and the new name key is absent; old name goes, new
    name comes, in one commit."""
    create(catalog, "old").done()
    snapshot = catalog.get(INFO).done()
    done = rename(catalog, snapshot, "new").done()
    assert (done["succeeded"], done["revision"]) == (True, 2)
    changed = {change["key"]: change["action"] for change in catalog.commit(2)["changes"]}
    assert changed == {name_key("old"): "delete", name_key("new"): "put", INFO: "put"}
    assert catalog.get(name_key("old")).status == 404

    def failed(answer: Answer) -> list[str]:
        problem = answer.refused(412, "precondition_failed")
        return [each["key"] for each in problem["failed_compares"]]

    before = catalog.export()
    assert failed(rename(catalog, snapshot, "third")) == [INFO]
    catalog.put(name_key("taken"), {"table_id": 9})
    snapshot = catalog.get(INFO).done()
    assert failed(rename(catalog, snapshot, "taken")) == [name_key("taken")]
    assert catalog.get(name_key("taken")).done() == {"table_id": 9}
    before["metadata"][name_key("taken")] = {"table_id": 9}
    assert catalog.export()["metadata"] == before["metadata"]

    # A table of that name made at the same time: one of the two gets it.
    for number in range(6):
        snapshot, new = catalog.get(INFO).done(), f"n{number}"
        other = partial(
            catalog.transaction,
            put(name_key(new), {"table_id": number}),
            compare=[absent(name_key(new))],
        )
        answers = side_by_side([partial(rename, catalog, snapshot, new), other])
        assert statuses(answers) == [200, 412]
        owner = catalog.get(name_key(new)).done()["table_id"]
        renamed = answers[0].status == 200
        assert owner == (1024 if renamed else number)
        assert catalog.get(INFO).done()["name"] == (new if renamed else snapshot["name"])


def test_g3_altering_needs_the_snapshot_or_returns_the_current_value(catalog: Catalog) -> None:
    """Alter and region failover: the key equals the snapshot, else the answer carries the current
    value so the caller can decide again."""
    create(catalog).done()
    snapshot = catalog.get(INFO).done()
    catalog.merge(INFO, {"version": 1})
    stale = catalog.transaction(
        put(INFO, {**snapshot, "version": 2}), compare=[equals(INFO, snapshot)]
    )
    (compare,) = stale.refused(412, "precondition_failed")["failed_compares"]
    assert (compare["index"], compare["key"]) == (0, INFO)
    assert compare["current"]["value"] == {**snapshot, "version": 1}
    assert compare["current"]["etag"] == catalog.get(INFO).token

    def fail_over(region: int) -> int:
        """Adds its region by comparing with the whole value; how often it had to decide again."""
        seen, again = catalog.get(ROUTE).done(), 0
        while True:
            answer = catalog.transaction(
                put(ROUTE, {"regions": [*seen["regions"], {"peer": region}]}),
                compare=[equals(ROUTE, seen)],
                otherwise=[get(ROUTE)],
            ).done()
            if answer["succeeded"]:
                return again
            again += 1
            (told,) = answer["results"]
            assert told["value"] != seen, "it was refused for no reason"
            seen = told["value"]

    again = side_by_side([partial(fail_over, region) for region in range(1, 9)])
    assert sum(again) > 0, "nobody lost a race: this showed nothing"
    peers = [region["peer"] for region in catalog.get(ROUTE).done()["regions"]]
    assert sorted(peers) == list(range(9))


def test_g4_dropping_a_table_moves_its_keys_and_undropping_brings_them_back(
    catalog: Catalog,
) -> None:
    """Drop: every key moves under a `__removed-` prefix in one commit; undrop fails when a live
    key took the name."""
    keys = (name_key("t"), INFO, ROUTE)
    create(catalog).done()
    catalog.put_attributes(INFO, {"owner": "x"})
    alive = catalog.export()["metadata"]
    removed = {f"__removed-{key}": value for key, value in alive.items()}

    def move(*pairs: tuple[str, str]) -> Answer:
        return catalog.transaction(*({"action": "move", "from": a, "to": b} for a, b in pairs))

    drop = [(key, f"__removed-{key}") for key in keys]
    undrop = [(new, old) for old, new in reversed(drop)]
    before = catalog.revision
    assert move(*drop).done()["revision"] == before + 1
    assert catalog.export() == {"resource_version": before + 1, "metadata": removed}
    assert len(catalog.commit(before + 1)["changes"]) == 6

    assert move(*undrop).done()["revision"] == before + 2
    assert catalog.export()["metadata"] == alive
    assert catalog.get_attributes(INFO).done() == {"owner": "x"}, "attributes come along"

    move(*drop).done()
    catalog.put(name_key("t"), {"table_id": 2048})
    state = catalog.export()
    problem = move(*undrop).refused(409, "target_exists")
    assert (problem["action"], problem["key"]) == (2, name_key("t")), "the last one to be moved"
    move((name_key("t"), "elsewhere"), (INFO, "gone")).refused(404, "document_not_found")
    assert catalog.export() == state
    assert state["metadata"] == removed | {name_key("t"): {"table_id": 2048}}


def test_g5_compares_on_equality_absence_inequality_and_order(catalog: Catalog) -> None:
    """Compares on equality, absence, inequality and order; the else branch returns current
    values."""
    value = {"version": 5, "name": "t", "options": {"ttl": None}}
    token = catalog.put(INFO, value).token
    at = {"path": "/version"}

    def test(*operations: Any) -> Action:
        return {"key": INFO, "test": list(operations)}

    true: list[Action] = [
        equals(INFO, {"options": {"ttl": None}, "version": 5.0, "name": "t"}),
        {"key": INFO, "etag": token},
        {"resource_version": 1},
        absent(ROUTE),
        test({"op": "test", **at, "value": 5}),
        test({"op": "not", "apply": [{"op": "test", **at, "value": 4}]}),
        test({"op": "more", **at, "value": 4}, {"op": "less", **at, "value": 6}),
        test({"op": "defined", "path": "/name"}, {"op": "undefined", "path": "/gone"}),
    ]
    false: list[Action] = [
        equals(INFO, {**value, "version": True}),
        equals(ROUTE, None),
        {"key": INFO, "etag": "1-00000000"},
        {"key": ROUTE, "etag": token},
        {"resource_version": 2},
        absent(INFO),
        test({"op": "test", **at, "value": "5"}),
        test({"op": "not", "apply": [{"op": "test", **at, "value": 5}]}),
        test({"op": "more", **at, "value": 5}),
        test({"op": "less", **at, "value": 5}),
        {"key": ROUTE, "test": [{"op": "defined", "path": ""}]},
    ]
    for compare in false:
        answer = catalog.transaction(
            put(INFO, {"lost": True}), compare=[*true, compare], otherwise=[get(INFO), get(ROUTE)]
        ).done()
        assert (answer["succeeded"], answer["changed"]) == (False, False), compare
        info, route = answer["results"]
        assert (info["exists"], info["value"], info["etag"]) == (True, value, token)
        assert (route["exists"], route["etag"]) == (False, None)
        problem = catalog.transaction(put(INFO, {"lost": True}), compare=[*true, compare]).refused(
            412, "precondition_failed"
        )
        assert [each["index"] for each in problem["failed_compares"]] == [len(true)]
    assert catalog.get(INFO).token == token

    done = catalog.transaction(put(INFO, {**value, "version": 6}), compare=true).done()
    assert (done["succeeded"], done["changed"]) == (True, True)
    # The else branch may write as well, and says so.
    other = catalog.transaction(compare=[absent(INFO)], otherwise=[put(ROUTE, {})]).done()
    assert (other["succeeded"], other["changed"]) == (False, True)
    assert catalog.commit(other["revision"])["succeeded"] is False


def test_g6_replaying_a_transaction_that_is_already_done_changes_nothing(catalog: Catalog) -> None:
    """Replaying a transaction whose result already holds is a success that changes nothing."""
    info = {"name": "t", "version": 0}
    route = {"regions": [{"peer": 0}]}
    created = [put(name_key("t"), {"table_id": 1024}), put(INFO, info), put(ROUTE, route)]
    transactions: list[Callable[[], Answer]] = [
        lambda: catalog.transaction(*created, compare=[absent(INFO), absent(ROUTE)]),
        lambda: rename(catalog, info, "new"),
        lambda: catalog.transaction(
            put(INFO, {"altered": True}), compare=[equals(INFO, {**info, "name": "new"})]
        ),
        lambda: catalog.transaction(
            {"action": "delete", "key": ROUTE},
            compare=[equals(ROUTE, route)],
            otherwise=[get(ROUTE)],
        ),
    ]
    for revision, transaction in enumerate(transactions, start=1):
        made = transaction().done()
        assert (made["succeeded"], made["changed"], made["revision"]) == (True, True, revision)
        again = transaction().done()
        assert (again["succeeded"], again["changed"], again["commit_id"]) == (True, False, None)
        assert again["revision"] == catalog.revision == revision
    # Only where all of it holds: this one's result was overwritten since.
    transactions[0]().refused(412, "precondition_failed")

    # By its key a replay gives the first result, also when the state has moved on.
    drop = {"action": "move", "from": INFO, "to": f"__removed-{INFO}"}
    made = catalog.transaction(drop, idempotency_key="drop-1024")
    catalog.put(INFO, {"another": "table"})
    replay = catalog.transaction(drop, idempotency_key="drop-1024")
    assert replay.done() == made.done()
    assert replay.headers["Idempotency-Replayed"] == "true"
    assert catalog.get(INFO).done() == {"another": "table"}


def test_g7_a_transaction_over_the_size_limit_is_refused_whole(catalog: Catalog) -> None:
    """A transaction over the size limit is refused whole, never chunked."""
    # As many keys as one transaction of etcd takes (128) are no matter: still one commit.
    many = {f"small/{number:04}": number for number in range(1000)}
    done = catalog.transaction(*(put(key, value) for key, value in many.items())).done()
    assert done["revision"] == catalog.revision == 1
    assert len(catalog.commit(1)["changes"]) == len(many)

    value = "x" * (1024 * 1024)
    big = [f"big/{number}" for number in range(20)]
    for key in big:
        catalog.put(key, value).done(201)
    before = catalog.head()
    # What is sent is small, what has to be recorded isn't.
    moves = [{"action": "move", "from": key, "to": f"__removed-{key}"} for key in big]
    problem = catalog.transaction(put("first", 1), *moves).refused(413, "over_limit")
    assert problem["actual"] > problem["maximum"]
    assert problem["limit"]
    # What is sent is too large.
    puts = [put(f"new/{number}", value) for number in range(9)]
    catalog.transaction(put("first", 1), *puts).refused(413, "body_too_large")
    too_many = [{"action": "touch"}] * 5000
    catalog.transaction(put("first", 1), *too_many).refused(413, "over_limit")
    assert catalog.head() == before
    catalog.get("first").refused(404, "document_not_found")
    assert catalog.get(f"__removed-{big[0]}").status == 404
    assert catalog.transaction(*moves[:3]).done()["changed"] is True


def test_g9_any_refused_write_can_carry_the_current_value(catalog: Catalog) -> None:
    """Any refused write can carry the current value, not only a transaction's."""
    show = {"prefer": "return=representation"}
    create(catalog).done()
    snapshot = {"name": "t", "version": 0, "by": 0}
    stale = catalog.get(INFO).token
    taken = catalog.put(INFO, {**snapshot, "version": 1}).token
    now = {"etag": taken, "revision": 2, "value": {**snapshot, "version": 1}}

    refusals = [
        catalog.put(INFO, {}, if_match=stale, **show).refused(412, "precondition_failed"),
        catalog.put(INFO, {}, if_none_match="*", **show).refused(412, "precondition_failed"),
        catalog.delete(INFO, if_match=stale, **show).refused(412, "precondition_failed"),
        catalog.merge(INFO, {"by": 1}, if_match=stale, **show).refused(412, "precondition_failed"),
        catalog.patch(INFO, {"op": "test", "path": "/version", "value": 0}, **show).refused(
            409, "test_failed"
        ),
        catalog.put_attributes(INFO, {}, if_match=stale, **show).refused(
            412, "precondition_failed"
        ),
        catalog.send("POST", "/uploads", {"key": INFO, "if_match": stale}, **show).refused(
            412, "precondition_failed"
        ),
    ]
    assert [each["current"] for each in refusals] == [now] * len(refusals)

    # With what the refusal shows the client goes on: one more request, and no read between them.
    shown = refusals[0]["current"]
    done = catalog.put(INFO, {**shown["value"], "by": 7}, if_match=shown["etag"], **show)
    assert done.done() == {"name": "t", "version": 1, "by": 7}

    # A transaction shows each document that isn't as it was compared.
    route = catalog.get(ROUTE).token
    failed = catalog.transaction(
        put(INFO, {}),
        compare=[{"key": INFO, "etag": stale}, {"key": ROUTE, "absent": True}],
        **show,
    ).refused(412, "precondition_failed")
    assert [each["current"] for each in failed["failed_compares"]] == [
        {"etag": done.token, "revision": 3, "value": done.done()},
        {"etag": route, "revision": 1, "value": {"regions": [{"peer": 0}]}},
    ]
    assert catalog.revision == 3


def test_g8_compares_and_deletions_are_about_key_ranges(catalog: Catalog) -> None:
    """Compares over a key range: all absent, unchanged since; delete by range."""
    create(catalog).done()
    names, infos = "__table_name/", "__table_info/"
    free = {"prefix": "__table_route/2", "absent": True}
    taken = {"prefix": infos, "absent": True}
    assert catalog.transaction(put("a", 1), compare=[free]).done()["succeeded"]
    told = catalog.transaction(put("a", 2), compare=[free, taken], otherwise=[get(INFO)]).done()
    assert (told["succeeded"], told["results"][0]["exists"]) == (False, True)

    seen = catalog.revision
    unchanged = {"prefix": names, "unchanged_since": seen}
    catalog.put("__table_info/1024", {"other": True}).done()  # no name
    drop = [{"action": "delete", "prefix": prefix} for prefix in (names, infos)]
    catalog.delete(name_key("t")).done(204)
    problem = catalog.transaction(*drop, compare=[unchanged]).refused(412, "precondition_failed")
    assert problem["failed_compares"][0]["changed_at"] == catalog.revision

    now = {"prefix": names, "unchanged_since": catalog.revision}
    results = catalog.transaction(*drop, compare=[now]).done()["results"]
    assert [each["deleted"] for each in results] == [0, 1]
    assert set(catalog.export()["metadata"]) == {ROUTE, "a"}

    # Of those who each want to be the only one in a range, one is.
    alone = {"prefix": "lock/", "absent": True}
    claims = [partial(catalog.transaction, put(f"lock/{n}", n), compare=[alone]) for n in range(8)]
    assert statuses(side_by_side(claims)) == [200] + [412] * 7
    catalog.compact(catalog.revision).done()
    catalog.transaction(compare=[{"prefix": "none", "unchanged_since": 1}]).refused(
        410, "revision_compacted"
    )
