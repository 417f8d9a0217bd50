"""A follower has every commit once and in order, whatever died meanwhile.

Real workers, a real MongoDB, real signals. Followers do what a browser does: they connect again,
from the last event that they were told.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from gateway.feed import hub
from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.model import ChangeRecord, CommitRecord, HeadMove
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.embedded import EmbeddedMongod
from gateway.store.mongodb import connect
from tests.failure.clients import (
    CATALOG,
    COMMITS,
    DOCUMENT,
    Tally,
    all_commits,
    create,
    run_clients,
    send,
)
from tests.failure.test_crashes import Mishaps
from tests.http.event_stream import Follower
from tests.patience import TEST_S, WAIT_MS, WAIT_S
from tests.service import RunningGateway

pytestmark = pytest.mark.mongod

CHANGES = COMMITS.replace("/commits", "/changes")
CLIENTS = 16
Eventually = Callable[..., Any]


@pytest.fixture
def service(mongodb_uri: str, database_name: str) -> Iterator[RunningGateway]:
    with RunningGateway(mongodb_uri, database_name, watch_bookmark_s=1) as running:
        yield running


def check(
    port: int, followers: list[Follower], tally: Tally, eventually: Eventually, patches: int
) -> None:
    """Each follower got the history: every commit, once, in order."""
    assert tally.unexpected == []
    assert len(tally.acknowledged) == CLIENTS * patches
    history = all_commits(port)
    for follower in followers:
        eventually(lambda one=follower: len(one.commits) >= len(history))
        assert follower.commits == history
        assert follower.unexpected == []


def following(stack: ExitStack, port: Callable[[], int], count: int) -> list[Follower]:
    return [stack.enter_context(Follower(port, CHANGES)) for _ in range(count)]


def test_a_follower_that_reconnects_misses_nothing_when_workers_are_killed(
    service: RunningGateway, eventually: Eventually
) -> None:
    patches = 10
    create(service.port)

    def happen(_: int) -> None:
        """Two of them, and no follower has the worker that it had."""
        with suppress(ProcessLookupError):
            os.kill(service.oldest_worker(), signal.SIGKILL)

    with ExitStack() as stack:
        followers = following(stack, lambda: service.port, 6)
        eventually(lambda: all(each.commits for each in followers))
        mishaps = stack.enter_context(Mishaps(30, happen))
        tally = Tally(mishaps.progress)
        run_clients(service.port, tally, clients=CLIENTS, turns=range(patches))
        check(service.port, followers, tally, eventually, patches)
        assert mishaps.happened >= 3
        assert sum(each.connected for each in followers) > len(followers), "nothing was tested"


def test_a_restarted_gateway_continues_each_feed_at_its_position(
    mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    patches = 6
    services: list[RunningGateway] = []

    def port() -> int:
        return services[-1].port

    with ExitStack() as stack:
        services.append(stack.enter_context(RunningGateway(mongodb_uri, database_name)))
        create(port())
        followers = following(stack, port, 4)
        everything = Tally()
        for turn in range(3):
            eventually(lambda: all(len(each.commits) > 0 for each in followers))
            tally = Tally()
            turns = range(turn * patches // 3, (turn + 1) * patches // 3)
            run_clients(port(), tally, clients=CLIENTS, turns=turns)
            everything.acknowledged += tally.acknowledged
            everything.unexpected += tally.unexpected
            following_one = RunningGateway(mongodb_uri, database_name)
            before = services[-1]
            services.append(stack.enter_context(following_one))
            assert before.stop() == 0
        check(port(), followers, everything, eventually, patches)
        assert all("shutting_down" in each.ended for each in followers)


def test_a_killed_mongod_only_pauses_the_feed(tmp_path: Path, eventually: Eventually) -> None:
    patches = 10
    with (
        EmbeddedMongod(tmp_path, start_timeout_s=WAIT_S) as mongod,
        RunningGateway(mongod.uri, "feed", store_timeout_ms=1000, deadline_ms=10_000) as service,
    ):
        create(service.port)

        def happen(_: int) -> None:
            mongod.kill()
            mongod.start()

        with ExitStack() as stack:
            followers = following(stack, lambda: service.port, 6)
            eventually(lambda: all(each.commits for each in followers))
            mishaps = stack.enter_context(Mishaps(80, happen, once=True))
            tally = Tally(mishaps.progress)
            run_clients(service.port, tally, clients=CLIENTS, turns=range(patches))
            check(service.port, followers, tally, eventually, patches)
            eventually(lambda: mishaps.happened == 1)


def change_streams(client: MongoClient[Any]) -> list[Any]:
    """Cursor ids of the open change streams, by the server's own account."""
    found = client.admin.aggregate(
        [
            {"$currentOp": {"allUsers": True, "idleCursors": True}},
            {"$match": {"cursor": {"$exists": True}}},
        ]
    )
    return [
        (each["ns"], each["cursor"]["cursorId"])
        for each in found
        if "$changeStream" in str(each["cursor"].get("originatingCommand", ""))
    ]


