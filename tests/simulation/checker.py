"""Whether a recorded history is one that the gateway may give; pure, reads the recording alone.

The kinds of violations, each a promise:

    log            each move goes from the newest revision to the next ones; no gaps, no id twice
    time           commit times are strictly increasing
    twice          a request, or an idempotency key, is in the log once at the most
    untrue-commit  a commit is what its request makes of the state right before it
    untrue-applied an acknowledged commit is in the log, made between call and answer
    untrue-refusal a refusal was true at some moment between call and answer
    untrue-no-op   so was "nothing to change"
    forgotten      an idempotency key stands for its outcome, whichever that is
    applied-anyway what was refused, or changed nothing, is not in the log
    read           a read shows the state at a moment between call and answer
    snapshot       documents that are told together are those of one revision, all of them
    history        the past that is read is the past of the log; so are the stored commits
    feed           a watcher hears each commit it wants once, in order, whole, or of compaction
    owners         what an apply, letting go and a plain write do to what is owned; see ``owning``
    pin            no floor passes what a pin holds; who was told of a pin has it
    documents      the stored documents, and what a new worker reads, are the log replayed
    late           an answer comes in time, and without faults it is a definite one
    bulk           what came together for one catalog is done in the order it was given; and where a
                   write may come again, none behind it on its document is done
    neglected      no leader stands by while requests are waiting that are due
    defect         the commit loop ran into an error of its own, or a call was never answered

Linearizability follows: commits are in the order of the log, each inside its own call; everything
else is placed at a moment inside its call where the log's state makes its answer true.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.decide.request import Applied, Unchanged, Unknown, is_for_now
from gateway.model import CommitRecord

from .answers import check_answer
from .feeds import check_feed
from .ledger import FOREVER, Ledger, Violation
from .model import live
from .owning import check_owners
from .pins import check_pins
from .recorder import Call, Recording, changes_json
from .sameness import same
from .verdicts import check_verdicts


def check(recording: Recording) -> list[Violation]:
    """Everything that is wrong with the history."""
    return list(_violations(recording))


def _violations(recording: Recording) -> Iterator[Violation]:
    for defect in recording.defects:
        yield Violation("defect", defect)
    if recording.defects:
        return
    for neglected in recording.neglected:
        yield Violation("neglected", neglected)
    calls = {call.ask.label: call for call in recording.calls if call.ask.writes}
    ledgers: dict[str, Ledger] = {}
    for catalog in sorted({call.ask.catalog for call in recording.calls}):
        ledger = ledgers[catalog] = Ledger(
            catalog,
            recording.logs.get(catalog, []),
            [kept for kept in recording.kept if kept.catalog == catalog],
            recording.skew_us,
            [each for each in recording.verdicts if each[1].catalog == catalog],
        )
        yield from ledger.build(calls)
        if ledger.last < len(ledger.log):
            return
        yield from _check_commits(ledger, recording.commits.get(catalog, []))
        yield from check_pins(ledger)
        yield from check_owners(ledger, calls)
    for deaf in recording.deaf:
        yield Violation("feed", deaf)
    for following in recording.followings:
        yield from check_feed(ledgers[following.catalog], following)
    for finding in recording.findings:
        yield Violation("documents", finding)
    yield from _check_documents(ledgers, recording)
    yield from check_verdicts(ledgers, recording)
    for group in _bulks(recording):
        yield from _check_order(ledgers, group)
        yield from _check_held_back(group)
    for call in recording.calls:
        for violation in check_answer(ledgers[call.ask.catalog], call, recording):
            detail = f"{call.ask.label} at {call.worker}: {violation.detail}"
            yield Violation(violation.kind, detail)


def _bulks(recording: Recording) -> list[list[Call]]:
    bulks: dict[int, list[Call]] = {}
    for call in recording.calls:
        if call.bulk is not None:
            bulks.setdefault(call.bulk[0], []).append(call)
    return list(bulks.values())


def _check_order(ledgers: dict[str, Ledger], calls: list[Call]) -> Iterator[Violation]:
    last: dict[str, int] = {}
    for call in calls:
        catalog = call.ask.catalog
        made = ledgers[catalog].by_label.get(call.ask.label)
        revision = last.get(catalog, 0)
        if made is not None:
            # What nobody knows of may have been done later.
            if not isinstance(call.outcome, Unknown):
                revision = made.commit.revision
        elif isinstance(call.outcome, Unchanged) and not call.outcome.replayed:
            revision = call.outcome.catalog_revision
        if revision < last.get(catalog, 0):
            yield Violation("bulk", f"{call.ask.label} was done before one that came before it")
        last[catalog] = max(revision, last.get(catalog, 0))


def _check_held_back(calls: list[Call]) -> Iterator[Violation]:
    again: set[tuple[str, str]] = set()  # documents of which an earlier call may come again
    for call in calls:
        document, outcome = (call.ask.catalog, call.ask.key), call.outcome
        done = isinstance(outcome, Applied | Unchanged) and not outcome.replayed
        if done and document in again:
            yield Violation("bulk", f"{call.ask.label} was done, and one before it may come again")
        if outcome is not None and is_for_now(outcome):
            again.add(document)


def _check_commits(ledger: Ledger, stored: list[CommitRecord]) -> Iterator[Violation]:
    made = {entry.commit.revision: entry for entry in ledger.log}
    floor = ledger.floors(FOREVER, None)[-1]
    retained = [commit.revision for commit in stored if commit.revision > floor]
    if retained != list(range(floor + 1, ledger.last + 1)) or len(made) != ledger.last:
        yield Violation("history", f"{ledger.catalog}: the commits are not those of the heads")
        return
    for commit in stored:
        if commit.revision <= floor:
            continue
        entry = made[commit.revision]
        if commit.id != entry.commit.id or changes_json(commit) != entry.changes:
            yield Violation("history", f"{ledger.catalog}@{commit.revision} is another commit")


def _check_documents(ledgers: dict[str, Ledger], recording: Recording) -> Iterator[Violation]:
    expected = {
        (catalog, key): doc
        for catalog, ledger in ledgers.items()
        for key, doc in ledger.states[-1].items()
    }
    gone = {
        (catalog, key)
        for catalog, key in expected.keys() - recording.documents.keys()
        if ledgers[catalog].is_told(None, ledgers[catalog].last, key, None)
    }
    if recording.documents.keys() | gone != expected.keys():
        yield Violation("documents", "others are stored than were made")
    for name, stored in recording.documents.items():
        if name in expected and not same(stored, expected[name]):
            yield Violation("documents", f"{name}: {stored} is stored, not {expected[name]}")
    for name, reading in recording.fresh.items():
        last = ledgers[name[0]].last if name[0] in ledgers else 0
        document = reading.document
        if reading.catalog_revision != last or not (
            same(document, expected.get(name)) or (document is None and name in gone)
        ):
            yield Violation("documents", f"{name} is read as {reading}, not {expected.get(name)}")
    for (catalog, key, revision), document in recording.past.items():
        doc = live(ledgers[catalog].states[revision].get(key))
        if not same(document, doc):
            yield Violation("documents", f"{catalog} {key} at {revision} is {document}, not {doc}")
