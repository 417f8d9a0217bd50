"""Reading a document far back in its history, against reading it as it is."""

from __future__ import annotations

from functools import partial

from benchmarks import load, rounds, stored, wire
from benchmarks.bulk import bulk_lines, send_bulk
from benchmarks.clients import ReadClient
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

REVISIONS = 10_000

HEAD = "as it is"
BACK = f"{REVISIONS:,} revisions back"


def run(rig: Rig) -> Result:
    name = f"time of a read: {REVISIONS:,} revisions back / as it is"
    if not rig.with_gateway:
        return Result(figures=[Figure(name, "<=", 3, None)])
    port, catalog = rig.gateway(), f"back-{rig.serial()}"
    target = stored.put_one(port, catalog)[0]
    rig.progress(f"making {REVISIONS:,} revisions")
    lines = bulk_lines([target], REVISIONS + 50)
    for start in range(0, len(lines), 1_000):
        send_bulk(port, lines[start : start + 1_000])
    answer = load.ask(port, wire.get(target.path))
    head = int(wire.header(answer.head, "Catalog-Revision"))
    variants = {
        HEAD: partial(_read, rig, target.path),
        # Neighbours of that revision too: how far it is to the last full value differs.
        BACK: partial(
            _read,
            rig,
            *(f"{target.path}?revision={head - REVISIONS - back}" for back in range(0, 50, 7)),
        ),
    }
    results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [Table("Time travel: reads of one document", LOAD_COLUMNS, load_rows(1, results))],
        [Figure(name, "<=", 3, rounds.ratio(results[HEAD], results[BACK]))],
    )


def _read(rig: Rig, *paths: str) -> Measurement:
    return rig.run(rig.gateway(), [_Reader(paths)])


class _Reader(ReadClient):
    """Reads one after the other of several paths."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(paths[0])
        self._requests = [wire.get(path) for path in paths]

    def request(self) -> bytes:
        self._requests.append(self._requests.pop(0))
        return self._requests[-1]
