"""Whether one answer was true at some moment between its call and itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gateway.conflict import StateConflict
from gateway.decide.request import Applied, Refused, Unchanged, Unknown
from gateway.errors import (
    ChangedSince,
    CommitError,
    ConditionFailed,
    PatchDoesNotFit,
    QueueFull,
    RevisionCompacted,
    code_of,
)
from gateway.model import APPLICATIONS_KEY, DocumentRecord, Skipped, version_of
from patching.errors import IndexNeedsTest
from patching.ownership import OwnedByOthers

from .asks import SETTINGS, Ask, Name
from .gone import GONE
from .ledger import Ledger, Violation, above_lists, places_of
from .model import State, Verdict, judge
from .model_owners import Owners, Place, told
from .reads import check_read, check_unread
from .recorder import Call, Recording
from .sameness import same
from .verdicts import check_verdict, is_mismatch, is_replay, stands_for

# What the last few slow calls of a round take, and those that fail because the store is down.
_SLACK_S = 1.0
_SLACK_IF_FAULTY_S = 3.0


def check_answer(ledger: Ledger, call: Call, recording: Recording) -> Iterator[Violation]:
    """What is wrong with this answer, given the log."""
    if call.answered is None:
        return
    if not call.ask.writes:
        yield from check_read(ledger, call)
    elif isinstance(call.error, CommitError) and call.error.retryable:
        if call.ask.label in ledger.by_label:
            yield Violation("applied-anyway", f"{call.error!r}")
    else:
        yield from _write(ledger, call)
    yield from _in_time(call, recording)


def _write(ledger: Ledger, call: Call) -> Iterator[Violation]:
    outcome = call.outcome
    own = ledger.by_label.get(call.ask.label)
    if isinstance(outcome, Applied):
        yield from _applied(ledger, call, outcome)
    elif isinstance(outcome, Unknown):
        if own is not None and own.tick < call.called:
            yield Violation("untrue-commit", "was committed before it was asked for")
    else:
        if own is not None:
            yield Violation("applied-anyway", f"in the log as {own.commit.revision}")
        if isinstance(outcome, Unchanged):
            yield from _decided(ledger, call, outcome, _unchanged(ledger, call, outcome))
        elif isinstance(outcome, Refused) and outcome.error is call.unread:
            of_revert = call.ask.undone is not None
            check = check_unread if of_revert else _refused
            yield from _decided(ledger, call, outcome, check(ledger, call, outcome.error))
        elif (
            isinstance(outcome, Refused)
            and not outcome.error.retryable
            and not is_mismatch(ledger, call, outcome.error)
        ):
            refused = _refused(ledger, call, outcome.error)
            yield from _decided(ledger, call, outcome, refused)


def _decided(
    ledger: Ledger, call: Call, outcome: Unchanged | Refused, fresh: Iterator[Violation]
) -> Iterator[Violation]:
    """``fresh``: what is wrong with it if it was decided now."""
    replay = is_replay(outcome)
    mismatch = isinstance(outcome, Refused) and outcome.error.code == "idempotency_key_reused"
    if replay or (stands_for(call) and not mismatch):
        yield from check_verdict(ledger, call, outcome)
    if not replay:
        yield from fresh


def _applied(ledger: Ledger, call: Call, outcome: Applied) -> Iterator[Violation]:
    assert call.answered is not None
    revision = outcome.commit.revision
    made = ledger.log[revision - 1] if 0 < revision <= ledger.last else None
    if made is None or made.commit.id != outcome.commit.id or made.tick > call.answered:
        yield Violation("untrue-applied", "is not in the log when it is answered")
    elif outcome.replayed:
        used = made.commit.idempotency
        asked = call.ask.idempotency_key, call.ask.fingerprint
        if used is None or (used.key, used.fingerprint) != asked:
            yield Violation("untrue-applied", "replays a commit of another key")
        if ledger.by_label.get(call.ask.label, made) is not made:
            yield Violation("applied-anyway", "replays another commit than its own")
    else:
        if made.commit.message != call.ask.label or call.commit_id != made.commit.id:
            yield Violation("untrue-applied", "is acknowledged as another's commit")
        if made.tick < call.called:
            yield Violation("untrue-applied", "was committed before it was asked for")
        named = ledger.named[revision]
        if call.ask.deletes_catalog:  # the documents that it deletes are those of a range
            named = {frozenset((SETTINGS, APPLICATIONS_KEY))}
        if frozenset(outcome.documents) not in named:
            yield Violation("untrue-applied", f"is answered with {set(outcome.documents)}")
        for key, document in outcome.documents.items():
            if not ledger.is_told(document, revision, key, call.answered):
                yield Violation("untrue-applied", f"is answered with another document {key}")


def _unchanged(ledger: Ledger, call: Call, outcome: Unchanged) -> Iterator[Violation]:
    revision = outcome.catalog_revision
    if revision not in ledger.current(call.called, call.answered):
        yield Violation("untrue-no-op", f"revision {revision} was not current")
        return
    state = ledger.state(revision)
    meanings = ledger.meanings(call, revision, call.answered)
    found = [list(_wrong_no_op(outcome, judge(ask, state), state)) for ask in meanings]
    yield from min(found, key=len)


def _wrong_no_op(outcome: Unchanged, verdict: Verdict, state: State) -> Iterator[Violation]:
    expected = "would" if outcome.would_change else "unchanged"
    if (verdict.kind, verdict.succeeded, verdict.left_out, verdict.skipped) != (
        expected,
        outcome.succeeded,
        outcome.left_out,
        places_of(outcome.skipped),
    ):
        yield Violation("untrue-no-op", f"at {state.revision} it is {verdict}")
    elif outcome.documents.keys() != set(verdict.named):
        yield Violation("untrue-no-op", f"is answered with {set(outcome.documents)}")
    elif {change.key for change in outcome.changes} != (
        verdict.changed.keys() if outcome.would_change else set()
    ):
        yield Violation("untrue-no-op", f"would change {outcome.changes}")
    for key, document in outcome.documents.items():
        after = verdict.changed.get(key) if outcome.would_change else None
        if after is None:
            if not same(document, state.live(key)):
                yield Violation("untrue-no-op", f"document {key} is {state.live(key)}")
        elif _parts(document) != after.parts:
            yield Violation("untrue-no-op", f"would leave {after}, not {document}")


def _parts(document: DocumentRecord | None) -> tuple[object, object, Owners]:
    if document is None or not document.exists:
        return GONE, None, {}
    owners = told(msgspec.to_builtins(document.owners))
    return document.content, document.attributes or None, owners


def _refused(ledger: Ledger, call: Call, error: CommitError) -> Iterator[Violation]:
    current = ledger.current(call.called, call.answered)
    if not any(_is_true(ledger, revision, call, error) for revision in current):
        yield Violation("untrue-refusal", f"{error!r} at none of {current}")


def _is_true(ledger: Ledger, revision: int, call: Call, error: CommitError) -> bool:
    state = ledger.state(revision)
    if isinstance(error, RevisionCompacted):
        floor = ledger.floors(call.called, call.answered)[-1]
        actions = (*call.ask.actions, *(call.ask.otherwise or ()))
        compares = (*call.ask.compare, *(each for action in actions for each in action.when))
        return any(each.what == "range-unchanged" and each.value < floor for each in compares)
    meanings = ledger.meanings(call, revision, call.answered)
    return any(_is_true_of(ask, ledger, state, call, error) for ask in meanings)


def _is_true_of(ask: Ask, ledger: Ledger, state: State, call: Call, error: CommitError) -> bool:
    verdict = judge(ask, state)
    if ask.rebase and ledger.floors(call.called, call.answered)[-1] > 0:
        # What it was to be rebased from may have been compacted.
        unable = judge(ask, state, rebasing=False)
        verdict = unable if unable.code == _code(error) else verdict
    if (verdict.kind, verdict.code, verdict.places) != ("refused", _code(error), _places(error)):
        return False
    met: StateConflict | PatchDoesNotFit
    if isinstance(error, ConditionFailed):
        met = error.conflict
        if met.catalog_revision not in (None, state.revision):
            return False
    elif isinstance(error, PatchDoesNotFit):
        met = error
    else:
        return True
    if met.key is None:
        return True
    found = state.live(met.key)
    return version_of(met.document) == version_of(found)


def _code(error: CommitError) -> str:
    return IndexNeedsTest.code if code_of(error) == IndexNeedsTest.code else error.code


def _places(error: CommitError) -> frozenset[Place]:
    """The places that others have otherwise, where that is why it was refused."""
    if isinstance(error, ChangedSince):
        return frozenset(
            Place(Name(each.key), above_lists(each.pointer), of_attributes=each.of_attributes)
            for each in error.disputed
        )
    if isinstance(error, PatchDoesNotFit) and isinstance(error.error, OwnedByOthers):
        contested = error.error.contested
        return places_of([Skipped(error.key, each.pointer, each.owners) for each in contested])
    return frozenset()


def _in_time(call: Call, recording: Recording) -> Iterator[Violation]:
    """Where moves fail, a batch may be under way until the last deadline of its requests.

    A bulk is answered as a whole, so its calls are as late as the one that may take longest. While
    it waits for room its time doesn't run: those before it, of all bulks, may take all of theirs,
    and so may the single calls that find room first where there is hardly any.
    """
    limit_s = recording.longest_s
    if call.bulk is None:
        limit_s = min(limit_s, call.ask.wait_s or limit_s)
    limit_s += recording.longest_s + _SLACK_IF_FAULTY_S if recording.faulty else _SLACK_S
    if call.bulk is not None:
        limit_s *= _before_or_beside(call, recording.calls)
    took_s = call.answered_s - call.called_s - call.suspended_s
    if call.ask.writes and took_s > limit_s:
        yield Violation("late", f"answered after {took_s:.3f} s")
    needless = call.ask.dry_run and not call.suspended_s
    if isinstance(call.outcome, Unknown) and (needless or not recording.faulty):
        yield Violation("late", "unknown, though it was never to be applied or nothing failed")


def _before_or_beside(call: Call, calls: Sequence[Call]) -> int:
    """How many calls may have had room before this one of a bulk, itself among them."""
    meanwhile = [
        each
        for each in calls
        if each.answered_s >= call.called_s and each.called_s <= call.answered_s
    ]
    here = [each for each in meanwhile if each.worker == call.worker]
    bulks = sum(each.bulk is not None for each in meanwhile)
    if not any(isinstance(each.error, QueueFull) for each in here):
        return bulks
    return bulks + sum(each.bulk is None and each.error is None for each in here)
