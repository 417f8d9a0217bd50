"""`…/changes?initial=true`: the documents as of a revision, that they were all, then every commit.

Rule: what a client has when it gets ``synced`` with R is the export at R.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from flask.testing import FlaskClient

from gateway.errors import PinHolds
from gateway.http import create_app
from gateway.http.routes import changes
from gateway.limits import RequestLimits, RetentionLimits, ServiceLimits, WatchLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import ForeignRecord
from tests.access.service import Service as GuardedService
from tests.http.conftest import Catalog, problem
from tests.memory_store import MemoryStore

EVENTS = "text/event-stream"
KEYS = ["a", "b/1", "b/2 ü", "b/3%", "c"]


class Event(NamedTuple):
    name: str
    id: str
    data: Any


class Service:
    """Two documents to a page."""

    def __init__(self, **retention: int) -> None:
        self.store = MemoryStore()
        self.limits = ServiceLimits(
            watch=WatchLimits(watchers_max=3),
            retention=RetentionLimits(**retention),
            listing_page_documents=2,
        )
        self.gateway = GatewayService(self.store, ThreadRuntime(), self.limits)
        self.app = create_app(self.gateway, RequestLimits(watch_bookmark_s=1))
        self.catalog = Catalog(self.app.test_client(), "c")

    def fill(self) -> int:
        for number, key in enumerate(KEYS):
            self.catalog.put({"n": number}, key=key)
        return len(KEYS)

    def compact(self, revision: int) -> None:
        self.gateway.retention.compact("c", revision)

    @property
    def notes(self) -> list[str]:
        return [pin.note for pin in self.gateway.retention.pins("c")]


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.app.begin_stop()


@contextmanager
def stream(
    client: FlaskClient, path: str, query: str = "?initial=true", **headers: str
) -> Iterator[Iterator[Event]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = client.get(
        f"{path}/changes{query}", headers={"Accept": EVENTS} | named, buffered=False
    )
    assert answer.status_code == 200, answer.data
    try:
        yield _events(answer.response)
    finally:
        answer.close()


def _events(pieces: Any) -> Iterator[Event]:
    text = ""
    for piece in pieces:
        text += piece.decode()
        *whole, text = text.split("\n\n")
        for event in whole:
            fields = dict(line.split(": ", 1) for line in event.splitlines())
            if "data" in fields:
                yield Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))


def until(told: Iterator[Event], name: str) -> list[Event]:
    """All up to the first event of that name."""
    found = []
    for event in told:
        found.append(event)
        if event.name == name:
            return found
    raise AssertionError(f"no {name} in {found}")


def export(catalog: Catalog, query: str = "") -> Any:
    return catalog.client.get(f"{catalog.path}/export{query}").get_json()


def documents(events: list[Event]) -> dict[str, Any]:
    listed = [event.data for event in events if event.name == "document"]
    keys = [each["key"] for each in listed]
    assert keys == sorted(set(keys), key=str.encode)
    return {each["key"]: each["value"] for each in listed}


class TestStream:
    def test_documents_come_first_then_synced_then_commits(self, service: Service) -> None:
        head = service.fill()
        catalog = service.catalog
        with stream(catalog.client, catalog.path) as told:
            listed = until(told, "synced")
            assert documents(listed) == export(catalog)["metadata"]
            synced = listed[-1]
            assert (synced.id, synced.data["revision"]) == (str(head), head)
            newest = catalog.client.get(f"{catalog.path}/commits?after={head - 1}").get_json()
            assert synced.data["time"] == newest["commits"][0]["time"]
            catalog.put(9, key="d")
            assert until(told, "commit")[-1].id == str(head + 1)

    def test_commits_made_during_the_list_follow_it(self, service: Service) -> None:
        head = service.fill()
        catalog = service.catalog
        before = export(catalog)["metadata"]
        with stream(catalog.client, catalog.path) as told:
            listed = [next(told)]
            catalog.put("later", key="c")
            catalog.delete("b/1")
            listed += until(told, "synced")
            assert documents(listed) == before
            assert [next(e.id for e in told if e.name == "commit") for _ in range(2)] == [
                str(head + 1),
                str(head + 2),
            ]

    def test_settings_are_listed_before_the_documents(self, service: Service) -> None:
        service.fill()
        catalog = service.catalog
        settings = {"require_precondition": False}
        answer = catalog.client.put(catalog.path, json=settings)
        assert answer.status_code in (200, 201), answer.data
        with stream(catalog.client, catalog.path, "?initial=true&prefix=b/") as told:
            listed = until(told, "synced")
        assert (listed[0].data["key"], listed[0].data["value"]) == (None, settings)
        assert [event.data["key"] for event in listed[1:-1]] == KEYS[1:4]

    def test_a_catalog_that_does_not_exist_yet_lists_nothing(self, service: Service) -> None:
        catalog = service.catalog
        with stream(catalog.client, catalog.path) as told:
            (synced,) = until(told, "synced")
            assert synced.id == "0"
            assert synced.data == {"revision": 0, "time": None, "commit_id": None}
            catalog.put(1)
            assert until(told, "commit")[-1].id == "1"

    @pytest.mark.parametrize("cut_after", range(1, len(KEYS) + 1))
    def test_a_disconnected_stream_resumes_the_list_where_it_stopped(
        self, service: Service, cut_after: int
    ) -> None:
        """Also at another gateway, and though others have written and compacted meanwhile."""
        head = service.fill()
        catalog = service.catalog
        before = export(catalog)["metadata"]
        with stream(catalog.client, catalog.path) as told:
            first = [next(told) for _ in range(cut_after)]
        for number in range(4):
            catalog.put({"later": number}, key=KEYS[number])
        service.compact(head)
        with pytest.raises(PinHolds):
            service.compact(head + 4)
        other = create_app(GatewayService(service.store, ThreadRuntime(), service.limits))
        last = first[-1].id
        assert last == f"{head}/" + last.partition("/")[2]
        with stream(other.test_client(), catalog.path, Last_Event_ID=last) as told:
            rest = until(told, "synced")
            assert documents([*first, *rest]) == before
            assert len(first) + len(rest) == len(KEYS) + 1
            assert until(told, "commit")[-1].id == str(head + 1)
        other.begin_stop()

    def test_an_event_id_without_a_position_resumes_after_the_list(self, service: Service) -> None:
        head = service.fill()
        catalog = service.catalog
        with stream(catalog.client, catalog.path, Last_Event_ID=str(head - 1)) as told:
            assert next(told)[:2] == ("commit", str(head))

    def test_the_revision_is_pinned_until_the_client_has_caught_up(self, service: Service) -> None:
        head = service.fill()
        catalog = service.catalog
        with stream(catalog.client, catalog.path) as told:
            next(told)
            assert service.notes == ["feed"]
            catalog.put("later", key="c")
            answer = catalog.client.post(f"{catalog.path}/compactions", json={"revision": head + 1})
            problem(answer, 409, "pin_holds")
            until(told, "synced")
            assert until(told, "commit")[-1].id == str(head + 1)
            assert next(told).name == "bookmark"
            assert service.notes == []
            service.compact(head + 1)

    def test_a_disconnected_stream_leaves_one_pin_for_a_while(self, service: Service) -> None:
        service.fill()
        catalog = service.catalog
        for _ in range(3):  # one pin, however often
            with stream(catalog.client, catalog.path) as told:
                next(told)
        assert service.notes == ["feed"]

    def test_a_list_of_one_page_needs_no_pin(self, service: Service) -> None:
        catalog = service.catalog
        catalog.put(1)
        with stream(catalog.client, catalog.path) as told:
            next(told)
            assert service.notes == []

    def test_commits_made_during_a_long_list_do_not_count_as_lag(self) -> None:
        service = Service()
        service.limits = ServiceLimits(watch=WatchLimits(lag_max=3), listing_page_documents=2)
        gateway = GatewayService(service.store, ThreadRuntime(), service.limits)
        catalog = Catalog(create_app(gateway).test_client(), "c")
        for key in KEYS:
            catalog.put(0, key=key)
        with stream(catalog.client, catalog.path) as told:
            next(told)
            for number in range(20):
                catalog.put(number)
            until(told, "synced")
            ids = [next(told).id for _ in range(20)]
            assert ids == [str(len(KEYS) + 1 + number) for number in range(20)]

    def test_a_list_holds_at_most_one_page_in_memory(self, service: Service) -> None:
        catalog = service.catalog
        for number in range(8):
            catalog.put("x" * 100_000, key=f"k{number}")
        held = []
        with stream(catalog.client, catalog.path) as told:
            for event in told:
                held.append(service.gateway.memory.readings().held_bytes)
                if event.name == "synced":
                    break
        assert 200_000 < max(held) < 250_000
        assert held[-1] == service.gateway.memory.readings().held_bytes == 0

    def test_a_stopping_gateway_ends_the_stream_with_its_position(self, service: Service) -> None:
        head = service.fill()
        catalog = service.catalog
        with stream(catalog.client, catalog.path) as told:
            listed = [next(told)]
            service.app.begin_stop()
            listed += list(told)
        end = listed[-1]
        assert (end.name, end.data["code"]) == ("end", "shutting_down")
        assert end.data["position"] == listed[-2].id == f"{head}/b/1"

    def test_a_stream_holds_its_seat_to_the_last_byte(self, service: Service) -> None:
        service.fill()
        catalog = service.catalog
        with (
            stream(catalog.client, catalog.path) as one,
            stream(catalog.client, catalog.path) as two,
        ):
            next(one), next(two)
            with stream(catalog.client, catalog.path) as three:
                next(three)
                answer = catalog.client.get(f"{catalog.path}/changes?initial=true")
                problem(answer, 429, "too_many_watchers")
            assert catalog.client.get(f"{catalog.path}/changes?initial=true").status_code == 200


class TestLongPoll:
    def pages(self, catalog: Catalog, query: str = "") -> list[Any]:
        """All pages of the list, each behind the last one."""
        found: list[Any] = []
        headers: dict[str, str] = {}
        while not found or "synced" not in found[-1]:
            answer = catalog.client.get(
                f"{catalog.path}/changes?initial=true&limit=2{query}", headers=headers
            )
            assert answer.status_code == 200, answer.data
            found.append(answer.get_json())
            headers = {"Last-Event-ID": found[-1]["position"]}
        return found

    def test_documents_are_listed_page_by_page(self, service: Service) -> None:
        head = service.fill()
        catalog = service.catalog
        pages = self.pages(catalog)
        assert len(pages) == 3
        listed = [each for page in pages for each in page["documents"]]
        assert {each["key"]: each["value"] for each in listed} == export(catalog)["metadata"]
        assert {page["revision"] for page in pages} == {head}
        assert [page["commits"] for page in pages] == [[], [], []]
        assert (pages[-1]["position"], pages[-1]["synced"]["revision"]) == (str(head), head)
        catalog.put("later")
        answer = catalog.client.get(
            f"{catalog.path}/changes?initial=true",
            headers={"Last-Event-ID": pages[-1]["position"]},
        )
        assert [each["revision"] for each in answer.get_json()["commits"]] == [head + 1]

    def test_all_pages_are_of_one_revision(self, service: Service) -> None:
        service.fill()
        catalog = service.catalog
        before = export(catalog, "?prefix=b/")["metadata"]
        first = catalog.client.get(
            f"{catalog.path}/changes?initial=true&limit=1&prefix=b/"
        ).get_json()
        for key in KEYS:
            catalog.put("later", key=key)
        rest = catalog.client.get(
            f"{catalog.path}/changes?initial=true&prefix=b/",
            headers={"Last-Event-ID": first["position"]},
        ).get_json()
        listed = [*first["documents"], *rest["documents"]]
        assert {each["key"]: each["value"] for each in listed} == before
        assert "synced" in rest

    def test_resuming_the_list_below_the_floor_is_410(self, service: Service) -> None:
        head = service.fill()
        service.compact(head)
        catalog = service.catalog
        answer = catalog.client.get(
            f"{catalog.path}/changes?initial=true", headers={"Last-Event-ID": f"{head - 1}/a"}
        )
        assert problem(answer, 410, "revision_compacted")["oldest_revision"] == head


class TestRefusals:
    @pytest.mark.parametrize("beside", ["after=1", "key=a", "author=x", "manager=x"])
    def test_a_list_can_be_combined_with_a_prefix_only(self, service: Service, beside: str) -> None:
        catalog = service.catalog
        answer = catalog.client.get(f"{catalog.path}/changes?initial=true&{beside}")
        content = problem(answer, 400, "invalid_parameter")
        assert content["parameter"] == beside.partition("=")[0]

    @pytest.mark.parametrize("place", ["x/a", "1/%zz", "-1/a", "1/%ff", "/a"])
    def test_an_invalid_position_is_refused(self, service: Service, place: str) -> None:
        catalog = service.catalog
        answer = catalog.client.get(
            f"{catalog.path}/changes?initial=true", headers={"Last-Event-ID": place}
        )
        problem(answer, 400, "invalid_header")

    def test_a_position_in_a_list_is_refused_without_initial(self, service: Service) -> None:
        service.fill()
        catalog = service.catalog
        answer = catalog.client.get(f"{catalog.path}/changes", headers={"Last-Event-ID": "3/a"})
        problem(answer, 400, "invalid_header")

    @pytest.mark.parametrize(
        ("query", "named"),
        [
            ("include=x", "include"),
            ("initial=true&limit=0", "limit"),
            ("initial=true&limit=1000001", "limit"),
            ("initial=true&timeout=100000", "timeout"),
            ("initial=1", "initial"),
            ("manager=", "manager"),
            ("include=", "include"),
        ],
    )
    def test_unknown_and_invalid_parameters_are_refused(
        self, service: Service, query: str, named: str
    ) -> None:
        catalog = service.catalog
        answer = catalog.client.get(f"{catalog.path}/changes?{query}")
        assert problem(answer, 400, "invalid_parameter")["parameter"] == named

    def test_pins_beyond_the_limit_are_refused(self) -> None:
        service = Service(pins_per_principal_max=1)
        service.fill()
        catalog = service.catalog
        with stream(catalog.client, catalog.path) as told:
            next(told)
            answer = catalog.client.get(f"{catalog.path}/changes?initial=true&prefix=b&limit=1")
            assert problem(answer, 413, "over_limit")["limit"] == "pins_per_principal_max"


class TestImages:
    def commits(self, catalog: Catalog, query: str) -> list[Any]:
        answer = catalog.client.get(f"{catalog.path}/changes{query}&timeout=0")
        assert answer.status_code == 200, answer.data
        return list(answer.get_json()["commits"])

    def test_changes_can_include_the_document_before_and_after(self, service: Service) -> None:
        catalog = service.catalog
        catalog.put({"n": 0})
        catalog.patch({"op": "add", "path": "/m", "value": None})
        catalog.delete()
        catalog.put(None)
        told = self.commits(catalog, "?include=value&include=before")
        images = [
            {name: change[name] for name in ("before", "value") if name in change}
            for commit in told
            for change in commit["changes"]
        ]
        assert images == [
            {"value": {"n": 0}},
            {"before": {"n": 0}, "value": {"n": 0, "m": None}},
            {"before": {"n": 0, "m": None}},
            {"value": None},
        ]
        (change,) = self.commits(catalog, "?after=1&include=value&limit=1")[0]["changes"]
        assert (change["value"], "before" in change) == ({"n": 0, "m": None}, False)
        assert change["patch"] == [{"op": "add", "path": "/m", "value": None}]

    def test_streams_and_polls_return_the_same_commits(self, service: Service) -> None:
        catalog = service.catalog
        for number in range(3):
            catalog.put({"n": number})
        with stream(catalog.client, catalog.path, "?include=value&include=before") as told:
            streamed = [next(told).data for _ in range(3)]
            assert streamed == self.commits(catalog, "?include=before&include=value")
            catalog.put({"n": 3})
            (change,) = until(told, "commit")[-1].data["changes"]
            assert (change["before"], change["value"]) == ({"n": 2}, {"n": 3})

    def test_the_state_before_a_change_is_hidden_if_it_was_of_a_closed_document(self) -> None:
        """In one commit: the change is of the new document, the state before it of the old one."""
        service = GuardedService()
        ann, eve = service.caller("ann", "write:*"), service.caller("eve", "read:*")
        path = "/v1/catalogs/c"
        ann.send("PUT", f"{path}/documents/k", {"secret": 1})
        ann.send("PUT", f"{path}/attributes/k", {"acl": {"read": ["ann"]}})
        then = [{"action": "delete", "key": "k"}, {"action": "put", "key": "k", "value": 2}]
        answer = ann.send("POST", f"{path}/transactions", {"then": then})
        assert answer.status_code == 200, answer.text
        query = f"{path}/changes?after=2&timeout=0&include=before&include=value"
        for caller, seen in ((ann, {"secret": 1}), (eve, None)):
            (commit,) = caller.send("GET", query).get_json()["commits"]
            (change,) = commit["changes"]
            assert (change.get("before"), change["value"]) == (seen, 2)

    def test_values_beyond_the_limit_are_named_as_withheld(self) -> None:
        service = Service()
        service.limits = ServiceLimits(watch=WatchLimits(images_bytes_max=120))
        gateway = GatewayService(service.store, ThreadRuntime(), service.limits)
        catalog = Catalog(create_app(gateway).test_client(), "c")
        catalog.put("x" * 80)
        catalog.put("y" * 80)
        (first,), (second,) = (
            commit["changes"] for commit in self.commits(catalog, "?include=value&include=before")
        )
        assert (first["value"], "withheld" in first) == ("x" * 80, False)
        assert (second["before"], second["withheld"]) == ("x" * 80, ["value"])

    def test_pages_with_whole_documents_are_bounded(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(changes, "_PAGE_BYTES", 1000)
        catalog = service.catalog
        for number in range(9):
            catalog.put({"n": number, "text": "x" * 400})
        revisions, after = [], 0
        while after < 9:
            query = f"?after={after}&include=value&timeout=0"
            page = catalog.client.get(f"{catalog.path}/changes{query}").get_json()
            assert len(page["commits"]) <= 2
            revisions += [each["revision"] for each in page["commits"]]
            after = page["revision"]
        assert revisions == list(range(1, 10))


APPLY = "application/vnd.metadata.apply+json"


class TestManagersAndAuthors:
    @pytest.fixture
    def written(self, service: Service) -> Catalog:
        """By ann plainly, by two managers, and by one who lets go."""
        catalog = service.catalog
        catalog.put({"n": 0}, key="plain")
        for manager, key in (("nightly", "a"), ("nightly", "b"), ("hourly", "a")):
            answer = catalog.client.patch(
                f"{catalog.document(key)}?manager={manager}",
                data=json.dumps({manager: 1}),
                content_type=APPLY,
            )
            assert answer.status_code in (200, 201), answer.data
        answer = catalog.client.delete(f"{catalog.path}/owners/b?manager=nightly&prune=true")
        assert answer.status_code in (200, 204), answer.data
        catalog.patch({"op": "add", "path": "/m", "value": 1}, key="a")
        return catalog

    def told(self, catalog: Catalog, query: str) -> list[Any]:
        answer = catalog.client.get(f"{catalog.path}/changes?timeout=0&{query}").get_json()
        assert answer["revision"] == 6
        return list(answer["commits"])

    def test_changes_carry_their_managers(self, written: Catalog) -> None:
        commits = self.told(written, "")
        found = [change.get("managers") for each in commits for change in each["changes"]]
        assert found == [None, ["nightly"], ["nightly"], ["hourly"], ["nightly"], None]
        history = written.client.get(f"{written.path}/commits").get_json()["commits"]
        assert history == commits

    @pytest.mark.parametrize(
        ("query", "revisions"),
        [
            ("manager=nightly", [2, 3, 5]),
            ("manager=nightly&manager=hourly", [2, 3, 4, 5]),
            ("manager=nightly&key=a", [2]),
            ("manager=nightly&prefix=b", [3, 5]),
            ("manager=nobody", []),
        ],
    )
    def test_a_watcher_of_a_manager_gets_its_changes(
        self, written: Catalog, query: str, revisions: list[int]
    ) -> None:
        assert [each["revision"] for each in self.told(written, query)] == revisions

    def test_a_watcher_of_an_author_gets_theirs(self) -> None:
        service = GuardedService()
        ann, bob = service.caller("ann", "write:*"), service.caller("bob", "write:*")
        for caller in (ann, bob, ann):
            caller.send("PUT", "/v1/catalogs/c/documents/k", {"by": caller.token})
        for query, expected in (
            ("author=ann", [1, 3]),
            ("author=bob", [2]),
            ("author=ann&author=bob", [1, 2, 3]),
            ("author=ann&key=other", []),
        ):
            answer = bob.send("GET", f"/v1/catalogs/c/changes?timeout=0&{query}").get_json()
            assert [each["revision"] for each in answer["commits"]] == expected
            assert answer["revision"] == 3


def test_an_unreadable_document_ends_the_list_with_a_reason(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = service.fill()

    def foreign(*_: object, **__: object) -> Any:
        raise ForeignRecord("c", "b/2 ü", "a document can't be read")

    with stream(service.catalog.client, service.catalog.path) as told:
        assert next(told).id == f"{revision}/a"
        for name in ("scan_documents", "list_range"):
            monkeypatch.setattr(service.store, name, foreign)
        *_, end = told
    assert end.name == "end"
    assert (end.data["code"], end.data["position"]) == ("internal_error", f"{revision}/b/1")