def test_killed_change_streams_are_opened_again(
    service: RunningGateway, mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    patches = 10
    create(service.port)
    killed: list[int] = []
    with ExitStack() as stack:
        client = stack.enter_context(MongoClient[Any](mongodb_uri))

        def happen(_: int) -> None:
            for namespace, cursor in change_streams(client):
                database, _, collection = namespace.partition(".")
                if database == database_name:
                    client[database].command("killCursors", collection, cursors=[cursor])
                    killed.append(cursor)

        followers = following(stack, lambda: service.port, 6)
        eventually(lambda: all(each.commits for each in followers))
        eventually(lambda: change_streams(client))
        mishaps = stack.enter_context(Mishaps(40, happen))
        tally = Tally(mishaps.progress)
        run_clients(service.port, tally, clients=CLIENTS, turns=range(patches))
        check(service.port, followers, tally, eventually, patches)
        assert killed, "no change stream was found: nothing was tested"
        assert all(each.connected == 1 for each in followers), "watchers needn't notice"


def test_a_commit_whose_writer_died_before_writing_it_out_is_fed(
    service: RunningGateway, mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    create(service.port)
    store = connect(mongodb_uri, database_name, WAIT_MS)
    with Follower(lambda: service.port, CHANGES) as follower:
        eventually(lambda: follower.revisions == [1])
        head = store.heads([CATALOG])[CATALOG]
        change = ChangeRecord("left", "put", 2, value={"by": "the dead"}, size_bytes=20)
        commit = CommitRecord(
            CATALOG, 2, head.time_us + 1, "d" * 32, "dead", None, None, 1, (change,)
        )
        store.move_heads([HeadMove(CATALOG, 1, [commit], 1, last=head.last)])
        eventually(lambda: follower.revisions == [1, 2])
        assert follower.commits[1]["author"] == "dead"
    status, document = send(
        service.port, "GET", DOCUMENT.rsplit("/documents/")[0] + "/documents/left"
    )
    assert (status, document) == (200, {"by": "the dead"})


def test_compaction_below_a_watcher_names_the_oldest_revision(
    service: RunningGateway, mongodb_uri: str, database_name: str
) -> None:
    create(service.port)
    run_clients(service.port, Tally(), clients=2, turns=range(4))
    assert len(all_commits(service.port)) == 9  # so all is written out
    store = connect(mongodb_uri, database_name, WAIT_MS)
    assert store.raise_floor(CATALOG, 5, 0)
    for headers in ({}, {"Accept": "text/event-stream"}):
        status, problem = send(service.port, "GET", f"{CHANGES}?after=4", **headers)
        assert (status, problem["code"], problem["oldest_revision"]) == (
            410,
            "revision_compacted",
            5,
        )
    status, answer = send(service.port, "GET", f"{CHANGES}?after=5")
    assert [each["revision"] for each in answer["commits"]] == [6, 7, 8, 9]


def test_a_filtered_and_idle_feed_is_resumed_from_its_bookmark(
    service: RunningGateway, eventually: Eventually
) -> None:
    create(service.port)
    path = f"{CHANGES}?prefix=mine/"
    with Follower(lambda: service.port, path) as follower:
        run_clients(service.port, Tally(), clients=4, turns=range(10))
        eventually(lambda: follower.position == 41)
    assert follower.commits == []
    mine = DOCUMENT.replace(DOCUMENT.rsplit("/documents/")[1], "mine/x")
    assert send(service.port, "PUT", mine, 1, Content_Type="application/json")[0] == 201
    with Follower(lambda: service.port, path, Last_Event_ID="41") as resumed:
        eventually(lambda: resumed.revisions == [42])


def test_a_commit_of_several_documents_is_one_event(
    service: RunningGateway, eventually: Eventually
) -> None:
    """Deleting a catalog changes everything in it at one revision."""
    create(service.port)
    catalog = COMMITS.removesuffix("/commits")
    for key in ("a", "b"):
        path = f"{catalog}/documents/{key}"
        assert send(service.port, "PUT", path, 1, Content_Type="application/json")[0] == 201
    with ExitStack() as stack:
        everything, filtered = (
            stack.enter_context(Follower(lambda: service.port, CHANGES + query))
            for query in ("?after=3", "?after=3&key=b")
        )
        eventually(lambda: everything.position == filtered.position == 3)
        assert send(service.port, "DELETE", catalog)[0] == 204
        eventually(lambda: everything.revisions == filtered.revisions == [4])
        assert {c["key"] for c in everything.commits[0]["changes"]} >= {"a", "b"}
        assert filtered.commits == everything.commits


def test_a_commit_of_another_gateway_is_fed_at_its_signal(
    service: RunningGateway,
    mongodb_uri: str,
    database_name: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It doesn't wait for the next look at the heads: here that is due after the test."""
    monkeypatch.setattr(hub, "_HEADS_EVERY_S", 2 * TEST_S)
    create(service.port)
    store = connect(mongodb_uri, database_name, WAIT_MS)
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits())
    app = create_app(gateway)
    with ThreadPoolExecutor() as pool:
        for revision in range(1, 4):
            query = {"after": revision, "timeout": 60}
            polling = pool.submit(app.test_client().get, CHANGES, query_string=query)
            eventually(lambda: gateway.readings().feed.watchers == 1)
            run_clients(service.port, Tally(), clients=1, turns=range(revision, revision + 1))
            told = polling.result(WAIT_S).get_json()["commits"]
            assert [each["revision"] for each in told] == [revision + 1]
    app.begin_stop()
    store.close()
