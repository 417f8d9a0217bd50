"""A catalog of which a hundredth changed: kept in step, against writing all of it again.

Rewritten are all documents of a catalog of the same size, each with another name in it, so that
each is a write; and, for comparison, those of this catalog by what a sync would be given, where the
gateway finds 99% of them as they are. A catalog of the same documents is kept in step by a manager
that owns them: by itself in ``spark-sync-manager``, beside a sync without one. In
``spark-sync-state`` the runs leave each other a state.

On a machine that others keep busy, the processor time of a document says more than seconds do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks import rounds
from benchmarks.measurement import Measurement, UpdateLost
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig
from benchmarks.rounds import Spread
from benchmarks.scenarios.spark_parts import PARTS, cpu_s
from benchmarks.spark_session import THREADS, datasets, session, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from patching.spark.sync_reports import SyncReport

DOCUMENTS = 60_000
DOCUMENTS_QUICK = 10_000
CHANGED_EVERY = 100

SYNC = "sync, 1% changed"
SPELLED = "sync, 1% changed, spelled differently"
STRUCTS = "sync, 1% changed, structs"
NOTHING = "sync, nothing to do"
MANAGED = "sync with a manager, 1% changed"
MANAGED_NOTHING = "sync with a manager, nothing to do"
REMEMBERED = "sync with a state, 1% changed"
REMEMBERED_NOTHING = "sync with a state, nothing to do"
REWRITE = "all rewritten, by the sink"
OVERWRITE = "all put by the sink, 1% changed"

_TARGETS = {SYNC: 12, SPELLED: 10, STRUCTS: 10}
_REMEMBERED_TARGETS = {REMEMBERED: 15, REMEMBERED_NOTHING: None}
_MANAGED_MAX = 1.3
_MANAGED_BESIDE = {MANAGED: SYNC, MANAGED_NOTHING: NOTHING}


def run(rig: Rig) -> Result:
    if not rig.with_gateway:
        return Result(figures=_figures(_count(rig), None, None))
    tables, results = _measured(rig, _Compared.variants)
    ratios = {each: rounds.ratio(results[each], results[REWRITE]) for each in _TARGETS}
    idle = rounds.spread([each.per_second for each in results[NOTHING]])
    return Result(tables, _figures(_count(rig), ratios, idle))


def run_managed(rig: Rig) -> Result:
    if not rig.with_gateway:
        return Result(figures=_managed_figures(_count(rig), None))
    tables, results = _measured(rig, _Compared.managed_variants)
    return Result(tables, _managed_figures(_count(rig), results))


def run_remembered(rig: Rig) -> Result:
    """With a state, and without one; what is rewritten is another catalog of the same size."""
    if not rig.with_gateway:
        return Result(figures=_remembered_figures(None, None, None))
    with TemporaryDirectory(prefix="benchmark-state-") as folder:
        tables, results = _measured(rig, lambda each: each.remembered_variants(Path(folder)))
    ratios = {
        each: rounds.ratio(results[each], results[REWRITE])
        for each in (*_REMEMBERED_TARGETS, SYNC, NOTHING)
    }
    cpu = {each: rounds.cpu_ratio(results[REWRITE], results[each]) for each in ratios}
    idle = rounds.spread([each.per_second for each in results[REMEMBERED_NOTHING]])
    return Result(tables, _remembered_figures(ratios, cpu, idle))


def _measured(
    rig: Rig, variants_of: Callable[[_Compared], dict[str, Callable[[], Measurement]]]
) -> tuple[list[Table], Mapping[str, Sequence[Measurement]]]:
    count = _count(rig)
    with session() as spark:
        states = [datasets(spark, count), datasets(spark, count, CHANGED_EVERY)]
        variants = variants_of(_Compared(rig, states, count))
        rig.progress("loading")
        for measure in variants.values():  # the workers' Python has to start, too
            measure()
        port = rig.gateway()
        taken: dict[str, list[Mapping[str, float]]] = {name: [] for name in variants}
        timed = {
            name: _with_cpu(port, count, measure, taken[name]) for name, measure in variants.items()
        }
        results = rounds.interleave(timed, rig.rounds, rig.progress)
    title = f"{count:,} documents of 1.5 KB, of which 1% changed (latency: of all)"
    return [
        Table(title, LOAD_COLUMNS, load_rows(THREADS, results)),
        Table(
            "Processor time of a document in µs, by part (median of the rounds)",
            ("variant", *PARTS, "all"),
            [[name, *_cpu_cells(each, count)] for name, each in taken.items()],
        ),
    ], results


def _with_cpu(
    port: int,
    count: int,
    measure: Callable[[], Measurement],
    taken: list[Mapping[str, float]],
) -> Callable[[], Measurement]:
    """``measure``, with the processor time of all parts, which are added to ``taken``."""

    def run() -> Measurement:
        before = cpu_s(port)
        measurement = measure()
        parts = {part: seconds - before[part] for part, seconds in cpu_s(port).items()}
        taken.append(parts)
        return replace(measurement, cpu_s=sum(parts.values()), statuses={200: count})

    return run


def _cpu_cells(rounds_: Sequence[Mapping[str, float]], count: int) -> list[str]:
    columns = [[each[part] for each in rounds_] for part in PARTS]
    columns.append([sum(each.values()) for each in rounds_])
    return [f"{rounds.spread(each).median / count * 1e6:.1f}" for each in columns]


def _count(rig: Rig) -> int:
    return rig.documents or (DOCUMENTS_QUICK if rig.quick else DOCUMENTS)


def _managed_figures(
    count: int, results: Mapping[str, Sequence[Measurement]] | None
) -> list[Figure]:
    return [
        Figure(
            f"time of {managed}, {count:,} documents / of {plain}",
            "<=",
            _MANAGED_MAX,
            rounds.ratio(results[plain], results[managed]) if results else None,
        )
        for managed, plain in _MANAGED_BESIDE.items()
    ]


def _remembered_figures(
    ratios: Mapping[str, Spread] | None, cpu: Mapping[str, Spread] | None, idle: Spread | None
) -> list[Figure]:
    wanted = {**_REMEMBERED_TARGETS, SYNC: None, NOTHING: None}
    return [
        *(
            Figure(f"{each} / all rewritten", ">=", bound, ratios[each] if ratios else None)
            for each, bound in wanted.items()
        ),
        *(
            Figure(f"CPU of all rewritten / of {each}", ">=", None, cpu[each] if cpu else None)
            for each in wanted
        ),
        Figure(REMEMBERED_NOTHING, ">=", 60_000, idle, "documents/s"),
    ]


def _figures(count: int, ratios: Mapping[str, Spread] | None, idle: Spread | None) -> list[Figure]:
    names = {each: f"{each}, {count:,} documents / all rewritten" for each in _TARGETS}
    return [
        *(
            Figure(names[each], ">=", bound, ratios[each] if ratios else None)
            for each, bound in _TARGETS.items()
        ),
        Figure(f"{NOTHING}, {count:,} documents", ">=", None, idle, "documents/s"),
    ]


class _Compared:
    """The catalog that goes to and fro between two states, and the one that is rewritten."""

    def __init__(self, rig: Rig, states: Sequence[DataFrame], count: int) -> None:
        self._rig = rig
        self._states = states
        self._count = count
        self._port = rig.gateway()
        self._catalog = f"spark-sync-{rig.serial()}"
        self._rewritten = f"spark-rewrite-{rig.serial()}"
        self._managed = f"spark-managed-{rig.serial()}"
        self._remembered = f"spark-state-{rig.serial()}"
        self._turn = 0
        self._managed_turn = 0
        self._remembered_turn = 0

    def variants(self) -> dict[str, Callable[[], Measurement]]:
        write(self._states[0], self._port, self._catalog)
        spelled = [e.selectExpr("key", "concat(' ', document) as document") for e in self._states]
        # Read from memory: what is measured isn't taking the texts apart.
        structs = [_as_structs(each).persist() for each in self._states]
        for each in structs:
            each.count()
        return {
            SYNC: lambda: self._timed(lambda: self._step(self._states)),
            SPELLED: lambda: self._timed(lambda: self._step(spelled)),
            STRUCTS: lambda: self._timed(lambda: self._step(structs)),
            NOTHING: lambda: self._timed(self._nothing, turns=False),
            OVERWRITE: lambda: self._timed(self._overwrite),
            REWRITE: lambda: self._timed(self._rewrite, turns=False),
        }

    def managed_variants(self) -> dict[str, Callable[[], Measurement]]:
        write(self._states[0], self._port, self._catalog)
        self._sync(self._states[0], catalog=self._managed, manager="nightly")
        return {
            SYNC: lambda: self._timed(lambda: self._step(self._states)),
            MANAGED: lambda: self._timed(self._apply, turns=False),
            NOTHING: lambda: self._timed(self._nothing, turns=False),
            MANAGED_NOTHING: lambda: self._timed(self._apply_nothing, turns=False),
        }

    def remembered_variants(self, folder: Path) -> dict[str, Callable[[], Measurement]]:
        for catalog in (self._catalog, self._remembered):
            write(self._states[0], self._port, catalog)
        state = str(folder / "state")
        self._sync(self._states[0], catalog=self._remembered, state=state)
        return {
            REMEMBERED: lambda: self._timed(lambda: self._step_remembered(state), turns=False),
            REMEMBERED_NOTHING: lambda: self._timed(
                lambda: self._remembered_nothing(state), turns=False
            ),
            SYNC: lambda: self._timed(lambda: self._step(self._states)),
            NOTHING: lambda: self._timed(self._nothing, turns=False),
            REWRITE: lambda: self._timed(self._rewrite, turns=False),
        }

    def _timed(self, act: Callable[[], None], turns: bool = True) -> Measurement:
        """``turns``: to the other state."""
        self._turn = (self._turn + turns) % 2
        begun = time.perf_counter()
        act()
        seconds = time.perf_counter() - begun
        return Measurement(self._count, seconds, seconds * 1e3, seconds * 1e3, seconds * 1e3)

    def _sync(
        self,
        frame: DataFrame,
        catalog: str = "",
        manager: str | None = None,
        state: str | None = None,
    ) -> SyncReport:
        from patching.spark.sync import sync

        url = f"http://127.0.0.1:{self._port}"
        return sync(frame, catalog or self._catalog, url=url, manager=manager, state=state)

    def _step(self, frames: Sequence[DataFrame]) -> None:
        report = self._sync(frames[self._turn])
        if report.patched != -(-self._count // CHANGED_EVERY) or not report.in_step:
            raise UpdateLost(f"{report}")

    def _apply(self) -> None:
        self._managed_turn = 1 - self._managed_turn
        report = self._sync(
            self._states[self._managed_turn], catalog=self._managed, manager="nightly"
        )
        if report.patched != -(-self._count // CHANGED_EVERY) or not report.in_step:
            raise UpdateLost(f"{report}")

    def _apply_nothing(self) -> None:
        state = self._states[self._managed_turn]
        report = self._sync(state, catalog=self._managed, manager="nightly")
        if report.unchanged != self._count or report.sent:
            raise UpdateLost(f"{report}")

    def _step_remembered(self, state: str) -> None:
        self._remembered_turn = 1 - self._remembered_turn
        frame = self._states[self._remembered_turn]
        report = self._sync(frame, catalog=self._remembered, state=state)
        if report.patched != -(-self._count // CHANGED_EVERY) or not report.in_step:
            raise UpdateLost(f"{report}")

    def _remembered_nothing(self, state: str) -> None:
        frame = self._states[self._remembered_turn]
        report = self._sync(frame, catalog=self._remembered, state=state)
        if report.unchanged != self._count or report.sent:
            raise UpdateLost(f"{report}")

    def _nothing(self) -> None:
        report = self._sync(self._states[self._turn])
        if report.unchanged != self._count:
            raise UpdateLost(f"{report}")

    def _overwrite(self) -> None:
        write(self._states[self._turn], self._port, self._catalog)

    def _rewrite(self) -> None:
        named = f"replace(document, 'orders_', 'orders_{self._rig.serial()}_') as document"
        write(self._states[0].selectExpr("key", named), self._port, self._rewritten)


def _as_structs(texts: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    sample = texts.selectExpr("document").first()
    assert sample is not None
    kind = F.schema_of_json(F.lit(sample[0]))
    return texts.select("key", F.from_json("document", kind).alias("document"))
