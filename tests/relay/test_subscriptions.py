"""Each commit is delivered in order and at least once; a receiver that is slow, wrong or gone holds
up nobody else."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

import pytest

from gateway import cpu
from gateway.errors import PinHolds, TooManyWatchers
from gateway.feed.channel import Selection
from gateway.http.wire.shapes import commit_event
from gateway.model import Head, PinRecord
from gateway.retention.compaction import advance
from gateway.runtime import Event, ThreadRuntime
from gateway.store.contract import (
    BeingRestored,
    ForeignRecord,
    StoreUnreachable,
    SubscriptionRecord,
)
from tests.http.conftest import problem
from tests.patience import WAIT_S
from tests.relay.conftest import SECRET, Begin, Gateway, OutOfReach
from tests.relay.receiver import Post, Receiver, is_signed
from tests.retention.history_checks import settler_of, wait_until_written

OTHER = "whsec_" + "QUJD" * 12
Eventually = Callable[..., Any]


class Refusing:
    """Subscriptions that somebody has changed meanwhile."""

    def save_progress(self, *_: object) -> bool:
        return False

    def change_subscription(self, *_: object, **__: object) -> bool:
        return False


class Noting:
    """An event; ``done`` tells each time that somebody waits for it."""

    def __init__(self, event: Event, done: list[str]) -> None:
        self._event = event
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)

    def wait(self, timeout: float | None = None) -> bool:
        self._done.append("wait")
        return self._event.wait(timeout)


class TestDelivery:
    def test_each_commit_is_delivered_once_in_order_as_in_the_feed(
        self, gateway: Gateway, receiver: Receiver
    ) -> None:
        gateway.catalog.put({"n": 0})
        told = gateway.subscribe(receiver)
        assert (told["state"], told["revision"], told["lag"]) == ("active", 1, 0)
        for number in range(1, 6):
            gateway.catalog.put({"n": number})
        receiver.wait_for_commits(6)
        assert receiver.revisions == [2, 3, 4, 5, 6]
        history = gateway.catalog.client.get(f"{gateway.catalog.path}/commits?after=1").get_json()
        assert [each["data"] for each in receiver.events] == history["commits"]

    def test_events_follow_the_cloudevents_format(
        self, gateway: Gateway, receiver: Receiver
    ) -> None:
        gateway.subscribe(receiver)
        gateway.catalog.put({"n": 0}, Commit_Message="why")
        receiver.wait_for_commits(1)
        (post,) = receiver.posts
        assert post.path == "/in?a=b"
        assert post.headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
        (event,) = post.events
        data = event.pop("data")
        assert event == {
            "specversion": "1.0",
            "id": "shop/1",
            "source": "/v1/catalogs/shop",
            "type": "metadata-gateway.commit",
            "datacontenttype": "application/json",
            "time": data["time"],
        }
        assert data["message"] == "why"
        assert post.headers["webhook-id"] == event["id"]
        assert is_signed(post, SECRET)
        assert not is_signed(post, OTHER)
        assert not is_signed(post._replace(body=post.body + b" "), SECRET)

    def test_a_batch_has_many_events(self, gateway: Gateway, receiver: Receiver) -> None:
        for number in range(250):
            gateway.catalog.put({"n": number})
        gateway.subscribe(receiver, format="cloudevents-batch", from_=0)
        receiver.wait_for_commits(250)
        assert receiver.revisions == list(range(1, 251))
        assert [len(post.events) for post in receiver.posts] == [100, 100, 50]
        first = receiver.posts[0]
        assert first.headers["Content-Type"].startswith("application/cloudevents-batch+json")
        assert (first.headers["webhook-id"], is_signed(first, SECRET)) == ("shop/1+100", True)

    def test_a_delivery_is_bounded_in_bytes(self, begin: Begin, receiver: Receiver) -> None:
        gateway = begin(events_bytes_max=3000)
        for number in range(10):
            gateway.catalog.put({"n": number, "text": "x" * 1000})
        gateway.subscribe(receiver, format="cloudevents-batch", from_=0)
        receiver.wait_for_commits(10)
        assert receiver.revisions == list(range(1, 11))
        assert max(len(post.body) for post in receiver.posts) < 4000

    def test_a_prefix_selects_documents(self, gateway: Gateway, receiver: Receiver) -> None:
        gateway.subscribe(receiver, prefix="tables/")
        for key in ("a", "tables/1", "b", "tables/2", "c"):
            gateway.catalog.put(1, key=key)
        receiver.wait_for_commits(4)
        assert receiver.revisions == [2, 4]

    def test_a_subscription_can_begin_with_the_state(
        self, begin: Begin, receiver: Receiver
    ) -> None:
        gateway = begin(events_max=2)
        keys = ["a", "b.c/ü", "d", "e", "f"]
        for key in keys:
            gateway.catalog.put({"of": key}, key=key)
        settings = {"require_precondition": False}
        assert gateway.catalog.client.put(gateway.catalog.path, json=settings).status_code < 300
        assert gateway.subscribe(receiver, initial=True)["revision"] is None
        receiver.wait_for(lambda it: it.of("synced"))
        documents = [event["data"] for event in receiver.of("document")]
        assert [each["key"] for each in documents] == [None, *keys]
        assert documents[2]["value"] == {"of": "b.c/ü"}
        assert [each["id"] for each in receiver.events[:3]] == [
            *("shop/6/", "shop/6/a"),
            "shop/6/b%2Ec/%C3%BC",
        ]
        assert receiver.of("synced")[0]["data"]["revision"] == 6
        gateway.catalog.put(2)
        receiver.wait_for_commits(7)
        assert all(is_signed(post, SECRET) for post in receiver.posts)

    def test_event_ids_are_unique_whatever_the_keys_of_documents(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        for key in ("a", "a/compacted", "compacted", "synced", "!synced", "/synced", "!compacted"):
            gateway.catalog.put(1, key=key)
        gateway.subscribe(receiver, initial=True)
        receiver.wait_for(lambda it: it.of("synced"))
        eventually(lambda: gateway.shown()["position"] == "7")
        assert gateway.post("s/pause").status_code == 200
        eventually(gateway.has_met)
        gateway.catalog.put(2)
        for pin in gateway.service.retention.pins("shop"):
            gateway.store.drop_pin("shop", pin.id)  # nobody has renewed it
        gateway.service.retention.compact("shop", 8)
        assert gateway.post("s/resume").status_code == 200
        receiver.wait_for(lambda it: len(it.of("synced")) == 2)
        assert len(receiver.of("compacted")) == 1
        sent = [event["id"] for event in receiver.events]
        assert len(set(sent)) == len(sent) == 7 + 1 + 1 + 8 + 1
        assert [post.headers["webhook-id"] for post in receiver.posts] == sent

    def test_a_failed_list_resumes_where_it_was_taken(
        self, begin: Begin, receiver: Receiver
    ) -> None:
        gateway = begin(events_max=2)
        keys = [f"k{number}" for number in range(7)]
        for key in keys:
            gateway.catalog.put(1, key=key)
        count = iter(range(1_000))
        receiver.answer = lambda _: 500 if next(count) % 3 == 1 else 204
        gateway.subscribe(receiver, initial=True)
        receiver.wait_for(lambda it: it.of("synced"))
        assert [event["data"]["key"] for event in receiver.of("document")] == keys
        assert len(receiver.posts) > len(keys) + 1


class TestFailures:
    @pytest.mark.parametrize("status", [500, 404, 429, 302, None])
    def test_an_event_not_accepted_is_sent_again_in_order(
        self, gateway: Gateway, receiver: Receiver, status: int | None
    ) -> None:
        count = iter(range(1_000))
        receiver.answer = lambda _: status if next(count) % 2 == 0 else 204
        receiver.headers = {"Location": receiver.url}
        gateway.subscribe(receiver)
        for number in range(5):
            gateway.catalog.put({"n": number})
        receiver.wait_for_commits(5)
        assert receiver.revisions == [1, 2, 3, 4, 5]
        sent = [post.events[0]["id"] for post in receiver.posts]
        assert sent == [f"shop/{n}" for n in (1, 1, 2, 2, 3, 3, 4, 4, 5, 5)]

    def test_an_event_whose_answer_is_lost_is_sent_twice_with_one_id(
        self, gateway: Gateway, receiver: Receiver
    ) -> None:
        count = iter(range(1_000))
        receiver.answer = lambda _: -1 if next(count) == 1 else 204
        gateway.subscribe(receiver)
        for number in range(3):
            gateway.catalog.put({"n": number})
        receiver.wait_for_commits(3)
        assert receiver.revisions == [1, 2, 2, 3]
        assert receiver.events[1] == receiver.events[2]

    def test_a_failing_subscription_shows_its_error_and_next_try(
        self,
        gateway: Gateway,
        receiver: Receiver,
        eventually: Eventually,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        receiver.answer = lambda _: 503
        gateway.subscribe(receiver)
        gateway.catalog.put(1)
        eventually(lambda: gateway.shown()["state"] == "failing")
        shown = gateway.shown()
        assert shown["failures"] >= 5
        assert shown["last_error"]["code"] == "answered_503"
        assert shown["next_try"] > shown["last_error"]["time"]
        assert "subscription 's' of catalog 'shop': the receiver answered 503" in caplog.text
        assert (shown["revision"], shown["head"], shown["lag"]) == (0, 1, 1)
        readings = gateway.service.readings().relay
        assert (readings.subscriptions, readings.failing) == (1, 1)
        receiver.answer = lambda _: 204
        eventually(lambda: gateway.shown()["state"] == "active")
        shown = gateway.shown()
        assert (shown["last_error"], shown["failures"], shown["delivered"]) == (None, 0, 1)

    def test_a_gap_in_the_log_is_shown_as_a_failure(
        self,
        begin: Begin,
        receiver: Receiver,
        eventually: Eventually,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        first = begin()
        for number in range(3):
            first.catalog.put({"n": number})
        wait_until_written(first.service, "shop")
        first.stop()
        lost = first.store._commits["shop"].pop(2)
        gateway = begin()
        gateway.subscribe(receiver, from_=1)
        eventually(lambda: gateway.shown()["failures"] >= 2)
        shown = gateway.shown()
        assert shown["last_error"]["code"] == "internal_error"
        assert shown["last_error"]["detail"] == ForeignRecord.public_detail
        assert shown["next_try"] > shown["last_error"]["time"]
        said = "subscription 's' of catalog 'shop' can't be served: catalog 'shop': the log"
        assert f"{said} has no commit 2;" in caplog.text
        first.store._commits["shop"][2] = lost
        receiver.wait_for_commits(3)
        assert receiver.revisions == [2, 3]
        eventually(lambda: gateway.shown()["last_error"] is None)

    @pytest.mark.parametrize("by_s", [1800, 86_400])
    def test_a_clock_that_was_ahead_delays_no_delivery(
        self, begin: Begin, gateway: Gateway, receiver: Receiver, eventually: Eventually, by_s: int
    ) -> None:
        """Nor one whose own clock was set back."""
        receiver.answer = lambda _: 503
        gateway.subscribe(receiver)
        gateway.catalog.put(1)
        eventually(lambda: gateway.shown()["failures"])
        gateway.die()
        subscriptions = gateway.store.subscriptions()
        (held,), _ = subscriptions.claimable(gateway.relay.holder, 1)
        assert held.error is not None
        by_us = by_s * 1_000_000
        error = {**held.error, "time_us": held.error["time_us"] + by_us}
        ahead = replace(held, error=error, next_try_us=held.next_try_us + by_us)
        eventually(lambda: subscriptions.save_progress(ahead, gateway.relay.holder))
        subscriptions.end_claim("shop", "s", gateway.relay.holder)
        receiver.answer = lambda _: 204
        begin()
        receiver.wait_for_commits(1)

    def test_a_failing_receiver_gets_one_event_at_a_time(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        receiver.answer = lambda _: 503
        for number in range(20):
            gateway.catalog.put(number)
        gateway.subscribe(receiver, format="cloudevents-batch", from_=0)
        eventually(lambda: gateway.shown()["state"] == "failing")
        receiver.answer = lambda _: 204
        receiver.wait_for_commits(20)
        assert len(receiver.posts[0].events) == 20
        assert next(len(each.events) for each in receiver.posts[5:]) == 1
        assert receiver.revisions == list(range(1, 21))

    def test_a_receiver_that_answers_410_is_paused(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        receiver.answer = lambda _: 410
        gateway.subscribe(receiver)
        gateway.catalog.put(1)
        eventually(lambda: gateway.shown()["state"] == "paused")
        assert gateway.shown()["last_error"]["code"] == "answered_410"
        receiver.answer = lambda _: 204
        assert gateway.post("s/resume").status_code == 200
        receiver.wait_for_commits(1)

    def test_a_slow_receiver_delays_no_other(self, gateway: Gateway, receiver: Receiver) -> None:
        lets_go = threading.Event()
        with Receiver(lambda _: 204 if lets_go.wait(WAIT_S) else 500) as slow:
            gateway.subscribe(slow, "slow")
            gateway.subscribe(receiver, "quick")
            for number in range(30):
                gateway.catalog.put(number)
            receiver.wait_for_commits(30)
            assert slow.events == []
            lets_go.set()
            slow.wait_for_commits(30)
        assert slow.revisions == receiver.revisions == list(range(1, 31))

    def test_an_endless_answer_ends_at_the_deadline(
        self, gateway: Gateway, eventually: Eventually
    ) -> None:
        gateway.relay._parts.deliverer.deadline_s = 0.2

        def drip(_: Post) -> int:
            time.sleep(1.0)
            return 204

        with Receiver(drip) as slow:
            gateway.subscribe(slow)
            gateway.catalog.put(1)
            eventually(lambda: gateway.shown()["failures"] > 0)
            assert gateway.shown()["last_error"]["code"] == "timed_out"

    @pytest.mark.parametrize("status", [503, 410])
    @pytest.mark.parametrize("is_known", [True, False])
    def test_a_failure_that_cannot_be_recorded_pauses_too(
        self,
        gateway: Gateway,
        receiver: Receiver,
        eventually: Eventually,
        status: int,
        *,
        is_known: bool,
    ) -> None:
        """Where somebody has changed it, or MongoDB doesn't answer."""
        gateway.subscribe(receiver)
        eventually(gateway.has_met)
        done: list[str] = []
        runner = gateway.relay._runners["shop", "s"]
        runner._wake = Noting(runner._wake, done)
        runner._records = cast(Any, Refusing() if is_known else OutOfReach())

        def answer(_: Post) -> int:
            done.append("post")
            return status

        receiver.answer = answer
        gateway.catalog.put(1)
        eventually(lambda: done.count("post") > 2)
        assert ["post", "post"] not in [done[at : at + 2] for at in range(len(done))]


