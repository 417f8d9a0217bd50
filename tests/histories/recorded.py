"""The calls of `tests.failure` as a history that docs/histories.md describes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.failure.calls import Call, Outcome
from tests.failure.workload import Workload
from tests.simulation.asks import Action, Ask, Compare, Name

Event = dict[str, Any]
_FAILED = ("not-applied", "failed")


@dataclass(frozen=True)
class Fault:
    """What happened, in words, at a time of the calls' clock."""

    time: float
    what: str


def history_of(
    workload: Workload, happening: Callable[[], Iterable[Fault]], **about: Any
) -> Iterator[str]:
    """The lines of what the clients of a new workload do while ``happening`` makes faults happen,
    with a last look at all documents and at the log, by each gateway."""
    try:
        with workload:
            happened = list(happening())
        workload.histories()  # all gateways tell the same
        for catalog in workload.catalogs:
            for gateway in workload.gateways:
                _read_log(workload, gateway, catalog)
    finally:
        workload.close()
    yield from lines(workload.calls, happened, about)


def _read_log(workload: Workload, gateway: str, catalog: Name) -> None:
    told, is_all = 0, False
    while not is_all:
        ask = Ask("page", catalog, Name(""), "the log", revision=told, limit=500)
        outcome = workload.settle("the end", gateway, ask).outcome
        told += len(outcome.commits)
        is_all = told >= outcome.revision


def lines(
    calls: Sequence[Call], faults: Iterable[Fault], about: Mapping[str, Any]
) -> Iterator[str]:
    """A header, and all events in the order of their times. ``about``: further members of it.

    Of one moment, invocations come first: no order is told that the clock didn't see. Clients are
    numbered by catalog: each does one thing at a time.
    """
    begun = min(call.invoked for call in calls)
    names = dict.fromkeys((call.ask.catalog, call.client) for call in calls)
    processes = {name: number for number, name in enumerate(names)}
    events: list[tuple[float, int, Event]] = []
    for number, call in enumerate(sorted(calls, key=lambda each: each.invoked), 1):
        at = {"call": number, "process": processes[call.ask.catalog, call.client]}
        sender = {"client": call.client, "gateway": call.gateway, "catalog": call.ask.catalog}
        events.append(
            (call.invoked, 0, {"type": "invoke", **at, **sender, **request_event(call.ask)})
        )
        events.append((call.returned, 1, {**at, **answered(call)}))
    events += [(each.time, 1, {"type": "fault", "fault": each.what}) for each in faults]
    yield json.dumps({"type": "begin", "time": 0, "format": 1, **about})
    for time, _, event in sorted(events, key=lambda each: each[:2]):
        kind = event.pop("type")
        passed = max(0, int(1e9 * (time - begun)))
        yield json.dumps({"type": kind, "time": passed, **event}, ensure_ascii=False)


def request_event(ask: Ask) -> Event:
    if ask.writes:
        told: Event = {"f": "write", "message": ask.label}
        if ask.idempotency_key is not None:
            told["idempotency_key"] = ask.idempotency_key
        conditions = list(_conditions(ask))
        return {**told, **({"if": conditions} if conditions else {}), "then": _actions(ask)}
    if ask.kind == "page":
        return {"f": "log", "after": ask.revision, "limit": ask.limit}
    at = {} if ask.kind == "read" or ask.revision is None else {"at": ask.revision}
    if ask.kind == "list":
        return {"f": "list", "after": ask.after, "limit": ask.limit, **at}
    return {"f": "read", "keys": list(ask.keys or (ask.key,)), **at}


def _conditions(ask: Ask) -> Iterator[Event]:
    if ask.if_match is not None:
        yield {"key": ask.key, "tokens": list(ask.if_match)}
    if ask.create_only:
        yield {"key": ask.key, "absent": True}
    for each in ask.compare:
        yield {"key": each.key, **_compared(each)}


def _compared(compare: Compare) -> Event:
    return {"tokens": [compare.value]} if compare.what == "token" else {"equals": compare.value}


def _actions(ask: Ask) -> list[Event]:
    return [_action(each) for each in ask.actions]


def _action(action: Action) -> Event:
    member = {"put": "value", "patch": "patch"}.get(action.deed)
    return {"action": action.deed, "key": action.key, **({member: action.value} if member else {})}


def answered(call: Call) -> Event:
    outcome = call.outcome
    if outcome.kind in _FAILED:
        return {"type": "fail", **({"code": outcome.code} if outcome.code else {})}
    if outcome.kind == "unknown":
        return {"type": "info"}
    assert outcome.kind != "unexpected", outcome.detail
    return {"type": "ok", **(_written(call) if call.ask.writes else _read(call))}


def _written(call: Call) -> Event:
    outcome = call.outcome
    told: Event = {"outcome": outcome.kind}
    if outcome.kind == "refused":
        told |= {"code": outcome.code}
        if outcome.current:
            told["current"] = dict(outcome.current)
    else:
        told["revision"] = outcome.revision
    if outcome.replayed:
        told["replayed"] = True
    documents = _documents(outcome)
    if outcome.token is not None:
        documents.setdefault(call.ask.key, {"token": outcome.token})
    return {**told, **({"documents": documents} if documents else {})}


def _read(call: Call) -> Event:
    outcome = call.outcome
    if outcome.kind == "absent":
        return {"documents": {call.ask.key: None}}
    if outcome.kind == "above":
        return {"newest": outcome.revision}
    if outcome.kind == "commits":
        commits = [{"revision": c["revision"], "message": c["message"]} for c in outcome.commits]
        return {"revision": outcome.revision, "commits": commits}
    told: Event = {"revision": outcome.revision, "documents": _documents(outcome)}
    return {**told, "next": outcome.next} if call.ask.kind == "list" else told


def _documents(outcome: Outcome) -> Event:
    return {
        key: None if told is None else {"token": told[0], "value": told[1]}
        for key, told in outcome.documents.items()
    }
