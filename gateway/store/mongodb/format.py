"""The format of what is stored, by its number, and how an older one is taken over.

``format`` ``_id`` "format"; number. A database without it is new, or of format 1.

1. A head holds its last batch: revision, base_revision, batch.
2. A head holds its tail: head, written, tail (see ``records``). The documents, commits, pins and
   tokens of format 1 are as they were.
3. Documents and changes may have owners, and commits what their applies skipped and which actions
   were left out. All else is as in format 2.

A gateway that knows only format 1 can't write a head of format 2: its condition on ``revision``
holds of none, so all its moves are lost. Whatever such a gateway still makes, a catalog that is
new, is taken over when it is read. One that knows only format 2 would write documents without their
owners: it refuses a database of format 3, when it connects.
"""

from __future__ import annotations

from typing import Any, Final

from pymongo.collection import Collection
from pymongo.database import Database

from gateway.store.mongodb.records import Record

FORMAT: Final = 3
_AS_BEFORE: Final = 2  # nothing to be changed
_NAME: Final = {"_id": "format"}

_SWEEP_LEFT = {"$gt": [{"$ifNull": ["$floor", 0]}, {"$ifNull": ["$swept", 0]}]}
_FROM_1: Final[list[Record]] = [
    {
        "$set": {
            "head": "$revision",
            "written": "$base_revision",
            "tail": {"$ifNull": ["$batch", []]},
            "open": True,
            "raises": {"$cond": [_SWEEP_LEFT, [{"floor": "$floor", "at": "$$NOW"}], []]},
        }
    },
    {"$unset": ["revision", "base_revision", "batch"]},
]


class UnknownFormat(Exception):
    """The database is of a format that this gateway doesn't know."""

    def __init__(self, number: object) -> None:
        super().__init__(
            f"the database has format {number}, this gateway knows up to {FORMAT}: use the version"
            " of the gateway that wrote it, or a newer one"
        )


def take_over(database: Database[Record]) -> None:
    """Bring the database to ``FORMAT``. May be repeated, and done by several gateways at once.

    Raises UnknownFormat, and the driver's errors.
    """
    found = database["format"].find_one(_NAME)
    if found is None:
        take_over_heads(database["catalogs"], {})
        database["format"].update_one(_NAME, {"$set": {"number": FORMAT}}, upsert=True)
    elif found.get("number") == _AS_BEFORE:
        database["format"].update_one({**_NAME, "number": _AS_BEFORE}, {"$set": {"number": FORMAT}})
    elif found.get("number") != FORMAT:
        raise UnknownFormat(found.get("number"))


def take_over_heads(catalogs: Collection[Record], which: Any) -> None:
    """Bring the heads that ``which`` finds, of format 1, to ``FORMAT``."""
    catalogs.update_many({**which, "revision": {"$exists": True}}, _FROM_1)


def is_older(record: Record) -> bool:
    """Whether a head is of format 1."""
    return record["_id"] != "" and "head" not in record
