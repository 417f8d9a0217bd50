"""Whether the gateway's own code does what the model allows: simulated histories, step by step.

Each thing that a worker of a simulation does to the store is done to the model, too: the same move
of a head, document, commit, verdict, floor. Both must then be at the same head, and hold the same
documents; and the model's properties must hold of every state on the way. So code that drops a
tail which isn't written out, or writes a commit before its documents, is found at that very step,
whether or not anybody reads it before it heals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from gateway.model import ChangeRecord as RealChange
from gateway.model import CommitRecord as RealCommit
from gateway.model import DocumentRecord, Idempotency
from gateway.model import HeadMove as RealMove
from gateway.model import Verdict as RealVerdict
from gateway.store.contract import Moved, Swept
from tests.simulation import simulation
from tests.simulation.plan import Plan, as_chosen
from tests.simulation.recorder import Recording, RecordingStore

from . import properties, store
from .values import (
    NOTHING,
    Change,
    Commit,
    Doc,
    Head,
    Move,
    State,
    Verdict,
    Wrong,
    put_in,
    truth,
)

_KEYS_MAX = 16


def _all_rules(_: str) -> bool:
    return True


class Mirror:
    """The model's state of one catalog, which follows what is done to the real one."""

    def __init__(self) -> None:
        before = (Commit(0, 0, ()),)
        self.state = State(
            head=Head(),
            documents=(NOTHING,) * _KEYS_MAX,
            log=before,
            kept=(),
            workers=(),
            asked=(),
            made=before,
            gone=(-1,) * _KEYS_MAX,
        )
        self._numbers: dict[str, int] = {"": 0}
        self._keys: dict[str, int] = {}

    def id(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def key(self, key: str) -> int:
        return self._keys.setdefault(str(key), len(self._keys))

    def commit(self, commit: RealCommit) -> Commit:
        return Commit(
            commit.revision,
            self.id(commit.id),
            tuple(self.change(commit.revision, change) for change in commit.changes),
            _key(commit.idempotency),
            self.id(commit.parent),
        )

    def change(self, revision: int, change: RealChange) -> Change:
        key = self.key(change.key)
        if change.action == "delete":
            return Change(key, "delete")
        if change.create_revision == revision or change.is_whole:
            return Change(key, "put")
        return Change(key, "patch", self.id(change.base_id))

    def verdict(self, verdict: RealVerdict) -> Verdict:
        return Verdict(verdict.number, self.id(verdict.id), _key(verdict.idempotency))

    def move(self, move: RealMove) -> Move:
        return Move(
            move.base,
            self.id(move.last),
            move.judged,
            self.id(move.last_verdict),
            tuple(map(self.commit, move.commits)),
            tuple(map(self.verdict, move.verdicts)),
            move.written,
            move.judged_written,
        )

    def head(self, head: Any) -> Head:
        return Head(
            head.revision,
            self.id(head.last),
            head.written,
            tuple(map(self.commit, head.tail or ())),
            head.judged,
            self.id(head.last_verdict),
            head.judged_written,
            tuple(map(self.verdict, head.verdicts or ())),
            head.floor,
        )

    def document(self, document: DocumentRecord | None) -> Any:
        """As the commits made it, where as many patches are in it as there were."""
        if document is None:
            return NOTHING
        revision, id_ = document.revision, self.id(document.commit_id)
        if document.revision < len(self.state.made):
            there = truth(self.state.made[: revision + 1])
            key = self.key(document.key)
            true = there[key] if key < len(there) else NOTHING
            patches = document.patches + 1 if document.exists else 0
            if true and (true.revision, true.id, len(true.made)) == (revision, id_, patches):
                return true
        return Doc(revision, id_, (-1,) * (document.patches + 1))


def _key(asked: Idempotency | None) -> str:
    return "" if asked is None else f"{asked.principal}/{asked.key}"


class MirroredStore(RecordingStore):
    """``wrong`` is what the model doesn't allow, the first thing alone, and ``steps`` how many were
    compared."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self.wrong = ""
        self.steps = 0
        self._mirrors: dict[str, Mirror] = {}

    def _follow(self, catalog: str, what: str, step: Callable[[Mirror], State | None]) -> None:
        """The step, done to the model. None: the real one can't have been done."""
        if self.wrong:
            return
        mirror = self._mirrors.setdefault(catalog, Mirror())
        self.steps += 1
        try:
            after = step(mirror)
            if after is None:
                raise Wrong("the model doesn't let it")
            mirror.state = after
            self._compare(catalog, mirror)
            properties.check_decided(after)
            properties.check_log(after)
            properties.check_documents(after)
            properties.check_written_out(after)
        except Wrong as wrong:
            self.wrong = f"{catalog}, step {self.steps}: {what}: {wrong}"

    def _compare(self, catalog: str, mirror: Mirror) -> None:
        head = self._heads.get(catalog)
        if head is not None and mirror.head(head) != mirror.state.head:
            raise Wrong(f"the head is {mirror.head(head)}, in the model {mirror.state.head}")
        for (of, key), document in self._documents.items():
            stored = mirror.state.documents[mirror.key(key)]
            if of == catalog and mirror.document(document) != stored:
                raise Wrong(f"{key!r} is {document.revision}, in the model {stored}")

    def move_head(self, move: RealMove) -> Any:
        result = super().move_head(move)

        def step(mirror: Mirror) -> State | None:
            asked = mirror.move(move)
            takes = store.takes(mirror.state.head, asked, _all_rules)
            return store.win(mirror.state, asked) if takes else None

        if result is Moved.WON:
            self._follow(move.catalog, f"a move from {move.base}", step)
        return result

    def write_documents(self, documents: Mapping[str, Sequence[DocumentRecord]]) -> None:
        for catalog, changed in documents.items():
            for document in changed:
                super().write_documents({catalog: [document]})
                self._follow(
                    catalog,
                    f"the document {document.key!r} of {document.revision}",
                    lambda mirror, document=document: store.write_document(  # type: ignore[misc]
                        mirror.state,
                        mirror.key(document.key),
                        mirror.document(document),
                        _all_rules,
                    ),
                )

    def write_commits(self, commits: Sequence[RealCommit]) -> None:
        for commit in commits:
            super().write_commits([commit])
            self._follow(
                commit.catalog,
                f"commit {commit.revision}",
                lambda mirror, commit=commit: store.write_commit(  # type: ignore[misc]
                    mirror.state, mirror.commit(commit)
                ),
            )

    def write_verdicts(self, verdicts: Sequence[RealVerdict], kept_s: int) -> None:
        super().write_verdicts(verdicts, kept_s)
        for verdict in verdicts:
            self._follow(
                verdict.catalog,
                f"verdict {verdict.number}",
                lambda mirror, verdict=verdict: store.write_verdict(  # type: ignore[misc]
                    mirror.state, mirror.verdict(verdict)
                ),
            )

    def end_tails(self, reached: Mapping[str, Any]) -> None:
        before = {catalog: self._heads.get(catalog) for catalog in reached}
        super().end_tails(reached)
        for catalog in reached:
            if self._heads.get(catalog) is not before[catalog]:
                self._follow(catalog, "the end of a tail", lambda m: store.end_tail(m.state))

    def raise_floor(self, catalog: str, floor: int, now_us: int, at: int | None = None) -> bool:
        raised = super().raise_floor(catalog, floor, now_us, at)
        if raised:
            self._follow(catalog, f"floor {floor}", lambda m: store.raise_floor(m.state, floor))
        return raised

    def sweep(self, catalog: str, swept: Sequence[Swept]) -> None:
        super().sweep(catalog, swept)
        for each in swept:
            below = each.revision <= self._heads[catalog].floor
            self._follow(
                catalog,
                f"the sweep of {each.revision}",
                lambda mirror, below=below: mirror.state if below else None,  # type: ignore[misc]
            )

    def purge_tombstones(self, catalog: str, through: int, before_us: int, limit: int) -> int:
        before = dict(self._documents)
        purged = super().purge_tombstones(catalog, through, before_us, limit)
        for of, key in before.keys() - self._documents.keys():
            revision = before[of, key].revision

            def step(mirror: Mirror, key: str = key, revision: int = revision) -> State:
                number, state = mirror.key(key), mirror.state
                return state._replace(
                    documents=put_in(state.documents, number, NOTHING),
                    gone=put_in(state.gone, number, revision),
                )

            self._follow(catalog, f"the purge of {key!r}", step)
        return purged


def conform(seed: int, adjust: Callable[[Plan], Plan] = as_chosen) -> tuple[int, str]:
    """How many steps of the history of ``seed`` were compared, and what the model doesn't allow."""
    stores: list[MirroredStore] = []

    def opened(recording: Recording) -> MirroredStore:
        stores.append(MirroredStore(recording))
        return stores[-1]

    with patch.object(simulation, "RecordingStore", opened):
        simulation.simulate(seed, adjust)
    return sum(each.steps for each in stores), next((e.wrong for e in stores if e.wrong), "")


def conform_all(seeds: Collection[int], adjust: Callable[[Plan], Plan] = as_chosen) -> int:
    """Raises Wrong; how many steps were compared otherwise."""
    steps = 0
    for seed in seeds:
        count, wrong = conform(seed, adjust)
        if wrong:
            raise Wrong(f"seed {seed}: {wrong}")
        steps += count
    return steps
