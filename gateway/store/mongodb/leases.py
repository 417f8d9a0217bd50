"""Leases: who does something for a while, decided by the database's clock.

``leases``  ``_id`` the lease's name; holder, until (a date)
"""

from __future__ import annotations

from pymongo.errors import DuplicateKeyError

from gateway.store.mongodb.connection import Part


class LeasesPart(Part):
    """See ``gateway.store.contract.Store``."""

    def take_lease(self, name: str, holder: str, duration_s: float) -> bool:
        mine = {"$eq": ["$holder", {"$literal": holder}]}
        over = {"$lte": ["$until", "$$NOW"]}
        taken = {
            "holder": {"$literal": holder},
            "until": {"$add": ["$$NOW", round(duration_s * 1000)]},
        }
        with self._on.writing() as session:
            try:
                self._on.database["leases"].update_one(
                    {"_id": name, "$expr": {"$or": [mine, over]}},
                    [{"$set": taken}],
                    upsert=True,
                    session=session,
                )
            except DuplicateKeyError:
                # Another one's, and not over: the filter doesn't match it, and its name can't be
                # inserted a second time.
                return False
        return True

    def end_lease(self, name: str, holder: str) -> None:
        with self._on.writing() as session:
            lease = {"_id": name, "holder": holder}
            self._on.database["leases"].delete_one(lease, session=session)
