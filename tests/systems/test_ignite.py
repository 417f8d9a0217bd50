"""Ignite 3: the Catalog service. Commands become update entries that are appended to the log;
nodes follow it with a local copy."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from patching.client import AppendFailed, Follower, Snapshot, append
from tests.patience import WAIT_S
from tests.service import RunningGateway
from tests.systems.feeds import applied
from tests.systems.service import Answer, Catalog, Feed, add, put, side_by_side, statuses

Actions = list[dict[str, Any]]
Command = Callable[[Snapshot], Actions]

ROOT = Path(__file__).resolve().parents[2]


class CatalogValidation(Exception):
    """A command doesn't fit the catalog as it is."""


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def patch(key: str, *operations: Any) -> dict[str, Any]:
    return {"action": "patch", "key": key, "patch": operations}


def move(key: str, to: str) -> dict[str, Any]:
    return {"action": "move", "from": key, "to": to}


def create_table(name: str) -> Command:
    """Validated against the state it is decided on; ids are given out one after the other."""

    def entries(now: Snapshot) -> Actions:
        if f"tables/{name}" in now.documents:
            raise CatalogValidation(f"table {name} exists at version {now.revision}")
        last = now.documents.get("objectId", 0)
        assert isinstance(last, int)
        return [put(f"tables/{name}", {"id": last + 1, "columns": {}}), put("objectId", last + 1)]

    return entries


@contextmanager
def nodes(catalog: Catalog, count: int) -> Iterator[list[Follower]]:
    """Each with a local copy of the catalog."""
    url = f"http://127.0.0.1:{catalog.service.port}"
    with ExitStack() as stack:
        yield [stack.enter_context(Follower(url, catalog.name, poll_s=5)) for _ in range(count)]


def copy_of(node: Follower, revision: int) -> dict[str, Any]:
    """What the node holds at this version, as an export."""
    node.wait_for(revision, WAIT_S)
    return {"resource_version": revision, "metadata": dict(node.at_revision(revision).documents)}


def build_history(catalog: Catalog) -> None:
    """Thirteen commits of all kinds."""
    catalog.put("tables/a", {"columns": {}, "n": 0})
    for number in range(4):
        catalog.patch("tables/a", add(f"/columns/c{number}", number))
    catalog.put("tables/b", {"columns": {}})
    catalog.transaction(move("tables/b", "tables/c"), put("indexes/i", {"on": "tables/c"})).done()
    catalog.delete("indexes/i")
    catalog.put_attributes("tables/a", {"zone": "z"})
    catalog.touch()
    catalog.put("indexes/i", {"on": "again"})
    catalog.settings({"require_precondition": False})
    catalog.extended("tables/a", {"op": "increment", "path": "/n"})
    assert catalog.revision == 13


def test_i1_a_command_is_validated_appended_and_applied_by_followers(catalog: Catalog) -> None:
    """Accept, then apply: a command is validated against the current state, turned into update
    entries, and appended by compare-and-set on version N+1; followers apply it to a local copy."""
    with nodes(catalog, 2) as (node, other):
        assert node.position == 0
        for version, name in enumerate("abc", start=1):
            appended = append(node, create_table(name))
            assert (appended.revision, appended.changed) == (version, True)
            entries = catalog.commit(version)["changes"]
            assert {entry["key"] for entry in entries} == {f"tables/{name}", "objectId"}
            for each in (node, other):
                assert copy_of(each, version) == catalog.export({"revision": version})
        with pytest.raises(CatalogValidation, match="table b exists at version 3"):
            append(other, create_table("b"))
        assert catalog.revision == 3
        # On the wire it is a compare-and-set: entries for a version that is taken are refused.
        taken = catalog.transaction(put("objectId", 9), compare=[{"resource_version": 2}])
        assert taken.refused(412, "precondition_failed")["resource_version"] == 3


