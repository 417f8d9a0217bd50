"""What varies from seed to seed: sizes, limits, clocks and how much goes wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from gateway.limits import RetentionLimits, ServiceLimits, WatchLimits

from .faults import Faults
from .workload import Tastes


@dataclass(frozen=True)
class Plan:
    workers: int
    catalogs: int
    keys: int
    clients: int
    calls: int  # of each client
    limits: ServiceLimits
    faults: Faults
    outages: bool
    restarts: bool
    skew_us: int
    clock_steps: bool
    preempt: float
    think_s: float
    tastes: Tastes
    cached_catalogs_max: int
    catch_up_max: int
    page_bytes_max: int
    export_page: int
    followers: int
    compactor: bool  # whether the workers compact in the background
    strays: bool  # whether writes arrive long after their call failed
    turns: bool  # whether the workers are on one machine, and see each other's turns
    # Whether watchers begin with the state. It is in no plan that a seed chooses.
    from_state: bool = field(default=False, repr=False)

    @property
    def faulty(self) -> bool:
        faults = self.faults
        chances = (faults.before, faults.after, faults.part, faults.late, faults.doubt)
        return self.outages or any(chances) or bool(faults.crash or faults.suspend)


def plan(rng: random.Random) -> Plan:
    """A plan drawn from ``rng``; one in eight has no faults at all."""
    calm = rng.random() < 0.125
    crowd = rng.random() < 0.3  # many clients on few documents
    chosen = Plan(
        workers=rng.choice((1, 2, 2, 3, 4)),
        catalogs=1 if crowd else rng.choice((1, 1, 2, 3)),
        keys=rng.choice((1, 2) if crowd else (1, 2, 4)),
        clients=rng.randrange(6, 10) if crowd else rng.randrange(2, 7),
        calls=rng.randrange(4, 14),
        limits=_limits(rng),
        faults=_calm(rng) if calm else _faults(rng),
        outages=not calm and rng.random() < 0.15,
        restarts=rng.random() < 0.7,
        skew_us=rng.choice((0, 1_000, 5_000_000)),
        clock_steps=rng.random() < 0.3,
        preempt=rng.choice((0.0, 0.05, 0.3)),
        think_s=rng.choice((0.0, 0.002, 0.02, 0.15)),
        tastes=_tastes(rng),
        cached_catalogs_max=rng.choice((1, 200_000, 200_000)),
        catch_up_max=rng.choice((0, 2, 1_000)),
        page_bytes_max=rng.choice((100, 1 << 23)),
        export_page=rng.choice((1, 2, 500)),
        followers=rng.choice((0, 0, 0, 2, 4)),
        compactor=False,
        strays=True,
        turns=rng.random() < 0.3,
    )
    chosen = retaining(chosen, rng) if rng.random() < 0.4 else chosen
    # Drawn apart, so that the other plans are what they would be without ranges.
    return ranging(chosen) if random.Random(repr(chosen)).random() < 0.25 else chosen


def as_chosen(chosen: Plan) -> Plan:
    return chosen


def ranging(chosen: Plan) -> Plan:
    """With transactions, many of which look at ranges."""
    tastes = chosen.tastes
    often = max(tastes.transactions, 0.4)
    return replace(chosen, tastes=replace(tastes, transactions=often, ranges=0.6))


def owning(chosen: Plan) -> Plan:
    """With managers, who own what they send, and reverts."""
    return replace(chosen, tastes=replace(chosen.tastes, owners=0.6, reverts=0.1))


def listing(chosen: Plan) -> Plan:
    """The same, and lists with keys: settings that declare them, and edits of their items."""
    tastes = replace(owning(chosen).tastes, owners=0.4, lists=0.6)
    return replace(chosen, tastes=tastes)


def repeating(chosen: Plan) -> Plan:
    """Many operations that may be sent twice, beside whatever else there is."""
    tastes = chosen.tastes
    return replace(chosen, tastes=replace(tastes, lists=tastes.lists / 2, repeatables=0.6))


def retaining(chosen: Plan, rng: random.Random) -> Plan:
    """With pins and compaction; only what the gateway can bear (``gateway.state.write_out``).

    Writes that arrive after their call failed, unseen by anybody, are more than that. So is a
    worker that dies, or that finds no way to the store, right after it slept for long.
    """
    faults, sleepy = chosen.faults, rng.random() < 0.4
    if sleepy and chosen.faulty:
        faults = Faults(suspend=0.03, suspended_s=60.0, latency_s=faults.latency_s, slow=0.02)
    else:
        faults = replace(faults, late=0.0, suspended_s=min(faults.suspended_s, 1.0))
    limits = RetentionLimits(
        commits=rng.choice((None, 1, 3, 10)),
        sweep_grace_s=rng.choice((1.0, 1.0, 6.0)),
        # Above what clocks differ by.
        tombstone_grace_s=60 if chosen.skew_us > 1_000 or chosen.clock_steps else 8,
        interval_s=rng.choice((1, 1, 5)),
        pause_ms=rng.choice((0, 10)),
    )
    return replace(
        chosen,
        limits=replace(chosen.limits, retention=limits),
        tastes=replace(chosen.tastes, retention=rng.choice((0.02, 0.1, 0.2))),
        faults=faults,
        outages=chosen.outages and not sleepy,
        think_s=rng.choice((0.0, 0.02, 0.15, 1.0, 5.0)),
        compactor=rng.random() < 0.7,
        strays=False,
    )


def _tastes(rng: random.Random) -> Tastes:
    return Tastes(
        reading=rng.choice((0.1, 0.3, 0.6)),
        transactions=rng.choice((0.0, 0.2, 0.2, 0.6)),
        settings=rng.choice((0.0, 0.0, 0.08)),
        deletions=rng.choice((0.0, 0.0, 0.06)),
    )


def _limits(rng: random.Random) -> ServiceLimits:
    return ServiceLimits(
        full_value_every=rng.choice((1, 2, 3, 64)),
        batch_requests_max=rng.choice((1, 2, 3, 512, 512)),
        batch_bytes_max=rng.choice((1, 150, 8 * 1024 * 1024)),
        queue_requests_max=rng.choice((2, *[4096] * 9)),
        queue_bytes_max=rng.choice((150, *[1 << 26] * 9)),
        cache_bytes_max=rng.choice((0, 3_500, 1 << 27)),
        deadline_ms=rng.choice((200, 2_000, 10_000)),
        write_out_grace_ms=rng.choice((0, 5, 100)),
        leaders=rng.choice((1, 2, 3)),
        watch=WatchLimits(
            lag_max=rng.choice((3, 10_000)),
            ring_commits_max=rng.choice((1, 2, 1024)),
            bookmark_commits=rng.choice((1, 3, 1000)),
        ),
    )


def _calm(rng: random.Random) -> Faults:
    return Faults(latency_s=rng.choice((0.0, 0.001, 0.005)))


def _faults(rng: random.Random) -> Faults:
    """Some kinds of faults, each seldom or often."""

    def some(*levels: float) -> float:
        return rng.choice((0.0, *levels))

    return Faults(
        before=some(0.01, 0.05),
        after=some(0.01, 0.05, 0.1),
        part=some(0.02, 0.1),
        late=some(0.02, 0.15),
        doubt=some(0.02, 0.1),
        reject=rng.choice((0.0, 0.0, 0.0, 0.02)),
        crash=some(0.002, 0.01),
        suspend=some(0.005, 0.03),
        suspended_s=rng.choice((0.05, 1.0, 60.0)),
        latency_s=rng.choice((0.0, 0.001, 0.005)),
        slow=some(0.02, 0.1),
    )
