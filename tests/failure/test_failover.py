"""Primaries that die, stop and step down, and networks that break: every history is linearizable.

A replica set of three, real gateways, real signals. What happens when is driven by progress and
by what the members say of themselves, not by the clock.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from gateway.errors import UnknownOutcome
from gateway.limits import ServiceLimits
from gateway.model import PinRecord, Retention
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb import MongoStore, connect
from tests.failure.clients import CATALOG, COMMITS, DOCUMENT, send
from tests.failure.faults import FAULTS, Scene
from tests.failure.linearizable import check
from tests.failure.replica_set import Member, ReplicaSet
from tests.failure.wire import Wire
from tests.failure.workload import Workload
from tests.histories.check_history import check as check_calls
from tests.histories.check_history import read_history
from tests.histories.recorded import lines
from tests.patience import WAIT_MS, WAIT_S
from tests.retention.history_checks import check_history, compaction_of
from tests.retention.test_compaction import KEYS, write_history
from tests.service import RunningGateway, verify

pytestmark = pytest.mark.mongod

ROOT = Path(__file__).parents[2]
COUNTER = DOCUMENT.rsplit("/", 1)[0] + "/counter"
Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def three(data_folder: Path) -> Iterator[ReplicaSet]:
    with ReplicaSet(data_folder) as running:
        yield running


@pytest.fixture
def replica_set(three: ReplicaSet) -> ReplicaSet:
    """With all members in their places, whatever the test before has left."""
    three.await_healthy()
    return three


@pytest.fixture
def database() -> str:
    return f"test_{uuid4().hex}"


@pytest.fixture(scope="module")
def gateways(three: ReplicaSet) -> Iterator[tuple[Mapping[str, Wire], Mapping[str, int]]]:
    """The networks and the ports of two gateways, by name."""
    with ExitStack() as stack:
        wires, ports = {}, {}
        for name in ("near", "far"):
            wires[name] = wire = stack.enter_context(Wire([m.address for m in three.members]))
            service = RunningGateway(
                wire.uri, "failover", workers=1, store_timeout_ms=1000, deadline_ms=3000
            )
            ports[name] = stack.enter_context(service).port
        yield wires, ports


@pytest.mark.parametrize("fault", FAULTS)
def test_every_history_around_a_fault_is_linearizable(
    replica_set: ReplicaSet,
    gateways: tuple[Mapping[str, Wire], Mapping[str, int]],
    fault: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Of each catalog, while clients of both gateways write, read, page, transact and follow."""
    wires, ports = gateways
    workload = Workload(ports, [f"{fault}-{number}" for number in range(2)], seed=len(fault))
    with ExitStack() as stack:
        stack.callback(workload.close)
        with workload, ExitStack() as ended:
            for wire in wires.values():
                ended.callback(wire.heal)
            workload.await_writes(10)
            begun = time.monotonic()
            FAULTS[fault](Scene(replica_set, wires, workload))
            workload.await_writes(10)
            workload.await_every_kind()
        for catalog, history in workload.histories().items():
            violations = [f"{each.kind}: {each.detail}" for each in check(history)]
            assert not violations, "\n".join([catalog, *violations[:9]])
        # And by the checker that strangers have, which doesn't know the log for the order.
        for catalog, calls in read_history(lines(workload.calls, (), {})).items():
            wrong = check_calls(calls)
            assert not wrong, "\n".join([catalog, *wrong])
    longest = {name: workload.longest_without_write_s(name, begun) for name in ports}
    told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in longest.items())
    print(f"the longest time without a write that succeeded: {told}")
    record_property(f"longest time without a write that succeeded, {fault}", told)


