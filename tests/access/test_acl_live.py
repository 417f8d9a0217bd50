"""An acl over the wire: issued tokens, two workers, streams that stay open while it changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from gateway.access import Grant, Role
from gateway.store.mongodb import connect
from gateway.tokens.issued import Tokens
from tests.http.event_stream import EventStream
from tests.http.served import Answered, Server
from tests.patience import WAIT_MS, WAIT_S
from tests.service import RunningGateway

PEOPLE = {"ann": Role.WRITE, "eve": Role.READ, "root": Role.ADMIN}
FEED = "/v1/catalogs/c/changes?after=0"


def issued(mongodb_uri: str, database: str) -> Mapping[str, str]:
    """The authorization header of each principal, by name."""
    store = connect(mongodb_uri, database, timeout_ms=WAIT_MS)
    try:
        tokens = Tokens(store.tokens())
        return {
            name: f"Bearer {tokens.issue(name, (Grant(role, '*'),), None).text}"
            for name, role in PEOPLE.items()
        }
    finally:
        store.close()


def test_an_acl_applies_in_every_worker_and_to_open_streams(
    mongodb_uri: str, database_name: str
) -> None:
    bearers = issued(mongodb_uri, database_name)
    with RunningGateway(mongodb_uri, database_name, access=True) as running:
        server = Server(running.port)

        def send(name: str, method: str, path: str, body: Any = None) -> Answered:
            headers = [("Authorization", bearers[name]), ("Content-Type", "application/json")]
            raw = None if body is None else json.dumps(body).encode()
            return server.send(method, f"/v1/catalogs/c{path}", raw, headers)

        streams = {
            name: EventStream(running.port, FEED, Authorization=bearers[name])
            for name in ("eve", "root")
        }
        told: dict[str, list[Any]] = {name: [] for name in streams}

        def follow(name: str) -> None:
            for event in streams[name]:
                if event.name == "commit":
                    told[name].append(event.data)
                    if event.id == 7:
                        return

        threads = [threading.Thread(target=follow, args=(name,)) for name in streams]
        for thread in threads:
            thread.start()
        assert send("ann", "PUT", "/documents/k", {"n": 1}).status == 201
        closed = {"acl": {"read": ["ann"]}}
        assert send("ann", "PUT", "/attributes/k", closed).status == 200
        # Whichever worker is asked, at once.
        for _ in range(10):
            assert send("eve", "GET", "/documents/k").status == 403
        assert send("eve", "GET", "/export").json()["metadata"] == {}
        for n in (2, 3):
            assert send("ann", "PUT", "/documents/k", {"n": n}).status == 200
        assert send("ann", "PUT", "/documents/open", {}).status == 201
        assert send("ann", "PUT", "/attributes/k", {}).status == 200
        for _ in range(10):
            assert send("eve", "GET", "/documents/k").status == 200
        assert send("ann", "PUT", "/documents/open", {"last": True}).status == 200
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        for stream in streams.values():
            stream.close()

    assert [commit["revision"] for commit in told["eve"]] == list(range(1, 8))
    seen = {c["revision"]: [each["key"] for each in c["changes"]] for c in told["eve"]}
    # Whether it got 1, 3 and 4 before the acl was changed is a matter of time.
    assert seen[5] == ["open"]
    assert seen[7] == ["open"]
    everything = [commit["changes"] for commit in told["root"]]
    assert [len(changes) for changes in everything] == [1] * 7
