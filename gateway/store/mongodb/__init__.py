"""The store on MongoDB: see ``gateway.store.contract`` for what it promises."""

from gateway.store.mongodb.store import MongoStore, connect

__all__ = ["MongoStore", "connect"]
