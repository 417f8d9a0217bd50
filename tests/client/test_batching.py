"""Concurrent writes of one client as lines of one bulk request, each with its own answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from patching.client import (
    Catalog,
    Conflict,
    Gateway,
    NotAuthorized,
    Problem,
    Retry,
    Unreachable,
    Written,
    _batching,
)
from patching.client._batching import Batcher
from patching.client._blocking import CallSender
from patching.client.bulk_writer import exchange
from patching.client.transport import HttpAnswer, Transport
from tests.client.fake_bulk import BUSY, FALSE, Scripted, by_key, problem
from tests.patience import WAIT_S
from tests.service import RunningGateway

Write = Callable[[], Any]
DONE = {
    "status": 200,
    "etag": "7-a",
    "revision": 7,
    "create_revision": 1,
    "catalog_revision": 8,
    "commit_id": "id-7",
    "changed": True,
    "attempts": 2,
}


AT_ONCE = Retry(luck=lambda: 0.0, answer_s=None)


class Batching:
    """A catalog's writes; batches go out when they have ``lines`` lines. ``retry``: None for no
    retries."""

    def __init__(self, url: str, lines: int, retry: Retry | None, token: str | None) -> None:
        self.transport = Transport(url, token=token)
        self.batcher = Batcher(self.transport, WAIT_S, lines)
        retry = retry or Retry(retries_max=0)
        self._calls = CallSender(self.transport, retry, WAIT_S, self.batcher)
        self.catalog = self.named("c")
        self._pool = ThreadPoolExecutor(16)
        self._others_go_on = threading.Event()
        self._other = self._pool.submit(self.batcher.send, b"", "", WAIT_S, self._slow)

    def named(self, name: str) -> Catalog:
        return Catalog(self._calls, lambda: self.transport, name)

    def _slow(self, _: float) -> HttpAnswer:
        """Another write that is under way, so that the next ones wait for others."""
        self._others_go_on.wait(WAIT_S)
        return HttpAnswer(200, {}, b"")

    def begin(self, *writes: Write) -> list[Future[Any]]:
        return [self._pool.submit(write) for write in writes]

    def together(self, *writes: Write) -> list[Any]:
        """What each of them returned or raised."""
        futures = self.begin(*writes)
        return [each.exception(WAIT_S) or each.result() for each in futures]

    @property
    def waiting(self) -> int:
        """How many lines wait for others."""
        return sum(len(each.lines) for each in self.batcher._collecting.values())

    def end_others(self) -> None:
        self._others_go_on.set()
        self._other.result(WAIT_S)

    def close(self) -> None:
        self.end_others()
        self.batcher.close()
        self._pool.shutdown()
        self.transport.close()


@contextmanager
def batching(
    url: str, lines: int, retry: Retry | None = None, token: str | None = None
) -> Iterator[Batching]:
    made = Batching(url, lines, retry, token)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def server() -> Iterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.server.shutdown()
    scripted.server.server_close()


def url_of(server: Scripted) -> str:
    return f"http://127.0.0.1:{server.server.server_port}"


def patches(catalog: Catalog, keys: str, **terms: Any) -> list[Write]:
    change = [{"op": "add", "path": "/n", "value": 1}]
    return [lambda key=key: catalog.patch(key, change, **terms) for key in keys]  # type: ignore[misc]


def done(lines: list[str]) -> list[Any]:
    """The answer to each line names its key."""
    return [{**DONE, "etag": f"7-{key}"} for key in lines]


def test_concurrent_writes_are_lines_of_one_request_and_each_has_its_answer(
    server: Scripted,
) -> None:
    server.script = [done]
    with batching(url_of(server), 3) as batch:
        answers = batch.together(*patches(batch.catalog, "abc"))
    assert [sorted(keys) for keys in server.requests] == [["a", "b", "c"]]
    assert [(each.key, each.etag) for each in answers] == [(key, f"7-{key}") for key in "abc"]
    assert answers[0] == Written("a", "7-a", 7, 1, True, False, 8, "id-7", 2)
    assert len({line["idempotency_key"] for line in server.lines[0]}) == 3


def test_a_refused_line_fails_only_its_own_write(server: Scripted) -> None:
    broken = {**FALSE, "pointer": "/patch/0"}
    server.script = [by_key(a=DONE, b=problem(broken), c=DONE)]
    with batching(url_of(server), 3) as batch:
        a, b, c = batch.together(*patches(batch.catalog, "abc"))
    assert a.changed
    assert c.changed
    assert isinstance(b, Conflict)
    assert (b.code, b.applied, b.pointer, b.sends) == ("test_failed", "no", "/patch/0", 1)
    sent = {line["key"]: line["idempotency_key"] for line in server.lines[0]}
    assert b.idempotency_key == sent["b"]


def test_only_writes_refused_for_the_moment_are_sent_again_with_their_keys(
    server: Scripted,
) -> None:
    server.script = [by_key(a=DONE, b=problem(BUSY), c=problem(BUSY)), done]
    with batching(url_of(server), 3, AT_ONCE) as batch:
        begun = batch.begin(*patches(batch.catalog, "abc"))
        assert begun[0].result(WAIT_S).changed
        fourth = batch.begin(*patches(batch.catalog, "d"))[0]
        assert [each.result(WAIT_S).etag for each in (*begun[1:], fourth)] == ["7-b", "7-c", "7-d"]
    first, second = ({x["key"]: x["idempotency_key"] for x in lines} for lines in server.lines)
    assert {**second, "d": None} == {"b": first["b"], "c": first["c"], "d": None}


def test_writes_whose_answers_were_lost_are_sent_again_under_the_same_keys(
    server: Scripted, eventually: Callable[..., Any]
) -> None:

    def replayed(lines: list[str]) -> list[Any]:
        return [{**DONE, "replayed": True} for _ in lines]

    server.script = [lambda _: [DONE, None], replayed]
    with batching(url_of(server), 3, AT_ONCE) as batch:
        begun = batch.begin(*patches(batch.catalog, "abc"))
        eventually(lambda: any(each.done() for each in begun))
        begun += batch.begin(*patches(batch.catalog, "d"))
        answers = [each.result(WAIT_S) for each in begun]
    assert sum(each.replayed for each in answers) == 3
    first, second = ({x["key"]: x["idempotency_key"] for x in lines} for lines in server.lines)
    assert len(second.keys() & first.keys()) == 2
    assert all(second[key] == first[key] for key in second.keys() & first.keys())


def test_a_refusal_of_the_whole_request_is_raised_by_each_write(server: Scripted) -> None:
    refusal = {"code": "unauthenticated", "status": 401, "applied": "no", "retryable": False}
    server.script = [(401, {}, refusal)]
    with batching(url_of(server), 3) as batch:
        errors = batch.together(*patches(batch.catalog, "abc"))
    assert all(isinstance(each, NotAuthorized) for each in errors)
    assert len(set(map(id, errors))) == 3
    assert len({each.idempotency_key for each in errors}) == 3
    assert len(server.requests) == 1


def test_without_a_key_a_write_whose_answer_was_lost_is_not_sent_again(server: Scripted) -> None:
    server.script = [lambda _: [None]]
    with batching(url_of(server), 2, Retry(make_keys=False)) as batch:
        errors = batch.together(*patches(batch.catalog, "ab"))
    assert [(type(each), each.applied) for each in errors] == [(Unreachable, "unknown")] * 2
    assert len(server.requests) == 1
    assert not any("idempotency_key" in line for line in server.lines[0])


def test_a_write_waits_no_longer_than_its_own_timeout(
    server: Scripted, eventually: Callable[..., Any]
) -> None:
    """The one that isn't sent in time was certainly not applied."""
    answered = threading.Event()

    def late(lines: list[str]) -> list[Any]:
        answered.wait(WAIT_S)
        return done(lines)

    server.script = [late]
    with batching(url_of(server), 4) as batch:
        waiting = batch.begin(*patches(batch.catalog, "a", wait_s=1))[0]
        eventually(lambda: batch.waiting == 1)
        with pytest.raises(Unreachable) as unsent:
            batch.catalog.patch("b", [], wait_s=1, timeout_s=0.2)
        assert unsent.value.applied == "no"
        others = batch.begin(*patches(batch.catalog, "c", wait_s=1))
        eventually(lambda: batch.waiting == 3)
        with pytest.raises(Unreachable) as lost:
            batch.catalog.patch("d", [], wait_s=1, timeout_s=0.2)
        assert lost.value.applied == "unknown"
        answered.set()
        assert all(each.result(WAIT_S).changed for each in (waiting, *others))
    assert "b" not in server.requests[0]


