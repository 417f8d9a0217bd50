"""Large jobs on paper: ``python -m benchmarks.planning`` prints what *Planning for size* says in
``docs/operations.md``. Arithmetic and two small simulations, no server and no clock.

*Turns.* Each of ``streams`` clients sends requests on one catalog, which commits ``rate`` lines a
second, and waits for its turn of ``WINDOW`` lines. One that gets no answer for ``timeout_s`` breaks
off, pauses, and sends again what wasn't answered. What was on its way by then is committed, and
answered again as a replay, which takes as long.

*Keys.* Idempotency keys are an index in random order. A page of it that isn't in the cache is read
before a key is written into it, and written back when another takes its place.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

WINDOW: Final = 64
_PAUSE_S: Final = 30.0
# An entry of the index: catalog, principal and key of a sink's row. Leaves are two thirds full.
ENTRY_BYTES: Final = 100
LEAF_BYTES: Final = 32 * 1024
_FILL: Final = 0.67


@dataclass(frozen=True)
class Turns:
    """``turn_s``: seconds that a client waits for its turn; ``useful``: the share of what was
    committed that a client had an answer to."""

    turn_s: float
    useful: float


def turns(streams: int, timeout_s: float, rate: float, *, lines_each: int = 1_000) -> Turns:
    """Until each client has answers to so many lines, or four times as many were committed. The
    same input gives the same result."""
    luck = random.Random(1)
    left = [lines_each] * streams
    # When each of them began to wait for its next window.
    waiting = [(luck.random(), client) for client in range(streams)]
    heapq.heapify(waiting)
    now = waited_s = 0.0
    committed = answered = windows = 0
    while waiting and committed < 4 * streams * lines_each:
        since, client = heapq.heappop(waiting)
        lines = min(WINDOW, left[client])
        now = max(now, since) + lines / rate
        committed += lines
        windows += 1
        waited_s += now - since
        if now - since > timeout_s:
            heapq.heappush(waiting, (now + luck.uniform(0, _PAUSE_S), client))
            continue
        left[client] -= lines
        answered += lines
        if left[client]:
            heapq.heappush(waiting, (now, client))
    return Turns(waited_s / windows, answered / committed)


def missed(keys: int, cache_bytes: int, *, scale: int = 100) -> float:
    """The share of the last tenth of so many keys whose page isn't in the cache, which is all the
    index's. Simulated on a hundredth of both."""
    luck = random.Random(1)
    leaves = max(1, round(keys / scale * ENTRY_BYTES / _FILL / LEAF_BYTES))
    held = max(1, round(cache_bytes / scale / LEAF_BYTES))
    cache: OrderedDict[int, None] = OrderedDict()
    asked = keys // scale
    last, misses = asked // 10, 0
    for number in range(asked):
        # The index grows: so far it has as many leaves as it has keys for.
        leaf = luck.randrange(max(1, leaves * (number + 1) // asked))
        if leaf in cache:
            cache.move_to_end(leaf)
            continue
        misses += number >= asked - last
        cache[leaf] = None
        if len(cache) > held:
            cache.popitem(last=False)
    return misses / last


def main() -> None:
    print("lines/s  streams  timeout  turn s  useful")
    for rate in (5_000, 2_500):
        for streams in (400, 1_000, 2_000, 4_000, 8_000):
            for timeout_s in (60, 300):
                found = turns(streams, timeout_s, rate)
                told = f"{found.turn_s:8.1f} {found.useful:7.0%}"
                print(f"{rate:7,} {streams:8,} {timeout_s:8}{told}")
    print("\n       keys  index GB  cache GB  pages read for a key")
    for keys in (10_000_000, 100_000_000):
        size = keys * ENTRY_BYTES / _FILL / 1e9
        for cache in (0.25, 1, 4, 16):
            print(f"{keys:11,} {size:9.1f} {cache:9} {missed(keys, int(cache * 1e9)):10.2f}")


if __name__ == "__main__":
    main()