def test_i2_a_lost_append_is_validated_again_and_retried(catalog: Catalog) -> None:
    """A lost append is re-validated against the new state and retried; not limited to a handful of
    attempts; the final error says what happened."""
    with nodes(catalog, 8) as followers:
        met = threading.Barrier(len(followers))

        def on_one_state(name: str) -> Command:
            """All are validated against the same state, before any of them is sent."""
            command = create_table(name)
            waits = [partial(met.wait, WAIT_S)]

            def entries(now: Snapshot) -> Actions:
                found = command(now)
                if waits:
                    waits.pop()()
                return found

            return entries

        calls = [partial(append, node, on_one_state(f"t{n}")) for n, node in enumerate(followers)]
        appended = side_by_side(calls)
        assert sorted(each.revision for each in appended) == list(range(1, 9))
        assert [each.attempts for each in appended].count(1) == 1, "the others lost, and went on"
        tables = {key: value for key, value in catalog.export()["metadata"].items() if "/" in key}
        assert sorted(table["id"] for table in tables.values()) == list(range(1, 9))

        def create_same(node: Follower) -> str:
            try:
                append(node, create_table("same"))
            except CatalogValidation as error:
                return str(error)
            return "created"

        told = Counter(side_by_side([partial(create_same, node) for node in followers]))
        assert told == {"created": 1, "table same exists at version 9": 7}

        def losing(times: float) -> tuple[Command, list[int]]:
            """A command that somebody is always faster than, so many times."""
            versions: list[int] = []

            def entries(now: Snapshot) -> Actions:
                versions.append(now.revision)
                if len(versions) <= times:
                    catalog.touch()
                return create_table(f"late{times}")(now)

            return entries, versions

        command, versions = losing(25)
        done = append(followers[0], command)
        assert done.attempts == 26
        assert versions == sorted(set(versions)), "each time on a newer state"

        command, versions = losing(float("inf"))
        with pytest.raises(AppendFailed) as failed:
            append(followers[0], command, timeout_s=2)
        assert failed.value.applied == "no"
        assert failed.value.attempts == len(versions)
        assert str(failed.value.attempts) in str(failed.value)
        assert failed.value.last_head >= versions[-1]


def test_i3_a_list_of_commands_is_atomic_and_one_version(catalog: Catalog) -> None:
    """A list of commands is atomic and moves the version by one; all no-ops append nothing and
    return the current version; a failed list bumps nothing."""
    table = {"columns": {"id": "int"}}
    commands: Actions = [
        put("tables/t", table),
        put("indexes/i", {"on": "t"}),
        patch("tables/t", add("/columns/name", "text")),
        {"action": "attributes", "key": "tables/t", "value": {"zone": "z"}},
        {"action": "delete", "key": "indexes/i"},
    ]
    assert catalog.transaction(*commands).done()["revision"] == 1
    state = {"tables/t": {"columns": {"id": "int", "name": "text"}}}
    assert catalog.export() == {"resource_version": 1, "metadata": state}

    no_ops: Actions = [
        put("tables/t", state["tables/t"]),
        {"action": "merge", "key": "tables/t", "value": {"columns": {"id": "int"}}},
        patch("tables/t", add("/x", 1), remove("/x")),
        {"action": "attributes", "key": "tables/t", "value": {"zone": "z"}},
        {"action": "delete", "key": "tables/nobody"},
    ]  # fmt: skip
    answer = catalog.transaction(*no_ops)
    done = answer.done()
    assert (done["revision"], done["changed"], done["commit_id"]) == (1, False, None)
    assert (answer.revision, catalog.revision) == (1, 1)

    before = catalog.head()
    failing: list[tuple[dict[str, Any], int, str]] = [
        (patch("tables/t", remove("/columns/nobody")), 409, "path_missing"),
        (patch("tables/nobody", add("/x", 1)), 404, "document_not_found"),
        (move("tables/t", "tables/u"), 409, "target_exists"),
        (move("tables/nobody", "tables/v"), 404, "document_not_found"),
    ]
    for command, status, code in failing:
        answer = catalog.transaction(put("tables/u", {}), put("tables/w", {}), command, put("x", 1))
        assert answer.refused(status, code)["action"] == 2
        assert catalog.head() == before
    assert catalog.export()["metadata"] == state
    with nodes(catalog, 1) as (node,):
        nothing = append(node, lambda _: [])
        assert (nothing.revision, nothing.changed, nothing.attempts) == (1, False, 0)


