"""`/v1/catalogs/{catalog}/changes`: commits as they are made, by long poll or as an event stream.

Both send every commit above a revision that changes a selected document, whole, once and in order.
They also send the client's position, from which it can resume at any gateway. A commit is encoded
once, as an event; all streams send the same bytes, and a long poll takes ``data`` out of them.

With ``initial=true``, the documents come first, as of one revision R, by key; then ``synced``, and
then the commits above R. A client that was cut off in the middle of the list resumes after the last
document that it got (``R/key``), at any gateway: R is pinned until the client has caught up, and
for two minutes after it was cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from marshmallow import fields
from werkzeug.datastructures import MIMEAccept
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.http import parse_accept_header

from gateway import cpu, memory
from gateway.access import Role
from gateway.errors import Contradiction, GatewayError
from gateway.feed.channel import EncodedCommit, Selection, Taken, WatchEnded
from gateway.feed.from_state import FromState
from gateway.feed.watcher import Watcher
from gateway.http.context import Context, Environ
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire import query, shapes
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import refuse_conditions
from gateway.http.wire.headers import JSON
from gateway.http.wire.problems import log_failed
from gateway.http.wire.responses import (
    NO_STORE,
    Answer,
    Stream,
    StreamAnswer,
    body_answer,
    encode,
    in_pieces,
)
from gateway.limits import MIB, RequestLimits
from gateway.read.listing import CatalogExport
from gateway.service import GatewayService

EVENT_STREAM: Final = "text/event-stream"
# How long a browser waits before it connects again.
_PREAMBLE = b"retry: 1000\n\n"
# Errors that end a stream with an event ``end``.
_ENDINGS: Final = (WatchEnded, GatewayError, Contradiction)
# How often a long poll checks whether its client is still there.
_PRESENT_S: Final = 3.0
# A page of commits with whole documents ends with the commit that reaches this size.
_PAGE_BYTES = 4 * MIB


# Values of ``include``: with each change, the document before it and after it.
_IMAGES: Final = ("before", "value")
# A value of ``include``: also the commits that change the settings.
_SETTINGS: Final = "settings"

_FEED: Any = {
    "after": query.number(load_default=None),
    "commit_id": query.TEXT,
    "key": fields.List(fields.String(), load_default=()),
    "prefix": query.TEXT,
    "author": fields.List(fields.String(), load_default=()),
    "manager": fields.List(query.Parameter(query.manager_name), load_default=()),
    "include": fields.List(query.Parameter(query.one_of((*_IMAGES, _SETTINGS))), load_default=()),
    "initial": query.Parameter(query.switch, load_default=False),
}
# Commits above revision ``after``, which commit ``commit_id`` made, that change a ``key``, or a key
# that begins with ``prefix``; only those by an ``author``, or with a change by a ``manager``, if
# these are given. ``initial``: first the documents of the present state.
_STREAM_PARAMETERS: Final = query.takes(**_FEED)
# At most ``limit`` commits; if there are none, the answer waits for ``timeout`` seconds.
_POLL_PARAMETERS: Final = query.takes(
    **_FEED, limit=query.LIMIT, timeout=query.number(0, 60, load_default=30)
)


class ChangesRoutes(Routes):
    def __init__(self, gateway: GatewayService, limits: RequestLimits) -> None:
        super().__init__(gateway, limits)
        self._feed = gateway.feed(shapes.commit_event)

    def stop(self) -> None:
        """End all streams, and answer all long polls: the server stops."""
        self._feed.stop()

    @route("GET", f"{CATALOG}/changes", "changes", Role.READ)
    def changes(self, context: Context, catalog: str) -> Answer:
        environ = context.environ
        if context.observed.method != "GET":  # Flask adds HEAD to it
            raise MethodNotAllowed(["GET"])
        refuse_conditions(environ)
        as_stream = _wants_stream(environ)
        params = query.parameters(environ, _STREAM_PARAMETERS if as_stream else _POLL_PARAMETERS)
        _refuse_contradictions(params)
        position = _last_event_id(environ)
        view = self._view(context, catalog, params)
        encoder = self._encoder(catalog, view, params["include"])
        if params["initial"] and (position is None or position.key is not None):
            return self._from_state(context, catalog, position, params, encoder, as_stream)
        watcher = self._feed.watch(
            catalog,
            after=_behind_commit(position, params["after"] or 0),
            selection=view.selection,
            holder=context.holder,
            last="" if position is not None else params["commit_id"],
        )
        if as_stream:
            bookmark_s = self._limits.watch_bookmark_s
            events = _events(watcher, encoder, bookmark_s, context, [_PREAMBLE])
            return _stream(events, watcher)
        with watcher:
            return _polled(_take(watcher, params["timeout"], params["limit"], environ), encoder)

    def _from_state(
        self,
        context: Context,
        catalog: str,
        position: shapes.FeedPosition | None,
        params: dict[str, Any],
        encoder: _Encoder,
        as_stream: bool,
    ) -> Answer:
        begun = self._gateway.feeds_from_state.begin(
            self._feed,
            catalog,
            shapes.document_event,
            owner=context.by.name,
            prefix=encoder.view.selection.prefix,
            settings=encoder.view.selection.settings,
            position=None if position is None else (position.revision, position.key or ""),
            viewer=encoder.view.viewer,
            holder=context.holder,
            page_documents=None if as_stream else params["limit"],
        )
        if as_stream:
            events = _events_from_state(begun, encoder, self._limits.watch_bookmark_s, context)
            return _stream(events, begun.watcher)
        with begun.watcher:
            return _listed(begun)

    def _view(self, context: Context, catalog: str, params: dict[str, Any]) -> shapes.WatcherView:
        viewer = self._gateway.acls.viewer(context.by, catalog)
        if viewer is not None and params["key"]:
            viewer.require_named(params["key"])
        selection = Selection(
            frozenset(params["key"]),
            params["prefix"],
            frozenset(params["author"]),
            frozenset(params["manager"]),
            settings=_SETTINGS in params["include"],
        )
        return shapes.WatcherView(viewer, selection)

    def _encoder(self, catalog: str, view: shapes.WatcherView, include: Sequence[str]) -> _Encoder:
        include = [each for each in include if each in _IMAGES]
        if not include:
            return _Encoder(view)
        bytes_max = self._gateway.limits.watch.images_bytes_max
        image = self._gateway.listing.image

        def with_images(commit: EncodedCommit) -> bytes:
            return shapes.event_with_images(
                commit, include, lambda key, at: image(catalog, key, at), view, bytes_max
            )

        return _Encoder(view, with_images)


def _stream(events: Iterator[bytes], watcher: Watcher) -> Answer:
    headers = [("Content-Type", EVENT_STREAM), NO_STORE, ("X-Accel-Buffering", "no")]
    return StreamAnswer(Stream(events, watcher.close), headers)


_FromState = FromState[shapes.DocumentEvent]


class _Encoder(NamedTuple):
    """Makes the events of the commits that a watcher may see.

    ``with_images`` makes the event of a commit with whole documents; None: no event has any, so all
    are encoded already.
    """

    view: shapes.WatcherView
    with_images: Callable[[EncodedCommit], bytes] | None = None

    def visible(self, taken: Taken) -> Sequence[EncodedCommit]:
        """The commits of ``taken`` as the watcher may see them. Raises StoreUnavailable."""
        return self.view.visible(taken.commits)

    def batches(
        self, taken: Taken, visible: Sequence[EncodedCommit], parts: list[bytes]
    ) -> Iterator[tuple[int, list[bytes]]]:
        """Lists of whole events, each list with the revision that it reaches: ``parts``, then the
        events of ``visible``, or a bookmark if there are none. With whole documents, each commit
        makes a list, and GatewayError may be raised after some of them."""
        if self.with_images is None or not visible:
            events = [each.encoded for each in visible] or [shapes.bookmark_event(taken.revision)]
            yield taken.revision, [*parts, *events]
            return
        for each in visible:
            event = self.with_images(each)
            memory.account().keep(len(event))
            yield each.revision, [*parts, event]
            parts = []


def _refuse_contradictions(params: dict[str, Any]) -> None:
    """Refuse parameters that don't go together. With ``initial``, a list of some documents followed
    by the commits of others would make no state. A parameter at its default is as good as none:
    generated clients send it."""
    if "" in params["key"]:
        query.refuse_parameter("key", "a document's key can't be empty")
    for name in ("after", "commit_id", "key", "author", "manager"):
        if params["initial"] and params[name] not in (None, 0, "", ()):
            query.refuse_parameter(name, "it can't be given together with 'initial'")
    if params["commit_id"] and params["after"] is None:
        query.refuse_parameter("commit_id", "it needs 'after', the revision of that commit")


def _behind_commit(position: shapes.FeedPosition | None, after: int) -> int:
    if position is None:
        return after
    if position.key is not None:
        detail = "Last-Event-ID: a position before 'synced' needs 'initial=true'"
        raise RequestRefused("invalid_header", detail, header="Last-Event-ID")
    return position.revision


def _wants_stream(environ: Environ) -> bool:
    """Whether Accept prefers an event stream. Without a preference it is JSON."""
    # To find where a range ends, the library goes through each run of spaces once per space.
    accept = " ".join(environ.get("HTTP_ACCEPT", "").split())
    if EVENT_STREAM not in accept.lower():
        return False
    accepted = parse_accept_header(accept, MIMEAccept)
    return accepted.best_match([JSON, EVENT_STREAM]) == EVENT_STREAM


def _last_event_id(environ: Environ) -> shapes.FeedPosition | None:
    """The position of a client that reconnects, which is further on than the one in its URL."""
    given = environ.get("HTTP_LAST_EVENT_ID")
    if given is None:
        return None
    try:
        return shapes.feed_position(given)
    except ValueError as error:
        raise RequestRefused(
            "invalid_header", f"Last-Event-ID: {error}", header="Last-Event-ID"
        ) from error


def _take(watcher: Watcher, timeout_s: float, limit: int, environ: Environ) -> Taken:
    """The next commits. None after ``timeout_s``, soon after the client has left, or when the
    search of a log with few wanted commits has used half of the request's processor time."""
    connection = environ.get("gunicorn.socket")
    until = time.monotonic() + timeout_s
    try:
        while True:
            left_s = max(0.0, until - time.monotonic())
            taken = watcher.take(min(left_s, _PRESENT_S), limit=limit, patient=True)
            is_over = left_s <= _PRESENT_S or (connection is not None and connection.has_left())
            if taken.commits or is_over or cpu.is_half_used():
                return taken
    except WatchEnded:
        # No commit came so far; the client's next request goes to another process.
        return Taken((), watcher.position, watcher.last)