class TestWorkers:
    def test_another_worker_continues_where_one_died(
        self, begin: Begin, receiver: Receiver, eventually: Eventually
    ) -> None:
        first = begin()
        first.subscribe(receiver)
        first.catalog.put(1)
        eventually(lambda: first.shown()["revision"] == 1)
        store = first.store
        first.die()
        second = begin()
        second.catalog.put(2)
        store.subscriptions()._claims.clear()  # the lease is over
        receiver.wait_for_commits(2)
        assert receiver.revisions == [1, 2]

    def test_of_many_workers_only_one_delivers(self, begin: Begin, receiver: Receiver) -> None:
        gateways = [begin() for _ in range(4)]
        gateways[0].subscribe(receiver)
        for number in range(40):
            gateways[number % 4].catalog.put(number)
        receiver.wait_for_commits(40)
        assert receiver.revisions == list(range(1, 41))
        assert sum(each.service.readings().relay.subscriptions for each in gateways) == 1

    def test_a_worker_that_lost_its_claim_while_asleep_sends_nothing_more(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        gateway.subscribe(receiver)
        gateway.catalog.put(1)
        eventually(lambda: gateway.shown()["revision"] == 1)
        claims = gateway.store.subscriptions()._claims
        claims["shop", "s"] = "another", time.monotonic() + 1000
        eventually(lambda: not gateway.relay._runners)
        gateway.catalog.put(2)
        assert gateway.shown()["lag"] == 1
        assert receiver.revisions == [1]

    def test_a_worker_that_slept_continues_where_others_have_delivered(
        self, begin: Begin, receiver: Receiver, eventually: Eventually
    ) -> None:
        worker = begin()
        worker.subscribe(receiver)
        worker.catalog.put(1)
        eventually(lambda: worker.shown()["revision"] == 1)
        claims = worker.store.subscriptions()._claims
        step, worker.relay.step = worker.relay.step, lambda: None  # type: ignore[method-assign]
        worker.relay._held_until = 0.0  # it sleeps, and its claim is over
        claims.clear()
        other = begin()
        other.catalog.put(2)
        eventually(lambda: other.shown()["revision"] == 2)
        other.stop()
        eventually(lambda: not claims)
        worker.relay.step = step  # type: ignore[method-assign]
        worker.catalog.put(3)
        receiver.wait_for_commits(3)
        assert receiver.revisions == [1, 2, 3]

    def test_a_re_created_subscription_is_delivered_and_its_predecessor_is_not(
        self,
        begin: Begin,
        receiver: Receiver,
        monkeypatch: pytest.MonkeyPatch,
        eventually: Eventually,
    ) -> None:
        """Even if the worker of the first hasn't noticed yet that it is gone."""
        worker, other = begin(claim_s=20 * WAIT_S), begin(worker_max=0)
        with Receiver() as first:
            worker.subscribe(first)
            worker.catalog.put({"n": 1})
            eventually(lambda: worker.shown()["revision"] == 1)  # it isn't sent again
            with monkeypatch.context() as patched:
                patched.setattr(worker.relay, "step", lambda: None)
                assert other.catalog.client.delete(f"{other.path}/s").status_code == 204
                other.subscribe(receiver, secret=OTHER, from_=0)
            receiver.wait_for_commits(1)
            other.catalog.put({"n": 2})
            receiver.wait_for_commits(2)
            assert first.revisions == [1]
        assert all(is_signed(post, OTHER) for post in receiver.posts)
        eventually(lambda: other.shown()["revision"] == 2)

    def test_the_holder_of_a_replaced_subscription_changes_nothing(
        self, begin: Begin, receiver: Receiver
    ) -> None:
        """Neither its position, nor that its receiver wants no more, nor what people have
        changed."""
        other = begin(worker_max=0)
        records = other.service.subscriptions._records

        def made() -> SubscriptionRecord:
            other.subscribe(receiver)
            record = records.subscription("shop", "s")
            assert record is not None
            return record

        former = made()
        assert other.catalog.client.delete(f"{other.path}/s").status_code == 204
        later = made()
        assert records.claim_subscription("shop", "s", "w", 60.0) is not None
        assert not records.save_progress(replace(former, position="7"), "w")
        assert not records.change_subscription(former, former.number, ())
        assert records.subscription("shop", "s") == later

    def test_a_worker_that_slept_longer_than_its_claims_sends_nothing_under_them(
        self,
        gateway: Gateway,
        receiver: Receiver,
        eventually: Eventually,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Another worker has delivered more meanwhile, so this one gives these claims up before it
        renews the rest."""
        gateway.subscribe(receiver)
        eventually(lambda: gateway.relay._runners)
        (runner,) = gateway.relay._runners.values()
        step, records = gateway.relay.step, gateway.service.subscriptions._records
        sleeping = threading.Event()

        def sleep() -> None:
            sleeping.set()

        monkeypatch.setattr(gateway.relay, "step", sleep)
        assert sleeping.wait(WAIT_S)
        gateway.relay._held_until = 0.0
        records.end_claim("shop", "s", gateway.relay.holder)
        assert records.claim_subscription("shop", "s", "another", 60.0)
        may_send, stop = [], runner.stop

        def stopped() -> None:
            may_send.append(gateway.relay.holds_on(0.0))
            stop()

        monkeypatch.setattr(runner, "stop", stopped)
        step()
        assert may_send == [False]
        assert gateway.relay.holds_on(0.0)

    def test_a_stopping_worker_releases_its_subscriptions(
        self, begin: Begin, receiver: Receiver, eventually: Eventually
    ) -> None:
        first = begin()
        first.subscribe(receiver)
        eventually(lambda: first.relay._runners)
        first.stop()
        second = begin()
        second.catalog.put(1)
        receiver.wait_for_commits(1)

    def test_the_subscriptions_of_a_worker_are_bounded_and_the_waiting_ones_counted(
        self, begin: Begin, receiver: Receiver, eventually: Eventually
    ) -> None:
        gateways = [begin(worker_max=2) for _ in range(2)]
        for number in range(5):
            gateways[0].subscribe(receiver, f"s{number}")
        gateways[0].catalog.put(1)
        receiver.wait_for(lambda it: len(it.events) == 4)

        def readings(number: int) -> tuple[int, int]:
            relay = gateways[number].service.readings().relay
            return relay.subscriptions, relay.waiting

        eventually(lambda: readings(0) == readings(1) == (2, 1))


class TestBounds:
    def test_feeds_and_subscriptions_have_separate_bounds(
        self, gateway: Gateway, receiver: Receiver
    ) -> None:
        """Nor the other way round: both have bounds of their own."""
        feed = gateway.service.feed(commit_event)
        gateway.subscribe(receiver)
        gateway.catalog.put(1)
        receiver.wait_for_commits(1)
        with ExitStack() as watchers:
            for _ in range(gateway.service.limits.watch.watchers_max):
                watcher = feed.watch("shop", after=None, selection=Selection())
                watchers.callback(watcher.close)
            with pytest.raises(TooManyWatchers):
                feed.watch("shop", after=None, selection=Selection())
            with Receiver() as other:
                gateway.subscribe(other, "t", initial=True)
                other.wait_for(lambda it: it.of("synced"))
                gateway.catalog.put(2)
                other.wait_for_commits(2)


class TestHistory:
    def test_history_is_pinned_until_it_is_delivered(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        receiver.answer = lambda _: 503
        gateway.subscribe(receiver)
        for number in range(5):
            gateway.catalog.put(number)
        eventually(lambda: gateway.shown()["failures"] > 0)
        with pytest.raises(PinHolds):
            gateway.service.retention.compact("shop", 4)
        assert [pin.note for pin in gateway.service.retention.pins("shop")] == ["subscription s"]
        assert gateway.catalog.client.delete(f"{gateway.path}/s").status_code == 204
        gateway.service.retention.compact("shop", 4)

    def test_beyond_the_bound_the_receiver_gets_compacted_and_then_the_state(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        gateway.catalog.put("first")
        gateway.subscribe(receiver)
        assert gateway.post("s/pause").status_code == 200
        eventually(gateway.has_met)
        for number in range(1, 5):
            gateway.catalog.put(number)
        (pin,) = gateway.service.retention.pins("shop")
        gateway.store.drop_pin("shop", pin.id)  # nobody has renewed it
        gateway.service.retention.compact("shop", 4)
        assert gateway.post("s/resume").status_code == 200
        receiver.wait_for(lambda it: it.of("synced"))
        gateway.catalog.put(9)
        receiver.wait_for_commits(6)
        told = [(event["type"].partition(".")[2], event["data"]) for event in receiver.events]
        assert [kind for kind, _ in told] == ["compacted", "document", "synced", "commit"]
        assert told[0][1]["status"] == 410
        assert told[0][1]["code"] == "revision_compacted"
        assert (told[1][1]["value"], told[2][1]["revision"]) == (4, 5)

    @pytest.mark.parametrize("is_paused", [True, False])
    def test_after_an_advance_the_receiver_gets_compacted_and_then_the_state(
        self, gateway: Gateway, receiver: Receiver, *, is_paused: bool
    ) -> None:
        gateway.catalog.put(1)
        gateway.subscribe(receiver)
        gateway.catalog.put(2)
        receiver.wait_for_commits(2)
        if is_paused:
            assert gateway.post("s/pause").status_code == 200
        runtime = ThreadRuntime()
        advance(gateway.store, settler_of(gateway.store, runtime), runtime, "shop", 1_000_000)
        gateway.catalog.put(3)
        if is_paused:
            assert gateway.post("s/resume").status_code == 200
        receiver.wait_for(lambda it: it.of("synced"))
        gateway.catalog.put(4)
        receiver.wait_for_commits(1_000_004)
        told = [event["type"].partition(".")[2] for event in receiver.events]
        assert told == ["commit", "compacted", "document", "synced", "commit"]
        assert receiver.events[2]["data"]["value"] == 3

    def test_the_pin_of_a_receiver_unreachable_for_too_long_is_not_renewed(
        self, begin: Begin, receiver: Receiver, eventually: Eventually
    ) -> None:
        gateway = begin(hold_s=0)
        receiver.answer = lambda _: 503
        gateway.subscribe(receiver)
        gateway.catalog.put(1)
        eventually(lambda: gateway.shown()["failures"] > 1)
        (pin,) = gateway.service.retention.pins("shop")
        gateway.store.drop_pin("shop", pin.id)
        gateway.relay._pinned_at = -1_000.0
        gateway.relay.wake()
        eventually(lambda: gateway.relay._pinned_at > 0)
        assert not gateway.service.retention.pins("shop")


class TestChanges:
    def test_a_paused_subscription_gets_nothing_and_everything_after_resuming(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        gateway.subscribe(receiver)
        gateway.catalog.put(1)
        eventually(lambda: gateway.shown()["revision"] == 1)
        assert gateway.post("s/pause").get_json()["state"] == "paused"
        eventually(lambda: all(r.record.paused for r in gateway.relay._runners.values()))
        for number in range(5):
            gateway.catalog.put(number)
        assert receiver.revisions == [1]
        assert (gateway.shown()["lag"], gateway.shown()["next_try"]) == (5, None)
        assert gateway.post("s/resume").get_json()["state"] == "active"
        receiver.wait_for_commits(6)
        assert receiver.revisions == [1, 2, 3, 4, 5, 6]

    def test_a_replay_delivers_again(self, gateway: Gateway, receiver: Receiver) -> None:
        gateway.subscribe(receiver)
        for number in range(4):
            gateway.catalog.put(number)
        receiver.wait_for_commits(4)
        assert gateway.post("s/replay", {"from": 2}).status_code == 200
        receiver.wait_for(lambda it: len(it.events) == 6)
        assert receiver.revisions == [1, 2, 3, 4, 3, 4]
        assert gateway.post("s/replay", {"initial": True}).status_code == 200
        receiver.wait_for(lambda it: it.of("synced"))
        problem(gateway.post("s/replay", {"from": 9}), 404, "revision_not_found")
        problem(gateway.post("s/replay", {}), 400, "invalid_body")

    def test_during_a_change_of_secret_both_sign(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        gateway.subscribe(receiver)
        assert gateway.subscribe(receiver, secret=OTHER)["secrets"] == 2
        eventually(gateway.has_met)
        gateway.catalog.put(1)
        receiver.wait_for_commits(1)
        assert is_signed(receiver.posts[-1], SECRET)
        assert is_signed(receiver.posts[-1], OTHER)
        eventually(lambda: gateway.shown()["revision"] == 1)
        again = gateway.subscribe(receiver, secret=SECRET, secret_overlap_s=0)
        assert (again["secrets"], again["revision"]) == (1, 1)
        eventually(gateway.has_met)
        gateway.catalog.put(2)
        receiver.wait_for_commits(2)
        assert is_signed(receiver.posts[-1], SECRET)
        assert not is_signed(receiver.posts[-1], OTHER)

    def test_changing_a_secret_again_does_not_shorten_the_time_of_earlier_ones(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        third = "whsec_" + "REVG" * 12
        for count, secret in enumerate((SECRET, OTHER, third), 1):
            assert gateway.subscribe(receiver, secret=secret)["secrets"] == count
        eventually(gateway.has_met)
        gateway.catalog.put(1)
        receiver.wait_for_commits(1)
        assert all(is_signed(receiver.posts[-1], each) for each in (SECRET, OTHER, third))
        assert gateway.subscribe(receiver, secret=OTHER)["secrets"] == 3
        for number in range(9):
            secret = "whsec_" + f"AAA{number}" * 12
            assert gateway.subscribe(receiver, secret=secret)["secrets"] <= 5

    def test_a_generated_secret_is_shown_once(self, gateway: Gateway, receiver: Receiver) -> None:
        answer = gateway.catalog.client.put(f"{gateway.path}/s", json={"to": receiver.url})
        made = answer.get_json()["secret"]
        assert answer.status_code == 201
        gateway.catalog.put(1)
        receiver.wait_for_commits(1)
        assert is_signed(receiver.posts[0], made)
        again = gateway.catalog.client.put(f"{gateway.path}/s", json={"to": receiver.url})
        assert "secret" not in again.get_json()
        assert "secret" not in gateway.shown()

    def test_a_new_address_continues_where_the_old_one_was(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        with Receiver() as another:
            gateway.subscribe(receiver)
            gateway.catalog.put(1)
            eventually(lambda: gateway.shown()["revision"] == 1)
            assert gateway.subscribe(another)["revision"] == 1
            eventually(gateway.has_met)
            gateway.catalog.put(2)
            another.wait_for_commits(2)
            assert (receiver.revisions, another.revisions) == ([1], [2])

    def test_a_late_answer_of_the_old_address_does_not_affect_the_new_one(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        lets_go = threading.Event()
        with Receiver(lambda _: 410 if lets_go.wait(WAIT_S) else 500) as former:
            gateway.subscribe(former)
            gateway.catalog.put(1)
            eventually(lambda: former.asked)
            gateway.subscribe(receiver)
            eventually(gateway.has_met)
            lets_go.set()
            receiver.wait_for_commits(1)
        eventually(lambda: gateway.shown()["revision"] == 1)
        assert gateway.shown()["state"] == "active"

    def test_a_connection_to_the_old_address_that_is_being_opened_delivers_nothing(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        connects, goes_on = threading.Event(), threading.Event()

        def resolve(*asked: Any, **more: Any) -> Any:
            connects.set()
            goes_on.wait(WAIT_S)
            return socket.getaddrinfo(*asked, **more)

        gateway.relay._parts.deliverer._resolve = resolve
        with Receiver() as former:
            gateway.subscribe(former)
            gateway.catalog.put(1)
            connects.wait(WAIT_S)
            gateway.subscribe(receiver)
            eventually(gateway.has_met)
            goes_on.set()
            receiver.wait_for_commits(1)
            assert former.asked == 0

    def test_subscriptions_are_listed_until_they_are_dropped(
        self, gateway: Gateway, receiver: Receiver, eventually: Eventually
    ) -> None:
        for name in ("b", "a"):
            gateway.subscribe(receiver, name)
        listed = gateway.catalog.client.get(gateway.path).get_json()["subscriptions"]
        assert [each["name"] for each in listed] == ["a", "b"]
        eventually(lambda: len(gateway.relay._runners) == 2)
        assert gateway.catalog.client.delete(f"{gateway.path}/a").status_code == 204
        eventually(lambda: len(gateway.relay._runners) == 1)
        for call in (
            lambda: gateway.catalog.client.get(f"{gateway.path}/a"),
            lambda: gateway.catalog.client.delete(f"{gateway.path}/a"),
            lambda: gateway.post("a/pause"),
            lambda: gateway.post("a/resume"),
            lambda: gateway.post("a/replay", {"from": 0}),
        ):
            problem(call(), 404, "subscription_not_found")


class TestRefusals:
    @pytest.mark.parametrize(
        ("members", "pointer"),
        [
            ({"to": "http://example.com/in"}, "/to"),
            ({"to": "ftp://example.com"}, "/to"),
            ({"to": "https://10.0.0.1/in"}, "/to"),
            ({"to": "https://user:pass@example.com"}, "/to"),
            ({"to": 5}, "/to"),
            ({"secret": "whsec_c2hvcnQ="}, "/secret"),
            ({"secret": "a long text that isn't one"}, "/secret"),
            ({"format": "xml"}, "/format"),
            ({"from": -1}, "/from"),
            ({"from": 0, "initial": True}, "/initial"),
            ({"secret_overlap_s": -1}, "/secret_overlap_s"),
            ({"other": 1}, "/other"),
        ],
    )
    def test_an_invalid_member_is_refused_with_its_pointer(
        self, gateway: Gateway, receiver: Receiver, members: dict[str, Any], pointer: str
    ) -> None:
        answer = gateway.put(members.pop("to", receiver), **members)
        assert problem(answer, 400, "invalid_body")["pointer"] == pointer
        assert gateway.catalog.client.get(gateway.path).get_json() == {"subscriptions": []}

    def test_a_subscription_begins_at_an_existing_revision(
        self, gateway: Gateway, receiver: Receiver
    ) -> None:
        problem(gateway.put(receiver, from_=1), 404, "revision_not_found")
        for number in range(3):
            gateway.catalog.put(number)
        gateway.service.retention.compact("shop", 2)
        problem(gateway.put(receiver, from_=1), 410, "revision_compacted")
        assert gateway.subscribe(receiver, from_=2)["revision"] == 2

    def test_if_none_match_never_replaces_an_existing_subscription(
        self, gateway: Gateway, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        new = {"If-None-Match": "*"}
        assert gateway.put(receiver, headers=new).status_code == 201
        refused = problem(gateway.put(f"{receiver.url}/2", headers=new), 412, "precondition_failed")
        told = "If-None-Match is false for subscription 's', which exists; its tag is "
        assert refused["detail"] == told + gateway.shown()["etag"]
        assert refused["expected"] == "absent"
        assert gateway.shown()["to"] == receiver.url

        # Two at the same moment: neither saw the other's.
        table = gateway.service.subscriptions._records
        create = table.create_subscription

        def later(record: SubscriptionRecord) -> bool:
            monkeypatch.setattr(table, "create_subscription", create)
            with ThreadPoolExecutor(1) as other:
                made = other.submit(gateway.put, receiver, "t", headers=new).result(WAIT_S)
            assert made.status_code == 201
            return create(record)

        monkeypatch.setattr(table, "create_subscription", later)
        problem(gateway.put(f"{receiver.url}/2", "t", headers=new), 412, "precondition_failed")
        assert gateway.shown("t")["to"] == receiver.url

    def test_a_stale_change_of_a_subscription_is_refused(
        self, gateway: Gateway, receiver: Receiver
    ) -> None:
        """By every route that changes one; deliveries are no changes."""
        client, path = gateway.catalog.client, f"{gateway.path}/s"
        made = gateway.put(receiver)
        read = {"If-Match": made.headers["ETag"]}
        assert made.headers["ETag"] == f'"{made.get_json()["etag"]}"'
        gateway.catalog.put({"n": 1})
        receiver.wait_for_commits(1)
        assert client.get(path).headers["ETag"] == made.headers["ETag"]
        (listed,) = client.get(gateway.path).get_json()["subscriptions"]
        assert f'"{listed["etag"]}"' == made.headers["ETag"]
        assert client.post(f"{path}/pause", headers=read).status_code == 200
        members = {"to": receiver.url, "secret": SECRET}
        changed = ("etag", "to", "prefix", "format", "secrets", "changed_by")
        for asked in (
            lambda headers: client.put(path, json=members, headers=headers),
            lambda headers: client.post(f"{path}/pause", headers=headers),
            lambda headers: client.post(f"{path}/replay", json={"from": 0}, headers=headers),
            lambda headers: client.post(f"{path}/resume", headers=headers),
            lambda headers: client.delete(path, headers=headers),
        ):
            before = gateway.shown()
            refused = problem(asked(read), 412, "precondition_failed")
            assert before["etag"] in refused["detail"]
            after = gateway.shown()  # one that isn't paused keeps delivering
            assert [after[each] for each in changed] == [before[each] for each in changed]
            done = asked({"If-Match": f'"{before["etag"]}"'})
            assert done.status_code in (200, 204)
            if done.status_code == 200:
                assert done.headers["ETag"] not in (read["If-Match"], f'"{before["etag"]}"')
        gone = client.delete(path, headers={"If-Match": "*"})
        refused = problem(gone, 412, "precondition_failed")
        assert refused["detail"].endswith("which doesn't exist")
        gateway.subscribe(receiver)
        problem(client.delete(path, headers=read), 412, "precondition_failed")

    @pytest.mark.parametrize(
        ("call", "change"), [("delete", "drop_subscription"), ("put", "change_subscription")]
    )
    def test_of_two_concurrent_changes_with_one_tag_the_second_is_refused(
        self,
        gateway: Gateway,
        receiver: Receiver,
        monkeypatch: pytest.MonkeyPatch,
        call: str,
        change: str,
    ) -> None:
        read = {"If-Match": gateway.put(receiver).headers["ETag"]}
        table = gateway.service.subscriptions._records
        done = getattr(table, change)

        def later(*given: Any, **named: Any) -> Any:
            monkeypatch.setattr(table, change, done)
            with ThreadPoolExecutor(1) as other:
                changed = other.submit(gateway.put, receiver, prefix="b/").result(WAIT_S)
            assert changed.status_code == 200
            return done(*given, **named)

        monkeypatch.setattr(table, change, later)
        members = {"to": receiver.url, "prefix": "a/"}
        answer = gateway.catalog.client.open(
            f"{gateway.path}/s", method=call.upper(), json=members, headers=read
        )
        problem(answer, 412, "precondition_failed")
        assert gateway.shown()["prefix"] == "b/"

    @pytest.mark.parametrize("headers", [{}, {"If-None-Match": "*"}])
    def test_a_404_on_deletion_means_that_nothing_was_deleted(
        self,
        gateway: Gateway,
        receiver: Receiver,
        monkeypatch: pytest.MonkeyPatch,
        headers: dict[str, str],
    ) -> None:
        """Not the one that was made since they looked."""
        table = gateway.service.subscriptions._records
        look = table.subscription

        def later(*named: Any) -> Any:
            monkeypatch.setattr(table, "subscription", look)
            found = look(*named)
            with ThreadPoolExecutor(1) as other:
                assert other.submit(gateway.put, receiver).result(WAIT_S).status_code == 201
            return found

        monkeypatch.setattr(table, "subscription", later)
        gone = gateway.catalog.client.delete(f"{gateway.path}/s", headers=headers)
        problem(gone, 404, "subscription_not_found")
        assert gateway.shown()["to"] == receiver.url

    @pytest.mark.parametrize("verb", ["put", "pause", "resume"])
    def test_a_change_does_not_undo_progress(
        self,
        gateway: Gateway,
        receiver: Receiver,
        eventually: Eventually,
        monkeypatch: pytest.MonkeyPatch,
        verb: str,
    ) -> None:
        """It was made since they looked."""
        gateway.subscribe(receiver)
        table = gateway.service.subscriptions._records
        change = table.change_subscription

        def later(*given: Any, **named: Any) -> bool:
            monkeypatch.setattr(table, "change_subscription", change)
            with ThreadPoolExecutor(1) as other:
                other.submit(gateway.catalog.put, {"n": 1}).result(WAIT_S)
            eventually(lambda: cast(Any, table.subscription("shop", "s")).position == "1")
            return change(*given, **named)

        monkeypatch.setattr(table, "change_subscription", later)
        answer = gateway.put(receiver, prefix="k") if verb == "put" else gateway.post(f"s/{verb}")
        assert answer.status_code == 200
        assert (gateway.shown()["position"], gateway.shown()["delivered"]) == ("1", 1)
        assert gateway.post("s/resume").status_code == 200
        gateway.catalog.put({"n": 2})
        receiver.wait_for_commits(2)
        assert receiver.revisions == [1, 2]

    def test_with_another_prefix_the_list_starts_again(
        self, gateway: Gateway, eventually: Eventually
    ) -> None:
        for key in ("a/1", "b/1", "b/2"):
            gateway.catalog.put({"of": key}, key=key)

        def answer(post: Post) -> int:
            return 500 if post.events[0]["data"].get("key") == "b/2" else 204

        with Receiver(answer) as receiver:
            gateway.subscribe(receiver, initial=True, prefix="b/")
            eventually(lambda: gateway.shown()["failures"])
            assert gateway.shown()["position"].endswith("/b/1")
            gateway.subscribe(receiver, prefix="a/")
            receiver.wait_for(lambda it: it.of("synced"))
            keys = [each["data"]["key"] for each in receiver.of("document")]
            assert keys[-1] == "a/1"

    @pytest.mark.parametrize("begun", ["", "3/", "3/b/1"])
    def test_a_changed_prefix_restarts_a_list_begun_in_the_meantime(
        self, begin: Begin, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, begun: str
    ) -> None:
        """Its runner met that history is compacted."""
        gateway = begin(worker_max=0)
        gateway.subscribe(receiver, prefix="b/")
        table = gateway.service.subscriptions._records
        change = table.change_subscription
        record = table.claim_subscription("shop", "s", "w", 60.0)
        assert record is not None
        assert record.position == "0"

        def later(*given: Any, **named: Any) -> bool:
            monkeypatch.setattr(table, "change_subscription", change)
            assert table.save_progress(replace(record, position=begun), "w")
            return change(*given, **named)

        monkeypatch.setattr(table, "change_subscription", later)
        gateway.subscribe(receiver, prefix="a/")
        assert (gateway.shown()["prefix"], gateway.shown()["position"]) == ("a/", "")

    @pytest.mark.parametrize(
        "condition",
        [
            {"If-None-Match": ""},
            {"If-Match": '"a=b"'},
            {"If-Match": '"@7"'},
            {"If-Unchanged-Under": '"a";revision=1'},
            {"If-None-Match": "*", "If-Match": "*"},
            {"If-Unmodified-Since": "Sat, 21 Nov 2026 10:00:00 GMT"},
        ],
    )
    def test_an_unsupported_condition_is_refused(
        self, gateway: Gateway, receiver: Receiver, condition: dict[str, str]
    ) -> None:
        problem(gateway.put(receiver, headers=condition), 400, "invalid_condition")
        assert gateway.catalog.client.get(gateway.path).get_json() == {"subscriptions": []}

    def test_the_number_of_subscriptions_of_a_catalog_is_bounded(
        self, begin: Begin, receiver: Receiver
    ) -> None:
        gateway = begin(catalog_max=1)
        gateway.subscribe(receiver)
        gateway.subscribe(receiver)
        refused = problem(gateway.put(receiver, "t"), 413, "over_limit")
        assert (refused["limit"], refused["maximum"]) == ("subscriptions_max", 1)

    def test_the_bound_holds_for_subscriptions_made_at_the_same_moment(
        self, begin: Begin, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gateway = begin(catalog_max=1)
        table = gateway.service.subscriptions._records
        create = table.create_subscription

        def beside_another(record: SubscriptionRecord) -> bool:
            monkeypatch.setattr(table, "create_subscription", create)
            with ThreadPoolExecutor(1) as other:
                made = other.submit(gateway.put, receiver, "other").result(WAIT_S)
            assert made.status_code == 201
            return create(record)

        monkeypatch.setattr(table, "create_subscription", beside_another)
        refused = problem(gateway.put(receiver, "t"), 413, "over_limit")
        assert (refused["limit"], refused["maximum"]) == ("subscriptions_max", 1)
        listed = gateway.catalog.client.get(gateway.path).get_json()["subscriptions"]
        assert [each["name"] for each in listed] == ["other"]

    @pytest.mark.parametrize("name", ["a.b", "a%20b", "x" * 65, "%00"])
    def test_an_invalid_name_is_refused(
        self, gateway: Gateway, receiver: Receiver, name: str
    ) -> None:
        assert gateway.put(receiver, name).status_code in (400, 404)


def test_a_catalog_that_cannot_be_pinned_does_not_stop_pinning_the_others(
    gateway: Gateway,
    receiver: Receiver,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is restored, or edited by hand. Compaction would pass what isn't delivered."""
    gateway.catalog.put({"n": 0})
    sick = f"{gateway.path}/s".replace("shop", "sick")
    assert gateway.catalog.client.put(sick, json={"to": receiver.url}).status_code == 201
    eventually(lambda: gateway.relay._runners)  # it comes first
    gateway.subscribe(receiver)
    store, heads = gateway.store, gateway.store.heads

    def of_others(catalogs: Collection[str]) -> Mapping[str, Head]:
        if "sick" in catalogs:
            raise BeingRestored("sick")
        return heads(catalogs)

    def pins() -> Sequence[PinRecord]:
        bounds = store.retention("shop")
        assert bounds is not None
        return bounds.pins

    set_pin = store.set_pin

    def but_to_the_sick(catalog: str, *given: Any) -> bool:
        if catalog == "sick":
            _edited()
        return set_pin(catalog, *given)

    monkeypatch.setattr(store, "heads", of_others)
    monkeypatch.setattr(store, "set_pin", but_to_the_sick)
    eventually(lambda: len(gateway.relay._runners) == 2)
    for pin in pins():
        store.drop_pin("shop", pin.id)
    gateway.relay._pinned_at = 0.0  # long ago
    eventually(pins)
    eventually(lambda: gateway.relay._heads == {"shop": 1})
    assert "subscription 's' of catalog 'sick' can't be pinned: input to $filter" in caplog.text


def test_a_failure_is_recorded_and_waited_for_even_if_the_catalog_cannot_be_pinned(
    gateway: Gateway, receiver: Receiver, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.catalog.put({"n": 0})
    receiver.answer = lambda _: 500
    gateway.subscribe(receiver)
    monkeypatch.setattr(gateway.store, "set_pin", _edited)
    gateway.catalog.put({"n": 1})
    eventually(lambda: gateway.shown()["failures"] > 1)


def _edited(*_: object) -> None:
    raise StoreUnreachable("input to $filter must be an array")


class TestLargeCommits:
    """A hundred subscriptions to a commit of some megabytes held their worker up for seconds."""

    def test_others_go_on_between_its_steps(
        self, gateway: Gateway, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(5):
            gateway.catalog.put({"n": number})
        steps: list[str] = []

        def note() -> None:
            """Called by ``yield_if_over``; or by a section, if the runner had to read the log."""
            steps.append(sys._getframe(2).f_code.co_name)

        monkeypatch.setattr(cpu.slices, "is_over", True)
        monkeypatch.setattr(cpu.slices, "yield_now", note)
        gateway.subscribe(receiver, format="cloudevents-batch", from_=0)
        receiver.wait_for_commits(5)
        assert len(receiver.posts) == 1
        made = [each for each in steps if each in ("_events", "_send", "signed")]
        assert made == ["_events"] * 5 + ["_send", "signed"]
