"""The reports of a sync, a plan or a replay, counted from the rows that its tasks returned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from patching.spark.delivery import (
    CREATED,
    DELETED,
    LEFT_TO_OTHERS,
    LET_GO,
    LOST,
    PATCHED,
    REFUSED,
    UNCHANGED,
)

_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Left:
    """A document that isn't as wanted, and why."""

    key: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The outcomes of the documents; each counts once, by its last outcome.

    ``revision`` is the compared one, 0 if there was no catalog. ``lost``: others were first, even
    in the last round. ``guards_lost``: how often others were first. ``examples`` are the first few
    of the lost and refused ones, and of those with leaves that were left to others.

    With a manager, ``deleted`` are those in which nobody owned anything after it let go, and
    ``let_go`` those that stay. ``left_to_others`` counts leaves, not documents.
    """

    catalog: str
    revision: int
    unchanged: int = 0
    created: int = 0
    patched: int = 0
    deleted: int = 0
    let_go: int = 0
    left_to_others: int = 0
    lost: int = 0
    refused: int = 0
    guards_lost: int = 0
    rounds: int = 1
    seconds: float = 0.0
    examples: tuple[Left, ...] = ()

    @property
    def sent(self) -> int:
        """How many documents were written."""
        return self.created + self.patched + self.deleted + self.let_go

    @property
    def in_step(self) -> bool:
        """Whether every document was as wanted when last compared, except for leaves that were left
        to others."""
        return not self.lost and not self.refused


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The actions of a plan on the catalog at ``revision``."""

    catalog: str
    revision: int
    path: str
    unchanged: int = 0
    create: int = 0
    patch: int = 0
    delete: int = 0
    apply: int = 0
    let_go: int = 0
    seconds: float = 0.0

    @property
    def lines(self) -> int:
        """How many lines the plan has: one for each document that differs."""
        return self.create + self.patch + self.delete + self.apply + self.let_go


def totals(rows: DataFrame, by: str) -> dict[str, int]:
    """How many documents there are, by the column ``by``."""
    found = rows.groupBy(by).agg(F.sum("documents").alias("documents")).collect()
    return {row[by]: row["documents"] for row in found}


def with_round(report: SyncReport, outcomes: DataFrame) -> SyncReport:
    """``report`` with the outcomes of one more round."""
    counts = totals(outcomes, "outcome")
    refused = counts.get(REFUSED, 0)
    lost = counts.get(LOST, 0)
    left = counts.get(LEFT_TO_OTHERS, 0)
    examples = report.examples
    for outcome, count in ((REFUSED, refused), (LEFT_TO_OTHERS, left)):
        if count and len(examples) < _SHOWN_MAX:
            examples = (*examples, *_examples(outcomes, outcome))[:_SHOWN_MAX]
    return replace(
        report,
        unchanged=report.unchanged + counts.get(UNCHANGED, 0),
        created=report.created + counts.get(CREATED, 0),
        patched=report.patched + counts.get(PATCHED, 0),
        deleted=report.deleted + counts.get(DELETED, 0),
        let_go=report.let_go + counts.get(LET_GO, 0),
        left_to_others=report.left_to_others + left,
        refused=report.refused + refused,
        lost=lost,
        guards_lost=report.guards_lost + lost,
        rounds=report.rounds + 1,
        examples=examples,
    )


def with_lost(report: SyncReport, outcomes: DataFrame) -> SyncReport:
    """``report`` with examples of the documents that the last round lost."""
    if not report.lost:
        return report
    lost = _examples(outcomes, LOST)
    return replace(report, examples=(*report.examples, *lost)[:_SHOWN_MAX])


def _examples(outcomes: DataFrame, outcome: str) -> list[Left]:
    rows = outcomes.where(F.col("outcome") == outcome).limit(_SHOWN_MAX).collect()
    return [Left(row["key"], row["code"], row["detail"]) for row in rows]
