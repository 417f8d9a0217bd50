"""A hot document written by two gateways that share nothing but MongoDB, against one gateway."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import rounds, stored
from benchmarks.clients import PatchClient
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

CLIENTS = 64

ONE = "one gateway"
TWO = "two gateways without shared turns"


def run(rig: Rig) -> Result:
    name = f"hot document, n={CLIENTS}: two hosts / one"
    if not rig.with_gateway:
        return Result(figures=[Figure(name, ">=", 0.9, None)])
    with rig.on(rig.uri) as own:
        ports = [own.gateway(host=host) for host in ("one", "other")]
        variants = {
            ONE: partial(patched, own, ports[:1], CLIENTS),
            TWO: partial(patched, own, ports, CLIENTS),
        }
        results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [Table("Hot document through two hosts", LOAD_COLUMNS, load_rows(CLIENTS, results))],
        [Figure(name, ">=", 0.9, rounds.ratio(results[TWO], results[ONE]))],
    )


def patched(rig: Rig, ports: Sequence[int], clients: int) -> Measurement:
    """Patches of one fresh document by clients that are dealt out to the ports in turn."""
    serial = rig.serial()
    targets = stored.put_one(ports[0], f"hot-{serial}")
    patchers = [PatchClient(number, targets, floor=serial * 1_000_000) for number in range(clients)]
    measurement = rig.run(ports, patchers)
    stored.verify(ports[0], patchers)
    return measurement