def _polled(taken: Taken, encoder: _Encoder) -> Answer:
    visible, revision, last = encoder.visible(taken), taken.revision, taken.last
    events = [each.encoded for each in visible]
    if encoder.with_images is not None:
        events, size_bytes = [], 0
        for each in visible:
            events.append(encoder.with_images(each))
            size_bytes += len(events[-1])
            memory.account().keep(size_bytes)
            if size_bytes >= _PAGE_BYTES:
                revision, last = each.revision, each.commit_id
                break
    data = b",".join(map(shapes.event_data, events))
    body = b'{"commits":[%b],"revision":%d,"commit_id":%b}' % (data, revision, encode(last or None))
    return body_answer(body, [NO_STORE])


def _listed(begun: _FromState) -> Answer:
    """A page of the documents, as the answer to a long poll."""
    revision, export = begun.revision, begun.export
    page = [] if export is None else [*next(export.pages, ())]
    events = [*([begun.settings.event] if begun.settings else []), *(each.event for each in page)]
    position, members = shapes.FeedPosition(revision), b""
    if export is not None and export.next_after is not None:
        position = shapes.FeedPosition(revision, export.next_after)
    else:
        synced = shapes.event_data(shapes.synced_event(revision, begun.made))
        members = b',"synced":%b' % synced
    body = b'{"documents":[%b],"commits":[],"revision":%d,"position":%b%b}' % (
        b",".join(map(shapes.event_data, events)),
        revision,
        encode(str(position)),
        members,
    )
    return body_answer(body, [NO_STORE])


