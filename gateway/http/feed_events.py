"""What a feed tells, as events: the same bytes for all who see everything that a commit changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gateway.commits.acls import Life, Sight
from gateway.commits.watch_values import Selection, Told
from gateway.http.answers import encode
from gateway.http.commit_shapes import commit_shape
from gateway.model import Commit

_decode = msgspec.json.Decoder().decode


def commit_event(commit: Commit) -> bytes:
    return _event("commit", commit_shape(commit), commit.revision)


def bookmark_event(revision: int) -> bytes:
    """Everything that was asked for up to here has been told."""
    return _event("bookmark", {"revision": revision}, revision)


def end_event(code: str, detail: str, revision: int) -> bytes:
    return _event("end", {"code": code, "detail": detail, "revision": revision}, None)


def _event(name: str, data: dict[str, Any], revision: int | None) -> bytes:
    """Three lines: encoded JSON holds no line end."""
    place = b"" if revision is None else b"id: %d\n" % revision
    return b"%bevent: %b\ndata: %b\n\n" % (place, name.encode(), encode(data))


def event_data(event: bytes) -> bytes:
    return event.split(b"\ndata: ", 1)[1][:-2]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one watcher is told of the commits that all of them share.

    A commit with changes beyond ``sight`` (None: nothing is) is told without them, as
    ``Sight.commits`` does. Where nothing is left that ``selection`` asks for, a watcher of
    everything is told the commit all the same, as one that changes nothing, so that it finds every
    revision; a watcher of some documents isn't, as of any other commit on others.
    """

    sight: Sight | None
    selection: Selection

    def events(self, told: Sequence[Told]) -> list[bytes]:
        """Raises StoreUnavailable."""
        if self.sight is None or not told:
            return [each.encoded for each in told]
        hidden = self.sight.hidden(frozenset().union(*(each.lives for each in told)))
        if not hidden:
            return [each.encoded for each in told]
        events = []
        for each in told:
            if hidden.isdisjoint(each.lives):
                events.append(each.encoded)
                continue
            gone = {life.key for life in each.lives & hidden}
            if self.selection.wants(replace(each, keys=each.keys - gone)):
                events.append(_without(each, hidden, self.sight.principal.name))
        return events


def _without(told: Told, hidden: frozenset[Life], name: str) -> bytes:
    """The event for ``name`` that leaves the changes of ``hidden`` out."""
    shape: dict[str, Any] = _decode(event_data(told.encoded))
    shape["changes"] = [
        change
        for change in shape["changes"]
        if Life(change["key"], change["create_revision"]) not in hidden
    ]
    if shape["author"] != name:
        shape |= {"message": None, "idempotency_key": None}
    return _event("commit", shape, told.revision)
