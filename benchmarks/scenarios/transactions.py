"""Five documents changed together, against five patches sent one after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import msgspec

from benchmarks import rounds, stored, wire
from benchmarks.clients import REFUSED, Target
from benchmarks.load import Answer, UnexpectedAnswer
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

CLIENTS = 16
_KEYS = 5
_REFUSED_PAUSE_S = 0.01

TOGETHER = "one transaction of 5 keys"
APART = "five PATCHes"


def run(rig: Rig) -> Result:
    """An operation is a change of five documents of the client's own, in one shared catalog."""
    name = f"5 keys, n={CLIENTS}: one transaction / five PATCHes"
    if not rig.with_gateway:
        return Result(figures=[Figure(name, ">", 1, None)])
    targets = stored.put_many_documents(rig.gateway(), f"five-{rig.serial()}")
    variants = {
        TOGETHER: partial(_measure, rig, targets, TransactionClient),
        APART: partial(_measure, rig, targets, FivePatchesClient),
    }
    results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [Table("Five documents changed", LOAD_COLUMNS, load_rows(CLIENTS, results))],
        [Figure(name, ">", 1, rounds.ratio(results[TOGETHER], results[APART]))],
    )


def _measure(
    rig: Rig, targets: Sequence[Target], kind: type[TransactionClient | FivePatchesClient]
) -> Measurement:
    value = rig.serial() * 1_000_000
    share = len(targets) // CLIENTS
    clients = [
        kind(number, targets[number * share : (number + 1) * share], value)
        for number in range(CLIENTS)
    ]
    return rig.run(rig.gateway(), clients)


class TransactionClient:
    """Sets a counter in five documents of its own, all or none."""

    def __init__(self, number: int, targets: Sequence[Target], value: int) -> None:
        self._targets = targets
        self._rng = random.Random(number)
        self._pointer = f"/counters/c{number}"
        self._value = value
        path = f"/v1/catalogs/{targets[0].catalog}/transactions"
        self._head = wire.head_with_body("POST", path, wire.JSON)

    def request(self) -> bytes:
        self._value += 1
        operation = {"op": "replace", "path": self._pointer, "value": self._value}
        actions = [
            {"action": "patch", "key": target.key, "patch": [operation]}
            for target in self._rng.sample(self._targets, _KEYS)
        ]
        return wire.with_body(self._head, msgspec.json.encode({"then": actions}))

    def answered(self, answer: Answer) -> float | None:
        if answer.status in REFUSED:
            return _REFUSED_PAUSE_S
        if answer.status != 200:
            raise UnexpectedAnswer(answer)
        return None


class FivePatchesClient:
    """The same, one document after the other."""

    def __init__(self, number: int, targets: Sequence[Target], value: int) -> None:
        self._targets = targets
        self._rng = random.Random(number)
        self._pointer = f"/counters/c{number}"
        self._value = value
        self._left: list[Target] = []

    def request(self) -> bytes:
        if not self._left:
            self._value += 1
            self._left = self._rng.sample(self._targets, _KEYS)
        operation = {"op": "replace", "path": self._pointer, "value": self._value}
        return wire.with_body(self._left[-1].head, msgspec.json.encode([operation]))

    def answered(self, answer: Answer) -> float | None:
        if answer.status in REFUSED:
            return _REFUSED_PAUSE_S
        if answer.status != 200:
            raise UnexpectedAnswer(answer)
        self._left.pop()
        return 0.0 if self._left else None
