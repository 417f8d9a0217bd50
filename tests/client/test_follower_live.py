"""The follower against a real gateway on a real MongoDB (H6, I1 to I4, I6, I8)."""

from __future__ import annotations

import random
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from patching.client import Follower, Problem, Reload, Retry
from patching.client.errors import RevisionTooOld
from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport
from tests.patience import WAIT_S
from tests.ports import own_port
from tests.service import RunningGateway, own_database

Eventually = Callable[..., Any]
CATALOG = ""


@pytest.fixture(autouse=True)
def catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that no other test has."""
    monkeypatch.setattr(
        sys.modules[__name__], "CATALOG", f"urn:li:dataset:({uuid.uuid4().hex},b/c)"
    )


@pytest.fixture(scope="module")
def service(mongodb_uri: str) -> Iterator[RunningGateway]:
    with own_database(mongodb_uri) as database, RunningGateway(mongodb_uri, database) as running:
        yield running


@pytest.fixture
def transport(service: RunningGateway) -> Iterator[Transport]:
    with Transport(service.url) as transport:
        yield transport


def follower_of(service: RunningGateway, **options: Any) -> Follower:
    return Follower(service.url, CATALOG, retry=Retry(first_s=0.05, longest_s=0.5), **options)


def routes_of(transport: Transport) -> CatalogRoutes:
    return CatalogRoutes(transport, CATALOG)


def put(transport: Transport, **documents: Any) -> int:
    """The revision of one commit that puts them."""
    then = [{"action": "put", "key": key, "value": value} for key, value in documents.items()]
    return routes_of(transport).transact([], then).revision


def write_at_random(transport: Transport, seed: int, commits: int) -> None:
    """Puts, patches, deletes, moves and attributes, several to a commit; refusals are none."""
    luck = random.Random(seed)
    routes = routes_of(transport)
    keys = [f"a/{n}" for n in range(6)] + [f"b/{n}" for n in range(6)]
    for n in range(commits):
        key, other = luck.sample(keys, 2)
        kinds: list[list[dict[str, Any]]] = [
            [{"action": "put", "key": key, "value": {"by": seed, "n": n, "list": [1, 2, 3]}}],
            [
                {"action": "put", "key": key, "value": {"n": 0, "list": []}},
                {"action": "patch", "key": key, "patch": [add("/list/-", n), add("/deep", {})]},
            ],
            [{"action": "patch", "key": key, "patch": [add("/list/0", n)]}],
            [{"action": "merge", "key": key, "value": {"by": None, "m": n}}],
            [{"action": "delete", "key": key}],
            [{"action": "move", "from": key, "to": other}],
            [{"action": "attributes", "key": key, "value": {"owner": seed}}],
            [{"action": "touch"}],
        ]
        try:
            routes.transact([], luck.choice(kinds))
        except Problem as refusal:
            if refusal.status not in (404, 409):  # nothing there, or something in the way
                raise


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


@contextmanager
def writing(transport: Transport, writers: int = 4, commits: int = 40) -> Iterator[None]:
    with ThreadPoolExecutor(writers) as pool:
        done = [pool.submit(write_at_random, transport, n, commits) for n in range(writers)]
        yield
        for each in done:
            each.result()


@pytest.mark.parametrize("prefix", ["", "a/"])
def test_h6_the_state_of_a_follower_at_a_revision_equals_the_export(
    service: RunningGateway, transport: Transport, prefix: str
) -> None:
    write_at_random(transport, 99, 10)
    with follower_of(service, prefix=prefix, poll_s=1) as follower:
        started = follower.position
        with writing(transport):
            pass
        head = routes_of(transport).read().revision
        follower.wait_for(head, WAIT_S)
        assert head > started
        for revision in range(started, head + 1):
            export = routes_of(transport).export(revision=revision, prefix=prefix)
            assert follower.at_revision(revision).documents == export.documents, revision


def test_h6_a_follower_survives_a_restart_and_a_crash_of_the_gateway(
    mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    bind = f"127.0.0.1:{own_port()}"
    first = RunningGateway(mongodb_uri, database_name, bind=bind)
    with first, Transport(first.url) as transport:
        put(transport, a=1)
        follower = follower_of(first).start()
        told: list[int] = []
        follower.subscribe(lambda commit: told.append(commit.revision))
        put(transport, a=2)
        follower.wait_for(2, WAIT_S)
        first.stop(signal.SIGTERM)
    eventually(lambda: follower.last_error is not None)
    for revision, end in ((3, RunningGateway.kill), (4, RunningGateway.stop)):
        with RunningGateway(mongodb_uri, database_name, bind=bind) as service:
            with Transport(service.url) as transport:
                put(transport, a=revision)
            follower.wait_for(revision, WAIT_S)
            assert follower.current().documents == {"a": revision}
            end(service)
    eventually(lambda: told == [2, 3, 4])
    with pytest.raises(RevisionTooOld):  # it was never loaded again: it began at 1
        follower.at_revision(0)
    assert follower.at_revision(1).documents == {"a": 1}
    follower.stop()


def test_a_follower_of_a_deleted_catalog_is_empty_and_continues(
    service: RunningGateway, transport: Transport
) -> None:
    put(transport, a=1)
    with follower_of(service) as before:
        transport.request("DELETE", routes_of(transport)._path)
        before.wait_for(2, WAIT_S)
        with follower_of(service) as after:
            assert after.position == 2
            for follower in (before, after):
                assert len(follower.current().documents) == 0
            put(transport, b=1)
            for follower in (before, after):
                follower.wait_for(3, WAIT_S)
                assert follower.current().documents == {"b": 1}


def test_settings_are_followed(service: RunningGateway, transport: Transport) -> None:
    path = routes_of(transport)._path
    transport.request("PUT", path, json={"require_precondition": False})
    with follower_of(service) as follower:
        assert follower.current().settings == {"require_precondition": False}
        transport.request("PUT", path, json={"retention": {"commits": 100}})
        follower.wait_for(2, WAIT_S)
        assert follower.current().settings == {"retention": {"commits": 100}}
        transport.request("DELETE", path)
        follower.wait_for(3, WAIT_S)
        assert follower.current().settings is None


def test_i5_a_listener_that_missed_compacted_commits_gets_a_reload(
    service: RunningGateway, transport: Transport, eventually: Eventually
) -> None:
    put(transport, a=1)
    path = routes_of(transport)._path
    with follower_of(service) as follower:
        snapshots: list[Reload] = []
        follower.subscribe(lambda _: None, after=0, on_reload=snapshots.append)
        for n in (2, 3, 4, 5):
            put(transport, a=n)
        follower.wait_for(5, WAIT_S)
        transport.request("POST", f"{path}/compactions", json={"revision": 4})
        late: list[Reload] = []
        subscription = follower.subscribe(lambda _: None, after=1, on_reload=late.append)
        assert follower.at_revision(3).documents == {"a": 3}  # it is kept here still
        eventually(lambda: subscription.position == 5)
        assert (snapshots, late) == ([], [])
    with follower_of(service) as fresh:
        fresh.subscribe(lambda _: None, after=1, on_reload=late.append)
        eventually(lambda: late)
        assert (late[0].missed_after, late[0].snapshot.revision) == (1, 5)
        assert late[0].snapshot.documents == {"a": 5}