@pytest.mark.usefixtures("replica_set")
def test_a_refusal_whose_answer_was_lost_still_counts(
    gateways: tuple[Mapping[str, Wire], Mapping[str, int]], eventually: Eventually
) -> None:
    """Its key decides once, even if the first answer could only say "nothing was applied"."""
    wires, ports = gateways
    catalog = f"/v1/catalogs/refused-{uuid4().hex}"
    path, typed = f"{catalog}/documents/d", {"Content_Type": "application/json"}
    # It may take the gateway a moment to get over what it met before.
    first = eventually(lambda: put(ports["near"], 1, path)[1].get("etag"))
    second = eventually(lambda: put(ports["near"], 2, path)[1].get("etag"))

    def refused_in_doubt() -> dict[str, str] | None:
        """What was sent, once it was decided before its time was over."""
        stale = {"Idempotency_Key": uuid4().hex, "If_Match": f'"{first}"', **typed}
        wires["near"].cut_answers("silent")
        try:
            told = request_once(ports["near"], "PUT", path, "9", **stale)
        finally:
            wires["near"].heal()
        assert (told.status, told.content["applied"]) == (503, "no")
        known = request_once(ports["far"], "GET", f"{catalog}/outcomes/{stale['Idempotency_Key']}")
        return stale if known.status == 200 else None

    stale = eventually(refused_in_doubt)
    eventually(lambda: put(ports["far"], 3, path)[0] == 200)
    for port in ports.values():
        told = request_once(port, "PUT", path, "9", **stale)
        assert (told.status, told.headers["Idempotency-Replayed"]) == (412, "true")
        assert told.content["current"]["etag"] == second
        assert send(port, "GET", path) == (200, 3)


def put(port: int, value: Any, path: str = DOCUMENT) -> tuple[int, Any]:
    return send(port, "PUT", path, value, Content_Type="application/json")


def read_when_available(port: int) -> Any:
    """What the first answer says that isn't a refusal for want of the database."""
    give_up = time.monotonic() + WAIT_S
    while True:
        status, value = send(port, "GET", DOCUMENT)
        if status != 503 or time.monotonic() > give_up:
            assert status == 200, value
            return value


def test_a_new_primary_answers_with_nothing_older_than_the_last_one_did(
    replica_set: ReplicaSet, database: str, eventually: Eventually
) -> None:
    """It dies when one secondary has the write, and does not know that a majority has it.

    The process that reads has neither written nor read it: it has to find out by itself.
    """
    old = replica_set.await_healthy()
    heir, other = [member for member in replica_set.members if member is not old]
    with ExitStack() as stack:
        near, far = (
            stack.enter_context(
                RunningGateway(
                    replica_set.uri, database, workers=1, store_timeout_ms=1000, deadline_ms=10_000
                )
            ).port
            for _ in range(2)
        )
        eventually(lambda: put(near, 1)[0] in (200, 201))
        assert read_when_available(far) == 1
        with other.stalled("stopReplProducer"):
            eventually(lambda: put(near, 2)[0] == 200)
            eventually(lambda: send(far, "GET", DOCUMENT) == (200, 2))
            eventually(lambda: heir.last_applied() == old.last_applied())
            # What is under way still brings the heir the write; the next look is held up, and
            # with it the news that a majority has it.
            with old.stalled("waitAfterPinningCursorBeforeGetMoreBatch", nss="local.oplog.rs"):
                writer = threading.Thread(target=put, args=(near, 3))
                writer.start()
                eventually(lambda: send(near, "GET", DOCUMENT) == (200, 3))
                old.kill()
            assert replica_set.await_primary(other_than=old) is heir
            # Better none than an older one.
            for port in (far, near):
                assert send(port, "GET", DOCUMENT)[0] == 503
            writer.join()
        assert read_when_available(far) == 3
        assert read_when_available(near) == 3


@pytest.fixture
def store(replica_set: ReplicaSet, database: str) -> Iterator[MongoStore]:
    real = connect(replica_set.uri, database, timeout_ms=WAIT_MS)
    yield real
    real.close()


def bounds_of(store: MongoStore) -> Retention:
    bounds = store.retention(CATALOG)
    assert bounds is not None
    return bounds


@pytest.mark.parametrize("step", ["raise_floor", "sweep_window"])
def test_a_compaction_interrupted_by_the_death_of_the_primary_is_finished_by_the_next(
    replica_set: ReplicaSet, database: str, store: MongoStore, step: str, eventually: Eventually
) -> None:
    gateway = GatewayService(
        store, ThreadRuntime(), ServiceLimits(full_value_every=3, deadline_ms=WAIT_MS)
    )
    states = write_history(gateway, store, CATALOG)
    compaction_of(store).compact(CATALOG, 5, lambda: None)
    pin = PinRecord("p", 11, 2**53, "reader")
    assert store.set_pin(CATALOG, pin)
    killed: list[Member] = []

    def kill(name: str) -> None:
        if name == step and not killed:
            killed.append(replica_set.kill_primary())

    # It gives up soon, where the driver would wait for the next primary.
    hasty = connect(replica_set.uri, database, timeout_ms=1000)
    while not killed:
        with pytest.raises((StoreUnreachable, UnknownOutcome)):
            compaction_of(hasty, step=kill).compact(CATALOG, 11, lambda: None)
    hasty.close()
    replica_set.await_primary(other_than=killed[0])
    with RunningGateway(
        replica_set.uri,
        database,
        compaction_interval_s=1,
        retention_commits=1000,
        sweep_grace_s=10,
    ) as service:
        eventually(lambda: bounds_of(store).swept == 11)
        assert (bounds_of(store).floor, bounds_of(store).pins) == (11, (pin,))
        compactions = COMMITS.replace("/commits", "/compactions")
        status, problem = send(
            service.port, "POST", compactions, {"revision": 12}, Content_Type="application/json"
        )
        assert (status, problem["code"]) == (409, "pin_holds")
        status, page = send(service.port, "GET", f"{COMMITS}?after=11")
        assert [each["revision"] for each in page["commits"]] == [12]
    assert check_history(store, CATALOG, states, KEYS) == 11
    verify(replica_set.uri, database)


