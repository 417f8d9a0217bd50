"""``sync``: make a catalog equal to a frame, with the fewest and smallest writes.

::

    wanted ──┐
             ├─ join by key ── diff in the tasks ── lines that differ ── /v1/bulk ── done
    there ───┘  (one pinned revision)                    ^                  |
                                                         |                  | guards that
                                                         +── the catalog <──+ were false
                                                             as it is now     (these keys alone)

Nothing is sent before every wanted row has been found valid. Each line is guarded by the token of
the document that it was made from, so a document that others wrote meanwhile is compared again
before it is changed. If Spark repeats a task, its lines and idempotency keys are the same, so the
gateway applies each once.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, StringType

from patching.list_declarations import NO_DECLARATIONS, ListDeclarations
from patching.ownership import OnConflict
from patching.spark import delivery, plan
from patching.spark.catalog_reads import catalog_reads, held_revision
from patching.spark.datasource import register
from patching.spark.delivery import Delivery, fence_member
from patching.spark.desired import DesiredInvalid, has_text, invalid, wanted_rows, with_hash
from patching.spark.documents_there import (
    COMPARED,
    DigestPlanner,
    KeyedPlanner,
    compared,
    compared_by_hash,
    digests_there,
)
from patching.spark.managed import DEFAULT_CONFLICT, ManagedPlanner, begin_run, next_run
from patching.spark.options import OPTIONS, READ, WRITE, OptionRefused, Options
from patching.spark.plan import Planner
from patching.spark.session import parallelism
from patching.spark.sync_reports import PlanReport, SyncReport, totals, with_lost, with_round
from patching.spark.sync_state import CurrentRows, SyncState, needs_saving, remembered
from patching.spark.version_steps import Version, give_up

Progress = Callable[[str], None]
# Options of the data source that everything in this package takes.
COMMON_OPTIONS: Final = frozenset(
    (
        "url",
        "catalog",
        "token",
        "tokenfile",
        "cafile",
        "certificatefile",
        "keyfile",
        "timeout",
        "retrytimeout",
        "maxretries",
        "partitions",
        "prefix",
        "pinseconds",
    )
)
_OPTIONS: Final = COMMON_OPTIONS | {"batchsize", "message"}
# The share of documents that may be deleted, by default.
MAX_DELETES: Final = 0.5


def sync(
    desired: DataFrame | str,
    catalog: str,
    *,
    url: str,
    delete: bool = False,
    key: str = "key",
    document: str | None = None,
    prefix: str = "",
    message: str | None = None,
    manager: str | None = None,
    conflict: OnConflict = DEFAULT_CONFLICT,
    rounds: int = 5,
    allow_empty: bool = False,
    max_deletes: float = MAX_DELETES,
    state: str | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> SyncReport:
    """Make ``catalog`` equal to ``desired``: a frame, or the name of a table.

    Column ``key`` holds the keys and column ``document`` the documents: JSON strings, structs, maps
    or arrays. Without a column of that name, all other columns form one object. Other documents of
    the catalog stay, unless ``delete`` is true: it deletes at most ``max_deletes`` of them (an int
    is a number, a float up to 1 a share of the documents that are there) or, with ``allow_empty``,
    even all. ``prefix``: keys outside it are neither wanted nor deleted.

    ``manager`` applies its part of each document, and owns that: fields of others stay, and what it
    no longer sends is removed. ``conflict`` says what happens to leaves that others own. ``delete``
    then lets go of all that it owns in other documents, and deletes those in which nobody owns
    anything any more. Of the runs of a manager with one ``prefix``, the one that began last counts:
    lines of the others are refused from its first line on.

    A document that somebody else writes between the comparison and the write is compared again, in
    at most ``rounds`` rounds; after these it counts as ``lost``. Attributes are never touched.
    ``options`` are those of the data source, such as ``batchSize``, ``token`` or ``retryTimeout``;
    ``partitions`` is the number of tasks (default: as many as run at a time).
    ``state``: a folder of this job, see ``sync_state``; the outcome is the same as without it.

    Raises DesiredInvalid before anything is sent, for null, empty or repeated keys, documents that
    aren't JSON, or more deletes than allowed; ValueError for columns and options; Overtaken if a
    later run of the manager began meanwhile. After any other error, some of the writes are done;
    another ``sync`` does the rest.
    """
    if rounds < 1:
        raise ValueError("rounds must be at least 1")
    given = _given(url, catalog, prefix, message, options)
    work = _Work.of(desired, key, document, manager, conflict, given, progress)
    work.state = state
    return work.sync(_Deletes(delete, allow_empty, max_deletes), rounds)


def write_plan(
    desired: DataFrame | str,
    catalog: str,
    path: str,
    *,
    url: str,
    delete: bool = False,
    key: str = "key",
    document: str | None = None,
    prefix: str = "",
    message: str | None = None,
    manager: str | None = None,
    conflict: OnConflict = DEFAULT_CONFLICT,
    allow_empty: bool = False,
    max_deletes: float = MAX_DELETES,
    overwrite: bool = False,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> PlanReport:
    """Write the lines that ``sync`` would send into a file below ``path``, and send nothing.

    The file is a body of ``POST /v1/bulk``. Its guards hold whenever, and however often, it is
    sent: see ``replay``. Arguments and errors are those of ``sync``. Lines of a manager have
    the fence of a run: they are good until its next run or plan, and for as long as idempotency
    keys are remembered.
    """
    given = _given(url, catalog, prefix, message, options)
    work = _Work.of(desired, key, document, manager, conflict, given, progress)
    return work.write_plan(path, _Deletes(delete, allow_empty, max_deletes), overwrite)


def replay(
    spark: SparkSession,
    path: str,
    *,
    url: str,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> SyncReport:
    """Send the lines that ``write_plan`` left in files below ``path``, under their guards.

    Nothing is compared again: a document that somebody changed after the plan was made stays as it
    is and counts as ``lost``. A line that an earlier replay sent gets the same answer again.
    ``unchanged`` counts only lines that changed nothing. ``revision`` is 0, as a plan has none.
    Raises ValueError if there is no plan, or an incomplete one.
    """
    begun = time.monotonic()
    writing = Options.parse(options_for({"url": url, **(options or {})}, WRITE), WRITE)
    texts = spark.read.text(path)
    if not texts.inputFiles():  # a plan without lines has one, too
        raise ValueError(f"there is no complete plan in {path!r}")
    lines = texts.select(F.col("value").alias("line")).where(F.col("line") != "")
    named = lines.select(F.get_json_object("line", "$.catalog").alias("catalog"))
    catalogs = [row["catalog"] for row in named.distinct().limit(2).collect()]
    if progress is not None:
        progress(f"sending {lines.count():,} changes")
    # As many tasks as can run at a time, whatever the number of files.
    spread = lines.repartition(parallelism(spark))
    with ExitStack() as kept:
        outcomes = _kept(kept, spread.mapInArrow(Delivery(writing).batches, delivery.SCHEMA))
        catalog = str(catalogs[0]) if len(catalogs) == 1 else ""
        report = with_lost(with_round(SyncReport(catalog, 0, rounds=0), outcomes), outcomes)
        return replace(report, seconds=time.monotonic() - begun)


@dataclass
class _Work:
    """One run. ``sync`` and ``write_plan`` free the frames that they keep on disk."""

    spark: SparkSession
    wanted: DataFrame
    # The type of the values as they were given.
    kind: DataType
    reading: Options
    writing: Options
    progress: Progress
    manager: str | None
    conflict: OnConflict
    state: str | None = None
    version: Version | None = None
    lists: ListDeclarations = NO_DECLARATIONS
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:20])
    begun: float = field(default_factory=time.monotonic)

    @classmethod
    def of(
        cls,
        desired: DataFrame | str,
        key: str,
        document: str | None,
        manager: str | None,
        conflict: OnConflict,
        given: Mapping[str, Any],
        progress: Progress | None,
    ) -> _Work:
        """``given``: options of the data source, for any use. Raises ValueError."""
        frame = _frame(desired)
        spark = frame.sparkSession
        register(spark)
        read_options = options_for(given, READ)
        if "partitions" not in read_options:
            read_options["partitions"] = str(parallelism(spark))
        writing = Options.parse(options_for(given, WRITE), WRITE)
        reading = Options.parse(read_options, READ)
        wanted, kind = wanted_rows(frame, key, document, reading.partitions or 1)
        if manager is None and conflict != DEFAULT_CONFLICT:
            raise ValueError("conflict needs a manager")
        terms = {"conflict": conflict} | ({} if manager is None else {"manager": manager})
        Options.parse({"url": writing.url, **terms}, WRITE)
        show = progress or (lambda _text: None)
        return cls(spark, wanted, kind, reading, writing, show, manager, conflict)

    @property
    def catalog(self) -> str:
        return str(self.reading.catalog)

    @property
    def prefix(self) -> str:
        return self.reading.prefix or ""

    @property
    def partitions(self) -> int:
        return self.reading.partitions or 1

    def sync(self, deletes: _Deletes, rounds: int) -> SyncReport:
        with ExitStack() as kept:
            comparison = self._compared(kept, "sync", deletes.wanted)
            revision, planned, outcomes = comparison.revision, comparison.planned, None
            counts = self._checked(planned, deletes, comparison)
            fence = self._begun(counts)
            if self.version is not None and fence is not None:
                kept.callback(give_up, self.writing, self.version, {self.catalog: False})
            report = SyncReport(self.catalog, revision, rounds=0)
            rounds_done: list[tuple[DataFrame, DataFrame | None]] = []
            while True:
                known = report.unchanged + counts.get(plan.UNCHANGED, 0)
                report = replace(report, unchanged=known, lost=0)
                if not _to_send(counts):
                    rounds_done.append((planned, None))
                    break
                outcomes = self._deliver(kept, planned, counts, report.rounds + 1, fence)
                report = with_round(report, outcomes)
                rounds_done.append((planned, outcomes))
                if not report.lost or report.rounds == rounds:
                    report = with_lost(report, outcomes)
                    break
                self.progress(f"comparing {report.lost:,} documents again, which others changed")
                planned = self._planned_again(kept, planned, outcomes, report.rounds + 1)
                counts = self._checked(planned)
            self._remember(comparison, rounds_done, report)
            seconds = time.monotonic() - self.begun
            return replace(report, rounds=max(report.rounds, 1), seconds=seconds)

    def _remember(
        self,
        comparison: _Comparison,
        rounds_done: Sequence[tuple[DataFrame, DataFrame | None]],
        report: SyncReport,
    ) -> None:
        """Save the state for the next run, if that saves work."""
        state, pairs, there = comparison.state, comparison.pairs, comparison.there
        if state is None or pairs is None or there is None:
            return
        differing = comparison.differing or 0
        if not needs_saving(there, report.revision + report.sent, differing):
            return
        sent = report.sent if self.manager is None else None
        with catalog_reads(self.reading) as reads:
            about = state.about(reads, self.run, there, report.revision, sent)
        state.save(remembered(pairs, there, rounds_done if differing else (), differing), about)

    def _begun(self, counts: Mapping[str, int]) -> str | None:
        """Begin the manager's run if there are lines to send; returns their fence."""
        if self.version is None or not _to_send(counts):
            return None
        return begin_run(self.writing, self.catalog, self.version)

    def write_plan(self, path: str, deletes: _Deletes, overwrite: bool) -> PlanReport:
        with ExitStack() as kept:
            comparison = self._compared(kept, "plan", deletes.wanted)
            revision, planned = comparison.revision, comparison.planned
            counts = self._checked(planned, deletes)
            self.progress(f"writing {_to_send(counts):,} lines")
            line, end = F.col("line"), fence_member(self._begun(counts))
            whole = F.concat(line.substr(F.lit(1), F.length(line) - 1), F.lit(end))
            lines = planned.where(line.isNotNull()).select(whole.alias("line"))
            # One file is there as a whole or not at all. Of several, a run that ends while Spark
            # moves them into place would leave some, and nothing would tell.
            writer = lines.coalesce(1).write.option("maxRecordsPerFile", 0)
            writer.mode("overwrite" if overwrite else "error").text(path)
            return PlanReport(
                self.catalog,
                revision,
                path,
                unchanged=counts.get(plan.UNCHANGED, 0),
                create=counts.get(plan.CREATE, 0),
                patch=counts.get(plan.PATCH, 0),
                delete=counts.get(plan.DELETE, 0),
                apply=counts.get(plan.APPLY, 0) + counts.get(plan.APPLY_FIRST, 0),
                let_go=counts.get(plan.LET_GO, 0),
                seconds=time.monotonic() - self.begun,
            )

    def _compared(self, kept: ExitStack, what: str, delete: bool) -> _Comparison:
        """Compare the wanted documents with the catalog, whose revision is held for ``what`` until
        ``kept`` closes."""
        if self.manager is not None:  # the run that begins later counts, whoever sends first
            about = (self.catalog, self.manager, self.prefix)
            self.version = next_run(self.writing, *about, time.time_ns() // 1_000)
        revision = kept.enter_context(held_revision(self.reading, f"{what} {self.run}"))
        if revision:  # else the catalog was never written
            with catalog_reads(self.reading) as reads:
                self.lists = reads.lists()
        self.progress(f"comparing with revision {revision}")
        how = "full_outer" if delete else "left_outer"
        state = self._sync_state(delete)
        planner = DigestPlanner(self._planner(1), self.reading, revision, state is not None)
        if state is None:
            there = digests_there(self.spark, self.reading, revision, self.manager)
            rows = compared(self.wanted, there.repartition(self.partitions, "there"), how)
            return _Comparison(revision, _kept(kept, rows.mapInArrow(planner.batches, plan.SCHEMA)))
        now = state.there(self.reading, revision, self.manager)
        wanted = with_hash(self.wanted)
        there = state.spread(now.rows) if now.by_feed else now.rows
        pairs = compared_by_hash(wanted, there, how, by_feed=now.by_feed)
        pairs = _kept(kept, pairs)
        found = {row["same"]: row["count"] for row in pairs.groupBy("same").count().collect()}
        rows = pairs.where(~F.col("same")).select(*COMPARED)
        planned = _kept(kept, rows.mapInArrow(planner.batches, plan.SCHEMA))
        same, differing = found.get(True, 0), found.get(False, 0)
        return _Comparison(revision, planned, same, differing, state, pairs, now)

    def _sync_state(self, delete: bool) -> SyncState | None:
        if self.state is None:
            return None
        if not has_text(self.kind):
            kind = self.kind.simpleString()
            self.progress(
                f"the state isn't used: different values of {kind} can have the same text"
            )
            return None
        terms = {
            "catalog": self.catalog,
            "prefix": self.prefix,
            "delete": delete,
            "manager": self.manager,
            "conflict": self.conflict,
            "kind": self.kind.jsonValue(),
            "lists": repr(self.lists.entries),
        }
        return SyncState(self.spark, self.state, self.partitions, terms)

    def _planned_again(
        self, kept: ExitStack, planned: DataFrame, outcomes: DataFrame, number: int
    ) -> DataFrame:
        """The plan for the lost keys, made from the catalog as it is now. The wanted documents come
        from the plan before: the source isn't read again."""
        revision = kept.enter_context(held_revision(self.reading, f"sync {self.run}, {number}"))
        lost = outcomes.where(F.col("outcome") == delivery.LOST).select("key")
        again = lost.join(planned, "key").select("key", "line", "wanted")
        keeps = self.state is not None
        planner = KeyedPlanner(self._planner(number), self.reading, revision, keeps)
        return _kept(kept, again.mapInArrow(planner.batches, plan.SCHEMA))

    def _planner(self, number: int) -> Planner:
        common: dict[str, Any] = {
            "catalog": self.catalog,
            "run": f"{self.run}.{number}",
            # In later rounds, it is the JSON of the plan before.
            "kind": self.wanted.schema["value"].dataType if number == 1 else StringType(),
            "prefix": self.prefix,
            "message": self.writing.message,
            "lists": self.lists,
        }
        if self.manager is None:
            return Planner(**common)
        return ManagedPlanner(**common, manager=self.manager, conflict=self.conflict)

    def _checked(
        self,
        planned: DataFrame,
        deletes: _Deletes | None = None,
        comparison: _Comparison | None = None,
    ) -> dict[str, int]:
        """How many documents have each action, with those that the ``comparison`` left out of the
        plan. Raises DesiredInvalid."""
        same, differing = (comparison.same, comparison.differing) if comparison else (0, None)
        counts = {} if differing == 0 else totals(planned, "action")
        counts[plan.UNCHANGED] = counts.get(plan.UNCHANGED, 0) + same
        if counts.get(plan.INVALID):
            raise invalid(planned.where(F.col("action") == plan.INVALID), counts[plan.INVALID])
        if deletes is not None:
            deletes.require_few(counts)
        return counts

    def _deliver(
        self,
        kept: ExitStack,
        planned: DataFrame,
        counts: Mapping[str, int],
        number: int,
        fence: str | None,
    ) -> DataFrame:
        """Send the lines; returns the rows of their outcomes."""
        lines = f"sending {_to_send(counts):,} changes"
        self.progress(lines + (f", round {number}" if number > 1 else ""))
        sent = planned.where(F.col("line").isNotNull()).select("line")
        send = Delivery(self.writing, fence, each=self.state is not None)
        return _kept(kept, sent.mapInArrow(send.batches, delivery.SCHEMA))


@dataclass(frozen=True)
class _Comparison:
    """``planned``: the plan for the catalog at ``revision``. With a ``state``: the plan leaves out
    ``same`` documents, whose text is the state's, and is about ``differing`` rows (None: not
    counted); ``pairs``: all of these rows; ``there``: what they were compared with."""

    revision: int
    planned: DataFrame
    same: int = 0
    differing: int | None = None
    state: SyncState | None = None
    pairs: DataFrame | None = None
    there: CurrentRows | None = None


@dataclass(frozen=True)
class _Deletes:
    """Whether to delete documents that aren't wanted, and at most how many.

    Raises ValueError for an invalid number or share.
    """

    wanted: bool
    may_be_all: bool
    most: float

    def __post_init__(self) -> None:
        known = isinstance(self.most, int | float)
        if not known or not 0 <= self.most <= (1 if isinstance(self.most, float) else math.inf):
            raise ValueError(
                "max_deletes must be a number of documents, or a share from 0.0 to 1.0, not"
                f" {self.most}"
            )

    def require_few(self, counts: Mapping[str, int]) -> None:
        """Raises DesiredInvalid."""
        deletes = counts.get(plan.DELETE, 0) + counts.get(plan.LET_GO, 0)
        if not deletes or self.may_be_all:
            return
        if deletes == sum(counts.values()):
            detail = f"it is empty, so all documents ({deletes}) would be deleted (see allow_empty)"
            raise DesiredInvalid([(None, detail)], 1)
        new = counts.get(plan.CREATE, 0) + counts.get(plan.APPLY_FIRST, 0)
        there = sum(counts.values()) - new
        most = self.most * there if isinstance(self.most, float) else self.most
        if deletes > most:
            detail = (
                f"it lacks {deletes:,} of the {there:,} documents that are there, which would be "
                f"deleted: more than max_deletes={self.most} allows"
            )
            raise DesiredInvalid([(None, detail)], 1)


def options_for(
    given: Mapping[str, Any], use: str, meant: Container[str] = _OPTIONS
) -> dict[str, str]:
    """The options for ``use``, as texts. Unknown ones stay, to be refused later. Raises
    OptionRefused for known ones that aren't among ``meant``, those that have an effect here."""
    known = {option.name.lower(): option for option in OPTIONS}
    chosen = {}
    for name, value in given.items():
        option = known.get(name.lower())
        if option is not None and name.lower() not in meant:
            raise OptionRefused(option.name, "it has no effect here")
        if option is None or use in option.uses:
            chosen[option.name if option else name] = str(value)
    return chosen


def _given(
    url: str, catalog: str, prefix: str, message: str | None, options: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The options of the data source: a run's own arguments, which win, and its ``options``. So no
    other catalog is written than the one that is named."""
    own = {"prefix": prefix, "message": message}
    given = {name: text for name, text in own.items() if text}
    return {"url": url, **(options or {}), "catalog": catalog, **given}


def _frame(desired: DataFrame | str) -> DataFrame:
    if not isinstance(desired, str):
        return desired
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise ValueError(f"there is no Spark session to look up the table {desired!r} in")
    return spark.table(desired)


def _kept(kept: ExitStack, frame: DataFrame) -> DataFrame:
    """The frame, computed once and kept on the executors' disks until ``kept`` closes."""
    frame.persist(StorageLevel.DISK_ONLY)
    kept.callback(frame.unpersist)
    return frame


def _to_send(counts: Mapping[str, int]) -> int:
    return sum(counts.get(action, 0) for action in plan.WRITES)
