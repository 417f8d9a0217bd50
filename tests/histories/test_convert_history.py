"""Rule: what Elle and Porcupine read says what the history says."""

from __future__ import annotations

from typing import Any

from tests.histories.convert_history import elle, lists_of, porcupine

Event = dict[str, Any]


def appending(*keys: str, item: str, get: tuple[str, ...] = ()) -> list[Event]:
    patch = [{"op": "add", "path": "/-", "value": item}]
    appended = [{"action": "patch", "key": key, "patch": patch} for key in keys]
    return [*appended, *({"action": "get", "key": key} for key in get)]


def invoke(call: int, process: int, **asked: Any) -> Event:
    asked = {"f": "write"} | asked
    return {"type": "invoke", "call": call, "process": process, "catalog": "c", **asked}


def documents_read(**values: Any) -> Event:
    return {"documents": {key: {"value": value} for key, value in values.items()}}


def numbered(*events: Event) -> list[Event]:
    return [{"time": 10 * number, **event} for number, event in enumerate(events)]


HISTORY = numbered(
    {"type": "begin", "format": 1},
    invoke(1, 0, then=[{"action": "put", "key": key, "value": []} for key in ("x", "y", "z")]),
    {"type": "ok", "call": 1, "outcome": "applied"},
    invoke(2, 0, then=appending("x", "y", item="one", get=("y",))),
    invoke(3, 1, f="read", keys=["x", "y"]),
    {"type": "ok", "call": 2, "outcome": "applied", **documents_read(y=["one"])},
    {"type": "ok", "call": 3, **documents_read(x=["one"], y=["one"])},
    {"type": "fault", "fault": "a worker is killed"},
    # Under one key: unknown, then applied; and sent once more.
    invoke(4, 0, idempotency_key="k", then=appending("x", item="two")),
    {"type": "info", "call": 4},
    invoke(5, 0, idempotency_key="k", then=appending("x", item="two")),
    {"type": "ok", "call": 5, "outcome": "applied"},
    invoke(6, 0, idempotency_key="k", then=appending("x", item="two")),
    {"type": "ok", "call": 6, "outcome": "applied", "replayed": True},
    invoke(7, 1, then=appending("x", item="three")),
    {"type": "info", "call": 7},
    invoke(8, 1, then=appending("x", item="four")),
    {"type": "fail", "call": 8},
    # Something else writes z, so nothing is told of it; nor of writes with conditions.
    invoke(9, 1, then=appending("z", item="five")),
    {"type": "ok", "call": 9, "outcome": "applied"},
    invoke(10, 1, then=[{"action": "put", "key": "z", "value": 1}]),
    {"type": "ok", "call": 10, "outcome": "applied"},
    invoke(11, 1, f="read", keys=["z"]),
    {"type": "ok", "call": 11, **documents_read(z=1)},
    invoke(12, 1, f="read", keys=["y"], at=2),
    {"type": "ok", "call": 12, **documents_read(y=["one"])},
)
ELLE = """
{:index 0, :time 30, :type :invoke, :process 0, :f :txn, \
:value [[:append "c x" 1] [:append "c y" 1] [:r "c y" nil]]}
{:index 1, :time 40, :type :invoke, :process 1, :f :txn, :value [[:r "c x" nil] [:r "c y" nil]]}
{:index 2, :time 50, :type :ok, :process 0, :f :txn, \
:value [[:append "c x" 1] [:append "c y" 1] [:r "c y" [1]]]}
{:index 3, :time 60, :type :ok, :process 1, :f :txn, :value [[:r "c x" [1]] [:r "c y" [1]]]}
{:index 4, :time 70, :type :info, :process :nemesis, :f :fault, :value "a worker is killed"}
{:index 5, :time 80, :type :invoke, :process 0, :f :txn, :value [[:append "c x" 2]]}
{:index 6, :time 110, :type :ok, :process 0, :f :txn, :value [[:append "c x" 2]]}
{:index 7, :time 140, :type :invoke, :process 1, :f :txn, :value [[:append "c x" 3]]}
{:index 8, :time 150, :type :info, :process 1, :f :txn, :value [[:append "c x" 3]]}
{:index 9, :time 160, :type :invoke, :process 1001, :f :txn, :value [[:append "c x" 4]]}
{:index 10, :time 170, :type :fail, :process 1001, :f :txn, :value [[:append "c x" 4]]}
"""
PORCUPINE = """
{:process 0, :type :invoke, :f :append, :key "c x", :value "1 "}
{:process 1, :type :invoke, :f :append, :key "c y", :value "1 "}
{:process 2, :type :invoke, :f :get, :key "c y", :value nil}
{:process 100, :type :invoke, :f :get, :key "c x", :value nil}
{:process 101, :type :invoke, :f :get, :key "c y", :value nil}
{:process 0, :type :ok, :f :append, :key "c x", :value "1 "}
{:process 1, :type :ok, :f :append, :key "c y", :value "1 "}
{:process 2, :type :ok, :f :get, :key "c y", :value "1 "}
{:process 100, :type :ok, :f :get, :key "c x", :value "1 "}
{:process 101, :type :ok, :f :get, :key "c y", :value "1 "}
{:process 0, :type :invoke, :f :append, :key "c x", :value "2 "}
{:process 0, :type :ok, :f :append, :key "c x", :value "2 "}
{:process 100, :type :invoke, :f :append, :key "c x", :value "3 "}
"""


def test_elle_reads_transactions_of_appends_and_reads() -> None:
    assert list(elle(lists_of(HISTORY))) == ELLE.split("\n")[1:-1]


def test_porcupine_reads_appends_and_gets_of_each_list() -> None:
    assert list(porcupine(lists_of(HISTORY))) == PORCUPINE.split("\n")[1:-1]
