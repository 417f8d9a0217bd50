"""How long after its answer a write is in the collection `documents`, for queries of one's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from benchmarks import rounds, stored
from benchmarks.clients import PatchClient, Target
from benchmarks.results import Figure, Result, Table
from benchmarks.rig import Rig

CLIENTS = 32

IDLE = "idle"
LOADED = f"{CLIENTS} clients patch the catalog"

# The gateway's by default.
_DATABASE = "metadata"

Lag = dict[str, float]


class LagUnknown(Exception):
    """A write didn't come, or wasn't taken; the run is void."""


def run(rig: Rig) -> Result:
    """The loaded one shares its catalog, and the machine, with the clients of 1,000 documents."""
    lags: dict[str, list[Lag]] = {IDLE: [], LOADED: []}
    if rig.with_gateway:
        targets = stored.put_many_documents(rig.gateway(), f"lag-{rig.serial()}")
        for number in range(1, rig.rounds + 1):
            for name, clients in ((IDLE, 0), (LOADED, CLIENTS)):
                rig.progress(f"{name}, round {number}/{rig.rounds}")
                lags[name].append(_lag(rig, targets, clients))
    rows = [
        [name, str(number), *(f"{lag[column]:,.1f}" for column in ("operations", *_PERCENTILES))]
        for name, found in lags.items()
        for number, lag in enumerate(found, start=1)
    ]
    columns = ("", "round", "writes", "p50 ms", "p99 ms")
    return Result(
        [Table("From a write's answer to its document in `documents`", columns, rows)],
        [
            Figure(
                f"lag of documents, {name}, {column[:3]}",
                "<=",
                None,
                rounds.spread([lag[column] for lag in found]) if found else None,
                " ms",
            )
            for name, found in lags.items()
            for column in _PERCENTILES
        ],
    )


_PERCENTILES = ("p50_ms", "p99_ms")


def _lag(rig: Rig, targets: Sequence[Target], clients: int) -> Lag:
    port, floor = rig.gateway(), rig.serial() * 1_000_000
    patchers = [PatchClient(number, targets[1:], floor=floor) for number in range(clients)]
    own = targets[0]
    arguments = (port, rig.uri, _DATABASE, own.catalog, own.key, rig.seconds, floor)
    command = (sys.executable, "-m", "benchmarks.lagging", *map(str, arguments))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if patchers:
            rig.run(port, patchers)
        said, _ = process.communicate()
    if process.returncode:
        raise LagUnknown
    stored.verify(port, patchers)
    lag: Lag = json.loads(said)
    return lag
