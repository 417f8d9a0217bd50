"""The order that the won moves say there was, and the state of every key at every revision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Protocol

import msgspec

from gateway.model import DocumentRecord, Skipped
from gateway.model import Verdict as Decided

from .asks import Ask, Name
from .gone import GONE
from .misfit import Misfit
from .model import Doc, State, Verdict, judge, live
from .model_edits import After
from .model_lists import ITEMS, MARKS
from .model_owners import NOBODY, Place, changed, leaves, told
from .model_patches import operated
from .model_rebase import means
from .recorder import Kept, Made
from .sameness import same

FOREVER = 1 << 62
_LISTS = frozenset({ITEMS, MARKS})


@dataclass(frozen=True)
class Violation:
    """``kind`` names the rule that was broken, ``detail`` says where."""

    kind: str
    detail: str


class Sent(Protocol):
    """A call, as far as what it wrote depends on it; ``called`` as in ``Call``."""

    @property
    def ask(self) -> Ask: ...

    @property
    def called(self) -> int: ...


class Ledger:
    """One catalog. ``states[r]`` maps keys to documents at revision r, ``keys_used[r]`` the
    idempotency keys used up to r to their fingerprints; ``named[r]`` are the keys that r's request
    is answered of, each such set if it may mean several; ``ticks[r]`` is when r became current."""

    def __init__(
        self,
        catalog: str,
        log: Sequence[Made],
        kept: Sequence[Kept],
        skew_us: int,
        verdicts: Sequence[tuple[int, Decided]] = (),
    ) -> None:
        """``kept``: what retention did, in order. ``skew_us``: by which a clock may be wrong.
        ``verdicts``: each with its tick."""
        self.catalog = catalog
        self.log = log
        self.kept = kept
        self.skew_us = skew_us
        self._raised = [(each.tick, each.about) for each in kept if each.what == "floor"]
        self.states: list[Mapping[str, Doc]] = [{}]
        self.keys_used: list[Mapping[str, str]] = [{}]
        self.named: list[set[frozenset[str]]] = [set()]
        self.ticks = [0]
        self.by_label: dict[str, Made] = {}
        self.by_key: dict[str, Made] = {}
        # By idempotency key; of a key with two, the first.
        self.verdicts = {each[1].idempotency.key: each for each in reversed(verdicts)}

    @property
    def last(self) -> int:
        return len(self.states) - 1

    def build(self, calls: Mapping[str, Sent]) -> Iterator[Violation]:
        """Check the log by itself and against what was asked, by label. After the first yield of
        kind "log" the rest can't be told: the states end there."""
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
            if commit.message is None or commit.message not in calls:
                yield Violation("log", f"{where} was asked for by nobody")
                return
            if commit.message in self.by_label:
                yield Violation("twice", f"{where} applies {commit.message} once more")
            used = commit.idempotency
            if used is not None and used.key in self.by_key:
                yield Violation("twice", f"{where} uses the key {used.key} once more")
            yield from self._add(made, calls[commit.message], where)
            last_us = commit.time_us
            ids.add(commit.id)

    def state(self, revision: int) -> State:
        """The catalog at ``revision``, as the model sees it."""
        made = self.log[revision - 1].commit if revision else None
        exists = made is not None and not made.deletes_catalog
        return State(
            revision, self.states[revision], self.keys_used[revision], exists, self._as_of(revision)
        )

    def floors(self, called: int, answered: int | None) -> list[int]:
        """The floors that there were at some moment from ``called`` to ``answered``, ascending."""
        end = FOREVER if answered is None else answered
        before = [floor for tick, floor in self._raised if tick < called]
        return [*([0, *before][-1:]), *(f for tick, f in self._raised if called <= tick <= end)]

    def revision_at(self, time_us: int, head: int) -> int:
        """The last revision up to ``head`` that was made at or before ``time_us``."""
        made = self.log[:head]
        return sum(each.commit.time_us <= time_us for each in made)

    def is_told(
        self, document: DocumentRecord | None, revision: int, key: str, tick: int | None
    ) -> bool:
        """Whether ``document`` is what ``revision`` has; of a tombstone at or below the floor
        nothing may be left."""
        doc = self.states[revision].get(key)
        if document is None and doc is not None and live(doc) is None:
            return doc.revision <= self.floors(tick or FOREVER, tick)[-1]
        return same(document, doc)

    def _as_of(self, newest: int) -> Callable[[int, str], Doc | None]:
        def as_of(revision: int, key: str) -> Doc | None:
            return self.states[revision].get(key) if revision <= newest else None

        return as_of

    def meanings(self, call: Sent, head: int, end: int | None) -> list[Ask]:
        """What a write may mean that is decided at ``head``, up to ``end``. A revert of all since a
        revision reads up to which one at some moment before."""
        undone = call.ask.undone
        if undone is None or undone.revisions or undone.since is not None:
            return means(call.ask, self.state(head).lists)
        read_at = [each for each in self.current(call.called, end) if each <= head]
        action = call.ask.actions[0]
        return [
            replace(call.ask, actions=(replace(action, value=replace(undone, since=each)),))
            for each in read_at
        ]

    def _add(self, made: Made, call: Sent, where: str) -> Iterator[Violation]:
        state = self.state(self.last)
        if call.ask.idempotency_key in state.fingerprints:  # told of as "twice"
            state = replace(state, fingerprints={})
        state = replace(state, next_us=made.commit.time_us)
        meanings = self.meanings(call, self.last, made.tick - 1)
        found = [self._compared(made, ask, judge(ask, state)) for ask in meanings]
        wrong, documents, _ = min(found, key=lambda each: len(each[0]))
        for each in wrong:
            yield Violation("untrue-commit", f"{where} {call.ask.label}: {each}")
        self.states.append({**self.states[-1], **documents})
        self.ticks.append(made.tick)
        fitting = (verdict for mistakes, _, verdict in found if len(mistakes) == len(wrong))
        self.named.append({frozenset(verdict.named) for verdict in fitting})
        self._note_used(made, call.ask)

    def _compared(
        self, made: Made, ask: Ask, verdict: Verdict
    ) -> tuple[list[str], dict[str, Doc], Verdict]:
        """What is wrong with a commit against the verdict, and the documents that it leaves."""
        commit = made.commit
        wrong = []
        if (
            verdict.kind != "applied"
            or (verdict.succeeded, ask.deletes_catalog)
            != (commit.succeeded, commit.deletes_catalog)
            or (commit.rebased_from or None) not in (verdict.rebased_from or {None})
            or commit.left_out != verdict.left_out
            or places_of(commit.skipped) != verdict.skipped
        ):
            wrong.append(f"{commit.skipped} for {verdict}")
        documents: dict[str, Doc] = {}
        for change in msgspec.json.decode(made.changes):
            key = Name(change[0])
            expected = verdict.changed.get(key)
            try:
                after = _replayed(self.states[-1].get(key), change, made, expected)
            except Misfit:
                wrong.append("its record doesn't fit")
                continue
            documents[key] = after
            parts = after.content, after.attributes, after.owners
            if expected is None or parts != expected.parts:
                wrong.append(f"{after} for {verdict}")
        if len(documents) != len(commit.changes) or documents.keys() != verdict.changed.keys():
            wrong.append(f"{set(documents)} for {verdict}")
        return wrong, documents, verdict

    def _note_used(self, made: Made, ask: Ask) -> None:
        commit = made.commit
        self.by_label[ask.label] = made
        used = self.keys_used[-1]
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