def test_i4_states_are_found_by_version_and_by_time(catalog: Catalog) -> None:
    """Lookup by version and by timestamp (the last commit at or before it); before the earliest or
    beyond the latest is a clear error."""
    state: dict[str, Any] = {}
    for number in range(5):
        catalog.put("tables/t", {"n": number})
        catalog.put("last", number)
    commits = catalog.commits()
    for commit, following in pairwise([*commits, None]):
        assert commit is not None
        state = applied(state, [commit])
        version, time = commit["revision"], datetime.fromisoformat(commit["time"])
        expected = {"resource_version": version, "metadata": state}
        moments = [time]
        if following is not None:  # the last one holds on, up to now
            until = datetime.fromisoformat(following["time"])
            moments += [time + (until - time) / 2, until - timedelta(microseconds=1)]
        assert catalog.export({"revision": version}) == expected
        assert catalog.get("tables/t", {"revision": version}).done() == state["tables/t"]
        for moment in moments:
            at = {"at": moment.isoformat()}
            assert catalog.export(at) == expected
            answer = catalog.get("tables/t", at)
            assert (answer.done(), answer.revision) == (state["tables/t"], version)
    assert catalog.export({"at": datetime.now(UTC).isoformat()})["resource_version"] == 10

    first = datetime.fromisoformat(commits[0]["time"])
    asked: dict[str, Any]
    for asked in ({"revision": 11}, {"at": (first - timedelta(microseconds=1)).isoformat()}):
        for path in ("/export", "/documents", "/documents/last"):
            answer = catalog.send("GET", path, query=asked)
            assert answer.refused(404, "revision_not_found")["head_revision"] == 10
    catalog.compact(4).done()
    for asked in ({"revision": 3}, {"at": commits[2]["time"]}):
        for path in ("/export", "/documents", "/documents/last"):
            answer = catalog.send("GET", path, query=asked)
            assert answer.refused(410, "revision_compacted")["oldest_revision"] == 4


def test_i5_a_snapshot_replaces_everything_below_it(catalog: Catalog) -> None:
    """A snapshot at N replaces the entries up to N; a second snapshot at or below N says that one
    exists; state and lookups at and above N are unchanged by it."""
    build_history(catalog)

    def lookups(revision: int) -> list[Any]:
        at = {"revision": revision}
        keys = ("tables/a", "tables/b", "tables/c", "indexes/i")
        documents = [catalog.get(key, at) for key in keys]
        listed = catalog.send("GET", "/documents", query=at).done()
        by_time = [catalog.export({"at": times[revision]})]
        told = [
            (each.status, each.headers["ETag"], each.body)
            for each in documents
            if each.status == 200
        ]
        return [catalog.export(at), listed, by_time, [each.status for each in documents], told]

    log = catalog.commits()
    times = {commit["revision"]: commit["time"] for commit in log}
    before = {revision: lookups(revision) for revision in range(1, 14)}
    for floor in (7, 11):
        done = catalog.compact(floor).done()
        assert (done["floor"], done["head_revision"]) == (floor, 13)
        assert {each: lookups(each) for each in range(floor, 14)} == {
            each: before[each] for each in range(floor, 14)
        }
        assert catalog.commits(after=floor) == log[floor:]
        assert catalog.changes(floor).done()["commits"] == log[floor:]
        for gone in (
            catalog.send("GET", "/export", query={"revision": floor - 1}),
            catalog.send("GET", "/commits", query={"after": floor - 1}),
            catalog.changes(floor - 1),
        ):
            assert gone.refused(410, "revision_compacted")["oldest_revision"] == floor
        for again in (floor, floor - 1):
            problem = catalog.compact(again).refused(409, "snapshot_exists")
            assert problem["oldest_revision"] == floor
    catalog.compact(14).refused(404, "revision_not_found")
    assert statuses(side_by_side([partial(catalog.compact, 12)] * 4)) == [200, 409, 409, 409]
    assert catalog.put("tables/a", {}).revision == 14


