"""The contention report as a picture. Needs matplotlib, which the extra ``spark`` brings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_PLACES_MAX: Final = 20
_PAIRS_MAX: Final = 8
_NAME_MAX: Final = 60
_OTHERS: Final = "other pairs"


def plot_contention(rows: Sequence[Mapping[str, Any]], path: str | Path, catalog: str) -> Path:
    """A bar for each of the places with the most races, a colour for each pair of writers.

    ``rows`` are those of ``contention``. The suffix of ``path`` says what it is written as: .svg,
    .png or .pdf; ValueError for others.
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
    """Those with the most races."""
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
    """A dollar begins a formula otherwise."""
    return text.replace("$", r"\$")
