"""Patches while hundreds watch, against the same while nobody does; and how late the feed is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks import rounds, stored
from benchmarks.clients import PatchClient, Target
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

CLIENTS = 32
IDLE = 500
BUSY = 50

NOBODY = "nobody watches"
WATCHED = f"{IDLE} idle and {BUSY} busy watchers"


class WatchersFailed(Exception):
    """The watchers didn't get their feeds; the run is void."""


def run(rig: Rig) -> Result:
    name = f"patches, n={CLIENTS}: {WATCHED} / none"
    if not rig.with_gateway:
        return Result(figures=[Figure(name, ">=", 0.8, None)])
    port, serial = rig.gateway(), rig.serial()
    targets = stored.put_many_documents(port, f"watched-{serial}")
    idle = [stored.put_one(port, f"idle-{serial}-{number}")[0].catalog for number in range(10)]
    watchers = dict.fromkeys(idle, IDLE // len(idle)) | {targets[0].catalog: BUSY}
    delays: list[Mapping[str, float]] = []
    variants = {
        NOBODY: partial(_measure, rig, targets),
        WATCHED: partial(_watched, rig, targets, watchers, delays),
    }
    results = rounds.interleave(variants, rig.rounds, rig.progress)
    rows = [
        [str(number), *(f"{each[column]:,.1f}" for column in ("events", "p50_ms", "p99_ms"))]
        for number, each in enumerate(delays, start=1)
    ]
    return Result(
        [
            Table("Patches under watch", LOAD_COLUMNS, load_rows(CLIENTS, results)),
            Table(
                "Delay of the feed under this load, from deciding a commit to its event",
                ("round", "events", "p50 ms", "p99 ms"),
                rows,
            ),
        ],
        [
            Figure(name, ">=", 0.8, rounds.ratio(results[WATCHED], results[NOBODY])),
            Figure(
                "feed delay p50 under load",
                "<",
                1000,
                rounds.spread([each["p50_ms"] for each in delays]),
                " ms",
            ),
            Figure(
                "feed delay p99 under load",
                "<",
                1000,
                rounds.spread([each["p99_ms"] for each in delays]),
                " ms",
            ),
        ],
    )


def _measure(rig: Rig, targets: Sequence[Target]) -> Measurement:
    port, floor = rig.gateway(), rig.serial() * 1_000_000
    clients = [PatchClient(number, targets, floor=floor) for number in range(CLIENTS)]
    measurement = rig.run(port, clients)
    stored.verify(port, clients)
    return measurement


def _watched(
    rig: Rig,
    targets: Sequence[Target],
    watchers: Mapping[str, int],
    delays: list[Mapping[str, float]],
) -> Measurement:
    with _watching(rig.gateway(), watchers, delays):
        return _measure(rig, targets)


@contextmanager
def _watching(
    port: int, watchers: Mapping[str, int], delays: list[Mapping[str, float]]
) -> Iterator[None]:
    named = [f"{catalog}={count}" for catalog, count in watchers.items()]
    command = [sys.executable, "-m", "benchmarks.watching", str(port), *named]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "watching\n":
            raise WatchersFailed
        yield
        said, _ = process.communicate("end\n")
        delays.append(json.loads(said))
