"""Figures that MongoDB itself keeps, for the demonstration."""

from __future__ import annotations

from pymongo import MongoClient

from gateway.store.mongodb.records import Record


def count_head_writes(uri: str, database: str) -> int:
    """How many writes to heads the server has executed since it started, won and lost alike."""
    with MongoClient[Record](uri) as client:
        stages: list[Record] = [{"$collStats": {"latencyStats": {}}}]
        found = list(client[database]["catalogs"].aggregate(stages))
    return int(found[0]["latencyStats"]["writes"]["ops"]) if found else 0
