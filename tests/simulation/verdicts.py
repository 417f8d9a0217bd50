"""Whether idempotency keys decided once, whatever the outcome."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.decide.idempotency_keys import outcome_of
from gateway.decide.request import Refused, Unchanged
from gateway.errors import IdempotencyMismatch, RefusedBefore
from gateway.model import Verdict

from .ledger import Ledger, Violation
from .recorder import Call, Recording


def check_verdicts(ledgers: dict[str, Ledger], recording: Recording) -> Iterator[Violation]:
    """What is wrong with the verdicts by themselves."""
    for _, verdict in recording.verdicts:
        ledger, key = ledgers[verdict.catalog], verdict.idempotency.key
        where = f"{verdict.catalog}: key {key}"
        if ledger.verdicts[key][1] is not verdict:
            yield Violation("twice", f"{where} has two verdicts")
        if key in ledger.by_key:
            yield Violation("twice", f"{where} has a verdict and a commit")
    for lost in recording.lost_verdicts:
        yield Violation("twice", f"the verdict of {lost} is kept nowhere")


def check_verdict(ledger: Ledger, call: Call, outcome: Unchanged | Refused) -> Iterator[Violation]:
    """What is wrong with an answer that the call's key stands for, or has to."""
    assert call.answered is not None
    tick, verdict = ledger.verdicts.get(call.ask.idempotency_key or "", (0, None))
    if verdict is None or tick > call.answered:
        yield Violation("forgotten", "the key doesn't stand for what it decided")
    elif verdict.idempotency.fingerprint != call.ask.fingerprint:
        yield Violation("forgotten", "the key stands for another request")
    elif not is_replay(outcome):
        if verdict.id != call.commit_id:
            yield Violation("twice", "the key was decided once more")
    elif not _tells(outcome, verdict):
        yield Violation("forgotten", f"the key stood for {verdict.outcome}")


def stands_for(call: Call) -> bool:
    """Whether the call's key has to stand for its outcome."""
    return call.ask.idempotency_key is not None and not call.ask.dry_run


def is_replay(outcome: Unchanged | Refused) -> bool:
    if isinstance(outcome, Refused):
        return isinstance(outcome.error, RefusedBefore)
    return outcome.replayed


def is_mismatch(ledger: Ledger, call: Call, error: Exception) -> bool:
    """Whether the key stood for a verdict on another request."""
    found = ledger.verdicts.get(call.ask.idempotency_key or "")
    return (
        isinstance(error, IdempotencyMismatch)
        and found is not None
        and found[0] <= (call.answered or 0)
        and found[1].idempotency.fingerprint != call.ask.fingerprint
    )


def _tells(outcome: Unchanged | Refused, verdict: Verdict) -> bool:
    then = outcome_of(verdict)
    if isinstance(outcome, Refused):
        return isinstance(then, Refused) and then.error.args == outcome.error.args
    return outcome == then
