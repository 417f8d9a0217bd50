"""What a subscription is sent: CloudEvents 1.0 in JSON, one at a time (structured) or as a batch.

A commit's data is what the feed tells of it. ``id`` is the catalog and the revision; of what a
subscription begins with, the catalog and the position in the list. It is the same whenever an event
is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from gateway.feed.channel import Told
from gateway.feed.from_state import MadeBy
from gateway.http.wire.headers import catalog_path
from gateway.http.wire.responses import encode
from gateway.http.wire.shapes import (
    FeedPosition,
    document_shape,
    event_data,
    feed_position,
    synced_shape,
)
from gateway.model import DocumentRecord
from patching.values import rfc3339

FORMATS: Final = ("cloudevents", "cloudevents-batch")
_TYPES: Final = {
    "cloudevents": "application/cloudevents+json; charset=utf-8",
    "cloudevents-batch": "application/cloudevents-batch+json; charset=utf-8",
}
_PREFIX: Final = "metadata-gateway"


def commit(catalog: str, told: Told) -> bytes:
    return _event(catalog, "commit", str(told.revision), event_data(told.encoded), told.time_us)


def document(catalog: str, record: DocumentRecord, revision: int) -> bytes:
    """One of those that there are at ``revision``."""
    data = encode(document_shape(record))
    position = FeedPosition(revision, record.key)
    return _event(catalog, "document", str(position), data, record.time_us)


def synced(catalog: str, revision: int, made: MadeBy | None) -> bytes:
    """The documents of ``revision`` have all been sent."""
    data = encode(synced_shape(revision, made))
    time_us = None if made is None else made.time_us
    return _event(catalog, "synced", synced_at(revision), data, time_us)


def compacted(catalog: str, code: str, detail: str, position: str) -> bytes:
    """What follows on ``position`` can't be told any more: the state comes next, anew."""
    data = encode({"status": 410, "code": code, "detail": detail, "position": position})
    return _event(catalog, "compacted", compacted_at(position), data, None)


def _event(catalog: str, kind: str, place: str, data: bytes, time_us: int | None) -> bytes:
    members: dict[str, Any] = {
        "specversion": "1.0",
        "id": event_id(catalog, place),
        "source": catalog_path(catalog),
        "type": f"{_PREFIX}.{kind}",
        "datacontenttype": "application/json",
    }
    if time_us is not None:
        members["time"] = rfc3339(time_us)
    return encode(members)[:-1] + b',"data":' + data + b"}"


def event_id(catalog: str, position: str) -> str:
    """Without a full stop, which ends an id where it is signed."""
    return f"{quote(catalog, safe='')}/{position}".replace(".", "%2E")


def position(revision: int, key: str) -> str:
    return str(FeedPosition(revision, key))


# With a character that is encoded in keys: no document has such a place, whatever its key.
def synced_at(revision: int) -> str:
    return f"{revision}/!synced"


def compacted_at(position: str) -> str:
    return f"{position}/!compacted"


def key_of(text: str) -> tuple[int, str]:
    found = feed_position(text)
    return found.revision, found.key or ""


def message(form: str, events: Sequence[bytes]) -> tuple[bytes, str]:
    """The body and its type; a structured one has one event."""
    if form == "cloudevents":
        (body,) = events
    else:
        body = b"[" + b",".join(events) + b"]"
    return body, _TYPES[form]