def test_i6_replaying_the_retained_history_gives_the_current_state(
    catalog: Catalog, mongodb_uri: str, systems_database: str
) -> None:
    """Recovery: replaying from the earliest retained version to the head gives exactly the current
    state."""
    build_history(catalog)
    side_by_side([partial(catalog.patch, "tables/a", add("/x", n)) for n in range(8)])
    head = catalog.revision
    for floor in (0, 1, 6, 7, 12):
        state: dict[str, Any] = {}
        if floor:
            catalog.compact(floor).done()
            state = catalog.export({"revision": floor})["metadata"]
        assert catalog.head()["floor"] == floor
        for commit in catalog.commits(after=floor):
            state = applied(state, [commit])
            version = commit["revision"]
            assert catalog.export({"revision": version})["metadata"] == state, version
        assert catalog.export() == {"resource_version": head, "metadata": state}
        with nodes(catalog, 1) as (node,):
            assert copy_of(node, head) == catalog.export()
    verified = subprocess.run(
        (sys.executable, "-m", "gateway.cli", "verify", catalog.name,
         f"--mongodb-uri={mongodb_uri}", f"--database={systems_database}"),
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=WAIT_S,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_i7_a_pin_holds_history_until_it_expires(
    catalog: Catalog, eventually: Callable[..., Any]
) -> None:
    """History in use isn't truncated: a pin holds it; a pin that expired doesn't."""
    build_history(catalog)
    pin = catalog.pin(revision=4, seconds=600, note="backup").done(201)
    at_four = catalog.export({"revision": 4})
    problem = catalog.compact(5).refused(409, "pin_holds")
    assert problem["pinned_revision"] == 4
    assert catalog.compact(4).done()["floor"] == 4, "up to the pin it may go"
    assert catalog.export({"revision": 4}) == at_four
    catalog.pin(revision=3, seconds=600).refused(410, "revision_compacted")
    catalog.pin(revision=14, seconds=600).refused(404, "revision_not_found")

    short = catalog.pin(revision=4, seconds=1).done(201)
    catalog.send("DELETE", f"/pins/{pin['pin']}")
    compacted = eventually(lambda: (answer := catalog.compact(5)).status == 200 and answer)
    assert compacted.done()["floor"] == 5
    assert datetime.now(UTC) >= datetime.fromisoformat(short["expires"])
    catalog.send("GET", f"/pins/{short['pin']}").refused(404, "pin_not_found")

    # Renewed in time it holds on, beyond what it was made for.
    def renewed_in_time() -> tuple[Any, Any] | None:
        made = catalog.pin(revision=5, seconds=1).done(201)
        answer = catalog.send("PUT", f"/pins/{made['pin']}", {"seconds": 600})
        return (made, answer.done()) if answer.status == 200 else None

    renewed, longer = eventually(renewed_in_time)
    assert longer["expires"] > renewed["expires"]
    first_end = datetime.fromisoformat(renewed["expires"])
    eventually(lambda: datetime.now(UTC) > first_end)
    catalog.compact(6).refused(409, "pin_holds")
    catalog.send("DELETE", f"/pins/{renewed['pin']}")

    # A pin that is made while compaction runs holds or is refused; never both, never neither.
    for revision in range(6, 13):
        pinned, done = side_by_side(
            [
                partial(catalog.pin, revision=revision - 1, seconds=600),
                partial(catalog.compact, revision),
            ]
        )
        assert (pinned.status, done.status) in ((201, 409), (410, 200))
        if pinned.status == 201:
            assert catalog.export({"revision": revision - 1})["resource_version"] == revision - 1
            catalog.send("DELETE", f"/pins/{pinned.json()['pin']}")
            catalog.compact(revision).done()


def test_i8_listeners_get_every_commit_once_and_in_order(
    catalog: Catalog, gateway: RunningGateway
) -> None:
    """Listeners get every commit in order, exactly once per position, and can resume; a handler
    that fails stops itself, not the catalog."""
    writers, each_writes = 4, 15
    total = writers * each_writes
    catalog.put("k", {"n": 0})
    end = 1 + total

    def write(name: int) -> list[int]:
        for number in range(each_writes):
            catalog.patch("k", add(f"/w{name}", number)).done()
        return []

    def listen(after: int) -> list[int]:
        with Feed(catalog, after) as feed:
            return [commit["revision"] for commit in feed.commits(end - after)]

    def listen_in_pieces() -> list[int]:
        """Cut off after every 7 commits, and resumed at what was handled last."""
        told = [0]
        while told[-1] < end:
            with Feed(catalog, told[-1], resume=True) as feed:
                pieces = feed.commits(min(7, end - told[-1]))
            told += [commit["revision"] for commit in pieces]
        return told[1:]

    def fail() -> list[int]:
        """Handles one commit and then reads no further, as a handler that died in the middle."""
        with Feed(catalog, 0) as feed:
            return [commit["revision"] for commit in feed.commits(1)]

    calls: list[Callable[[], list[int]]] = [partial(write, name) for name in range(writers)]
    calls += [partial(listen, 0), partial(listen, 1), listen_in_pieces, fail]
    _, _, _, _, whole, later, pieces, _ = side_by_side(calls)
    assert whole == list(range(1, end + 1))
    assert later == list(range(2, end + 1))
    assert pieces == whole

    # With the client: a handler that raises is told nothing more; all else goes on.
    with nodes(catalog, 1) as (node,):
        handled: list[int] = []
        failing: list[int] = []
        reached = threading.Event()

        def handle(commit: Any) -> None:
            handled.append(commit.revision)
            if commit.revision == end + 4:
                reached.set()

        def break_down(commit: Any) -> None:
            failing.append(commit.revision)
            if commit.revision == end + 2:
                raise ValueError("the handler's own fault")

        sound = node.subscribe(handle, after=0)
        broken = node.subscribe(break_down, after=end - 3)
        for number in range(4):
            catalog.touch() if number % 2 else catalog.patch("k", add("/n", number + 1))
        assert reached.wait(WAIT_S)
        assert handled == list(range(1, end + 5))
        assert broken.wait(WAIT_S)
        assert failing == list(range(end - 2, end + 3))
        assert isinstance(broken.error, ValueError)
        assert broken.position == end + 1, "what it failed at isn't handled"
        assert not sound.stopped
        assert copy_of(node, end + 4) == catalog.export()
        resumed: list[int] = []
        again = node.subscribe(
            lambda commit: resumed.append(commit.revision), after=broken.position
        )
        catalog.touch()
        node.wait_for(end + 5, WAIT_S)
        again.stop() if resumed == list(range(end + 2, end + 6)) else again.wait(1)
        assert resumed == list(range(end + 2, end + 6))
    assert gateway.is_running()


def test_i9_commit_times_increase_strictly(catalog: Catalog) -> None:
    """Commit times are strictly increasing, so a timestamp names one version."""
    lines = [
        {"catalog": catalog.name, "key": f"k{n % 3}", "op": "put", "value": n} for n in range(50)
    ]

    def write(name: int) -> Answer:
        for number in range(10):
            answer = catalog.put(f"w{name}", number)
        return answer

    calls: list[Callable[[], Any]] = [partial(write, name) for name in range(6)]
    calls += [partial(catalog.service.bulk, *lines), catalog.touch]
    side_by_side(calls)
    commits = catalog.commits()
    assert [commit["revision"] for commit in commits] == list(range(1, 112))
    for one, two in pairwise(commits):
        assert datetime.fromisoformat(one["time"]) < datetime.fromisoformat(two["time"])
    for commit in commits[::10]:
        assert catalog.export({"at": commit["time"]})["resource_version"] == commit["revision"]


def test_i10_commands_may_accept_existing_objects_and_errors_name_the_field(
    catalog: Catalog,
) -> None:
    """`if_exists` / `if_absent` forms of commands; validation errors name the offending field."""
    column = {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["int"]}}}
    schema = {
        "type": "object",
        "required": ["columns"],
        "properties": {"columns": {"type": "object", "additionalProperties": column}},
    }
    catalog.settings({"schemas": {"tables/*": schema}}).done(201)
    catalog.put("tables/t", {"columns": {}})

    # If exists, if absent: where there is nothing to do, nothing is done and nothing wrong.
    revision = catalog.revision
    drop_column = {"op": "remove", "path": "/columns/nobody"}
    catalog.extended("tables/t", drop_column).refused(409, "path_missing")
    kept = catalog.extended("tables/t", {**drop_column, "if_exists": True})
    assert kept.done()["changed"] is False
    catalog.put("tables/t", {"columns": {}}, if_none_match="*").refused(412, "precondition_failed")
    created = catalog.transaction(
        put("tables/t", {"columns": {"id": {"type": "int"}}}),
        compare=[{"key": "tables/t", "absent": True}],
        otherwise=[],
    ).done()
    assert (created["succeeded"], created["changed"]) == (False, False)
    dropped = catalog.transaction({"action": "delete", "key": "tables/nobody"}).done()
    assert (dropped["succeeded"], dropped["changed"]) == (True, False)
    assert catalog.revision == revision
    catalog.put("notes", {})
    deep = add("/a/b/c", 1)
    catalog.extended("notes", deep).refused(409, "path_missing")
    catalog.extended("notes", {**deep, "create_parents": True}).done()
    assert catalog.get("notes").done() == {"a": {"b": {"c": 1}}}

    # What is wrong is named: in the state that would be, in the command, in the list of commands.
    before = catalog.head()
    bad = {"columns": {"id": {"type": "int"}, "name": {"type": "varchar"}}}
    for refused in (
        catalog.put("tables/t", bad),
        catalog.merge("tables/t", bad),
        catalog.patch("tables/t", add("/columns/name", {"type": "varchar"})),
        catalog.transaction(put("notes", 1), put("tables/t", bad)),
    ):
        problem = refused.refused(422, "schema_violation")
        assert problem["key"] == "tables/t"
        assert [error["pointer"] for error in problem["errors"]] == ["/columns/name/type"]
    missing = catalog.put("tables/t", {}).refused(422, "schema_violation")
    assert "columns" in missing["errors"][0]["message"]
    patch = catalog.patch("tables/t", add("/columns/id", {"type": "int"}), {"op": "remove"})
    problem = patch.refused(400, "invalid_patch")
    assert problem["operation"] == 1
    assert "path" in problem["detail"]
    # A member that is there is pointed at; of one that is missing, the command that lacks it.
    for command, place, field in (
        ({"action": "put", "key": "x"}, "", "'value'"),
        ({"action": "move", "from": "a"}, "", "'to'"),
        ({"action": "put", "key": 7, "value": 1}, "/key", "'key'"),
        ({"action": "putt", "key": "x", "value": 1}, "/action", "put"),
        ({**put("x", 1), "vaule": 2}, "/vaule", "value"),
        ({"action": "attributes", "key": "tables/t", "value": []}, None, "attributes"),
    ):
        answer = catalog.transaction(put("notes", 1), command)
        if place is None:
            problem = answer.refused(422, "invalid_attributes")
            assert problem["action"] == 1
        else:
            problem = answer.refused(400, "invalid_body")
            assert problem["pointer"] == f"/then/1{place}"
        assert field in problem["detail"]
    assert catalog.head() == before


