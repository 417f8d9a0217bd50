"""A feed begins with the state, then tells every commit, over one connection that can be resumed
anywhere in it.

Real workers, a real MongoDB, real signals; a client that does what a browser does.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from itertools import islice
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.failure.clients import send
from tests.http.event_stream import Event, EventStream
from tests.patience import WAIT_S
from tests.service import RunningGateway, own_database
from tests.systems.feeds import applied

pytestmark = pytest.mark.mongod

CATALOG = "/v1/catalogs/stateful"
CHANGES = f"{CATALOG}/changes?initial=true&prefix=d/"
# More than two pages of a list.
KEYS = [f"d/{number:04}" for number in range(1_100)]


@pytest.fixture(scope="module")
def service(mongodb_uri: str) -> Iterator[RunningGateway]:
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, watch_bookmark_s=1) as running,
    ):
        put_all(running, KEYS, 0)
        yield running


def put_all(service: RunningGateway, keys: list[str], value: Any) -> None:
    lines = [{"catalog": "stateful", "op": "put", "key": key, "value": value} for key in keys]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    headers = {"Content-Type": "application/x-ndjson"}
    with urlopen(Request(f"{service.url}/v1/bulk", body, headers), timeout=WAIT_S) as answer:
        assert {json.loads(line)["status"] for line in answer} <= {200, 201}


def export(service: RunningGateway, revision: int) -> dict[str, Any]:
    status, answer = send(service.port, "GET", f"{CATALOG}/export?revision={revision}")
    assert status == 200, answer
    return dict(answer["metadata"])


class Client:
    """``events`` are all that it got, each once; it resumes from the id of the last one."""

    def __init__(self, service: RunningGateway) -> None:
        self.events: list[Event] = []
        self.connected = 0
        self._service = service

    def take(self, count: int) -> None:
        """So many more at most, over one connection."""
        headers = {}
        if self.events:
            headers["Last_Event_ID"] = str(self.events[-1].id)
        # It may have died in the midst of an event, or not be there yet.
        with (
            suppress(OSError, HTTPException, ValueError),
            EventStream(self._service.port, CHANGES, **headers) as stream,
        ):
            if stream.response.status == 503:
                return
            assert stream.response.status == 200, stream.response.read()
            self.connected += 1
            for event in islice(stream, count):
                if event.name != "end":
                    self.events.append(event)

    def named(self, name: str) -> list[Any]:
        return [event.data for event in self.events if event.name == name]


def test_n14_a_feed_begins_with_the_state_and_can_be_resumed_anywhere(
    service: RunningGateway,
) -> None:
    """N14: the documents as of a revision, then every commit; workers are killed at each step,
    others write, and history is compacted beside it."""
    luck, client = random.Random(14), Client(service)
    step = 0
    while not client.named("synced"):
        client.take(luck.randrange(1, 200))
        with suppress(ProcessLookupError):
            os.kill(service.oldest_worker(), signal.SIGKILL)
        put_all(service, luck.sample(KEYS, 2), step)
        step += 1
    (synced,) = client.named("synced")
    documents = client.named("document")
    assert [each["key"] for each in documents] == KEYS
    assert step > 5 < client.connected
    state = {each["key"]: each["value"] for each in documents}
    assert state == export(service, synced["revision"])

    put_all(service, ["d/last"], 1)
    while not any(c["changes"][0]["key"] == "d/last" for c in client.named("commit")):
        client.take(luck.randrange(1, 4))
    commits = client.named("commit")
    revisions = [commit["revision"] for commit in commits]
    assert revisions == list(range(synced["revision"] + 1, revisions[-1] + 1))
    assert applied(state, commits) == export(service, revisions[-1])


def test_history_below_the_list_is_compacted_only_when_the_client_has_caught_up(
    service: RunningGateway,
) -> None:
    """The list is more than the kernel takes for a client that reads nothing."""
    big = [f"big/{number:03}" for number in range(400)]
    put_all(service, big, "x" * 50_000)
    with EventStream(service.port, f"{CATALOG}/changes?initial=true&prefix=big/") as stream:
        told = iter(stream)
        first = next(told)
        revision = int(str(first.id).partition("/")[0])
        put_all(service, big[:3], "beside")
        floor = {"revision": revision + 2}
        path = f"{CATALOG}/compactions"
        status, answer = send(service.port, "POST", path, floor, Content_Type="application/json")
        assert (status, answer["code"], answer["pinned_revision"]) == (409, "pin_holds", revision)
        assert next(event for event in told if event.name == "synced").id == revision
        commits = [next(event.id for event in told if event.name == "commit") for _ in range(3)]
        assert commits == [revision + 1, revision + 2, revision + 3]
        assert next(told).name == "bookmark"
        status, answer = send(service.port, "POST", path, floor, Content_Type="application/json")
        assert status == 200, answer