Request = tuple[str, str, str | None, dict[str, str]]


class Answer(NamedTuple):
    status: int
    headers: Any
    content: Any
    seconds: float


def request_once(
    port: int, method: str, path: str, body: str | None = None, **headers: str
) -> Answer:
    """One request on a connection of its own, with what ``send`` leaves out."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        content = json.loads(response.read())
        return Answer(response.status, response.headers, content, time.monotonic() - begun)
    finally:
        connection.close()


def refused(port: int, requests: Sequence[Request]) -> list[Answer]:
    """What these are answered, all sent at the same time."""
    with ThreadPoolExecutor(16) as pool:
        futures = [
            pool.submit(request_once, port, method, path, body, **headers)
            for method, path, body, headers in requests
        ]
    return [each.result() for each in futures]


def test_without_a_primary_writes_are_refused_in_time_and_later_work_again(
    replica_set: ReplicaSet, database: str, eventually: Eventually
) -> None:
    deadline_s = 1.5
    patch = '[{"op": "add", "path": "/log/-", "value": "refused"}]'
    patched = {"Content_Type": "application/json-patch+json"}
    whole = {"Content_Type": "application/json"}
    requests: list[Request] = [
        ("PATCH", DOCUMENT, patch, patched),
        ("PATCH", DOCUMENT, patch, patched | {"Idempotency_Key": "k"}),
        ("PUT", COUNTER, '"refused"', whole | {"If_Match": "*"}),
        ("PUT", f"{COUNTER}2", '"refused"', whole | {"If_None_Match": "*"}),
        ("DELETE", DOCUMENT, None, {}),
    ]
    with RunningGateway(
        replica_set.uri, database, store_timeout_ms=500, deadline_ms=int(1000 * deadline_s)
    ) as service:
        port = service.port
        workers = service.worker_pids()
        for path, value in ((DOCUMENT, {"log": []}), (COUNTER, {"count": 0, "by": None})):
            assert send(port, "PUT", path, value, Content_Type="application/json")[0] == 201
        left = replica_set.leave_one_secondary()
        assert replica_set.primary() is None
        # What was under way to the primary that died is in doubt; from here on nothing is.
        eventually(lambda: request_once(port, "GET", "/readyz").status == 503)
        answers = refused(port, requests * 3)
        # What is under way when the time is up has one more call of the database to wait for. A
        # machine that was busy gets another chance: a gateway without this bound is never in time.
        in_time_s = deadline_s + 0.5 + 0.5
        eventually(lambda: max(each.seconds for each in refused(port, requests * 3)) < in_time_s)
        for answer in answers:
            assert (answer.status, answer.content["code"], answer.content["applied"]) == (
                503,
                "store_unavailable",
                "no",
            ), answer
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.content["retryable"] is True
        ready = request_once(port, "GET", "/readyz")
        assert (ready.status, ready.content["code"]) == (503, "store_unavailable")
        assert request_once(port, "GET", "/livez").status == 200
        assert not left.hello()["isWritablePrimary"]

        replica_set.await_healthy()
        eventually(lambda: request_once(port, "GET", "/readyz").status == 200)
        method, path, body, headers = requests[1]
        again = request_once(port, method, path, body, **headers)
        assert (again.status, again.content["revision"]) == (200, 3)
        assert send(port, "GET", DOCUMENT) == (200, {"log": ["refused"]})
        assert service.worker_pids() == workers
    assert "commits: 3" in verify(replica_set.uri, database)
