"""Finds who gets in whose way: commits of different writers that change the same place of one
document soon after each other.

    python docs/examples/contention.py tables --url http://127.0.0.1:8080 --plot races.svg

Needs the extra `spark`, Java 17 or 21, rich and, for `--plot`, matplotlib.

Worked example, with a window of a minute. At 10:00:00 A replaces /owner of t, at 10:00:20 B adds
/owner/team, at 10:00:30 B replaces /size, at 10:05:00 C replaces /owner. A and B raced at
/owner/team: if B had made its change from what A saw, one of the two would have been lost. Only B
changed /size, and C came when nobody else was writing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec
import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from patching import PatchError
from patching.footprints import Footprint, footprint, overlap
from patching.spark import register
from patching.spark.options import READ
from patching.spark.session import Shown, command_session, require_java
from patching.spark.sync import options_for

WRITERS: Final = ("author", "message", "idempotency_key")
SCHEMA: Final = (
    "key string, pointer string, one string, other string,"
    " races long, retried long, attempts_max long"
)
_ARROW: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("key", "pointer", "one", "other")),
        *((name, pa.int64()) for name in ("races", "retried", "attempts_max")),
    ]
)
# How many earlier commits a commit is compared with at most. If a document is written without a
# pause, the last few are enough to see who races.
_COMPARED_MAX: Final = 100
_ROWS_MAX: Final = 1000
_ROWS_SHOWN: Final = 20
_PLACES_MAX: Final = 20
_PAIRS_MAX: Final = 8
_NAME_MAX: Final = 60
_OTHERS: Final = "other pairs"


@click.command()
@click.argument("catalog")
@click.option("--url", required=True, help="Address of the gateway.")
@click.option("--option", "pairs", multiple=True, metavar="NAME=VALUE", help="Of the data source.")
@click.option("--window", default=60.0, help="Seconds between racing commits. Default: 60.")
@click.option(
    "--by", type=click.Choice(WRITERS), default="author", help="What tells writers apart."
)
@click.option("--after", type=click.IntRange(0), help="Only commits above this revision.")
@click.option("--prefix", help="Only keys that begin with this.")
@click.option("--plot", type=click.Path(path_type=Path), help="Also a picture: .svg, .png, .pdf.")
def main(
    catalog: str,
    url: str,
    pairs: Sequence[str],
    window: float,
    by: str,
    after: int | None,
    prefix: str | None,
    plot: Path | None,
) -> None:
    """Who races with whom in CATALOG, by document and pointer."""
    options = dict(pair.split("=", 1) for pair in pairs)
    require_java(pyspark.__version__)
    with command_session(None, None) as spark, Shown(spark) as progress:
        progress(f"reading the history of {catalog}")
        asked = {"window_s": window, "by": by, "after": after, "prefix": prefix}
        found = contention(spark, catalog, url=url, options=options, **asked)  # type: ignore[arg-type]
        rows = [row.asDict() for row in found.limit(1000).collect()]
    show(rows, catalog)
    if plot is not None:
        click.echo(f"plot: {plot_contention(rows, plot, catalog)}")


def show(rows: Sequence[dict[str, Any]], catalog: str) -> None:
    table = Table(title=escape(f"Who races with whom in {catalog}"))
    for name in ("document", "pointer", "one", "other"):
        table.add_column(name, overflow="fold")
    for name in ("races", "retried", "attempts"):
        table.add_column(name, justify="right")
    for row in rows[:_ROWS_SHOWN]:
        names = [row["key"], row["pointer"] or "(whole)", row["one"], row["other"] or "-"]
        counts = [row["races"], row["retried"], row["attempts_max"]]
        table.add_row(*(escape(name) for name in names), *(f"{each:,}" for each in counts))
    Console().print(table)
    if len(rows) > _ROWS_SHOWN:
        click.echo(f"and {len(rows) - _ROWS_SHOWN} more")


def contention(
    spark: SparkSession,
    catalog: str,
    *,
    url: str,
    window_s: float = 60.0,
    by: str = "author",
    after: int | None = None,
    prefix: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return a row for each document, pointer and pair of writers, most races first.

    ``races`` says how often ``one`` and ``other`` raced at ``pointer``: both changed the document
    within ``window_s`` seconds, and one of them read or wrote there what the other wrote. A
    pointer stands for everything below it. ``retried`` of these commits needed more than one
    attempt, at most ``attempts_max``. If ``other`` is null, the commits needed more than one
    attempt, but nobody was found that they raced with.

    ``by`` says what distinguishes writers: the commits' author or, if all have the same author,
    their message or idempotency key. ``after``: only commits above this revision.
    ValueError, OptionRefused; what reading history raises.
    """
    if by not in WRITERS:
        raise ValueError(f"writers are told apart by {', '.join(WRITERS)}, not by {by!r}")
    if window_s <= 0:
        raise ValueError("the window must be longer than 0 seconds")
    register(spark)
    chosen = options_for({"url": url, "catalog": catalog, **(options or {})}, READ)
    chosen["type"] = "changes"
    if after is not None:
        chosen["startingRevision"] = str(after + 1)
    if prefix is not None:
        chosen["prefix"] = prefix
    history = spark.read.format("metadata").options(**chosen).load()
    commits = (
        history.where(F.col("key").isNotNull() & F.col("patch").isNotNull())
        .select(
            "key",
            "revision",
            "time",
            F.coalesce(F.col(by), F.lit("")).alias("writer"),
            F.col("attempts").cast("long").alias("attempts"),
            "patch",
        )
        .repartition("key")
        .sortWithinPartitions("key", "revision")
    )
    pairs = commits.mapInArrow(Racing(window_s).batches, SCHEMA)
    return (
        pairs.groupBy("key", "pointer", "one", "other")
        .agg(
            F.sum("races").alias("races"),
            F.sum("retried").alias("retried"),
            F.max("attempts_max").alias("attempts_max"),
        )
        .orderBy(F.desc("races"), F.desc("retried"), "key", "pointer", "one", "other")
    )


