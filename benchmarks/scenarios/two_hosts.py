"""A hot document written by gateways that share nothing but MongoDB."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import rounds, stored
from benchmarks.clients import PatchClient
from benchmarks.distant import distant
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

CLIENTS = 64
AWAY_MS = 40

ONE = "one host, two workers"
TWO = "two hosts, a worker each"
APART = f"two hosts, one {AWAY_MS} ms from MongoDB"

_A_WORKER = ("--workers", "1")


def run(rig: Rig) -> Result:
    whole = f"hot document, n={CLIENTS}: two hosts / one, as many workers"
    share = f"hot document, n={CLIENTS}: a host {AWAY_MS} ms away / its neighbour"
    if not rig.with_gateway:
        return Result(figures=[Figure(whole, ">=", 0.9, None), Figure(share, ">=", 0.25, None)])
    shares: list[float] = []
    with rig.on(rig.uri) as own, distant(rig.uri, AWAY_MS) as far_uri, rig.on(far_uri) as away:
        both = [own.gateway(*_A_WORKER, host=host) for host in ("one", "other")]
        apart = [both[0], away.gateway(*_A_WORKER, host="far")]
        variants = {
            ONE: partial(patched, own, [own.gateway(host="one", workers=2)], CLIENTS),
            TWO: partial(patched, own, both, CLIENTS),
            APART: partial(patched, own, apart, CLIENTS, shares=shares),
        }
        results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [Table("Hot document through two hosts", LOAD_COLUMNS, load_rows(CLIENTS, results))],
        [
            Figure(whole, ">=", 0.9, rounds.ratio(results[TWO], results[ONE])),
            Figure(share, ">=", 0.25, rounds.spread(shares)),
        ],
    )


def patched(
    rig: Rig, ports: Sequence[int], clients: int, shares: list[float] | None = None
) -> Measurement:
    """Patches of one fresh document by clients that are dealt out to the ports in turn.

    ``shares`` gets how many of them the second port applied for one of the first.
    """
    serial = rig.serial()
    floor = serial * 1_000_000
    targets = stored.put_one(ports[0], f"hot-{serial}")
    patchers = [PatchClient(number, targets, floor=floor) for number in range(clients)]
    measurement = rig.run(ports, patchers)
    stored.verify(ports[0], patchers)
    if shares is not None:
        one, other = (_applied(patchers[place::2], floor) for place in (0, 1))
        shares.append(other / one)
    return measurement


def _applied(patchers: Sequence[PatchClient], floor: int) -> int:
    return sum(value - floor for each in patchers for value in each.acknowledged.values())
