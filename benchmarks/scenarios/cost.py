"""What a request can cost everybody else of its worker: the worst that a search of a while finds.

``python -m benchmarks.cost --minutes 60`` looks for longer, and writes down what it found.
"""

from __future__ import annotations

from benchmarks.cost.search import AIMS, BLOCKED_CPU_MS_MAX, MEMORY_MIB_MAX, Search
from benchmarks.results import Figure, Result, Table
from benchmarks.rig import Rig
from benchmarks.rounds import spread

_SECONDS, _QUICK_SECONDS = 600.0, 60.0
_COLUMNS = ("aim", "route", "blocked, ms of CPU", "CPU ms", "MiB", "sent B", "answers", "seed")


def run(rig: Rig) -> Result:
    if not rig.with_gateway:
        return Result()
    search = Search(rig.uri, rig.serial(), rig.progress)
    search.run(_QUICK_SECONDS if rig.quick else _SECONDS)
    rows = []
    for (aim, route), kept in sorted(search.worst.items()):
        cost = kept[0].cost
        numbers = (cost.blocked_cpu_ms, cost.cpu_ms, cost.memory_mib, cost.sent_bytes)
        statuses = ", ".join(map(str, sorted(set(cost.statuses))))
        rows.append((aim, route, *(f"{each:,.0f}" for each in numbers), statuses, kept[0].seed))
    worst = {
        aim: max(of(kept[0].cost) for (name, _), kept in search.worst.items() if name == aim)
        for aim, of in AIMS.items()
    }
    return Result(
        [Table(f"Cost of the worst of {search.tried} programs", _COLUMNS, rows)],
        [
            Figure("longest block", "<=", BLOCKED_CPU_MS_MAX, spread([worst["blocked"]]), " ms"),
            Figure("most memory", "<=", MEMORY_MIB_MAX, spread([worst["memory"]]), " MiB"),
        ],
    )
