"""Whether one answer was true at some moment between its call and itself."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.conflict import Conflict
from gateway.decide.request import Applied, Refused, Unchanged, Unknown
from gateway.errors import (
    CommitError,
    PatchDoesNotFit,
    PreconditionFailed,
    RevisionCompacted,
)
from gateway.model import APPLICATIONS_KEY, Document, version_of

from .asks import SETTINGS
from .ledger import Ledger, Violation
from .model import judge
from .model_edits import GONE
from .reads import check_read
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
        named = set(ledger.named[revision])
        if call.ask.deletes_catalog:
            named |= {SETTINGS, APPLICATIONS_KEY}
        if outcome.documents.keys() != named:
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
    verdict = judge(call.ask, state)
    expected = "would" if outcome.would_change else "unchanged"
    if (verdict.kind, verdict.succeeded, verdict.left_out) != (
        expected,
        outcome.succeeded,
        outcome.left_out,
    ):
        yield Violation("untrue-no-op", f"at {revision} it is {verdict}")
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
        elif _contents(document) != (after.content, after.attributes):
            yield Violation("untrue-no-op", f"would leave {after}, not {document}")


def _contents(document: Document | None) -> tuple[object, object]:
    if document is None or not document.exists:
        return GONE, None
    return document.content, document.attributes or None


def _refused(ledger: Ledger, call: Call, error: CommitError) -> Iterator[Violation]:
    current = ledger.current(call.called, call.answered)
    if not any(_is_true(ledger, revision, call, error) for revision in current):
        yield Violation("untrue-refusal", f"{error!r} at none of {current}")


def _is_true(ledger: Ledger, revision: int, call: Call, error: CommitError) -> bool:
    state = ledger.state(revision)
    if call.ask.deletes_catalog and not state.exists and error.code == "precondition_failed":
        return call.ask.resource_version not in (None, revision)  # as true as "not found"
    if isinstance(error, RevisionCompacted):
        floor = ledger.floors(call.called, call.answered)[-1]
        actions = (*call.ask.actions, *(call.ask.otherwise or ()))
        compares = (*call.ask.compare, *(each for action in actions for each in action.when))
        return any(each.what == "range-unchanged" and each.value < floor for each in compares)
    verdict = judge(call.ask, state)
    if call.ask.rebase and ledger.floors(call.called, call.answered)[-1] > 0:
        # What it was to be rebased from may have been compacted.
        unable = judge(call.ask, state, rebasing=False)
        verdict = unable if unable.code == error.code else verdict
    if verdict.kind != "refused" or verdict.code != error.code:
        return False
    met: Conflict | PatchDoesNotFit
    if isinstance(error, PreconditionFailed):
        met = error.conflict
        if met.catalog_revision not in (None, revision):
            return False
    elif isinstance(error, PatchDoesNotFit):
        met = error
    else:
        return True
    if met.key is None:
        return True
    found = state.live(met.key)
    return version_of(met.document) == version_of(found)


def _in_time(call: Call, recording: Recording) -> Iterator[Violation]:
    """Where moves fail, a batch may be under way until the last deadline of its requests.

    A bulk is answered as a whole, so its calls are as late as the one that may take longest. While
    it waits for room its time doesn't run: those before it, of all bulks, may take all of theirs.
    """
    limit_s = recording.longest_s
    if call.bulk is None:
        limit_s = min(limit_s, call.ask.wait_s or limit_s)
    limit_s += recording.longest_s + _SLACK_IF_FAULTY_S if recording.faulty else _SLACK_S
    if call.bulk is not None:
        limit_s *= sum(
            each.bulk is not None
            and each.answered_s >= call.called_s
            and each.called_s <= call.answered_s
            for each in recording.calls
        )
    took_s = call.answered_s - call.called_s - call.suspended_s
    if call.ask.writes and took_s > limit_s:
        yield Violation("late", f"answered after {took_s:.3f} s")
    needless = call.ask.dry_run and not call.suspended_s
    if isinstance(call.outcome, Unknown) and (needless or not recording.faulty):
        yield Violation("late", "unknown, though it was never to be applied or nothing failed")
