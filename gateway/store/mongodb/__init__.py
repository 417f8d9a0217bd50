"""The store on MongoDB: see ``gateway.store.contract`` for what it promises."""

from gateway.store.mongodb.diagnosis import count_head_writes
from gateway.store.mongodb.store import MongoStore, connect
from gateway.store.mongodb.uploads import MongoUploads

__all__ = ["MongoStore", "MongoUploads", "connect", "count_head_writes"]
