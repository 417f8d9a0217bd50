"""The hot document on a replica set of three members, all of them on this machine."""

from __future__ import annotations

from benchmarks.members import three_members
from benchmarks.results import Figure, Result
from benchmarks.rig import Rig
from benchmarks.scenarios.hot_document import (
    ONE_CLIENT,
    PYMONGO_BACKOFF,
    compare,
    compared,
    time_of_one,
)


def run(rig: Rig) -> Result:
    """Raises UpdateLost when an acknowledged update isn't in the document."""
    with three_members() as uri, rig.on(uri) as there:
        table, results = compare(there, "Hot document, replica set of three: successful updates")
    figures = [Figure(f"three members, {ONE_CLIENT}", "<=", 1.6, time_of_one(results))]
    for clients, bound in ((8, 2), (64, 5)):
        name = f"three members, hot, n={clients}: gateway / pymongo backoff"
        measured = compared(results, clients, PYMONGO_BACKOFF)
        figures.append(Figure(name, ">=", bound, measured))
    return Result([table], figures)
