"""A MongoDB that isn't there: what `serve` says, and that no write waits beyond its deadline."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

import pytest

from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb import MongoStore, connect
from tests import forking
from tests.failure.clients import DOCUMENT, send
from tests.failure.replica_set import ReplicaSet
from tests.patience import UNHURRIED, WAIT_S

pytestmark = pytest.mark.mongod


@pytest.fixture
def uninitiated(tmp_path: Path) -> Iterator[ReplicaSet]:
    """One member that runs and doesn't know yet what it belongs to."""
    alone = ReplicaSet(tmp_path, members=1)
    try:
        alone.members[0].start()
        yield alone
    finally:
        alone.end()


@contextmanager
def serving(*flags: str) -> Iterator[tuple[TextIO, TextIO]]:
    """What it writes to stdout and to stderr."""
    told, its = os.pipe()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")}
    with os.fdopen(told) as stderr:
        try:
            arguments = ("serve", "--bind=127.0.0.1:0", "--no-access", *flags)
            process = forking.start(arguments, its, environment)
        finally:
            os.close(its)
        with process.stdout:
            try:
                yield process.stdout, stderr
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(WAIT_S)
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)


def test_serve_names_the_missing_mongodb_refuses_writes_in_time_and_recovers(
    uninitiated: ReplicaSet,
) -> None:
    """However long a call of MongoDB may take, a write's deadline holds."""
    database, address = f"test_{uuid4().hex}", uninitiated.members[0].address
    place = f"MongoDB at {address}, database {database}"
    with serving(
        "--workers=2",
        f"--mongodb-uri={uninitiated.uri}",
        f"--database={database}",
        "--deadline-ms=2500",
        f"--store-timeout-ms={UNHURRIED['store_timeout_ms']}",
    ) as (stdout, stderr):
        expected = re.compile(
            rf"waiting for {place}: the replica set of {address} is not initiated: run"
            r" rs\.initiate\(\) there; until then (http://127.0.0.1:(\d+)) answers 503"
        )
        waiting = next(filter(None, map(expected.search, stderr)))
        url, port = waiting[1], int(waiting[2])
        for path in (DOCUMENT, f"{DOCUMENT}2"):
            status, problem = send(port, "PUT", path, 1, Content_Type="application/json")
            assert (status, problem["code"], problem["applied"]) == (503, "store_unavailable", "no")
        uninitiated.initiate()
        assert stdout.readline() == (
            f"gateway: ready at {url} (console {url}/console/, docs {url}/docs, data in {place})\n"
        )
        assert send(port, "PUT", DOCUMENT, 1, Content_Type="application/json")[0] == 201


def test_an_uninitiated_replica_set_is_reported_as_such(
    uninitiated: ReplicaSet, eventually: Callable[..., Any]
) -> None:
    """As soon as its member answers."""
    direct = f"mongodb://{uninitiated.members[0].address}/"
    for uri in (uninitiated.uri, direct, f"{direct}?directConnection=true"):
        store = connect(uri, "x", timeout_ms=1000)
        eventually(lambda store=store: "is not initiated: run rs.initiate()" in refusal(store))
        store.close()


def refusal(store: MongoStore) -> str:
    with pytest.raises(StoreUnreachable) as refused:
        store.heads(["c"])
    return str(refused.value)