def test_i11_each_command_of_a_list_may_have_its_own_condition(catalog: Catalog) -> None:
    """A command list in which a command applies only `IF EXISTS`, others all the same: a condition
    per action."""
    catalog.transaction(put("tables/person", {"id": 1}), put("objectId", 1)).done()

    def exists(key: str) -> dict[str, Any]:
        return {"key": key, "test": [{"op": "defined", "path": ""}]}

    commands = [
        {"action": "delete", "key": "tables/nobody", "if": [exists("tables/nobody")]},
        {"action": "delete", "key": "tables/person", "if": [exists("tables/person")]},
        {**put("tables/person", {"id": 2}), "if": [{"key": "tables/person", "absent": True}]},
        {**put("tables/person", {"id": 3}), "if": [{"key": "tables/person", "absent": True}]},
        {**patch("tables/city", remove("/columns/x")), "if": [exists("tables/city")]},
        {**put("first", True), "if": [{"prefix": "tables/", "count": {"equal": 1}}]},
        put("objectId", 2),
    ]
    key = "list-1"
    done = catalog.transaction(*commands, idempotency_key=key).done()
    left_out = [each.get("left_out", False) for each in done["results"]]
    assert left_out == [True, False, False, True, True, False, False]
    assert (done["revision"], catalog.revision) == (2, 2)
    state = {"tables/person": {"id": 2}, "first": True, "objectId": 2}
    assert catalog.export()["metadata"] == state

    catalog.put("tables/nobody", {}).done(201)
    again = catalog.transaction(*commands, idempotency_key=key).done()
    assert again["results"][0]["left_out"], "as it was decided the first time"
    catalog.transaction(*commands[:1]).done()
    assert catalog.get("tables/nobody").status == 404

    # One that fails fails the list, though others are left out.
    failing = patch("tables/person", remove("/columns/x"))
    problem = catalog.transaction(commands[0], failing).refused(409, "path_missing")
    assert problem["action"] == 1
    # All left out: nothing is appended.
    nothing = catalog.transaction(commands[0]).done()
    assert (nothing["changed"], nothing["revision"]) == (False, catalog.revision)

    def create_if_absent(number: int) -> Answer:
        action = {
            **put("tables/new", {"by": number}),
            "if": [{"key": "tables/new", "absent": True}],
        }
        return catalog.transaction(action, put(f"done/{number}", {}))

    answers = side_by_side([partial(create_if_absent, n) for n in range(8)])
    first = [each.done()["results"][0].get("left_out", False) for each in answers]
    assert sorted(first) == [False] + [True] * 7
