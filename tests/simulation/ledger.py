"""The order that the won moves say there was, and the state of every key at every revision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from .asks import Ask, Name
from .model import GONE, Doc, Misfit, edited, judge
from .recorder import Made

FOREVER = 1 << 62


@dataclass(frozen=True)
class Violation:
    """``kind`` names the rule that was broken, ``detail`` says where."""

    kind: str
    detail: str


class Ledger:
    """One catalog. ``states[r]`` maps keys to documents at revision r, ``keys_used[r]`` the
    idempotency keys used up to r to their fingerprints; ``ticks[r]`` is when r became current."""

    def __init__(self, catalog: str, log: Sequence[Made]) -> None:
        self.catalog = catalog
        self.log = log
        self.states: list[Mapping[str, Doc]] = [{}]
        self.keys_used: list[Mapping[str, str]] = [{}]
        self.ticks = [0]
        self.by_label: dict[str, Made] = {}
        self.by_key: dict[str, Made] = {}

    @property
    def last(self) -> int:
        return len(self.states) - 1

    def build(self, asks: Mapping[str, Ask]) -> Iterator[Violation]:
        """Check the log by itself and against what was asked. After the first yield of kind "log"
        the rest can't be told: the states end there."""
        last_us = 0
        ids: set[str] = set()
        for made in self.log:
            commit = made.commit
            where = f"{self.catalog}@{commit.revision}"
            if commit.revision != self.last + 1 or made.base_revision > self.last:
                yield Violation("log", f"{where} was made after revision {self.last}")
                return
            if commit.time_us <= last_us:
                yield Violation("time", f"{where} is not later than the commit before it")
            if commit.id in ids:
                yield Violation("log", f"{where}: the commit id {commit.id} is there twice")
            if commit.message is None or commit.message not in asks:
                yield Violation("log", f"{where} was asked for by nobody")
                return
            if commit.message in self.by_label:
                yield Violation("twice", f"{where} applies {commit.message} once more")
            used = commit.idempotency
            if used is not None and used.key in self.by_key:
                yield Violation("twice", f"{where} uses the key {used.key} once more")
            yield from self._add(made, asks[commit.message], where)
            last_us = commit.time_us
            ids.add(commit.id)

    def _add(self, made: Made, ask: Ask, where: str) -> Iterator[Violation]:
        commit = made.commit
        state, used = self.states[-1], self.keys_used[-1]
        verdict = judge(ask, state.get(ask.key), {} if ask.idempotency_key in used else used)
        if verdict.kind != "applied":
            yield Violation("untrue-commit", f"{where} {ask.label}: should be {verdict}")
        changed = dict(state)
        for change in msgspec.json.decode(made.changes):
            key = Name(change[0])
            try:
                after = _replayed(changed.get(key), change, made)
            except Misfit:
                yield Violation("untrue-commit", f"{where} {ask.label}: its patch doesn't fit")
                continue
            changed[key] = after
            if key != ask.key or after.content != verdict.content:
                yield Violation("untrue-commit", f"{where} {ask.label}: {after} for {verdict}")
        self.states.append(changed)
        self.ticks.append(made.tick)
        self.by_label[ask.label] = made
        if commit.idempotency is not None:
            used = {**used, commit.idempotency.key: commit.idempotency.fingerprint}
            self.by_key.setdefault(commit.idempotency.key, made)
        self.keys_used.append(used)

    def current(self, called: int, answered: int | None) -> range:
        """The revisions that were current at some moment from ``called`` to ``answered``."""
        end = FOREVER if answered is None else answered
        first = 0
        while first < self.last and self.ticks[first + 1] < called:
            first += 1
        stop = first + 1
        while stop <= self.last and self.ticks[stop] <= end:
            stop += 1
        return range(first, stop)


def _replayed(before: Doc | None, change: list[Any], made: Made) -> Doc:
    """What one recorded change leaves. Raises Misfit."""
    _, action, create_revision, patch, value = change
    commit = made.commit
    existed = before is not None and before.content is not GONE
    after = Doc(
        content=GONE,
        revision=commit.revision,
        create_revision=create_revision,
        commit_id=commit.id,
        time_us=commit.time_us,
        patches=0,
    )
    made_at = before.create_revision if before is not None and existed else commit.revision
    if create_revision != made_at:
        raise Misfit
    if action == "delete":
        return after
    if patch is None:
        return replace(after, content=value[0])
    content = edited("patch", patch, before.content if before is not None else GONE)
    if value and value[0] != content:
        raise Misfit
    patches = before.patches + 1 if before is not None and existed and not value else 0
    return replace(after, content=content, patches=patches)
