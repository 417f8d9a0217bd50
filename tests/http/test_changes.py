"""`…/changes`: the same commits by long poll and as an event stream, from any revision on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from gateway.errors import StoreUnavailable
from gateway.feed.channel import WatchLog
from gateway.http import create_app
from gateway.http.wire.responses import Stream, in_pieces
from gateway.limits import RequestLimits, ServiceLimits, WatchLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable
from tests.http.conftest import Catalog, problem
from tests.http.event_stream import Event, events
from tests.memory_store import MemoryStore

EVENTS = "text/event-stream"


class Service:
    """A gateway of its own, with bookmarks each second and few watchers."""

    def __init__(self, **bounds: int) -> None:
        self.store = MemoryStore()
        limits = ServiceLimits(watch=WatchLimits(watchers_max=3, bookmark_commits=5, **bounds))
        gateway = GatewayService(self.store, ThreadRuntime(), limits)
        self.app = create_app(gateway, RequestLimits(watch_bookmark_s=1))
        self.client = self.app.test_client()
        self.catalog = Catalog(self.client, "c")


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.app.begin_stop()


@pytest.fixture
def own(service: Service) -> Catalog:
    return service.catalog


def poll(catalog: Catalog, query: str = "", **headers: str) -> Any:
    answer = catalog.client.get(f"{catalog.path}/changes{query}", headers=headers)
    assert answer.status_code == 200, answer.data
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.get_json()


def refused(catalog: Catalog, query: str = "", **headers: str) -> TestResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return catalog.client.get(f"{catalog.path}/changes{query}", headers=named)


@contextmanager
def stream(catalog: Catalog, query: str = "", **headers: str) -> Iterator[Iterator[Event]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = catalog.client.get(
        f"{catalog.path}/changes{query}", headers={"Accept": EVENTS} | named, buffered=False
    )
    assert answer.status_code == 200, answer.data
    try:
        yield events(line for piece in answer.response for line in piece.splitlines())  # type: ignore[union-attr]
    finally:
        answer.close()


class TestLongPoll:
    def test_existing_commits_are_returned_at_once_as_in_the_history(self, own: Catalog) -> None:
        own.put({"a": 1})
        own.patch({"op": "add", "path": "/b", "value": 2}, Commit_Message="why")
        own.delete()
        told = poll(own, "?after=1&timeout=60")
        history = own.client.get(f"{own.path}/commits?after=1").get_json()["commits"]
        made = history[-1]["commit_id"]
        assert told == {"commits": history, "revision": 3, "commit_id": made}
        assert told["commits"][0]["message"] == "why"

    def test_a_poll_waits_for_the_next_commit(self, own: Catalog) -> None:
        own.put(1)
        writing = threading.Timer(0.2, own.put, (2,))
        writing.start()
        told = poll(own, "?after=1&timeout=30")
        writing.join()
        assert ([c["revision"] for c in told["commits"]], told["revision"]) == ([2], 2)

    def test_a_poll_that_times_out_returns_the_revision_it_reached(self, own: Catalog) -> None:
        made = own.put(1).headers["Commit-Id"]
        nothing = {"commits": [], "revision": 1, "commit_id": made}
        assert poll(own, "?after=1&timeout=0") == nothing
        assert poll(own, "?after=0&timeout=0&key=other") == nothing
        assert poll(own, "?after=1&timeout=1") == nothing

    def test_a_poll_ends_soon_after_its_client_disconnects(self, own: Catalog) -> None:
        class Left:
            was_asked = False

            def has_left(self) -> bool:
                self.was_asked = True
                return True

        own.put(1)
        connection = Left()
        answer = own.client.get(
            f"{own.path}/changes?after=1&timeout=60",
            environ_overrides={"gunicorn.socket": connection},
        )
        told = answer.get_json()
        assert (told["commits"], told["revision"], connection.was_asked) == ([], 1, True)

    def test_each_page_continues_from_the_revision_of_the_one_before(self, own: Catalog) -> None:
        for number in range(7):
            own.put(number)
        told, after = [], 0
        while after < 7:
            answer = poll(own, f"?after={after}&limit=3")
            told += [commit["revision"] for commit in answer["commits"]]
            after = answer["revision"]
        assert told == list(range(1, 8))

    def test_a_poll_skips_commits_of_other_keys(self, own: Catalog) -> None:
        for number in range(20):
            own.put(number, key="other")
        own.put(1, key="dir/mine")
        for query in ("?key=dir%2Fmine", "?prefix=dir/", "?key=x&key=dir/mine"):
            told = poll(own, query + "&timeout=0")
            assert ([c["revision"] for c in told["commits"]], told["revision"]) == ([21], 21)

    def test_a_poll_can_wait_for_a_catalog_that_does_not_exist_yet(self, own: Catalog) -> None:
        assert poll(own, "?timeout=0") == {"commits": [], "revision": 0, "commit_id": None}


class TestEventStream:
    def test_commits_are_events_with_their_revision(self, own: Catalog) -> None:
        own.put({"text": "two\nlines"})
        with stream(own) as told:
            first = next(told)
            assert (first.name, first.id) == ("commit", 1)
            assert [first.data] == poll(own, "?timeout=0")["commits"]
            own.put(2)
            assert next(told)[:2] == ("commit", 2)

    def test_a_stream_has_headers_against_caching_and_buffering(self, own: Catalog) -> None:
        answer = own.client.get(f"{own.path}/changes", headers={"Accept": EVENTS}, buffered=False)
        assert answer.headers["Content-Type"] == EVENTS
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert "Content-Length" not in answer.headers
        answer.close()

    def test_an_idle_stream_begins_with_a_bookmark_and_sends_more(self, own: Catalog) -> None:
        own.put(1)
        with stream(own, "?after=1") as told:
            for _ in range(2):
                assert next(told) == ("bookmark", 1, {"revision": 1})

    def test_a_filtered_stream_can_be_resumed_from_a_bookmark(self, own: Catalog) -> None:
        own.put(1)
        with stream(own, "?after=1&key=mine") as told:
            assert next(told).id == 1
            for number in range(6):
                own.put(number, key="other")
            bookmark = next(told)
        assert bookmark.name == "bookmark"
        own.put(1, key="mine")
        with stream(own, "?key=mine", Last_Event_ID=str(bookmark.id)) as told:
            assert next(event for event in told if event.name == "commit").id == 8

    def test_last_event_id_overrides_the_query(self, own: Catalog) -> None:
        for number in range(3):
            own.put(number)
        with stream(own, "?after=0", Last_Event_ID="2") as told:
            assert next(told).id == 3

    def test_compaction_above_its_position_ends_a_stream_with_a_reason(self) -> None:
        service = Service(ring_commits_max=1)
        own = service.catalog
        own.put(1)
        with stream(own) as told, stream(own) as another:
            assert next(told).id == 1
            for number in range(2, 6):
                own.put(number)
            while next(another).id != 5:
                pass  # now the ring holds only the last one
            assert service.store.raise_floor("c", 5, 0)
            (end,) = told
        assert (end.name, end.data["code"]) == ("end", "revision_compacted")
        assert end.data["revision"] == 1
        service.app.begin_stop()

    def test_a_stream_ends_with_a_reason_when_the_store_cannot_be_read(
        self, own: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own.put(1)

        def fail(*_: Any) -> None:
            raise StoreUnreachable("gone")

        monkeypatch.setattr(WatchLog, "page", fail)
        monkeypatch.setattr(WatchLog, "new_commits", fail)
        with stream(own) as told:
            (end,) = told
        assert (end.data["code"], end.data["revision"]) == (StoreUnavailable.code, 0)


class TestRefusals:
    def test_below_the_floor_the_refusal_names_the_oldest_revision(
        self, service: Service, own: Catalog
    ) -> None:
        for number in range(5):
            own.put(number)
        assert service.store.raise_floor("c", 3, 0)
        for headers in ({}, {"Accept": EVENTS}):
            content = problem(refused(own, "?after=2", **headers), 410, "revision_compacted")
            assert content["oldest_revision"] == 3
        assert [c["revision"] for c in poll(own, "?after=3")["commits"]] == [4, 5]

    def test_a_revision_above_the_head_is_404(self, own: Catalog) -> None:
        own.put(1)
        for headers in ({}, {"Accept": EVENTS}):
            content = problem(refused(own, "?after=2", **headers), 404, "revision_not_found")
            assert content["head_revision"] == 1

    @pytest.mark.parametrize(
        ("query", "named"),
        [
            ("?after=-1", "after"),
            ("?after=x", "after"),
            ("?after=1&after=2", "after"),
            ("?limit=0", "limit"),
            ("?limit=1001", "limit"),
            ("?timeout=61", "timeout"),
            ("?timeout=1.5", "timeout"),
            ("?key=", "key"),
            ("?since=1", "since"),
            ("?prefix=%zz", "prefix"),
        ],
    )
    def test_unknown_and_invalid_parameters_are_refused(
        self, own: Catalog, query: str, named: str
    ) -> None:
        content = problem(refused(own, query), 400, "invalid_parameter")
        assert content["parameter"] == named

    def test_include_settings_adds_changes_of_the_settings_to_any_selection(
        self, own: Catalog
    ) -> None:
        own.put(1, key="a/1")
        for number, settings in enumerate(({"require_precondition": False}, {})):
            assert own.client.put(own.path, json=settings).status_code < 300
            own.put(number, key="b/1")
        # What was before the first who asks is read from the log, for each by itself.
        assert poll(own, "?after=5&timeout=0")["commits"] == []
        for query, revisions in (
            ("prefix=a/", [1, 2, 4]),
            ("key=a/1", [1, 2, 4]),
            ("key=none", [2, 4]),
            ("prefix=a/&author=nobody", [2, 4]),
            ("manager=none", [2, 4]),
        ):
            answer = own.client.get(f"{own.path}/changes?timeout=0&include=settings&{query}")
            assert [each["revision"] for each in answer.get_json()["commits"]] == revisions
        answer = own.client.get(f"{own.path}/changes?timeout=0&prefix=a/")
        assert [each["revision"] for each in answer.get_json()["commits"]] == [1]

    @pytest.mark.parametrize("parameter", ["timeout=1", "limit=1"])
    def test_a_stream_takes_no_parameters_of_polls(self, own: Catalog, parameter: str) -> None:
        answer = refused(own, f"?{parameter}", Accept=EVENTS)
        problem(answer, 400, "invalid_parameter")

    @pytest.mark.parametrize("last", ["", "x", "-1", "1.5", "9" * 30])
    def test_a_last_event_must_be_a_revision(self, own: Catalog, last: str) -> None:
        content = problem(refused(own, Last_Event_ID=last), 400, "invalid_header")
        assert content["header"] == "Last-Event-ID"

    @pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "If-Modified-Since"])
    def test_conditions_are_refused(self, own: Catalog, header: str) -> None:
        answer = own.client.get(f"{own.path}/changes?timeout=0", headers={header: '"1-a"'})
        problem(answer, 400, "invalid_condition")

    @pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "PATCH"])
    def test_the_route_is_read_only(self, own: Catalog, method: str) -> None:
        assert own.client.open(f"{own.path}/changes", method=method).status_code == 405


@pytest.mark.parametrize(
    ("accept", "is_stream"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/event-stream", False),
        ("text/event-stream;q=0.5, application/json", False),
        ("text/event-stream, application/json;q=0.5", True),
        ("Text/Event-Stream", True),
        ("text/event-stream;q=0", False),
    ],
)
def test_the_accept_header_chooses_stream_or_poll(
    own: Catalog, accept: str, is_stream: bool
) -> None:
    answer = own.client.get(
        f"{own.path}/changes" + ("" if is_stream else "?timeout=0"),
        headers={"Accept": accept},
        buffered=False,
    )
    assert (answer.content_type == EVENTS) == is_stream
    answer.close()


def test_parts_are_joined_into_few_pieces_of_bounded_size() -> None:
    parts = [b"a" * 10, b"b" * 30, b"", b"c" * 3, b"d" * 100, b"e"]
    pieces = list(in_pieces(parts, 32))
    assert b"".join(pieces) == b"".join(parts)
    assert max(map(len, pieces)) <= 32
    assert len(pieces) <= 7
    assert list(in_pieces([], 32)) == []


def test_a_stream_is_closed_even_if_it_never_began() -> None:
    closed: list[int] = []
    Stream(iter(()), lambda: closed.append(1)).close()
    assert closed == [1]


def test_answers_are_valid_json(client: FlaskClient) -> None:
    """A long poll puts encoded commits together by hand."""
    path = "/v1/catalogs/by-hand"
    for value in ("a\ndata: b", {"data: ": "\n\n"}, "]}", "é😀"):
        client.put(f"{path}/documents/k", json=value)
    told = json.loads(client.get(f"{path}/changes").data)
    assert [commit["revision"] for commit in told["commits"]] == [1, 2, 3, 4]


def test_a_page_names_its_last_commit_and_a_request_with_another_commit_is_refused(
    own: Catalog,
) -> None:
    for value in range(3):
        own.put(value)
    made = [own.client.get(f"{own.path}/commits/{n}").get_json()["commit_id"] for n in (1, 2, 3)]
    for query in ("", "&prefix=k", "&prefix=other", "&key=k", "&key=other"):
        page = poll(own, f"?after=1&timeout=0{query}&commit_id={made[0]}")
        assert (page["revision"], page["commit_id"]) == (3, made[2])
        again = poll(own, f"?after=3&timeout=0{query}&commit_id={made[2]}")
        assert (again["revision"], again["commit_id"]) == (3, made[2])
        page = poll(own, f"?after=0&limit=1&timeout=0{query}")
        assert page["commit_id"] == made[page["revision"] - 1]
        for after in (1, 3):
            asked = f"?after={after}&timeout=0{query}&commit_id={made[1]}"
            answer = own.client.get(f"{own.path}/changes{asked}")
            assert problem(answer, 404, "revision_not_found")["head_revision"] == 3
    images = poll(own, f"?after=1&include=value&commit_id={made[0]}")
    assert images["commit_id"] == made[2]
    for query in (f"commit_id={made[0]}", f"initial=true&commit_id={made[0]}"):
        answer = own.client.get(f"{own.path}/changes?{query}")
        problem(answer, 400, "invalid_parameter")
