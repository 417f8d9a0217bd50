"""Whether what was read is what some revision had: now, as of a revision, or as of a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gateway.errors import (
    CatalogNotFound,
    CommitError,
    DocumentNotFound,
    RevisionCompacted,
    RevisionNotFound,
    UnknownOutcome,
)
from gateway.model import Verdict

from .ledger import Ledger, Violation
from .model import Doc, live
from .pins import check_compaction, check_pin
from .recorder import Call, Listed
from .sameness import same
from .sim_runtime import EPOCH_US

_Found = Iterator[Violation]


# Changes that make no commit: what became of one may be unknown.
_CHANGES = ("pin", "renew", "unpin", "compact")


def check_read(ledger: Ledger, call: Call) -> _Found:
    """What is wrong with the answer to a read; the call was answered."""
    error = call.error
    assert error is None or isinstance(error, CommitError)
    if error is not None and call.listed is not None:
        # An export that broke off; what it had told by then is true.
        yield from _many(ledger, call, None)
    if error is not None and error.retryable:
        return
    if isinstance(error, UnknownOutcome) and call.ask.kind in _CHANGES:
        return
    if isinstance(error, RevisionCompacted) and call.ask.kind != "pin":
        yield from _compacted(ledger, call, error)
    else:
        yield from _CHECKS[call.ask.kind](ledger, call, error)


def check_unread(ledger: Ledger, call: Call, error: CommitError) -> _Found:
    """What is wrong with the refusal of a revert that didn't get to know what it would undo."""
    undone = call.ask.undone
    assert undone is not None
    asked = undone.revisions or (undone.to, undone.since or undone.to)
    lowest = min(undone.revisions) - 1 if undone.revisions else undone.to
    current = _current(ledger, call)
    if isinstance(error, RevisionCompacted):
        floors = ledger.floors(call.called, call.answered)
        if error.floor not in floors or lowest >= error.floor:
            yield Violation("history", f"{lowest} was not compacted, the floors were {floors}")
    elif isinstance(error, RevisionNotFound):
        yield from _not_found(ledger, call, error, max(asked))
    elif not isinstance(error, CatalogNotFound) or 0 not in current:
        yield Violation("history", f"{error!r} at none of {current}")


def _current(ledger: Ledger, call: Call) -> range:
    return ledger.current(call.called, call.answered)


def _compacted(ledger: Ledger, call: Call, error: RevisionCompacted) -> _Found:
    """Something was asked for that is below a floor there was by the time of the answer."""
    floors = ledger.floors(call.called, call.answered)
    asked = call.ask.revision
    if call.listed is not None:
        asked = call.listed.revision
    if call.ask.kind in ("revision-at", "read-then"):
        # Of two calls in a row the first one may have told of what was the last revision then.
        told = call.at.revision if call.at is not None else None
        asked = ledger.revision_at(call.ask.time_us, ledger.last) if told is None else told
    if error.floor not in floors:
        yield Violation("history", f"no floor was {error.floor}, but {floors}")
    elif asked is None:
        yield Violation("history", "the present was taken for compacted")
    elif asked >= error.floor:
        yield Violation("history", f"{asked} was not compacted, the floor was {error.floor}")


def _read(ledger: Ledger, call: Call, error: CommitError | None) -> _Found:  # noqa: ARG001
    assert call.reading is not None
    revision = call.reading.catalog_revision
    if revision not in _current(ledger, call):
        yield Violation("read", f"revision {revision} was not current")
    elif not ledger.is_told(call.reading.document, revision, call.ask.key, call.answered):
        yield Violation("read", f"not what {revision} has")


def _read_at(ledger: Ledger, call: Call, error: CommitError | None) -> _Found:
    asked = call.ask.revision or 0
    if isinstance(error, RevisionNotFound):
        yield from _not_found(ledger, call, error, asked)
        return
    yield from _as_of(ledger, call, error, asked)


def _not_found(ledger: Ledger, call: Call, error: RevisionNotFound, asked: int) -> _Found:
    current = _current(ledger, call)
    if error.head_revision not in current or asked <= error.head_revision:
        yield Violation("history", f"{asked} against {current}")


def _as_of(ledger: Ledger, call: Call, error: CommitError | None, revision: int) -> _Found:
    yield from _readable(ledger, call, revision)
    if revision > ledger.last:
        return
    doc = live(ledger.states[revision].get(call.ask.key))
    if isinstance(error, DocumentNotFound):
        if doc is not None:
            yield Violation("history", f"{revision} has {doc}")
    elif call.reading is None or not same(call.reading.document, doc):
        yield Violation("history", f"{revision} has {doc}")


def _readable(ledger: Ledger, call: Call, revision: int) -> _Found:
    """It was made by then, and not compacted before the call."""
    if revision > _current(ledger, call)[-1]:
        yield Violation("history", f"{revision} was not made yet")
    floor = ledger.floors(call.called, call.called)[0]
    if revision < floor:
        yield Violation("history", f"{revision} is told, but was compacted to {floor}")


def _read_then(ledger: Ledger, call: Call, error: CommitError | None) -> _Found:
    if call.at is None:
        yield from _revision_at(ledger, call, error)
        return
    yield from _revision_at(ledger, call, None)
    yield from _as_of(ledger, call, error, call.at.revision)