def test_closing_sends_the_waiting_writes_and_returns_when_they_are_answered(
    server: Scripted, eventually: Callable[..., Any]
) -> None:
    server.script = [done]
    with batching(url_of(server), 16) as batch:
        begun = batch.begin(*patches(batch.catalog, "ab"))
        eventually(lambda: [len(each.lines) for each in batch.batcher._collecting.values()] == [2])
        batch.end_others()
        batch.batcher.close()
        assert all(each.done() for each in begun)
        assert [each.result().etag for each in begun] == ["7-a", "7-b"]
    assert len(server.requests) == 1


def test_closing_during_a_write_of_the_same_thread_does_not_wait() -> None:
    """As a handler of a signal does, in the thread that writes."""
    closed = threading.Event()
    with Transport("http://127.0.0.1:1") as transport:
        batcher = Batcher(transport, WAIT_S)

        def alone(_: float) -> HttpAnswer:
            batcher.close()
            closed.set()
            return HttpAnswer(200, {}, b"")

        writing = threading.Thread(target=batcher.send, args=(b"", "", WAIT_S, alone), daemon=True)
        writing.start()
        assert closed.wait(WAIT_S)
        writing.join(WAIT_S)
        batcher.close()


def test_only_writes_with_equal_preferences_share_a_request(server: Scripted) -> None:
    server.script = [done, done]
    with batching(url_of(server), 2) as batch:
        change = [{"op": "add", "path": "/n", "value": 1}]
        shown: list[Write] = [
            lambda key=key: batch.catalog.patch(key, change, show_refused=True)  # type: ignore[misc]
            for key in "ab"
        ]
        batch.together(*shown, *patches(batch.catalog, "cd"))
    by_keys = {
        "".join(sorted(keys)): headers["Prefer"]
        for keys, headers in zip(server.requests, server.headers, strict=True)
    }
    assert by_keys.keys() == {"ab", "cd"}
    assert by_keys["ab"] == f"refusal=representation, {by_keys['cd']}"


