"""The events sent to a subscription: CloudEvents 1.0 in JSON, alone (structured) or in a batch.

A commit's ``data`` is the same as in the feed. An event's ``id`` is made of the catalog and the
revision or, if the subscription begins with the state, the position in the list of documents. An
event that is sent again has the same ``id``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from gateway.feed.channel import EncodedCommit
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


def commit(catalog: str, item: EncodedCommit) -> bytes:
    return _event(catalog, "commit", str(item.revision), event_data(item.encoded), item.time_us)


def document(catalog: str, record: DocumentRecord, revision: int) -> bytes:
    """The event of one document of the state at ``revision``."""
    data = encode(document_shape(record))
    position = FeedPosition(revision, record.key)
    return _event(catalog, "document", str(position), data, record.time_us)


def synced(catalog: str, revision: int, made: MadeBy | None) -> bytes:
    """The event after the last document of the state at ``revision``."""
    data = encode(synced_shape(revision, made))
    time_us = None if made is None else made.time_us
    return _event(catalog, "synced", synced_at(revision), data, time_us)


def compacted(catalog: str, code: str, detail: str, position: str) -> bytes:
    """The event that says that commits after ``position`` are missing (``code`` says why), and that
    the state comes next, from its beginning."""
    data = encode({"status": 410, "code": code, "detail": detail, "position": position})
    return _event(catalog, "compacted", compacted_at(position), data, None)


def _event(catalog: str, kind: str, position: str, data: bytes, time_us: int | None) -> bytes:
    members: dict[str, Any] = {
        "specversion": "1.0",
        "id": event_id(catalog, position),
        "source": catalog_path(catalog),
        "type": f"{_PREFIX}.{kind}",
        "datacontenttype": "application/json",
    }
    if time_us is not None:
        members["time"] = rfc3339(time_us)
    return b"".join((encode(members)[:-1], b',"data":', data, b"}"))


def event_id(catalog: str, position: str) -> str:
    """The ``id`` of an event. It has no full stop, because one ends the id in the signed text."""
    return f"{quote(catalog, safe='')}/{position}".replace(".", "%2E")


def position(revision: int, key: str) -> str:
    return str(FeedPosition(revision, key))


# A "!" is percent-encoded in keys, so no document's position is equal to these.
def synced_at(revision: int) -> str:
    return f"{revision}/!synced"


def compacted_at(position: str) -> str:
    return f"{position}/!compacted"


def key_of(text: str) -> tuple[int, str]:
    found = feed_position(text)
    return found.revision, found.key or ""


def message(form: str, events: Sequence[bytes]) -> tuple[bytes, str]:
    """The body and its media type. A structured body (``cloudevents``) has exactly one event."""
    if form == "cloudevents":
        (body,) = events
    else:
        body = b"[" + b",".join(events) + b"]"
    return body, _TYPES[form]
