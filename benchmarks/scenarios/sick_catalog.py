"""Fifty healthy catalogs beside a sick one, against the same beside one healthy catalog more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pymongo import MongoClient
from pymongo.collection import Collection

from benchmarks import rounds, stored
from benchmarks.clients import PatchClient, Target
from benchmarks.load import Answer, UnexpectedAnswer
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

HEALTHY = 50
CLIENTS = 16
OTHERS = 2

NONE = "one more healthy catalog"
REFUSED = "the database refuses its moves"
UNREADABLE = "its head was edited by hand"
UNWRITTEN = "its tail can't be written out"
WAYS = (REFUSED, UNREADABLE, UNWRITTEN)

# The gateway's by default.
_DATABASE = "metadata"
# What fills a head but for a little.
_BALLAST_BYTES = 16 * 1024 * 1024 - 8_000
_PAUSE_S = 0.01

Record = dict[str, Any]


class HealthyClient(PatchClient):
    """No request of a healthy catalog may fail."""

    def answered(self, answer: Answer) -> float | None:
        if not 200 <= answer.status < 300:
            raise UnexpectedAnswer(answer)
        return super().answered(answer)


class OtherClient(PatchClient):
    """Patches the one catalog more, whatever the answer; nothing of it is counted."""

    def answered(self, answer: Answer) -> float:
        with suppress(UnexpectedAnswer):
            super().answered(answer)
        return _PAUSE_S


def run(rig: Rig) -> Result:
    names = {way: f"p99 of {HEALTHY} catalogs, n={CLIENTS}: {way} / {NONE}" for way in WAYS}
    if not rig.with_gateway:
        return Result(figures=[Figure(name, "<=", 2.0, None) for name in names.values()])
    port, serial = rig.gateway("--deadline-ms", "2000"), rig.serial()
    healthy = [_one(port, f"healthy-{serial}-{number}") for number in range(HEALTHY)]
    others = {way: _one(port, f"other-{serial}-{n}") for n, way in enumerate((NONE, *WAYS))}
    variants = {way: partial(_measure, rig, port, healthy, other) for way, other in others.items()}
    with MongoClient[Record](rig.uri) as client:
        database = client[_DATABASE]
        for way in WAYS:
            _make_sick(way, others[way].catalog, database["catalogs"], database["documents"])
        try:
            results = rounds.interleave(variants, rig.rounds, rig.progress)
        finally:
            for way in WAYS:
                _heal(others[way].catalog, database["catalogs"], database["documents"])
    return Result(
        [Table(f"{HEALTHY} healthy catalogs beside", LOAD_COLUMNS, load_rows(CLIENTS, results))],
        [
            Figure(name, "<=", 2.0, _p99_ratio(results[way], results[NONE]))
            for way, name in names.items()
        ],
    )


def _one(port: int, catalog: str) -> Target:
    (one,) = stored.put_one(port, catalog)
    return one


def _measure(rig: Rig, port: int, healthy: Sequence[Target], other: Target) -> Measurement:
    floor = rig.serial() * 1_000_000
    clients = [HealthyClient(number, healthy, floor=floor) for number in range(CLIENTS)]
    more = [OtherClient(CLIENTS + number, [other], floor=floor) for number in range(OTHERS)]
    measurement = rig.run(port, [*clients, *more])
    stored.verify(port, clients)
    return measurement


def _p99_ratio(sick: Sequence[Measurement], alone: Sequence[Measurement]) -> rounds.Spread:
    pairs = zip(sick, alone, strict=True)
    return rounds.spread([above.p99_ms / below.p99_ms for above, below in pairs])


def _make_sick(
    way: str, catalog: str, heads: Collection[Record], documents: Collection[Record]
) -> None:
    if way == REFUSED:
        heads.update_one({"_id": catalog}, {"$set": {"ballast": "x" * _BALLAST_BYTES}})
    elif way == UNREADABLE:
        heads.update_one({"_id": catalog}, {"$unset": {"written": ""}})
    else:
        # No later state of its document has a place on earth where this looks for one.
        documents.create_index(
            [("state.commit_id", "2dsphere")],
            name=_index(catalog),
            partialFilterExpression={"catalog": catalog, "state.revision": {"$gt": 1}},
        )


def _heal(catalog: str, heads: Collection[Record], documents: Collection[Record]) -> None:
    heads.delete_one({"_id": catalog})
    with suppress(Exception):
        documents.drop_index(_index(catalog))


def _index(catalog: str) -> str:
    return f"sick-{catalog}"