def test_an_error_before_sending_is_raised_by_each_write(server: Scripted) -> None:
    with batching(url_of(server), 2, token="") as batch:
        errors = batch.together(*patches(batch.catalog, "ab"))
    assert [type(each) for each in errors] == [ValueError, ValueError]
    assert not server.requests


def all_writes(catalog: Catalog) -> dict[str, Write]:
    """One of each kind, on a document of its own that has a field of the manager ``m``."""
    put = {"n": 1, "list": [{"id": 1}]}
    before = {}
    for name in (
        *("put", "conditional", "absent", "patch", "extended", "merge", "rebase", "delete"),
        *("apply", "skip", "contested", "let_go", "give_back", "failed", "stale", "ranges"),
        *("attributes", "dry", "shown", "long", "terms"),
    ):
        catalog.put(name, put)
        before[name] = catalog.apply(name, {"own": 1}, manager="m")
    catalog.merge("give_back", {"own": 2})
    add = [{"op": "add", "path": "/m", "value": 1}]
    by_id = [{"op": "replace", "path": "/list/1/id", "value": 1}]
    wrong = [{"op": "test", "path": "/n", "value": 2}]
    return {
        "put": lambda: catalog.put("put", {"n": 2}),
        "conditional": lambda: catalog.put("conditional", {"n": 2}, if_match=before["conditional"]),
        "created": lambda: catalog.put("ü/created", 1, if_absent=True),
        "absent": lambda: catalog.put("absent", 1, if_absent=True),
        "patch": lambda: catalog.patch("patch", add),
        "extended": lambda: catalog.patch("extended", by_id, array_primary_keys={"/list": ["id"]}),
        "merge": lambda: catalog.merge("merge", {"n": None}),
        "rebase": lambda: catalog.patch("rebase", add, if_match=before["rebase"], rebase=True),
        "delete": lambda: catalog.delete("delete", if_match=["7-00000000", before["delete"]]),
        "nothing": lambda: catalog.delete("nothing"),
        "apply": lambda: catalog.apply("apply", {"own": 2}, manager="m"),
        "skip": lambda: catalog.apply("skip", {"own": 2}, manager="o", conflict="skip"),
        "contested": lambda: catalog.apply("contested", {"own": 2}, manager="o"),
        "let_go": lambda: catalog.let_go("let_go", manager="m"),
        "give_back": lambda: catalog.give_back("give_back", "/own"),
        "failed": lambda: catalog.patch("failed", wrong),
        "stale": lambda: catalog.merge("stale", {}, if_match="1-00000000"),
        "ranges": lambda: catalog.put("ranges", 1, if_unchanged_under={"r": 1}),
        "attributes": lambda: catalog.attributes.put("attributes", {"a": 1}),
        "dry": lambda: catalog.patch("dry", add, dry_run=True),
        "shown": lambda: catalog.patch("shown", wrong, show_refused=True),
        "long": lambda: catalog.put("long", "x" * 100_000),
        "terms": lambda: catalog.put("terms", 3, message="mäde, it", resource_version=1),
    }


