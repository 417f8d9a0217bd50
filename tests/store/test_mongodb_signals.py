"""What a change stream adds to the contract: it breaks, it waits, it yields to other greenlets."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
from pymongo import MongoClient

from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb import connect
from tests.patience import WAIT_MS, WAIT_S
from tests.store.contract_suite import commit

_UNDER_GEVENT = """
from gevent import monkey
monkey.patch_all()
import sys, time
import gevent
from gateway.store.mongodb import connect
from tests.patience import WAIT_MS, WAIT_S
from tests.store.contract_suite import commit

store = connect(sys.argv[1], sys.argv[2], timeout_ms=WAIT_MS)
signals = store.commit_signals()
turns = 0

def count():
    global turns
    while True:
        gevent.sleep(0.005)
        turns += 1

counting = gevent.spawn(count)
waiting = gevent.spawn(signals.next, WAIT_S)
while turns < 50:
    gevent.sleep(0.005)
assert not waiting.ready()
store.write_commits([commit(n) for n in range(1, 4)])
told = waiting.get(timeout=WAIT_S)
while told.get("c") != 3:
    told = signals.next(WAIT_S)
assert signals.next(0.0) == {}
counting.kill()
signals.close()
store.close()
print("told")
"""


def test_waiting_lets_other_greenlets_run(mongodb_uri: str, database_name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _UNDER_GEVENT, mongodb_uri, database_name],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.stdout == "told\n", done.stderr


def test_a_stream_may_be_idle_for_longer_than_the_timeout_of_a_call(
    mongodb_uri: str, database_name: str
) -> None:
    """The bound on a call is one on each answer; and an idle stream gives an answer in time."""
    store = connect(mongodb_uri, database_name, timeout_ms=2000)
    signals = store.commit_signals()
    unhurried = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    writer = threading.Timer(3.0, unhurried.write_commits, [[commit(1)]])
    begun = time.monotonic()
    writer.start()
    assert signals.next(WAIT_S) == {"c": 1}
    assert time.monotonic() - begun > 2.5
    writer.join()
    signals.close()
    unhurried.close()
    store.close()


def test_a_broken_stream_raises_and_a_new_one_works(mongodb_uri: str, database_name: str) -> None:
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    signals = store.commit_signals()
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        client[database_name].drop_collection("commits")
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            signals.next(WAIT_S)
    opened = store.commit_signals()
    store.write_commits([commit(1)])
    assert opened.next(WAIT_S) == {"c": 1}
    opened.close()
    store.close()


def test_a_foreign_record_is_not_a_signal(mongodb_uri: str, database_name: str) -> None:
    with closing(connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)) as store:
        signals = store.commit_signals()
        for foreign in ({}, {"_id": 7}, {"_id": "c\0last"}, {"_id": {"c": 1}}):
            store._on.commits.insert_one(foreign)
        store.write_commits([commit(1)])
        told: Mapping[str, int] = {}
        while not told:
            told = signals.next(WAIT_S)
        assert told == {"c": 1}
        signals.close()


def test_an_unreachable_database_opens_no_stream() -> None:
    store = connect("mongodb://127.0.0.1:1/?replicaSet=none", "x", timeout_ms=300)
    with pytest.raises(StoreUnreachable):
        store.commit_signals()
    store.close()
