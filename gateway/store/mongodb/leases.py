"""Leases: the temporary right to a task, decided by the database's clock.

``leases`` ``_id`` the lease's name; holder, until (a date)
"""

from __future__ import annotations

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from gateway.store.mongodb.connection import Part


class LeasesPart(Part):
    """See ``gateway.store.contract.Store``."""

    def take_lease(self, name: str, holder: str, duration_s: float) -> bool:
        me = {"$literal": holder}
        # A missing `until`, of a new lease, is lower than any date.
        free = {"$or": [{"$eq": ["$holder", me]}, {"$lte": ["$until", "$$NOW"]}]}
        until = {"$add": ["$$NOW", round(duration_s * 1000)]}
        taken = {
            "holder": {"$cond": [free, me, "$holder"]},
            "until": {"$cond": [free, until, "$until"]},
        }
        with self._on.writing() as session:
            try:
                lease = self._on.database["leases"].find_one_and_update(
                    {"_id": name},
                    [{"$set": taken}],
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                    session=session,
                )
            except DuplicateKeyError:
                return False  # another holder made it at that moment
        return lease is not None and bool(lease["holder"] == holder)

    def end_lease(self, name: str, holder: str) -> None:
        with self._on.writing() as session:
            lease = {"_id": name, "holder": holder}
            self._on.database["leases"].delete_one(lease, session=session)
