"""One document that everybody writes: the gateway against the loops of its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import documents, load, rounds, stored, wire
from benchmarks.baselines import read_modify_write
from benchmarks.baselines.arrangement import Arrangement, Choice, choose
from benchmarks.baselines.backoff import CANDIDATES, Backoff
from benchmarks.baselines.cas_client import CasClient
from benchmarks.clients import REFUSED, PatchClient, Target
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import DATABASE, Rig
from benchmarks.rounds import Measure, Spread

CLIENTS = (1, 8, 32, 64)
_CROWD = CLIENTS[-1]

GATEWAY = "gateway"
GATEWAY_MANY = "gateway, 1,000 documents"
PYMONGO = "pymongo, immediate retries"
PYMONGO_BACKOFF = "pymongo, best backoff"
CAS = "Flask compare-and-set"

Rounds = Mapping[str, Sequence[Measurement]]


def run(rig: Rig) -> Result:
    """Raises UpdateLost when an acknowledged update isn't in the document.

    The pymongo loop is arranged at its best for each n; a quick run tries fewer pauses, at 64
    clients only, and takes what is best there for all.
    """
    rows: list[list[str]] = []
    notes: list[str] = []
    choice = _choose(rig, _CROWD, CANDIDATES[3:]) if rig.quick else None
    for clients in CLIENTS:
        # a single client never pauses: one candidate says it all
        here = choice or _choose(rig, clients, CANDIDATES if clients > 1 else CANDIDATES[:1])
        if not choice or clients == _CROWD:
            notes += _notes(clients, here)
        results = rounds.interleave(
            _variants(rig, clients, here), rig.rounds, rig.progress, f"n={clients}: "
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


def _choose(rig: Rig, clients: int, candidates: Sequence[Backoff]) -> Choice:
    return choose(
        partial(_pymongo, rig, clients),
        candidates,
        lambda text: rig.progress(f"n={clients}: {text}"),
    )


def _notes(clients: int, choice: Choice) -> list[str]:
    return [
        f"pymongo at n={clients}: {choice.immediate}; best backoff: {choice.backoff}",
        *(f"  tried: {note}" for note in choice.notes),
    ]


def _variants(rig: Rig, clients: int, choice: Choice) -> dict[str, Measure]:
    variants: dict[str, Measure] = {
        PYMONGO: partial(_pymongo, rig, clients, choice.immediate),
        PYMONGO_BACKOFF: partial(_pymongo, rig, clients, choice.backoff),
        CAS: partial(_compare_and_set, rig, clients, choice.backoff.backoff),
    }
    if not rig.with_gateway:
        return variants
    port = rig.gateway()
    variants = {GATEWAY: partial(_gateway, rig, clients, None), **variants}
    if clients == _CROWD:
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


def _pymongo(rig: Rig, clients: int, arrangement: Arrangement) -> Measurement:
    return read_modify_write.measure(
        rig.uri,
        DATABASE,
        documents.dataset(),
        clients=clients,
        processes=min(arrangement.processes, clients),
        backoff=arrangement.backoff,
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
