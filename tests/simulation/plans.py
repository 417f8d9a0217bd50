"""Plans of a kind that shows a certain defect sooner; each changes what a seed has chosen."""

from __future__ import annotations

import random
from dataclasses import replace

from gateway.limits import RetentionLimits, ServiceLimits, WatchLimits

from .faults import Faults
from .plan import Plan, ranging, repeating, retaining
from .workload import Tastes


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
    """Short deadlines, and moves whose answers often get lost."""
    return replace(
        crowded(chosen),
        limits=ServiceLimits(deadline_ms=200),
        faults=Faults(after=0.4, late=0.3),
    )


def belated(chosen: Plan) -> Plan:
    """Short deadlines, and answers that take long."""
    return replace(
        crowded(chosen),
        limits=ServiceLimits(deadline_ms=200),
        faults=Faults(slow=0.2, latency_s=0.005),
        turns=False,
    )


def hurried(chosen: Plan) -> Plan:
    """Many clients on one catalog, whose answers take long while the others go on."""
    faults = Faults(slow=0.2, latency_s=0.005)
    return replace(crowded(chosen), catalogs=1, faults=faults, turns=False)


def tardy(chosen: Plan) -> Plan:
    """Write-outs are late after some milliseconds, while others write the same few documents."""
    late_s = 0.01
    kept = RetentionLimits(sweep_grace_s=2 * late_s, tombstone_grace_s=1_000)
    return replace(
        chosen,
        workers=3,
        catalogs=1,
        keys=2,
        clients=8,
        limits=ServiceLimits(
            full_value_every=64,
            cache_bytes_max=0,
            deadline_ms=10_000,
            batch_requests_max=2,
            leaders=2,
            write_out_grace_ms=5,
            retention=kept,
        ),
        faults=Faults(slow=0.3, latency_s=0.004),
        restarts=False,
        outages=False,
        compactor=False,
        strays=False,
        turns=False,
        clock_steps=False,
        skew_us=0,
        cached_catalogs_max=200_000,
        catch_up_max=1_000,
        think_s=0.002,
        followers=0,
        tastes=Tastes(reading=0.3, transactions=0.1, settings=0.0, deletions=0.0),
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


def timed(chosen: Plan) -> Plan:
    """Reads, often of a moment ago, beside moves that take long."""
    return replace(
        watchful(chosen),
        keys=2,
        skew_us=0,
        faults=Faults(before=0.1, after=0.1, slow=0.2, latency_s=0.005),
        limits=ServiceLimits(deadline_ms=10_000),
    )


def keeping(chosen: Plan) -> Plan:
    """Pins and compactions all the time, of a history that is deleted from often."""
    if not chosen.tastes.retention:
        chosen = retaining(chosen, random.Random(chosen.clients))
    retention = replace(
        chosen.limits.retention, commits=2, sweep_grace_s=0.1, tombstone_grace_s=8, interval_s=1
    )
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


def deleting(chosen: Plan) -> Plan:
    """Deletions of one catalog, in which others go on, and answers that take long."""
    kept = keeping(chosen)
    return replace(
        kept,
        catalogs=1,
        think_s=0.02,
        faults=Faults(slow=0.2, latency_s=0.005),
        tastes=replace(kept.tastes, deletions=0.3, retention=0.05),
    )


def standing(chosen: Plan) -> Plan:
    """One worker that stands still again and again, longer than any of its requests may take."""
    return replace(
        chosen,
        workers=1,
        catalogs=1,
        keys=1,
        clients=6,
        calls=12,
        limits=ServiceLimits(deadline_ms=200, batch_requests_max=3, write_out_grace_ms=0),
        faults=Faults(suspend=0.05, suspended_s=60.0, latency_s=0.0, slow=0.02),
        outages=False,
        restarts=False,
        preempt=0.3,
        think_s=0.02,
        turns=False,
        compactor=False,
        followers=0,
        tastes=Tastes(reading=0.1, transactions=0.1, settings=0.0, deletions=0.0),
    )


def sleeping(chosen: Plan) -> Plan:
    """The same, by workers that sleep for minutes when they have moved a head."""
    kept = keeping(chosen)
    return replace(
        kept,
        faults=Faults(doze=0.15, suspended_s=120.0, slow=0.02),
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
        limits=replace(kept.limits, retention=replace(kept.limits.retention, sweep_grace_s=0.01)),
        tastes=replace(kept.tastes, retention=0.2),
        think_s=0.15,
    )


def quiet(chosen: Plan) -> Plan:
    """Nothing fails; several catalogs, and workers whose tasks never fall behind.

    Of two leaders, the one that goes to look last watches for both; a third one can miss a lane.
    """
    return replace(
        chosen,
        workers=2,
        catalogs=3,
        clients=8,
        faults=Faults(slow=0.1),
        limits=replace(chosen.limits, leaders=3, deadline_ms=10_000),
        outages=False,
        preempt=0.0,
        think_s=0.002,
        tastes=Tastes(reading=0.0, transactions=0.0, settings=0.0, deletions=0.0),
    )


def followed(chosen: Plan) -> Plan:
    """Watchers, of what happens in a hurry; rings hold next to nothing."""
    watch = WatchLimits(ring_commits_max=1, bookmark_commits=3)
    return replace(
        chosen,
        limits=replace(chosen.limits, watch=watch),
        keys=2,
        think_s=0.15,
        followers=4,
        faults=Faults(before=0.05, after=0.05, crash=0.01, slow=0.05),
    )


def kept_and_followed(chosen: Plan) -> Plan:
    """Watchers that history is compacted away from, at once and while they read it."""
    kept = keeping(chosen)
    retention = replace(kept.limits.retention, sweep_grace_s=0.01)
    return replace(
        followed(replace(kept, limits=replace(kept.limits, retention=retention))),
        catalogs=1,
        clients=8,
        think_s=0.5,
        faults=Faults(slow=0.2, latency_s=0.005),
    )


def from_state(chosen: Plan) -> Plan:
    """Watchers that begin with the state, a document to a page, and are cut off; compaction beside
    them, and workers that die."""
    kept = kept_and_followed(chosen)
    return replace(
        kept,
        from_state=True,
        keys=4,
        export_page=1,
        limits=replace(kept.limits, retention=replace(kept.limits.retention, commits=1)),
        compactor=True,
        faults=Faults(before=0.03, after=0.03, crash=0.01, slow=0.2, latency_s=0.005),
        outages=False,
    )


def deafened(chosen: Plan) -> Plan:
    """Watchers of many catalogs with few commits each, over signals that keep breaking off."""
    return replace(
        followed(chosen),
        catalogs=3,
        clients=4,
        calls=4,
        faults=Faults(before=0.2, after=0.1, slow=0.05),
    )


def kept_ranges(chosen: Plan) -> Plan:
    """Compaction all the time by workers that forget what they have seen, and looks at ranges."""
    kept = ranging(keeping(chosen))
    retention = replace(kept.limits.retention, commits=1)
    return replace(
        kept,
        catalogs=2,
        cached_catalogs_max=1,
        compactor=True,
        limits=replace(kept.limits, retention=retention),
        tastes=replace(kept.tastes, reading=0.1, deletions=0.3, ranges=0.9),
        faults=Faults(),
        outages=False,
    )


def owning_at_a_distance(chosen: Plan) -> Plan:
    """Managers on one document through several workers, whose answers take long."""
    faults = Faults(slow=0.2, latency_s=0.005)
    chosen = replace(crowded(chosen), catalogs=1, keys=1, faults=faults, turns=False)
    tastes = Tastes(0.2, transactions=0.0, settings=0.0, deletions=0.0, owners=0.8)
    return replace(chosen, tastes=tastes, limits=replace(chosen.limits, deadline_ms=10_000))


def reverting(chosen: Plan) -> Plan:
    """The same, with many reverts."""
    chosen = owning_at_a_distance(chosen)
    return replace(chosen, tastes=replace(chosen.tastes, owners=0.4, reverts=0.4))


def listing_at_a_distance(chosen: Plan) -> Plan:
    """Managers and others on the lists of one document, in the same way."""
    chosen = owning_at_a_distance(chosen)
    return replace(chosen, tastes=replace(chosen.tastes, owners=0.3, lists=0.7))


def reverting_lists(chosen: Plan) -> Plan:
    """The same, with many reverts."""
    chosen = listing_at_a_distance(chosen)
    return replace(chosen, tastes=replace(chosen.tastes, reverts=0.4))


def declaring(chosen: Plan) -> Plan:
    """Settings that declare lists, while others write such lists in a few documents."""
    chosen = listing_at_a_distance(chosen)
    tastes = replace(chosen.tastes, reading=0.0, lists=1.0)
    return replace(chosen, keys=2, tastes=tastes)


def repeating_at_a_distance(chosen: Plan) -> Plan:
    """Operations that may be sent twice, on one document through several workers, whose answers
    take long."""
    return repeating(owning_at_a_distance(chosen))
