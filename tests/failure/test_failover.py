"""Primaries that die and step down: nothing lost, nothing twice, nothing older than was told.

A replica set of three, real gateways, real signals. What happens when is driven by progress and
by what the members say of themselves, not by the clock.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from gateway.limits import ServiceLimits
from gateway.model import Pin, Retention
from gateway.runtime import ThreadRuntime
from gateway.service import Gateway
from gateway.store.contract import Unreachable
from gateway.store.mongodb import MongoStore, connect
from tests.failure.clients import CATALOG, COMMITS, DOCUMENT, all_commits, send
from tests.failure.replica_set import Member, ReplicaSet
from tests.failure.test_crashes import Mishaps
from tests.failure.writers import COUNTER, Account, create, run_writers
from tests.http.event_stream import Follower
from tests.patience import WAIT_MS, WAIT_S
from tests.retention.history_checks import check_history, compaction_of
from tests.retention.test_compaction import KEYS, write_history
from tests.service import RunningGateway

pytestmark = pytest.mark.mongod

ROOT = Path(__file__).parents[2]
CHANGES = COMMITS.replace("/commits", "/changes")
Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    with ReplicaSet(tmp_path_factory.mktemp("replica_set")) as running:
        yield running


@pytest.fixture
def replica_set(three: ReplicaSet) -> ReplicaSet:
    """With all members in their places, whatever the test before has left."""
    three.await_healthy()
    return three


@pytest.fixture
def database() -> str:
    return f"test_{uuid4().hex}"


def verify(replica_set: ReplicaSet, database: str) -> str:
    """What ``gateway verify`` says; fails where it finds anything."""
    flags = (f"--mongodb-uri={replica_set.uri}", f"--database={database}")
    flags += (f"--store-timeout-ms={WAIT_MS}",)
    ended = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "verify", "--all", *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "clean" in ended.stdout
    return ended.stdout


class LongPoller:
    """Follows a catalog by one long poll after the other; ``commits`` are all it was told."""

    def __init__(self, port: int, path: str) -> None:
        self.commits: list[Any] = []
        self.unexpected: list[str] = []
        self._port = port
        self._path = path
        self._stopped = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> LongPoller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()

    def _run(self) -> None:
        after = 0
        while not self._stopped:
            with suppress(OSError, http.client.HTTPException):
                status, answer = send(
                    self._port, "GET", f"{self._path}?after={after}&timeout=2&limit=50"
                )
                if status == 200:
                    self.commits += answer["commits"]
                    after = answer["revision"]
                elif status != 503:
                    self.unexpected.append(f"{status} {answer}")


def check_account(port: int, account: Account) -> list[Any]:
    """What the writers were told agrees with the documents and with the log; the log."""
    assert account.unexpected == []
    given_up = account.refused - account.acknowledged.keys()
    status, document = send(port, "GET", DOCUMENT)
    assert status == 200
    status, counter = send(port, "GET", COUNTER)
    assert status == 200
    log = all_commits(port)
    assert [each["revision"] for each in log] == list(range(1, len(log) + 1))
    times = [each["time"] for each in log]
    assert times == sorted(set(times))
    told = {each["idempotency_key"]: each["revision"] for each in log[2:]}
    assert len(told) == len(log) - 2, "something is there twice"
    assert told == account.acknowledged
    assert not given_up & told.keys()
    appended = [each["idempotency_key"] for each in log[2:] if each["idempotency_key"][0] == "a"]
    assert document["log"] == appended
    counted = [each["idempotency_key"] for each in log[2:] if each["idempotency_key"][0] == "c"]
    assert counter == {"count": len(counted), "by": counted[-1]}
    return log


def test_a_killed_primary_and_one_that_steps_down_lose_nothing_and_nobody_misses_a_thing(
    replica_set: ReplicaSet, database: str, eventually: Eventually
) -> None:
    """16 writers and 6 followers; a primary is killed, the next one steps down.

    The one that is killed takes a write with it that nobody else has, and returns without it.
    """
    gone: list[Any] = []

    def happen(number: int) -> None:
        if number == 0:
            gone.append(replica_set.kill_primary_with_a_write_of_its_own())
            replica_set.await_primary(other_than=gone[0])
            gone[0].start()
        elif number == 1:
            replica_set.await_healthy()
            gone.append(replica_set.step_down())
            replica_set.await_primary(other_than=gone[1])

    with ExitStack() as stack:
        service = stack.enter_context(
            RunningGateway(replica_set.uri, database, store_timeout_ms=2000, deadline_ms=10_000)
        )
        port = service.port
        create(port)
        followers = [stack.enter_context(Follower(lambda: port, CHANGES)) for _ in range(4)]
        pollers = [stack.enter_context(LongPoller(port, CHANGES)) for _ in range(2)]
        everybody: list[Follower | LongPoller] = [*followers, *pollers]
        eventually(lambda: all(each.commits for each in everybody))
        mishaps = stack.enter_context(Mishaps(120, happen))
        account = Account(mishaps.progress)
        run_writers(
            port, account, appenders=10, counters=6, each=10, until=lambda: mishaps.happened >= 2
        )
        log = check_account(port, account)
        for follower in everybody:
            eventually(lambda one=follower: len(one.commits) >= len(log))
            assert follower.commits == log
            assert follower.unexpected == []
        assert set().union(*(each.ended for each in followers)) <= {"store_unavailable"}
    assert len(gone) == 2
    assert f"commits: {len(log)}" in verify(replica_set, database)
    # Somebody noticed each of them, else nothing was tested.
    assert account.refused or account.resolved


def put(port: int, value: Any) -> tuple[int, Any]:
    return send(port, "PUT", DOCUMENT, value, Content_Type="application/json")


def read_when_there(port: int) -> Any:
    """What the first answer says that isn't a refusal for want of the database."""
    give_up = time.monotonic() + WAIT_S
    while True:
        status, value = send(port, "GET", DOCUMENT)
        if status != 503 or time.monotonic() > give_up:
            assert status == 200, value
            return value


