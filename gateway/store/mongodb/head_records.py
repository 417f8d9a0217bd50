"""How heads are laid out as BSON.

``catalogs``   ``_id`` the catalog's name; ``head``, which each move asks for and replaces: format
               (see ``format``), revision and last (the commit's id), judged (the number of the last
               verdict) and verdict (its id); time_us, deleted, ``out`` (up to where it is written
               out), tail: [commit], judged_out and verdicts: [verdict], with ``open`` where it has
               any of either; claims: [claim]; of retention floor, raises, swept and pins: [pin],
               which no move touches; and ``uncommitted``, the time of the last verdict, where it
               has no commit
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from bson import encode

from gateway.model import Claim, Commit, Head, Move, Pin, Place, Retention, Verdict
from gateway.store.mongodb.records import Record, commit_fields, commit_of
from gateway.store.mongodb.verdict_records import verdict_fields, verdict_of

_Reply = TypeVar("_Reply", Commit, Verdict)

# The number of this layout: see ``format``.
FORMAT: Final = 4

# The fields of a head without its tail.
_BARE_HEAD = ("head", "time_us", "out", "floor", "deleted", "judged_out")
BARE_HEAD: Final = dict.fromkeys(_BARE_HEAD, 1)
HEAD_WITH_TAIL: Final = {**BARE_HEAD, "tail": 1, "verdicts": 1, "claims": 1}


def head_at(catalog: str, place: Place) -> Record:
    """The filter on a head at this place, of this format."""
    return {"_id": catalog, "head": _head_fields(place)}


def _head_fields(place: Place) -> Record:
    """In the order in which MongoDB compares them."""
    return {
        "format": FORMAT,
        "revision": place.revision,
        "last": place.last,
        "judged": place.judged,
        "verdict": place.last_verdict,
    }


# The revision of a head, to be asked for.
REVISION: Final = "head.revision"


def in_line(move: Move) -> Record:
    """The filter on a head whose first claim the move may pass, or that has none."""
    if move.passes_all:
        return {}
    nobody: Record = {"claims.0": {"$exists": False}}
    if not move.past:
        return nobody
    # That the name is missing says nothing: the path means a member "0" of each claim, too.
    return {"$or": [nobody, {"claims.0.by": {"$in": [*move.past]}}]}


def head_move(move: Move) -> Record:
    """The update that makes a move; it leaves retention alone.

    The tail keeps as many of its last commits as are above ``written``, whichever revision the head
    itself has been noted to be written out to: so neither update can take too many from it. The
    verdicts likewise.
    """
    revision, judged = move.reached
    state: Record = {"head": _head_fields(move.goal), "open": True}
    if move.commits:
        last = move.commits[-1]
        state |= {"time_us": last.time_us, "deleted": last.deletes_catalog}
    written = {"out": move.written}
    tail = [commit_fields(commit) for commit in move.commits]
    pushed: Record = {"tail": {"$each": tail, "$slice": move.written - revision}}
    if judged:
        written["judged_out"] = move.judged_written
        verdicts = [verdict_fields(verdict) for verdict in move.verdicts]
        pushed["verdicts"] = {"$each": verdicts, "$slice": move.judged_written - judged}
    update: Record = {"$set": state, "$max": written, "$push": pushed}
    if not move.base:  # a catalog that was never written may have verdicts
        if move.commits:
            update["$unset"] = {"uncommitted": ""}
        elif move.verdicts:
            state["uncommitted"] = move.verdicts[-1].time_us
    if move.past:
        update["$pull"] = {"claims": {"by": {"$in": [*move.past]}}}
    if not move.commits:
        update["$setOnInsert"] = {"time_us": 0}
    return update


def head_from(record: Mapping[str, Any]) -> Head:
    catalog = record["_id"]
    tail, at = record.get("tail"), record["head"]
    return Head(
        catalog=catalog,
        revision=at["revision"],
        time_us=record["time_us"],
        written=record["out"],
        floor=record.get("floor", 0),
        deleted=record.get("deleted", False),
        tail=None if tail is None else tuple(_of_tail(commit_of(catalog, c), c) for c in tail),
        judged=at["judged"],
        judged_written=record.get("judged_out", 0),
        verdicts=None
        if tail is None
        else tuple(_of_tail(verdict_of(catalog, v), v) for v in record.get("verdicts", ())),
        claims=tuple(Claim(each["by"], each["hold_ms"]) for each in record.get("claims", ())),
        last=at["last"],
        last_verdict=at["verdict"],
    )


def _of_tail(reply: _Reply, record: Mapping[str, Any]) -> _Reply:
    """The commit or verdict with the size that it takes in its head."""
    return msgspec.structs.replace(reply, size_bytes=len(encode(record)))


def pin_record(pin: Pin) -> Record:
    return asdict(pin)


def retention_from(record: Mapping[str, Any], now: datetime | None = None) -> Retention:
    """``now``, by the database's clock, is needed where the floor was raised."""
    return Retention(
        revision=record["head"]["revision"],
        floor=record.get("floor", 0),
        swept=record.get("swept", 0),
        pins=tuple(Pin(**pin) for pin in record.get("pins", ())),
        raises=tuple(
            (each["floor"], (now - each["at"]).total_seconds())
            for each in (record.get("raises", ()) if now is not None else ())
        ),
    )
