"""`/v1/catalogs/{catalog}/changes`: commits as they are made, by long poll or as an event stream.

Both tell every commit above a revision that touches what was asked for, whole, once and in order,
and how far the client has come by that: it goes on from there, at any gateway. A commit is encoded
once, as an event; all streams send the same bytes, and a long poll takes its ``data`` out of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from werkzeug.datastructures import MIMEAccept
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.http import parse_accept_header

from gateway import memory
from gateway.errors import GatewayError
from gateway.feed.channel import Selection, Taken, WatchEnded
from gateway.feed.watcher import Watcher
from gateway.http.context import Environ, Recheck, this_request
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import refuse_conditions
from gateway.http.wire.headers import JSON, catalog_name
from gateway.http.wire.query import POLL_PARAMETERS, STREAM_PARAMETERS, parameters, whole_number
from gateway.http.wire.responses import Answer, Stream, StreamAnswer, body_answer, in_pieces
from gateway.http.wire.shapes import (
    WatcherView,
    bookmark_event,
    commit_event,
    end_event,
    event_data,
)
from gateway.limits import RequestLimits
from gateway.service import GatewayService

EVENT_STREAM: Final = "text/event-stream"
# How long a browser waits before it connects again.
_PREAMBLE = b"retry: 1000\n\n"
_PIECE_BYTES = 64 * 1024
_NO_STORE = ("Cache-Control", "no-store")


class ChangesRoutes(Routes):
    def __init__(self, gateway: GatewayService, limits: RequestLimits) -> None:
        super().__init__(gateway, limits)
        self._feed = gateway.feed(commit_event)

    def stop(self) -> None:
        """The server stops: streams end, long polls answer."""
        self._feed.stop()

    @route("GET", f"{CATALOG}/changes", "changes")
    def changes(self, catalog: str) -> Answer:
        context = this_request()
        environ = context.environ
        if context.method != "GET":  # Flask gives HEAD away with it
            raise MethodNotAllowed(["GET"])
        catalog = catalog_name(catalog, self._limits)
        refuse_conditions(environ)
        as_stream = _wants_stream(environ)
        asked = parameters(environ, STREAM_PARAMETERS if as_stream else POLL_PARAMETERS)
        if "" in asked["key"]:
            detail = "parameter 'key': no document has an empty key"
            raise RequestRefused("invalid_parameter", detail, parameter="key")
        after = _last_event_id(environ)
        sight = self._gateway.acls.sight(context.by, catalog)
        if sight is not None and asked["key"]:
            sight.require_named(asked["key"])
        selection = Selection(frozenset(asked["key"]), asked["prefix"])
        watcher = self._feed.watch(
            catalog,
            after=asked["after"] if after is None else after,
            selection=selection,
            holder=context.holder,
        )
        seen = WatcherView(sight, selection)
        if as_stream:
            return self._stream(watcher, seen, context.require_still_let_in)
        with watcher:
            return _polled(_take(watcher, asked["timeout"], asked["limit"]), seen)

    def _stream(self, watcher: Watcher, seen: WatcherView, recheck: Recheck) -> Answer:
        headers = [("Content-Type", EVENT_STREAM), _NO_STORE, ("X-Accel-Buffering", "no")]
        events = _events(watcher, seen, self._limits.watch_bookmark_s, recheck)
        return StreamAnswer(Stream(events, watcher.close), 200, headers)


def _wants_stream(environ: Environ) -> bool:
    """Whether Accept prefers an event stream; JSON where it has no preference."""
    accept = environ.get("HTTP_ACCEPT", "")
    if EVENT_STREAM not in accept.lower():
        return False
    accepted = parse_accept_header(accept, MIMEAccept)
    return accepted.best_match([JSON, EVENT_STREAM]) == EVENT_STREAM


def _last_event_id(environ: Environ) -> int | None:
    """The position of a client that reconnects: it has come further than its URL says."""
    given = environ.get("HTTP_LAST_EVENT_ID")
    if given is None:
        return None
    try:
        return whole_number(given)
    except ValueError as error:
        raise RequestRefused(
            "invalid_header", f"Last-Event-ID: {error}", header="Last-Event-ID"
        ) from error


def _take(watcher: Watcher, timeout_s: float, limit: int) -> Taken:
    try:
        return watcher.take(timeout_s, limit=limit, patient=True)
    except WatchEnded:
        # There is no commit so far, and the next request goes to another process.
        return Taken((), watcher.position)


def _polled(taken: Taken, seen: WatcherView) -> Answer:
    commits = b",".join(map(event_data, seen.events(taken.told)))
    body = b'{"commits":[%b],"revision":%d}' % (commits, taken.revision)
    return body_answer(body, [_NO_STORE])


def _events(
    watcher: Watcher, seen: WatcherView, bookmark_s: float, recheck: Recheck
) -> Iterator[bytes]:
    """The pieces of an event stream; the first comes at once, so that a client knows it is on.

    A principal that would no longer be let in gets no further events.
    """
    timeout_s = 0.0
    parts: list[bytes] = [_PREAMBLE]
    while True:
        told_up_to = watcher.bookmarked
        try:
            taken = watcher.take(timeout_s, patient=False)
            recheck()
            events = seen.events(taken.told)
        except (WatchEnded, GatewayError) as error:
            # For errors too: the client goes on from the last event that it was sent.
            parts.append(end_event(error.code, error.detail, told_up_to))
            yield b"".join(parts)
            return
        parts += events or [bookmark_event(taken.revision)]
        for piece in in_pieces(parts, _PIECE_BYTES):
            try:
                recheck()  # the piece before may have been taken slowly
            except GatewayError:
                return  # within an event, maybe: nothing can be said any more
            yield piece
        parts, events = [], []
        taken = Taken((), taken.revision)
        memory.account().keep(0)
        timeout_s = bookmark_s
