"""Each commit is delivered to a subscription in order and at least once, also through crashes; a
receiver that is slow or gone holds up nobody.

Real gateways, a real MongoDB, real signals; a receiver that drops, delays and repeats.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.failure.clients import send
from tests.patience import WAIT_S
from tests.relay.receiver import Post, Receiver, is_signed
from tests.service import RunningGateway, own_database

pytestmark = pytest.mark.mongod

CATALOG = "/v1/catalogs/told"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(scope="module")
def service(mongodb_uri: str) -> Iterator[RunningGateway]:
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, subscription_claim_s=2) as running,
    ):
        yield running


def request(service: RunningGateway, method: str, path: str, body: Any = None) -> Any:
    """The answer's body; of one of the workers that live."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            status, answer = send(service.port, method, path, body, Content_Type="application/json")
        except OSError:
            status, answer = 0, None
        if 200 <= status < 300:
            return answer
        assert time.monotonic() < until, answer
        assert status in (0, 503), answer
        time.sleep(0.05)


def put(service: RunningGateway, value: Any, key: str = "k") -> int:
    return int(request(service, "PUT", f"{CATALOG}/documents/{key}", value)["revision"])


def subscribe(service: RunningGateway, name: str, to: Receiver, **members: Any) -> None:
    body = {"to": to.url, "secret": SECRET, **members}
    request(service, "PUT", f"{CATALOG}/subscriptions/{name}", body)


def shown(service: RunningGateway, name: str) -> Any:
    return request(service, "GET", f"{CATALOG}/subscriptions/{name}")


def in_order(revisions: list[int]) -> list[int]:
    """Without repeated events: nothing was skipped, and nothing new came after it."""
    seen: list[int] = []
    for revision in revisions:
        if not seen or revision == seen[-1] + 1:
            seen.append(revision)
        else:
            assert revision <= seen[-1], f"{revision} came after {seen[-1]}"
    return seen


@pytest.mark.parametrize("form", ["cloudevents", "cloudevents-batch"])
def test_n15_each_commit_is_delivered_through_crashes(service: RunningGateway, form: str) -> None:
    """N15: in order and at least once; the worker that delivers is killed before a delivery, in the
    midst of it, and after its answer; the receiver drops, delays and repeats."""
    luck, killed = random.Random(form), 0

    def answer(_: Post) -> int | None:
        nonlocal killed
        event = luck.random()
        if event < 0.08 and killed < 3:
            killed += 1
            for pid in service.worker_pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            luck.random()
            # It was not taken; it was, and so it is said; it was, and that gets lost.
            return (None, 204, -1)[killed - 1]
        if event < 0.2:
            return luck.choice((500, None, -1, 429))
        time.sleep(luck.choice((0, 0, 0, 0.02)))
        return 204

    name = form.replace("-", "_")
    with Receiver(answer) as receiver:
        begun = put(service, {"before": form})
        subscribe(service, name, receiver, format=form)
        last = begun
        for number in range(40):
            last = put(service, {"n": number}, key=f"k{number % 3}")
        receiver.wait_for_commits(last)
        assert in_order(receiver.revisions) == list(range(begun + 1, last + 1))
        assert killed == 3 or form != "cloudevents"
        assert all(is_signed(post, SECRET) for post in receiver.posts)
        history = request(service, "GET", f"{CATALOG}/commits?after={begun}")["commits"]
        told = {each["data"]["revision"]: each["data"] for each in receiver.of("commit")}
        assert [told[each["revision"]] for each in history] == history
        ids = {each["id"] for each in receiver.events}
        assert ids == {f"told/{revision}" for revision in told}
    request(service, "DELETE", f"{CATALOG}/subscriptions/{name}")


def test_the_state_is_delivered_through_crashes(service: RunningGateway) -> None:
    keys = [f"state/{number:03}" for number in range(150)]
    for key in keys:
        put(service, {"of": key}, key)
    luck, killed = random.Random(1), 0

    def answer(_: Post) -> int:
        nonlocal killed
        if luck.random() < 0.03 and killed < 3:
            killed += 1
            with suppress(ProcessLookupError):
                os.kill(luck.choice(service.worker_pids() or [0]), signal.SIGKILL)
        return 204

    with Receiver(answer) as receiver:
        subscribe(service, "state", receiver, initial=True, prefix="state/")
        receiver.wait_for(lambda it: it.of("synced"))
        documents = {each["data"]["key"]: each["data"] for each in receiver.of("document")}
        assert sorted(documents) == keys
        (synced, *_) = receiver.of("synced")
        last = put(service, {"later": 1}, keys[7])
        receiver.wait_for_commits(last)
        revisions = in_order(receiver.revisions)
        assert revisions[0] > synced["data"]["revision"]
    request(service, "DELETE", f"{CATALOG}/subscriptions/state")


def test_an_unreachable_receiver_delays_neither_others_nor_the_gateway(
    service: RunningGateway,
) -> None:
    gone = Receiver()  # nobody listens there
    with Receiver(lambda _: time.sleep(3) or 204) as slow, Receiver() as well:
        subscribe(service, "gone", gone)
        subscribe(service, "slow", slow)
        subscribe(service, "well", well)
        last = 0
        for number in range(40):
            last = put(service, {"n": number})
        well.wait_for_commits(last)
        assert len(slow.events) < 20
        told = shown(service, "gone")
        assert told["last_error"]["code"] == "unreachable"
        assert told["lag"] >= 40
        with gone:
            request(service, "POST", f"{CATALOG}/subscriptions/gone/resume")
            gone.wait_for_commits(last)
            assert in_order(gone.revisions) == in_order(well.revisions)
    for name in ("gone", "slow", "well"):
        request(service, "DELETE", f"{CATALOG}/subscriptions/{name}")


def test_a_stopped_gateway_hands_its_subscriptions_over_at_once(mongodb_uri: str) -> None:
    with own_database(mongodb_uri) as database, Receiver() as receiver:
        with RunningGateway(mongodb_uri, database, workers=1) as first:
            put(first, 1)
            subscribe(first, "s", receiver)
            put(first, 2)
            receiver.wait_for_commits(2)
            assert first.stop() == 0
        with RunningGateway(mongodb_uri, database, workers=1) as second:
            put(second, 3)
            begun = time.monotonic()
            receiver.wait_for_commits(3)
            assert time.monotonic() - begun < 25, "it waited for the lease to end"
            assert in_order(receiver.revisions) == [2, 3]


def test_private_addresses_are_refused_unless_a_setting_allows_them(
    mongodb_uri: str, database_name: str
) -> None:
    with RunningGateway(
        mongodb_uri, database_name, workers=1, subscription_networks="10.0.0.0/8"
    ) as service:
        path = f"{CATALOG}/subscriptions/s"
        for host, status in (("10.1.2.3", 201), ("192.168.1.1", 400), ("169.254.169.254", 400)):
            answered, content = send(
                service.port,
                "PUT",
                path,
                {"to": f"https://{host}/"},
                Content_Type="application/json",
            )
            assert answered == status, content
            if status == 400:
                assert (content["code"], content["pointer"]) == ("invalid_body", "/to")
