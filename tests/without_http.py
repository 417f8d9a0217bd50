"""What tests of the gateway without HTTP share: requests, decisions, a store that is watched."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace as changed
from typing import Any, TypeVar

import msgspec

import patching
from gateway.decide.conditions import NO_CONDITIONS
from gateway.decide.decide import decide
from gateway.decide.edits import ApplyPatch, Edit, KeyEdit, Put
from gateway.decide.request import (
    Applied,
    Decision,
    Outcome,
    Refused,
    Request,
    Rules,
    View,
    WriteOutcome,
)
from gateway.decide.settings import CompiledSettings
from gateway.errors import CommitError
from gateway.limits import ServiceLimits
from gateway.model import SETTINGS_KEY, DocumentRecord
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from patching import ABSENT
from tests.patience import WAIT_S

NOW = 1_800_000_000_000_000
RULES = Rules(
    ServiceLimits(
        attributes_bytes_max=1_000,
        full_value_every=3,
        batch_bytes_max=1_000_000,
        stored_bytes_max=5_000_000,
    ),
    stored_bytes=lambda content: len(msgspec.json.encode(content)),
    settings_of=CompiledSettings(nullcontext()).of,
)
_Error = TypeVar("_Error", bound=CommitError)


class SetClock(ThreadRuntime):
    """Time that a test moves on."""

    passed_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_s

    def now_us(self) -> int:
        return super().now_us() + int(self.passed_s * 1_000_000)


class WatchedStore:
    """A store whose calls are noted by name; ``before`` and ``after`` run around each of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._store, name)
        if name == "await_reachable":  # asks nothing
            return method

        def watched(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            self.before.get(name, lambda: None)()
            result = method(*arguments, **named)
            self.after.get(name, lambda: None)()
            return result

        return watched


def once(action: Callable[[], object]) -> Callable[[], None]:
    """Does ``action`` the first time it is called, and nothing afterwards."""
    left = [action]
    return lambda: left.pop()() and None if left else None


def wait_until(holds: Callable[[], bool]) -> None:
    """Until something that happens in the background has come about."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)


def bounded(**limits: int) -> Rules:
    """``RULES`` with other limits."""
    return changed(RULES, limits=changed(RULES.limits, **limits))  # type: ignore[arg-type]


def put(value: object) -> Put:
    return Put(value, len(msgspec.json.encode(value)))  # type: ignore[arg-type]


def patch(*operations: dict[str, object]) -> ApplyPatch:
    return ApplyPatch(patching.parse(list(operations)))


def extended(*operations: dict[str, Any]) -> ApplyPatch:
    return ApplyPatch(patching.parse_extended({"patch": list(operations)}))


def add(path: str, value: object) -> ApplyPatch:
    return patch({"op": "add", "path": path, "value": value})


def replace(path: str, value: object) -> ApplyPatch:
    return patch({"op": "replace", "path": path, "value": value})


_made = itertools.count(1)


def ask(edit: Edit, key: str = "k", **fields: object) -> Request:
    given = {
        "catalog": "c",
        "edits": (KeyEdit(key, edit),),
        "conditions": NO_CONDITIONS,
        "commit_id": f"{next(_made):032x}",
        "deadline": 1e9,
        "size_bytes": 10,
        **fields,
    }
    return Request(**given)  # type: ignore[arg-type]


def document(
    content: object, key: str = "k", *, revision: int = 5, patches: int = 0, **fields: Any
) -> DocumentRecord:
    given: dict[str, Any] = {
        "key": key,
        "content": content,
        "revision": revision,
        "create_revision": 2,
        "commit_id": "ab" * 16,
        "time_us": 1_700_000_000_000_000,
        "patches": patches,
        "size_bytes": 0 if content is ABSENT else len(msgspec.json.encode(content)),
        **fields,
    }
    return DocumentRecord(**given)


def view(
    *documents: DocumentRecord,
    revision: int = 7,
    time_us: int = NOW - 1,
    keys: Iterable[str] = "kabc",
) -> View:
    """The catalog at ``revision``; of ``keys`` it is known that there is nothing else."""
    known: dict[str, DocumentRecord | None] = dict.fromkeys((SETTINGS_KEY, *keys))
    return View("c", revision, time_us, known | {each.key: each for each in documents})


def run(state: View, *requests: Request, now_us: int = NOW, rules: Rules = RULES) -> Decision:
    return decide(state, requests, [1] * len(requests), now_us=now_us, rules=rules)


def applied(outcome: object) -> Applied:
    assert isinstance(outcome, Applied), outcome
    return outcome


def refused(outcome: object, kind: type[_Error]) -> _Error:
    assert isinstance(outcome, Refused), outcome
    assert isinstance(outcome.error, kind), outcome.error
    return outcome.error


def only(decision: Decision) -> Outcome:
    (outcome,) = decision.outcomes
    return outcome


def content_of(gateway: GatewayService, key: str = "k", catalog: str = "c") -> Any:
    """None where there is no such document."""
    found = gateway.read(catalog, key).document
    return found and found.content


def commit_each(gateway: GatewayService, requests: Sequence[Request]) -> list[WriteOutcome]:
    """The outcomes of requests that come together, in one window."""
    series = gateway.series("ann")
    series.put(requests)
    return series.take()
