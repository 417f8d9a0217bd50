"""Whether watchers heard each commit that they want once, in order, whole; or of its compaction."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .asks import Name
from .ledger import Ledger, Violation
from .model import live
from .recorder import Following, Heard, Made
from .sameness import same


def check_feed(ledger: Ledger, following: Following) -> Iterator[Violation]:
    position = 0
    for heard in following.heard:
        current = ledger.current(heard.tick, heard.tick)[-1]
        if heard.revision > current:
            yield Violation("feed", f"heard of {heard.revision} before it was made")
            return
        if heard.what == "compacted":
            floor = ledger.floors(heard.tick, heard.tick)[-1]
            if not position < heard.revision <= floor:
                yield Violation("feed", f"{position} was not compacted, the floor was {floor}")
        elif heard.what == "synced":
            yield from _check_synced(ledger, following, heard)
        elif heard.what == "commit":
            yield from _check_told(ledger, following, position, heard.revision, heard.encoded)
        else:
            yield from _check_passed(ledger, following, position, heard.revision)
        position = heard.revision
    if position != ledger.last:
        yield Violation("feed", f"at the end it has come to {position}, not {ledger.last}")


def _check_synced(ledger: Ledger, following: Following, heard: Heard) -> Iterator[Violation]:
    """What a client has when it is told that it has all is what the export at that revision has."""
    if heard.revision not in ledger.current(heard.asked, heard.tick):
        yield Violation("feed", f"{heard.revision} wasn't current since the state was asked for")
        return
    state = ledger.states[heard.revision]
    there = {
        Name(key): doc
        for key, doc in state.items()
        if key and live(doc) is not None and key.startswith(following.prefix)
    }
    if list(heard.documents) != sorted(there):
        yield Violation("feed", f"{list(heard.documents)} of {sorted(there)} at {heard.revision}")
    for key, document in heard.documents.items():
        if not same(document, live(state.get(key))):
            yield Violation("feed", f"{key} at {heard.revision} is {state.get(key)}, not told so")


def _check_told(
    ledger: Ledger, following: Following, position: int, revision: int, encoded: bytes
) -> Iterator[Violation]:
    if revision <= position:
        yield Violation("feed", f"heard {revision} after {position}")
        return
    yield from _check_passed(ledger, following, position, revision - 1)
    made = ledger.log[revision - 1]
    if not _wants(following, made):
        yield Violation("feed", f"heard {revision}, which it doesn't want")
    if msgspec.json.decode(encoded) != [made.commit.id, made.changes.decode()]:
        yield Violation("feed", f"heard {revision} otherwise than it was made")


def _check_passed(
    ledger: Ledger, following: Following, position: int, revision: int
) -> Iterator[Violation]:
    """Nothing that it wants is passed over in silence."""
    if revision < position:
        yield Violation("feed", f"told to be at {revision} after {position}")
    for made in ledger.log[position:revision]:
        if _wants(following, made):
            yield Violation("feed", f"passes {made.commit.revision} on the way to {revision}")


def _wants(following: Following, made: Made) -> bool:
    if not following.keys and not following.prefix:
        return True
    keys = {Name(change[0]) for change in msgspec.json.decode(made.changes)}
    prefixed = bool(following.prefix) and any(key.startswith(following.prefix) for key in keys)
    return prefixed or not following.keys.isdisjoint(keys)
