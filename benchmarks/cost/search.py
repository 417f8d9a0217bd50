"""The search: programs are drawn, the costly ones are changed a little, and the worst are kept."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from benchmarks.cost.choices import Choices, mutated
from benchmarks.cost.known import KNOWN
from benchmarks.cost.programs import program
from benchmarks.cost.worker import Cost, Worker, WorkerLost, cost_of, one_worker
from benchmarks.cost.world import Program

# What no request may do to others, whatever it is.
BLOCKED_CPU_MS_MAX: Final = 250.0
MEMORY_MIB_MAX: Final = 512.0
# Of one request: thrice ``request_cpu_ms``, for what is computed for it where it isn't charged. A
# bulk request has that time for each of its lines.
REQUEST_CPU_MS_MAX: Final = 6_000.0
# A worker answers so many programs, then a new one begins with a database of its own.
_PROGRAMS_PER_WORKER: Final = 40
_KEPT: Final = 6
_SETUP_S_MAX: Final = 20.0
_KNOWN_SHARE: Final = 0.25

AIMS: Final[Mapping[str, Callable[[Cost], float]]] = {
    "blocked": lambda cost: cost.blocked_cpu_ms,
    "memory": lambda cost: cost.memory_mib,
    "cpu per byte": lambda cost: cost.cpu_ms / (cost.sent_bytes + 2_000),
}


@dataclass
class Found:
    """A program by its genes, and what it cost."""

    genes: list[int]
    seed: str
    program: Program
    cost: Cost
    family: str

    @property
    def is_over(self) -> bool:
        return (
            self.cost.lost
            or self.cost.blocked_cpu_ms > BLOCKED_CPU_MS_MAX
            or self.cost.memory_mib > MEMORY_MIB_MAX
            or self.request_cpu_ms > REQUEST_CPU_MS_MAX
            or 500 in self.cost.statuses
        )

    @property
    def request_cpu_ms(self) -> float:
        """On average: all that the worker used meanwhile. None where there are bulk requests."""
        attack = self.program.attack
        if any(each.path.startswith("/v1/bulk") for each in attack):
            return 0.0
        return self.cost.cpu_ms / max(len(attack) * self.program.at_once, 1)


@dataclass
class Search:
    """``tried`` programs; by aim and route, the worst ones that were found, the worst first."""

    uri: str
    seed: int
    told: Callable[[str], None] = lambda _: None
    found: Callable[[Found], None] = lambda _: None  # is told of what breaks a bound, at once
    tried: int = 0
    worst: dict[tuple[str, str], list[Found]] = field(default_factory=dict)

    def run(self, seconds: float, programs: int | None = None) -> None:
        """Until the time is over, or so many programs were tried."""
        until = time.monotonic() + seconds
        number = 0
        while time.monotonic() < until and (programs is None or self.tried < programs):
            number += 1
            with ExitStack() as stack:
                database = f"test_cost_{self.seed}_{number}"
                worker = stack.enter_context(one_worker(self.uri, database))
                stack.callback(_drop, self.uri, database)
                for _ in range(_PROGRAMS_PER_WORKER):
                    if time.monotonic() > until or (programs and self.tried >= programs):
                        break
                    if self.try_next(worker).cost.lost:
                        break  # it may hang, and is ended

    def try_next(self, worker: Worker) -> Found:
        """One program, drawn or changed."""
        self.tried += 1
        seed = f"{self.seed}.{self.tried}"
        luck = random.Random(seed)
        kept = [each for some in self.worst.values() for each in some]
        genes: list[int] = []
        family = seed
        if kept and luck.random() < 0.6:
            parent = luck.choice(kept)
            genes, family = mutated(parent.genes, luck), parent.family
        found = told_again(worker, genes, seed, f"c{self.seed}-{self.tried}", family)
        self._keep(found)
        self.told(f"{self.tried}: {summary(found)}")
        if found.is_over:
            self.found(found)
        return found

    def _keep(self, found: Found) -> None:
        for aim, of in AIMS.items():
            kept = self.worst.setdefault((aim, found.program.attack[0].route), [])
            alike = [each for each in kept if each.family == found.family]
            if alike and of(alike[0].cost) >= of(found.cost):
                continue
            kept[:] = [each for each in kept if each.family != found.family] + [found]
            kept.sort(key=lambda each: of(each.cost), reverse=True)
            del kept[_KEPT:]

    def over(self) -> list[Found]:
        """What broke a bound, each once, the longest block first."""
        found = {each.seed: each for some in self.worst.values() for each in some if each.is_over}
        return sorted(found.values(), key=lambda each: -each.cost.blocked_cpu_ms)


def told_again(
    worker: Worker, genes: list[int], seed: str, catalog: str, family: str = ""
) -> Found:
    """Build the program of these genes (further ones are drawn by the seed), and measure it."""
    choices = Choices(genes, random.Random(seed))
    made = built(choices, catalog)
    return Found(choices.taken, seed, made, measured(worker, made), family or seed)


def built(choices: Choices, catalog: str) -> Program:
    """One that is known, or one of the search's own."""
    if choices.chance(_KNOWN_SHARE):
        return KNOWN[choices.pick(list(KNOWN))](choices, catalog)
    return program(choices, catalog)


def measured(worker: Worker, made: Program) -> Cost:
    until = time.monotonic() + _SETUP_S_MAX
    for request in made.setup:
        if time.monotonic() < until:
            worker.send(request, [])
    try:
        return cost_of(worker, made.attack, made.at_once)
    except WorkerLost:
        return Cost(lost=True)


def summary(found: Found) -> str:
    cost, made = found.cost, found.program
    return (
        f"{made.attack[0].route} x{len(made.attack)} by {made.at_once}: blocked"
        f" {cost.blocked_cpu_ms:,.0f} ms of CPU, {cost.cpu_ms:,.0f} ms in all, memory"
        f" +{cost.memory_mib:,.0f} MiB, {cost.sent_bytes:,} B sent{', worker lost' * cost.lost}"
        f" (seed {found.seed}, answers {sorted(set(cost.statuses))})"
    )


def _drop(uri: str, database: str) -> None:
    from pymongo import MongoClient

    with MongoClient[dict[str, object]](uri) as client:
        client.drop_database(database)
