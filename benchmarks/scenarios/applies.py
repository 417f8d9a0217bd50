"""What an apply costs, compared with a patch of one field; and a patch where others own fields."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from benchmarks import documents, load, rounds, stored, wire
from benchmarks.clients import PatchClient, Target
from benchmarks.load import Answer, UnexpectedAnswer
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig
from benchmarks.rounds import Measure

PATCH = "PATCH of one field"
PATCH_OWNED = "PATCH of one field, 50 others owned"
APPLY = "apply of 50 owned leaves, one of them changed"

APPLY_TYPE = "application/vnd.metadata.apply+json"
LEAVES = 50


class ApplyClient:
    """Applies `wanted` again and again, with another number in one of its leaves each time."""

    def __init__(self, one: Target, wanted: dict[str, Any]) -> None:
        path = f"{one.path}?manager=nightly"
        self._head = wire.head_with_body("PATCH", path, APPLY_TYPE)
        before, _, after = msgspec.json.encode({**wanted, "run": "<run>"}).partition(b'"<run>"')
        self._around = before, after
        self.run = 0

    def request(self) -> bytes:
        before, after = self._around
        self.run += 1
        return wire.with_body(self._head, b"%b%d%b" % (before, self.run, after))

    def answered(self, answer: Answer) -> float | None:
        if answer.status != 200:
            raise UnexpectedAnswer(answer)
        return None


def wanted() -> dict[str, Any]:
    """About 2 KB with one leaf less than LEAVES."""
    columns = {
        f"order.line.column_{number}": {"type": "string", "comment": f"Column {number} of a line."}
        for number in range((LEAVES - 2) // 2)
    }
    return {"name": "orders", "columns": columns}


def run(rig: Rig) -> Result:
    names = (
        "time of an apply of 50 owned leaves in 2 KB / of a one-field patch",
        "time of a one-field patch with 50 owned leaves beside / without owners",
    )
    if not rig.with_gateway:
        return Result(figures=[Figure(name, "<=", 1.5, None) for name in names])
    port, serial = rig.gateway(), rig.serial()
    plain = stored.put(port, f"plain-{serial}", [documents.dataset()])
    owned = stored.put(port, f"owned-{serial}", [documents.dataset(size_bytes=1600)])
    load.send_all(port, [ApplyClient(owned[0], wanted()).request()])
    applied = stored.put(port, f"applied-{serial}", [{}])
    variants: dict[str, Measure] = {
        PATCH: partial(_patch, rig, plain),
        PATCH_OWNED: partial(_patch, rig, owned),
        APPLY: partial(_apply, rig, applied[0]),
    }
    results = rounds.interleave(variants, rig.rounds, rig.progress)
    # n=1: the time of a write is the inverse of the rate
    found = (
        rounds.ratio(results[PATCH], results[APPLY]),
        rounds.ratio(results[PATCH], results[PATCH_OWNED]),
    )
    return Result(
        [Table("Applies and patches", LOAD_COLUMNS, load_rows(1, results))],
        [Figure(name, "<=", 1.5, each) for name, each in zip(names, found, strict=True)],
    )


def _patch(rig: Rig, targets: Sequence[Target]) -> Measurement:
    port = rig.gateway()
    client = PatchClient(0, targets, floor=rig.serial() * 1_000_000)
    measurement = rig.run(port, [client])
    stored.verify(port, [client])
    return measurement


def _apply(rig: Rig, one: Target) -> Measurement:
    port = rig.gateway()
    client = ApplyClient(one, wanted())
    client.run = rig.serial() * 1_000_000
    measurement = rig.run(port, [client])
    content = msgspec.json.decode(load.ask(port, wire.get(one.path)).body)
    if content != {**wanted(), "run": client.run}:
        raise AssertionError(f"{one.path}: the last apply isn't there")
    return measurement