def _revision_at(ledger: Ledger, call: Call, error: CommitError | None) -> _Found:
    """What is final stays so whatever is committed afterwards."""
    told = _revisions_at(ledger, call)
    if isinstance(error, RevisionNotFound) and _may_be_to_come(ledger, call):
        return
    found = 0 if isinstance(error, RevisionNotFound) or call.at is None else call.at.revision
    if found not in told:
        yield Violation("history", f"at that time it was {told}, not {found}")
    elif found:
        yield from _readable(ledger, call, found)
    in_the_end = ledger.revision_at(call.ask.time_us, ledger.last)
    if call.at is not None and call.at.is_final and found != in_the_end:
        yield Violation("history", f"at that time it was {in_the_end}, not {found}, told as final")


def _may_be_to_come(ledger: Ledger, call: Call) -> bool:
    """Whether the time asked for may not have been yet, by the clock of some worker."""
    now_us = EPOCH_US + int(call.called_s * 1e6)
    return call.ask.time_us > now_us - ledger.skew_us


def _revisions_at(ledger: Ledger, call: Call) -> set[int]:
    """What there was at the time asked for, as far as it was made by moments in the call."""
    return {ledger.revision_at(call.ask.time_us, head) for head in _current(ledger, call)}


def _page(ledger: Ledger, call: Call, error: CommitError | None) -> _Found:  # noqa: ARG001
    assert call.page is not None
    head, after = call.page.head_revision, call.ask.revision or 0
    if head not in _current(ledger, call):
        yield Violation("history", f"revision {head} was not current")
        return
    expected = [made.commit.id for made in ledger.log[after:head]]
    found = [commit.id for commit in call.page.commits]
    if found != expected[: len(found)] or len(found) > 3 or (expected and not found):
        yield Violation("history", "the page isn't what the log has")
    elif call.page.next_after != (after + len(found) if len(found) < len(expected) else None):
        yield Violation("history", "the page says wrongly where it goes on")


def _reply(ledger: Ledger, call: Call, error: CommitError | None) -> _Found:  # noqa: ARG001
    assert call.answered is not None
    made = ledger.by_key.get(call.ask.idempotency_key or "")
    tick, verdict = ledger.verdicts.get(call.ask.idempotency_key or "", (0, None))
    if call.reply is None:
        if made is not None and made.tick < call.called:
            yield Violation("history", "the key was used before the call")
        if verdict is not None and tick < call.called:
            yield Violation("forgotten", "the key had decided before the call")
    elif isinstance(call.reply, Verdict):
        if verdict != call.reply or tick > call.answered:
            yield Violation("forgotten", "the key stands for another verdict, or none")
    elif made is None or made.commit.id != call.reply.id or made.tick > call.answered:
        yield Violation("history", "the key was used for another commit, or none")


def _many(ledger: Ledger, call: Call, error: CommitError | None) -> _Found:
    """Documents of one revision: the one that was asked for, or one of the present."""
    current, asked = _current(ledger, call), call.ask.revision
    if isinstance(error, CatalogNotFound):
        if 0 not in current:
            yield Violation("snapshot", "the catalog was there")
    elif isinstance(error, RevisionNotFound):
        yield from _not_found(ledger, call, error, asked or 0)
    elif call.listed is None:
        yield Violation("snapshot", f"no answer, but {error!r}")
    else:
        revision = call.listed.revision
        if asked is not None and revision != asked:
            yield Violation("snapshot", f"revision {revision} is told, not {asked}")
        elif asked is None and revision not in current:
            yield Violation("snapshot", f"revision {revision} was not current")
        else:
            yield from _readable(ledger, call, revision)
            yield from _snapshot(call, call.listed, ledger.states[min(revision, ledger.last)])


def _snapshot(call: Call, listed: Listed, state: Mapping[str, Doc]) -> _Found:
    ask = call.ask
    for key, document in listed.documents.items():
        if not same(document, live(state.get(key))):
            yield Violation("snapshot", f"{key} at {listed.revision} is {state.get(key)}")
    there: set[str] = {
        key for key in state if key and live(state[key]) is not None and key > ask.after
    }
    found = set(listed.documents)
    expected: set[str]
    if ask.kind == "several":
        expected = set(ask.keys)
    elif listed.next_after is not None:
        expected = {key for key in there if key <= listed.next_after}
    else:
        expected = there if listed.whole else there & found
    if found != expected or (list(listed.documents) != sorted(found) and ask.kind != "several"):
        yield Violation("snapshot", f"{found} of {there} at {listed.revision}")
    if ask.kind == "list" and (len(found) > ask.limit or (listed.next_after and not found)):
        yield Violation("snapshot", f"{len(found)} documents on a page of {ask.limit}")


_CHECKS: Mapping[str, Callable[[Ledger, Call, CommitError | None], _Found]] = {
    "read": _read,
    "read-at": _read_at,
    "read-then": _read_then,
    "page": _page,
    "reply": _reply,
    "list": _many,
    "several": _many,
    "export": _many,
    "revision-at": _revision_at,
    "pin": check_pin,
    "renew": check_pin,
    "unpin": check_pin,
    "compact": check_compaction,
}