def _events_from_state(
    begun: _FromState, encoder: _Encoder, bookmark_s: float, context: Context
) -> Iterator[bytes]:
    """The pieces of a stream: the documents, then ``synced``, then the commits as in any stream."""
    watcher, export, revision = begun.watcher, begun.export, begun.revision
    position = shapes.FeedPosition(revision, begun.after)
    parts = [_PREAMBLE, *([begun.settings.event] if begun.settings else [])]
    pages = iter(()) if export is None else export.pages
    while True:
        try:
            watcher.require_open()
            page = next(pages, None)
            context.require_still_let_in()
        except _ENDINGS as error:
            yield b"".join([*parts, _end(error, position, context)])
            return
        if page is None:
            break
        events = [each.event for each in page]
        memory.account().keep(sum(map(len, events)))
        if page:
            position = shapes.FeedPosition(revision, page[-1].key)
        for piece in in_pieces([*parts, *events]):
            if not _may_go_on(context, export):
                return
            yield piece
        parts, page, events = [], (), []  # freed before the next page is read
    memory.account().keep(0)
    watcher.begin()
    parts.append(shapes.synced_event(revision, begun.made))
    yield from _events(watcher, encoder, bookmark_s, context, parts, export)


def _may_go_on(context: Context, export: CatalogExport[shapes.DocumentEvent] | None) -> bool:
    """Whether the next piece may be sent; the one before may have been taken slowly. If not, the
    stream just ends: an event may be half sent, so no ``end`` can follow."""
    try:
        context.require_still_let_in()
        if export is not None:
            export.renew()
    except GatewayError:
        return False
    except Contradiction as error:
        log_failed(context.observed.request_id, error)
        return False
    return True