def comparable(result: Any) -> Any:
    """Without what differs from commit to commit, or goes by which worker had the turn."""
    if isinstance(result, Written):
        same: dict[str, Any] = {
            "attempts": 1,
            "etag": result.etag and "t",
            "commit_id": result.commit_id and "c",
        }
        skipped = tuple(replace(each, owners=()) for each in result.skipped)
        same |= {"rebased_from": result.rebased_from and "t", "revision": result.revision and 1}
        return replace(result, **same, skipped=skipped, catalog_revision=1, create_revision=1)
    assert isinstance(result, Problem)
    members = result.problem.keys() - {
        "changes_since"
    }  # the answer to a bulk line doesn't have these
    return type(result), result.code, result.applied, members, result.sends


def _noted(batched: list[str], name: str, *asked: Any, **more: Any) -> Any:
    batched.append(name)
    return exchange(*asked, **more)


def test_every_write_has_the_same_answer_in_a_batch_and_alone(
    service: RunningGateway, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome(write: Write) -> Any:
        try:
            return comparable(write())
        except Problem as error:
            return comparable(error)

    alone = {name: outcome(write) for name, write in all_writes(catalog).items()}
    with batching(service.url, 2, Retry()) as batch:
        partner = batch.named(catalog.name + "3")
        batch.batcher._wait_s = 0
        writes = all_writes(batch.named(catalog.name + "2"))
        batch.batcher._wait_s = 0.2
        batched = []
        for name, write in writes.items():
            monkeypatch.setattr(_batching, "exchange", partial(_noted, batched, name))
            terms = {"show_refused": name == "shown"}
            got, _ = batch.together(write, lambda t=terms: partner.put("k", 1, **t))  # type: ignore[misc]
            assert comparable(got) == alone[name], name
    assert writes.keys() - set(batched) == {"attributes", "dry", "long"}
    assert catalog.get("patch").value == {"n": 1, "list": [{"id": 1}], "own": 1, "m": 1}


def test_many_threads_write_one_document_and_lose_nothing(
    service: RunningGateway, catalog: Catalog
) -> None:
    catalog.put("k", {"log": []})
    with Gateway(service.url, timeout_s=WAIT_S, batch_s=0.002) as gateway:
        mine = gateway.catalog(catalog.name)

        def append(number: int) -> Written:
            return mine.patch("k", [{"op": "add", "path": "/log/-", "value": number}])

        with ThreadPoolExecutor(16) as pool:
            written = list(pool.map(append, range(320)))
    assert sorted(catalog.get("k").value["log"]) == list(range(320))
    assert len({each.revision for each in written}) == 320


def test_a_key_is_the_same_write_in_a_batch_and_alone(
    service: RunningGateway, catalog: Catalog
) -> None:
    catalog.put("k", {})
    change = [{"op": "add", "path": "/n", "value": 1}]
    first = catalog.patch("k", change, idempotency_key="mine")
    with batching(service.url, 2) as batch:
        mine = batch.named(catalog.name)
        again, _ = batch.together(
            lambda: mine.patch("k", change, idempotency_key="mine"), lambda: mine.put("o", 1)
        )
    assert again == replace(first, replayed=True)


def test_a_lone_thread_never_waits_for_others(service: RunningGateway, catalog: Catalog) -> None:
    """It would, for minutes."""
    with Gateway(service.url, batch_s=WAIT_S) as gateway:
        mine = gateway.catalog(catalog.name)
        for number in range(3):
            assert mine.put("k", number).changed
    with pytest.raises(ValueError, match="batch_s"):
        Gateway(service.url, batch_s=-1)


def test_writes_that_may_have_been_sent_before_memory_ran_out_are_not_sent_again(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr("patching.client.bulk_writer._whole_lines", fail)
    with batching(url_of(server), 2) as batch:
        errors = batch.together(*patches(batch.catalog, "ab"))
    told = [(type(each), each.applied) for each in errors]
    assert told == [(Unreachable, "unknown")] * 2
    assert len(server.requests) == 1
