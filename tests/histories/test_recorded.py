"""Rule: a real history is accepted, and refused with an answer that a broken gateway would give.

A small one: two gateways whose workers are killed. `make histories` records larger ones.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.failure.workload import Workload
from tests.histories.check_history import check, read_history
from tests.histories.convert_history import elle, lists_of, porcupine
from tests.histories.recorded import Fault, history_of
from tests.service import RunningGateway, own_database

pytestmark = pytest.mark.mongod
Event = dict[str, Any]


@pytest.fixture(scope="module")
def lines(mongodb_uri: str) -> Iterator[list[str]]:
    with own_database(mongodb_uri) as database, ExitStack() as stack:
        gateways = {
            name: stack.enter_context(RunningGateway(mongodb_uri, database, workers=1))
            for name in ("near", "far")
        }
        workload = Workload({name: each.port for name, each in gateways.items()}, ["c"], seed=1)

        def happening() -> Iterator[Fault]:
            for name, gateway in gateways.items():
                workload.await_writes(15)
                os.kill(gateway.worker_pids()[0], signal.SIGKILL)
                yield Fault(time.monotonic(), f"the worker of {name} is killed")
            workload.await_writes(15)
            workload.await_every_kind()

        yield list(history_of(workload, happening))


@pytest.fixture
def events(lines: list[str]) -> list[Event]:
    return [json.loads(line) for line in lines]


def wrong(events: list[Event]) -> list[str]:
    (calls,) = read_history(json.dumps(each) for each in events).values()
    return check(calls)


def last_reads_of_lists(events: list[Event]) -> tuple[str, list[Any]]:
    """The document of a list with two items at least, and all answers at the end that show it."""
    calls = {each["call"]: each for each in events if each["type"] == "invoke"}
    shown = [e for e in events if calls.get(e.get("call"), {}).get("client") == "the end"]
    shown = [each for each in shown if each["type"] == "ok" and "documents" in each]
    key = next(
        k for k, told in shown[0]["documents"].items() if "/" in k and len(told["value"]) > 1
    )
    return key, [each["documents"][key]["value"] for each in shown]


def lost_update(events: list[Event]) -> None:
    _, lists = last_reads_of_lists(events)
    for each in lists:
        del each[0]


def doubled_apply(events: list[Event]) -> None:
    _, lists = last_reads_of_lists(events)
    for each in lists:
        each.append(each[0])


def swapped(events: list[Event]) -> None:
    _, lists = last_reads_of_lists(events)
    for each in lists:
        each[:2] = reversed(each[:2])


def _reads(events: list[Event]) -> Iterator[tuple[Event, Event]]:
    calls = {each["call"]: each for each in events if each["type"] == "invoke"}
    for each in events:
        asked = calls.get(each.get("call"), {})
        if each["type"] == "ok" and asked.get("f") == "read" and each.get("revision"):
            yield asked, each


def stale_read(events: list[Event]) -> None:
    """Of three reads of a document one after the other, the second of which told a later state than
    the first, the third tells that of the first."""
    first: dict[str, Event] = {}
    second: dict[str, Event] = {}
    for asked, answer in _reads(events):
        if "at" in asked or len(asked["keys"]) > 1 or None in answer["documents"].values():
            continue
        (key,) = asked["keys"]
        before = first.setdefault(key, answer)
        if key in second and second[key]["time"] < asked["time"]:
            answer |= {name: before[name] for name in ("revision", "documents")}
            return
        if before["documents"] != answer["documents"]:
            second.setdefault(key, answer)
    raise AssertionError("no document was read before and after a change, and once more")


def another_past(events: list[Event]) -> None:
    for asked, answer in _reads(events):
        if "at" in asked and None not in answer["documents"].values():
            answer["documents"][asked["keys"][0]]["value"] = {"n": "never"}
            return
    raise AssertionError("nobody read the past")


def untrue_success(events: list[Event]) -> None:
    """A write that was refused is told as one that was applied."""
    answer = next(each for each in events if each.get("outcome") == "refused")
    head = max(each.get("revision", 0) for each in events if each["time"] < answer["time"])
    del answer["code"]
    answer |= {"outcome": "applied", "revision": head + 1}


def forgotten_commit(events: list[Event]) -> None:
    for each in events:
        if len(each.get("commits", ())) > 1:
            del each["commits"][-2]


TAMPERINGS: tuple[Callable[[list[Event]], None], ...] = (
    lost_update,
    doubled_apply,
    swapped,
    stale_read,
    another_past,
    untrue_success,
    forgotten_commit,
)


def test_a_real_history_is_accepted(events: list[Event]) -> None:
    assert wrong(events) == []
    assert [each["type"] for each in events].count("fault") == 2
    assert {each["f"] for each in events if "f" in each} == {"write", "read", "list", "log"}


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_a_tampered_history_is_refused(
    events: list[Event], tamper: Callable[[list[Event]], None]
) -> None:
    tamper(events)
    assert wrong(events)


def test_the_converted_lists_are_complete_for_elle_and_porcupine(events: list[Event]) -> None:
    """Each item is appended once, and every read is told in both forms."""
    lists = lists_of(events)
    of_elle, of_porcupine = list(elle(lists)), list(porcupine(lists))
    invoked = [line for line in of_elle if ":type :invoke" in line]
    appends = [each for line in invoked for each in line.split("[") if each.startswith(":append")]
    assert len(appends) == len(set(appends)) > 20
    assert len(invoked) == sum("[:" in line and ":invoke" not in line for line in of_elle)
    ended = sum(":type :ok" in line for line in of_porcupine)
    assert ended > 20
    assert sum(":f :get" in line and ":type :ok" in line for line in of_porcupine) > 5
