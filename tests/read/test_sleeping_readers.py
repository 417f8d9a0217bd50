"""A reader that sleeps between the head and the document."""

from __future__ import annotations

from gateway.decide.edits import Delete
from gateway.limits import ServiceLimits
from gateway.service import GatewayService
from tests.memory_store import MemoryStore
from tests.without_http import SetClock, WatchedStore, once, put, wait_until


def test_a_document_purged_during_the_read_is_not_returned_at_an_old_revision() -> None:
    memory, clock = MemoryStore(), SetClock()
    watched = WatchedStore(memory)
    limits = ServiceLimits(cache_bytes_max=0)
    sleeper = GatewayService(watched, clock, limits)  # type: ignore[arg-type]
    other = GatewayService(memory, clock, limits)
    other.write("c", "k", put(1))
    wait_until(lambda: memory.last_written({"c": [1]}) == {"c": 1})
    memory.end_tails({"c": (1, 0)})

    def sleep() -> None:
        other.write("c", "k", Delete())
        wait_until(lambda: memory.last_written({"c": [2]}) == {"c": 2})
        clock.passed_s += limits.retention.tombstone_grace_s + 1
        assert memory.purge_tombstones("c", 2, clock.now_us(), 9) == 1

    watched.before["documents"] = once(sleep)
    reading = sleeper.read("c", "k")
    assert reading.catalog_revision == 2
    assert reading.document is None or not reading.document.exists
