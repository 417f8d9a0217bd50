"""What the rounds of the commit loop work with."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.commit.claims import Claims
from gateway.commit.queue import Queue
from gateway.decide.request import Rules
from gateway.memory import Memory
from gateway.meters import NO_METERS, Meters
from gateway.runtime import Runtime
from gateway.state.cache import Cache
from gateway.state.heads import Observer
from gateway.state.write_out import WriteOut
from gateway.store.contract import Store


@dataclass(frozen=True, slots=True)
class RoundParts:
    """What a round works with; put together in ``gateway.service``."""

    store: Store
    runtime: Runtime
    cache: Cache
    observer: Observer
    write_out: WriteOut
    queue: Queue
    claims: Claims
    rules: Rules
    meters: Meters = NO_METERS
    memory: Memory | None = None  # of the process; None: nobody counts it
