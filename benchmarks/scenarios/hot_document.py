"""One document that everybody writes: the gateway against the loops of its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

CLIENTS = (1, 8, 64)
_CROWD = CLIENTS[-1]

GATEWAY = "gateway"
GATEWAY_MANY = "gateway, 1,000 documents"
PYMONGO = "pymongo, immediate retries"
PYMONGO_BACKOFF = "pymongo, best backoff"
CAS = "Flask compare-and-set"

ONE_CLIENT = "time of a PATCH, n=1: gateway / pymongo find and replace"

Rounds = Mapping[str, Sequence[Measurement]]


def run(rig: Rig) -> Result:
    """Raises UpdateLost when an acknowledged update isn't in the document."""
    table, results = compare(rig, "Hot document: successful updates", _more_variants)
    return Result([table], _figures(results))


def compare(
    rig: Rig, title: str, more: Callable[[Rig, int, Choice], Mapping[str, Measure]] | None = None
) -> tuple[Table, dict[int, Rounds]]:
    """The gateway beside the pymongo loop, and more variants, for each number of clients.

    The pymongo loop is arranged at its best for each; a quick run tries fewer pauses, at 64
    clients only, and takes what is best there for all.
    """
    rows: list[list[str]] = []
    notes: list[str] = []
    results: dict[int, Rounds] = {}
    choice = _choose(rig, _CROWD, CANDIDATES[3:]) if rig.quick else None
    for clients in CLIENTS:
        # a single client never pauses: one candidate says it all
        here = choice or _choose(rig, clients, CANDIDATES if clients > 1 else CANDIDATES[:1])
        if not choice or clients == _CROWD:
            notes += _notes(clients, here)
        variants = _variants(rig, clients, here) | (more(rig, clients, here) if more else {})
        results[clients] = rounds.interleave(variants, rig.rounds, rig.progress, f"n={clients}: ")
        rows += load_rows(clients, results[clients])
    return Table(title, LOAD_COLUMNS, rows, notes), results


def compared(results: Mapping[int, Rounds], clients: int, below: str) -> Spread | None:
    """The gateway's rate over that of another variant; None where it wasn't measured."""
    found = results[clients]
    return rounds.ratio(found[GATEWAY], found[below]) if GATEWAY in found else None


def time_of_one(results: Mapping[int, Rounds]) -> Spread | None:
    """How long a patch takes one client, over a find and replace: the rates the other way round."""
    found = results[1]
    return rounds.ratio(found[PYMONGO], found[GATEWAY]) if GATEWAY in found else None


def _figures(results: Mapping[int, Rounds]) -> list[Figure]:
    gateway = results[_CROWD].get(GATEWAY)
    tries = gateway and rounds.spread([one.attempts_per_operation for one in gateway])
    refused = gateway and rounds.spread([one.answers(*REFUSED) for one in gateway])
    evenness = gateway and rounds.spread([one.p99_ms / one.p50_ms for one in gateway])
    at_8, at_64 = partial(compared, results, 8), partial(compared, results, _CROWD)
    return [
        Figure(ONE_CLIENT, "<=", 1.6, time_of_one(results)),
        Figure("hot document, n=8: gateway / pymongo backoff", ">=", 1.5, at_8(PYMONGO_BACKOFF)),
        Figure("hot document, n=64: gateway / pymongo immediate", ">=", 12, at_64(PYMONGO)),
        Figure("hot document, n=64: gateway / pymongo backoff", ">=", 4.5, at_64(PYMONGO_BACKOFF)),
        Figure("hot document, n=64: gateway / itself, 1,000 docs", ">=", 0.8, at_64(GATEWAY_MANY)),
        Figure("hot document, n=64: p99 / p50", "<=", 3, evenness or None),
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
    }
    if rig.with_gateway:
        variants = {GATEWAY: partial(_gateway, rig, clients, None), **variants}
    return variants


def _more_variants(rig: Rig, clients: int, choice: Choice) -> dict[str, Measure]:
    backoff = choice.backoff.backoff
    variants: dict[str, Measure] = {CAS: partial(_compare_and_set, rig, clients, backoff)}
    if rig.with_gateway and clients == _CROWD:
        targets = stored.put_many_documents(rig.gateway(), f"many-{rig.serial()}")
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
