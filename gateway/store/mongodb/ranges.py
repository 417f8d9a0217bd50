"""Filters on ``_id``: a few values, a span of commits, the names that begin with a prefix.

Every query on ``documents`` and ``commits`` has one, also where another index serves it and the
catalog is in that: by it a sharded cluster knows whom to ask.

MongoDB orders text by its UTF-8 bytes, which is the order of its code points.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

from gateway.store.mongodb import records
from gateway.store.mongodb.records import Record

_SURROGATES = (0xD800, 0xDFFF)


def one_of(values: Collection[str]) -> Any:
    """A query on a single value is cheaper than one on a list of one."""
    return next(iter(values)) if len(values) == 1 else {"$in": list(values)}


def of_catalog(catalog: str) -> Record:
    """All that is named under it."""
    return names_after("", f"{catalog}\0")


def of_catalogs(catalogs: Collection[str]) -> Record:
    """A filter for what is named under any of them.

    One range over all: a range for each would take the server several times as long, and many
    catalogs are on all shards anyway.
    """
    if len(catalogs) == 1:
        return {"_id": of_catalog(next(iter(catalogs)))}
    first, last = of_catalog(min(catalogs)), of_catalog(max(catalogs))
    return {"_id": {**first, "$lt": last["$lt"]}, "catalog": {"$in": list(catalogs)}}


def span(catalog: str, after: int, through: int) -> Record:
    return {
        "_id": {
            "$gt": records.commit_id(catalog, after),
            "$lte": records.commit_id(catalog, through),
        }
    }


def in_spans(spans: Mapping[str, tuple[int, int]]) -> Record:
    single = [
        records.commit_id(catalog, through)
        for catalog, (after, through) in spans.items()
        if through == after + 1
    ]
    branches = [
        span(catalog, after, through)
        for catalog, (after, through) in spans.items()
        if through != after + 1
    ]
    if single:
        branches.append({"_id": one_of(single)})
    return branches[0] if len(branches) == 1 else {"$or": branches}


def names_after(after: str, prefix: str) -> Record:
    """The bounds of the names above ``after`` that begin with ``prefix``."""
    bounds: Record = {"$gt": after} if after >= prefix else {"$gte": prefix}
    end = prefix_end(prefix)
    if end is not None:
        bounds["$lt"] = end
    return bounds


def prefix_end(prefix: str) -> str | None:
    """The lowest text above all that begins with ``prefix``; None where there is none above."""
    for length in range(len(prefix), 0, -1):
        last = ord(prefix[length - 1])
        if last < sys.maxunicode:
            following = last + 1
            if following == _SURROGATES[0]:
                following = _SURROGATES[1] + 1
            return prefix[: length - 1] + chr(following)
    return None
