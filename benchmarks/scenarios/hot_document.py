"""One document that everybody writes: the gateway against the loops of its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import documents, load, rounds, stored, wire
from benchmarks.baselines import read_modify_write
from benchmarks.baselines.backoff import CANDIDATES, IMMEDIATE, Backoff
from benchmarks.baselines.cas_client import CasClient
from benchmarks.clients import REFUSED, PatchClient, Target
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import DATABASE, Rig
from benchmarks.rounds import Measure, Spread

CLIENTS = (1, 8, 32, 64)

GATEWAY = "gateway"
GATEWAY_MANY = "gateway, 1,000 documents"
PYMONGO = "pymongo, immediate retries"
PYMONGO_BACKOFF = "pymongo, best backoff"
CAS = "Flask compare-and-set"

Rounds = Mapping[str, Sequence[Measurement]]


def run(rig: Rig) -> Result:
    """Raises UpdateLost when an acknowledged update isn't in the document."""
    rows: list[list[str]] = []
    notes: list[str] = []
    arrangement = _Arrangement(rig)
    for clients in CLIENTS:
        arrangement.choose(clients)
        notes.append(arrangement.note(clients))
        results = rounds.interleave(
            _variants(rig, clients, arrangement),
            rig.rounds,
            lambda text, clients=clients: rig.progress(f"n={clients}: {text}"),  # type: ignore[misc]
        )
        rows += load_rows(clients, results)
    table = Table("Hot document: successful updates", LOAD_COLUMNS, rows, notes)
    return Result([table], _figures(results))


def _figures(at_64: Rounds) -> list[Figure]:
    def ratio(below: str) -> Spread | None:
        return rounds.ratio(at_64[GATEWAY], at_64[below]) if GATEWAY in at_64 else None

    gateway = at_64.get(GATEWAY)
    tries = gateway and rounds.spread([one.attempts_per_operation for one in gateway])
    refused = gateway and rounds.spread([one.answers(*REFUSED) for one in gateway])
    return [
        Figure("hot document, n=64: gateway / pymongo immediate", ">=", 10, ratio(PYMONGO)),
        Figure("hot document, n=64: gateway / pymongo backoff", ">=", 4, ratio(PYMONGO_BACKOFF)),
        Figure("hot document, n=64: gateway / itself, 1,000 docs", ">=", 0.8, ratio(GATEWAY_MANY)),
        Figure("hot document, n=64: attempts per patch", "<", 1.5, tries or None, ""),
        Figure("hot document, n=64: refused for contention", "<=", 0, refused or None, ""),
    ]


class _Arrangement:
    """What is best for the pymongo loop: processes, and the pauses of its backoff.

    Tried out at each n. A quick run tries fewer pauses, at 64 clients only, and takes what is
    best there for all.
    """

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.immediate_processes = 2
        self.backoff_processes = 2
        self.backoff = CANDIDATES[len(CANDIDATES) // 2]
        if rig.quick:
            self._choose(64, CANDIDATES[3:])

    def choose(self, clients: int) -> None:
        if not self._rig.quick and clients > 1:
            self._choose(clients, CANDIDATES)

    def note(self, clients: int) -> str:
        return (
            f"n={clients}: pymongo immediate with {_processes(self.immediate_processes)}, "
            f"best {self.backoff} with {_processes(self.backoff_processes)}"
        )

    def _choose(self, clients: int, candidates: Sequence[Backoff]) -> None:
        immediate = {_processes(count): count for count in (1, 2)}
        self.immediate_processes = immediate[
            self._best({name: (IMMEDIATE, count) for name, count in immediate.items()}, clients)
        ]
        pauses = {str(backoff): (backoff, 2) for backoff in candidates}
        self.backoff = pauses[self._best(pauses, clients)][0]
        self.backoff_processes = immediate[
            self._best({name: (self.backoff, count) for name, count in immediate.items()}, clients)
        ]

    def _best(self, tried: Mapping[str, tuple[Backoff, int]], clients: int) -> str:
        variants = {
            name: partial(_pymongo, self._rig, clients, processes, backoff)
            for name, (backoff, processes) in tried.items()
        }
        return rounds.best(variants, lambda text: self._rig.progress(f"n={clients}: {text}"))


def _processes(count: int) -> str:
    return f"{count} process{'es' if count > 1 else ''}"


def _variants(rig: Rig, clients: int, arrangement: _Arrangement) -> dict[str, Measure]:
    variants: dict[str, Measure] = {
        PYMONGO: partial(_pymongo, rig, clients, arrangement.immediate_processes, IMMEDIATE),
        PYMONGO_BACKOFF: partial(
            _pymongo, rig, clients, arrangement.backoff_processes, arrangement.backoff
        ),
        CAS: partial(_compare_and_set, rig, clients, arrangement.backoff),
    }
    if not rig.with_gateway:
        return variants
    port = rig.gateway()
    variants = {GATEWAY: partial(_gateway, rig, clients, None), **variants}
    if clients == max(CLIENTS):
        targets = stored.put_many_documents(port, f"many-{rig.serial()}")
        variants[GATEWAY_MANY] = partial(_gateway, rig, clients, targets)
    return variants


def _gateway(rig: Rig, clients: int, targets: Sequence[Target] | None) -> Measurement:
    """Patches to the targets, or to one fresh document."""
    port, serial = rig.gateway(), rig.serial()
    targets = targets or stored.put_one(port, f"hot-{serial}")
    patchers = [PatchClient(number, targets, floor=serial * 1_000_000) for number in range(clients)]
    measurement = rig.run(port, patchers)
    stored.verify(port, patchers)
    return measurement


def _pymongo(rig: Rig, clients: int, processes: int, backoff: Backoff) -> Measurement:
    return read_modify_write.measure(
        rig.uri,
        DATABASE,
        documents.dataset(),
        clients=clients,
        processes=min(processes, clients),
        backoff=backoff,
        seconds=rig.seconds,
        warmup_s=rig.warmup_s,
    )


def _compare_and_set(rig: Rig, clients: int, backoff: Backoff) -> Measurement:
    """With the same pauses as the pymongo loop: immediate retries make it slower still."""
    port = rig.baseline("cas")
    path = f"/documents/hot-{rig.serial()}"
    load.send_all(port, [wire.put(path, documents.dataset())])
    loops = [CasClient(number, path, backoff) for number in range(clients)]
    measurement = rig.run(port, loops)
    for loop in loops:
        loop.verify(load.ask(port, wire.get(path)))
    return measurement
