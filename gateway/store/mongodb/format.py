"""The format of what is stored, by its number, and how an older one is taken over.

``format`` ``_id`` "format"; number. A database without this record is new, or of format 1.

1. A head holds its last batch: revision, base_revision, batch.
2. A head holds its tail: head, written, tail (see ``records``). Documents, commits, pins and tokens
   are as in format 1.
3. Documents and changes may have owners. Commits may say what their applies skipped, and which
   actions were left out. All else is as in format 2.
4. A head has its position in one field: format, revision and commit, verdict. Commits name their
   parents, and changes their bases. Earlier records stay as they were; the last commit of a head
   without a tail isn't known until the next one.

A gateway checks the number when it connects, and refuses one that it doesn't know. A gateway of an
older format that is still running is kept out by the heads, since every move requires ``head`` as
its own format has it: a number in 2 and 3, an object with the format's number from 4 on, and in 1
another field. So all its moves are lost, and it can't read a head either. It can still make new
catalogs: their heads are taken over when they are read, or by the janitor.
"""

from __future__ import annotations

from typing import Any, Final

from pymongo.collection import Collection
from pymongo.database import Database

from gateway.store.contract import BeingRestored
from gateway.store.mongodb.records import FORMAT, LEASE_IS_OVER, Record

_OLDER: Final = (2, 3)  # 3 only allows more in documents and commits than 2
_NAME: Final = {"_id": "format"}
# The format of a head whose catalog is being restored: no gateway reads such a head or can move it.
# The record also holds the lease of the restore, which the head's ``last`` names.
RESTORED: Final = "restored"
# The filter on heads whose restore stood still until its lease was over, so another one may begin.
BROKEN_OFF: Final[Record] = {"head.format": RESTORED, "$expr": LEASE_IS_OVER}

_SWEEP_LEFT = {"$gt": [{"$ifNull": ["$floor", 0]}, {"$ifNull": ["$swept", 0]}]}
_FROM_1: Final[list[Record]] = [
    {
        "$set": {
            "head": "$revision",
            "written": "$base_revision",
            "judged": 0,
            "tail": {"$ifNull": ["$batch", []]},
            "open": True,
            "raises": {"$cond": [_SWEEP_LEFT, [{"floor": "$floor", "at": "$$NOW"}], []]},
        }
    },
    {"$unset": ["revision", "base_revision", "batch"]},
]
_NOW_US = {"$multiply": [{"$toLong": "$$NOW"}, 1_000]}
_FROM_3: Final[list[Record]] = [
    {
        "$set": {
            "head": {
                "format": FORMAT,
                "revision": "$head",
                "last": {"$ifNull": [{"$last": "$tail.id"}, ""]},
                "judged": {"$ifNull": ["$judged", 0]},
                "verdict": {"$ifNull": [{"$last": "$verdicts.id"}, ""]},
            },
            "out": "$written",
            "judged_out": {"$ifNull": ["$judged_written", 0]},
            "uncommitted": {"$cond": [{"$eq": ["$head", 0]}, _NOW_US, "$$REMOVE"]},
        }
    },
    {"$unset": ["written", "judged", "judged_written"]},
]


class UnknownFormat(Exception):
    """The database, or a head, is of a format that this gateway doesn't know."""

    def __init__(self, number: object) -> None:
        super().__init__(
            f"the database has format {number!r}, this gateway knows up to {FORMAT}: use the"
            " version of the gateway that wrote it, or a newer one"
        )


def take_over(database: Database[Record]) -> None:
    """Bring the database to ``FORMAT``. Idempotent; several gateways may do it at once.

    Raises UnknownFormat, and the driver's errors.
    """
    number = known_format(database)
    if number is None:
        take_over_heads(database["catalogs"], {})
        database["format"].update_one(_NAME, {"$set": {"number": FORMAT}}, upsert=True)
    elif number in _OLDER:
        take_over_heads(database["catalogs"], {})
        older = {**_NAME, "number": {"$in": _OLDER}}
        database["format"].update_one(older, {"$set": {"number": FORMAT}})


def known_format(database: Database[Record]) -> int | None:
    """The format that the database has; None if it is new, or of format 1.

    Raises UnknownFormat, and the driver's errors.
    """
    found = database["format"].find_one(_NAME)
    if found is None:
        return None
    number = found.get("number")
    if number != FORMAT and number not in _OLDER:
        raise UnknownFormat(number)
    return int(number)


def take_over_heads(catalogs: Collection[Record], which: Any) -> None:
    """Bring the heads that the filter ``which`` matches to ``FORMAT``, each head atomically."""
    catalogs.update_many({**which, "revision": {"$exists": True}}, _FROM_1)
    catalogs.update_many({**which, "head": {"$type": "number"}}, _FROM_3)


def is_older(record: Record) -> bool:
    """Whether a head is of an older format. Raises UnknownFormat if it is of a newer one, and
    BeingRestored."""
    head = record.get("head")
    if not isinstance(head, dict):
        return bool(record["_id"] != "")
    number = head.get("format")
    if number == RESTORED:
        raise BeingRestored(record["_id"])
    if isinstance(number, int) and number > FORMAT:
        raise UnknownFormat(number)
    return False  # what no gateway writes is refused by the code that reads the head