def _replayed(before: Doc | None, change: list[Any], made: Made, expected: After | None) -> Doc:
    """What one recorded change leaves. Raises Misfit."""
    _, action, create_revision, patch, value, attributes, owners, owners_change = change
    commit = made.commit
    before = live(before)
    anew = expected is not None and expected.anew and expected.content is not GONE
    made_at = commit.revision if before is None or anew else before.create_revision
    if create_revision != made_at:
        raise Misfit
    begins = bool(value) or made_at == commit.revision
    owned_before = NOBODY if before is None or anew else before.owners
    owned = changed(owned_before, owners_change, commit.revision)
    if action == "delete" and owners_change is None:
        owned = NOBODY  # what a range had isn't read whole to be deleted
    if (begins or action == "delete") and told(owners) != owned:
        raise Misfit
    after = Doc(
        content=GONE,
        revision=commit.revision,
        create_revision=create_revision,
        commit_id=commit.id,
        time_us=commit.time_us,
        patches=0,
        owners=owned,
    )
    if action == "delete":
        return after
    if attributes is None and not begins and before is not None:
        attributes = before.attributes
    content = GONE if before is None else before.content
    if patch is not None:
        content = operated(content, patch)
    elif action != "attributes":
        content = value[0]
    if value and value[0] != content:
        raise Misfit
    # As long as nothing is written, owners stay as the lists were that there were then.
    if not owned.keys() <= {**leaves(content), **leaves(content, _LISTS)}.keys():
        raise Misfit
    patches = 0 if begins or before is None else before.patches + 1
    return replace(after, content=content, patches=patches, attributes=attributes or None)


def places_of(skipped: Sequence[Skipped]) -> frozenset[Place]:
    """What a commit says it left to others; arrays aren't looked into by index."""
    return frozenset(
        Place(
            Name(each.key),
            above_lists(each.pointer),
            frozenset((owner.manager, owner.plain, owner.since) for owner in each.owners),
            each.of_attributes,
        )
        for each in skipped
    )


def above_lists(pointer: str) -> str:
    """As far as it goes by name, and not by index."""
    tokens = pointer.split("/")
    return "/".join(takewhile(lambda token: not token.isdigit(), tokens))