def _end(
    error: WatchEnded | GatewayError | Contradiction, after: shapes.FeedPosition, context: Context
) -> bytes:
    """The last event, which says why the stream ends, and ``after`` which position to go on."""
    if isinstance(error, Contradiction):
        log_failed(context.observed.request_id, error)
        return shapes.end_event("internal_error", error.public_detail, after)
    return shapes.end_event(error.code, error.detail, after)


def _events(
    watcher: Watcher,
    encoder: _Encoder,
    bookmark_s: float,
    context: Context,
    parts: list[bytes],
    export: CatalogExport[shapes.DocumentEvent] | None = None,
) -> Iterator[bytes]:
    """The pieces of an event stream, with ``parts`` first. The first piece comes at once, so that a
    client knows that it is connected. The pin of ``export`` ends once the client has caught up.

    A principal that would no longer be let in gets no further events.
    """
    timeout_s = 0.0
    while True:
        sent_up_to = watcher.bookmarked
        try:
            taken = watcher.take(timeout_s, patient=False)
            context.require_still_let_in()
            visible = encoder.visible(taken)
        except _ENDINGS as error:
            parts.append(_end(error, shapes.FeedPosition(sent_up_to), context))
            yield b"".join(parts)
            return
        if export is not None and not watcher.lag:
            export.close()
            export = None
        batches = encoder.batches(taken, visible, parts)
        parts, taken, visible = [], Taken((), taken.revision, ""), ()
        try:
            for sent_up_to, batch in batches:  # noqa: B007 - used below if the next can't be made
                for piece in in_pieces(batch):
                    if not _may_go_on(context, export):
                        return
                    yield piece
                batch.clear()  # freed before the next one is made
        except (GatewayError, Contradiction) as error:
            yield _end(error, shapes.FeedPosition(sent_up_to), context)
            return
        memory.account().keep(0)
        timeout_s = bookmark_s