class _Commit(NamedTuple):
    time: datetime
    writer: str
    attempts: int
    footprint: Footprint


@dataclass(slots=True)
class _Tally:
    races: int = 0
    retried: int = 0
    attempts_max: int = 0

    def add(self, races: int, attempts: int) -> None:
        self.races += races
        self.retried += attempts > 1
        self.attempts_max = max(self.attempts_max, attempts)


# (pointer, one, other)
_Place = tuple[str, str, str | None]


@dataclass
class _Document:
    """The commits of one key, added in the order of revisions."""

    key: str | None
    recent: deque[_Commit] = field(default_factory=lambda: deque(maxlen=_COMPARED_MAX))
    tallies: dict[_Place, _Tally] = field(default_factory=dict)

    def add(self, commit: _Commit, window: timedelta) -> None:
        while self.recent and commit.time - self.recent[0].time > window:
            self.recent.popleft()
        places = {
            (pointer, *sorted((earlier.writer, commit.writer)))
            for earlier in self.recent
            if earlier.writer != commit.writer
            for pointer in overlap(commit.footprint, earlier.footprint)
        }
        for pointer, one, other in places:
            self._tally((pointer, one, other)).add(1, commit.attempts)
        if not places and commit.attempts > 1:
            for pointer in commit.footprint.writes:
                self._tally((pointer, commit.writer, None)).add(0, commit.attempts)
        self.recent.append(commit)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        for place, tally in self.tallies.items():
            yield (self.key, *place, tally.races, tally.retried, tally.attempts_max)

    def _tally(self, place: _Place) -> _Tally:
        return self.tallies.setdefault(place, _Tally())


@dataclass(frozen=True)
class Racing:
    """Finds races among commits sorted by key and revision; holds one window of one key."""

    window_s: float

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``, of rows (key, time, writer, attempts, patch)."""
        held: list[tuple[Any, ...]] = []
        for document in self._documents(batches):
            for row in document.rows():
                held.append(row)
                if len(held) >= _ROWS_MAX:
                    yield _batch(held)
                    held = []
        if held:
            yield _batch(held)

    def _documents(self, batches: Iterator[pa.RecordBatch]) -> Iterator[_Document]:
        window = timedelta(seconds=self.window_s)
        document = _Document(None)
        for batch in batches:
            for row in batch.to_pylist():
                if row["key"] != document.key:
                    yield document
                    document = _Document(row["key"])
                patch = msgspec.json.decode(row["patch"])
                document.add(
                    _Commit(row["time"], row["writer"], row["attempts"], _touched(patch)), window
                )
        yield document


def _touched(patch: list[dict[str, Any]]) -> Footprint:
    try:
        return footprint(patch)
    except PatchError:  # too large to be sent: counts as the whole document
        return Footprint(frozenset(), frozenset([""]))


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [
        pa.array(column, kind.type)
        for column, kind in zip(zip(*rows, strict=True), _ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def plot_contention(rows: Sequence[Mapping[str, Any]], path: str | Path, catalog: str) -> Path:
    """Plot a bar for each place with many races, in a colour for each pair of writers.

    ``rows`` are those of ``contention``. The suffix of ``path`` chooses the format: .svg,
    .png or .pdf; others are a ValueError.
    """
    path = Path(path)
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ValueError(f"a plot is .svg, .png or .pdf, not {path.name!r}")
    from matplotlib.figure import Figure

    races = _by_place(rows)
    places = sorted(races, key=lambda place: -sum(races[place].values()))[:_PLACES_MAX]
    pairs = _shown_pairs(rows)
    figure = Figure(figsize=(10, 1.5 + 0.35 * max(len(places), 3)), layout="constrained")
    axes = figure.add_subplot()
    names = [_short(f"{key}  {pointer or '(whole)'}") for key, pointer in places]
    begun = [0.0] * len(places)
    for pair in [*pairs, _OTHERS]:
        widths = [
            float(sum(n for p, n in races[place].items() if (p if p in pairs else _OTHERS) == pair))
            for place in places
        ]
        if any(widths):
            axes.barh(names, widths, left=begun, label=_short(_plain(pair)))
            begun = [low + width for low, width in zip(begun, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("races")
    axes.set_title(_plain(f"Who races with whom in {catalog}"))
    if places:
        axes.legend(fontsize="small")
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _by_place(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, int]]:
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row["races"]:
            found[row["key"], row["pointer"]][_pair(row)] += row["races"]
    return found


def _shown_pairs(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the pairs of writers with the most races."""
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["races"]:
            totals[_pair(row)] += row["races"]
    return sorted(totals, key=lambda pair: -totals[pair])[:_PAIRS_MAX]


def _pair(row: Mapping[str, Any]) -> str:
    return f"{row['one'] or '(nobody)'} / {row['other'] or '(nobody)'}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else "… " + name[-_NAME_MAX:]


def _plain(text: str) -> str:
    """Escape dollars, which would begin a formula."""
    return text.replace("$", r"\$")


if __name__ == "__main__":
    main()