def test_a_fresh_primary_answers_nothing_older_than_its_predecessor_did(
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
        assert read_when_there(far) == 1
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
        assert read_when_there(far) == 3
        assert read_when_there(near) == 3


def test_no_reader_goes_back_in_time_while_primaries_come_and_go(
    replica_set: ReplicaSet, database: str, eventually: Eventually
) -> None:
    """One writer counts; readers through both gateways never get less than anybody had before."""
    newest = 0
    lock = threading.Lock()
    stopped = threading.Event()
    older: list[str] = []
    reads = 0

    def saw(value: int) -> None:
        nonlocal newest
        with lock:
            newest = max(newest, value)

    def write(port: int) -> None:
        value = 1
        while not stopped.is_set():
            with suppress(OSError, http.client.HTTPException):
                if put(port, value)[0] in (200, 201):
                    saw(value)
                    value += 1

    def read(port: int) -> None:
        nonlocal reads
        while not stopped.is_set():
            expected = newest
            with suppress(OSError, http.client.HTTPException):
                status, value = send(port, "GET", DOCUMENT)
                if status == 200:
                    reads += 1
                    if value < expected:
                        older.append(f"{value} after {expected}")
                    saw(value)

    with ExitStack() as stack:
        near, far = (
            stack.enter_context(
                RunningGateway(
                    replica_set.uri, database, workers=1, store_timeout_ms=1000, deadline_ms=10_000
                )
            ).port
            for _ in range(2)
        )
        threads = [threading.Thread(target=read, args=(port,)) for port in (near, far, far)]
        threads.append(threading.Thread(target=write, args=(near,)))
        stack.callback(stopped.set)
        for thread in threads:
            thread.start()
        for mishap in (replica_set.step_down, replica_set.kill_primary, replica_set.step_down):
            before, answered = newest, reads
            eventually(lambda: newest > before + 20 and reads > answered + 20)  # noqa: B023
            replica_set.await_healthy()
            mishap()
        before, answered = newest, reads
        eventually(lambda: newest > before + 20 and reads > answered + 20)
        stopped.set()
        for thread in threads:
            thread.join()
    assert older == []


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
def test_a_compaction_under_way_when_the_primary_dies_is_finished_by_the_next_one(
    replica_set: ReplicaSet, database: str, store: MongoStore, step: str, eventually: Eventually
) -> None:
    gateway = Gateway(store, ThreadRuntime(), ServiceLimits(full_value_every=3))
    states = write_history(gateway, store, CATALOG)
    compaction_of(store).compact(CATALOG, 5, lambda: None)
    pin = Pin("p", 11, 2**53, "reader")
    assert store.set_pin(CATALOG, pin)
    killed: list[Member] = []

    def kill(name: str) -> None:
        if name == step and not killed:
            killed.append(replica_set.kill_primary())

    # It gives up soon, where the driver would wait for the next primary.
    hasty = connect(replica_set.uri, database, timeout_ms=1000)
    while not killed:
        with pytest.raises(Unreachable):
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
    verify(replica_set, database)


Request = tuple[str, str, str | None, dict[str, str]]


class Answer(NamedTuple):
    status: int
    headers: Any
    content: Any
    seconds: float


def asked(port: int, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
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
            pool.submit(asked, port, method, path, body, **headers)
            for method, path, body, headers in requests
        ]
    return [each.result() for each in futures]


def test_without_a_primary_writes_are_refused_in_time_and_work_again_by_themselves(
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
        create(port)
        left = replica_set.leave_one_secondary()
        assert replica_set.primary() is None
        # What was under way to the primary that died is in doubt; from here on nothing is.
        eventually(lambda: asked(port, "GET", "/readyz").status == 503)
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
        ready = asked(port, "GET", "/readyz")
        assert (ready.status, ready.content["code"]) == (503, "store_unavailable")
        assert asked(port, "GET", "/livez").status == 200
        assert not left.hello()["isWritablePrimary"]

        replica_set.await_healthy()
        eventually(lambda: asked(port, "GET", "/readyz").status == 200)
        method, path, body, headers = requests[1]
        again = asked(port, method, path, body, **headers)
        assert (again.status, again.content["revision"]) == (200, 3)
        assert send(port, "GET", DOCUMENT) == (200, {"log": ["refused"]})
        assert service.worker_pids() == workers
    assert "commits: 3" in verify(replica_set, database)
