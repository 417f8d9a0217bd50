"""What varies from seed to seed: sizes, limits, clocks and how much goes wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from gateway.commits.retention import RetentionLimits
from gateway.commits.service import ServiceLimits
from gateway.commits.watch_values import WatchBounds

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

    @property
    def faulty(self) -> bool:
        faults = self.faults
        chances = (faults.before, faults.after, faults.part, faults.late)
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
    return _retaining(chosen, rng) if rng.random() < 0.4 else chosen


def _retaining(chosen: Plan, rng: random.Random) -> Plan:
    """With pins and compaction; only what the gateway says it can bear (``gateway.commits.late``).

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
        # Above ``late._DOCUMENTS_S``, which is made smaller too, and above what clocks differ by.
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


def crowded(chosen: Plan) -> Plan:
    """Many clients on little, nothing bounded but time, and much that goes wrong around writes."""
    return replace(
        chosen,
        workers=3,
        catalogs=2,
        keys=2,
        clients=9,
        calls=12,
        limits=ServiceLimits(deadline_ms=2_000, write_out_grace_ms=5),
        faults=Faults(before=0.02, after=0.05, part=0.1, late=0.1, crash=0.01, slow=0.05),
        outages=False,
        preempt=0.1,
        think_s=0.0,
    )


def doubtful(chosen: Plan) -> Plan:
    """Short deadlines, and moves that seldom say what became of them."""
    return replace(
        crowded(chosen),
        limits=ServiceLimits(deadline_ms=200),
        faults=Faults(after=0.4, late=0.3),
    )


def forgetful(chosen: Plan) -> Plan:
    """A cache for about three documents, so that they are read again all the time."""
    return replace(
        chosen,
        workers=2,
        catalogs=1,
        keys=4,
        clients=9,
        calls=12,
        limits=ServiceLimits(cache_bytes_max=3_500, deadline_ms=2_000, write_out_grace_ms=5),
        faults=Faults(slow=0.1),
        outages=False,
        preempt=0.3,
        think_s=0.002,
        tastes=Tastes(reading=0.5, transactions=0.0, settings=0.0, deletions=0.0),
        turns=False,
    )


def watchful(chosen: Plan) -> Plan:
    """Mostly reads of one document, and answers that take long now and then."""
    return replace(
        chosen,
        workers=2,
        catalogs=1,
        keys=1,
        clients=9,
        calls=12,
        limits=ServiceLimits(deadline_ms=2_000),
        faults=Faults(slow=0.2, latency_s=0.005),
        outages=False,
        think_s=0.002,
        tastes=Tastes(reading=0.7, transactions=0.0, settings=0.0, deletions=0.0),
    )


def keeping(chosen: Plan) -> Plan:
    """Pins and compactions all the time, of a history that is deleted from often."""
    if not chosen.tastes.retention:
        chosen = _retaining(chosen, random.Random(chosen.clients))
    retention = replace(chosen.limits.retention, commits=2, tombstone_grace_s=8, interval_s=1)
    return replace(
        chosen,
        skew_us=0,
        clock_steps=False,
        clients=6,
        calls=14,
        keys=2,
        limits=replace(chosen.limits, retention=retention, deadline_ms=10_000),
        tastes=Tastes(0.4, transactions=0.2, settings=0.0, deletions=0.1, retention=0.15),
        think_s=4.0,
    )


def sleeping(chosen: Plan) -> Plan:
    """The same, by workers that sleep for a minute now and then, whatever they are at."""
    kept = keeping(chosen)
    return replace(
        kept,
        faults=Faults(suspend=0.015, suspended_s=60.0, slow=0.02),
        outages=False,
        workers=4,
        restarts=False,
        clients=8,
        catalogs=1,
        tastes=replace(kept.tastes, reading=0.1, retention=0.3, deletions=0.15),
    )


def breaking_off(chosen: Plan) -> Plan:
    """The same, by workers that often don't come to the end of a sweep."""
    kept = keeping(chosen)
    return replace(
        kept,
        faults=Faults(before=0.05, crash=0.01, slow=0.1, latency_s=0.005),
        outages=False,
        compactor=False,
        tastes=replace(kept.tastes, retention=0.2),
        think_s=0.15,
    )


def quiet(chosen: Plan) -> Plan:
    """Nothing fails; several catalogs, and workers whose tasks never fall behind."""
    return replace(
        chosen,
        workers=2,
        catalogs=3,
        clients=8,
        faults=Faults(slow=0.1),
        limits=replace(chosen.limits, leaders=2, deadline_ms=10_000),
        outages=False,
        preempt=0.0,
        think_s=0.002,
        tastes=Tastes(reading=0.0, transactions=0.0, settings=0.0, deletions=0.0),
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
        watch=WatchBounds(
            watchers_max=rng.choice((1, 2000, 2000)),
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
        crash=some(0.002, 0.01),
        suspend=some(0.005, 0.03),
        suspended_s=rng.choice((0.05, 1.0, 60.0)),
        latency_s=rng.choice((0.0, 0.001, 0.005)),
        slow=some(0.02, 0.1),
    )
