"""The tools as a server of the Model Context Protocol."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial, wraps
from importlib.metadata import version
from itertools import chain
from typing import Any, Final, Self
from urllib.parse import quote, unquote

import anyio
import anyio.from_thread
import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedToolError,
)
from mcp.server.mcpserver.tools.base import Tool
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE, RequestBodyLimitMiddleware
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp.shared.uri_template import UriTemplate
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TextContent,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.cli.agent_tools import RESULT_BYTES_MAX, AgentTools, ToolRefused, marked
from patching import join_pointer
from patching.client import Change, ClientError, Gateway, Gone, NotFound
from patching.values import repeated_member

_log = logging.getLogger(__name__)

_READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
# A change names the state it was made for, and history keeps what was, so it destroys nothing.
_CHANGES: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
_STATES: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_URI: Final = "metadata://{catalog}/{+key}"
_expanded: Final = UriTemplate.parse(_URI).expand
# Characters that stand for themselves in such a URI; others are percent-encoded.
_PLAIN: Final = ":/[]@!$&'()*+,;="
# A request that is answered only when it ends, and the notification that ends one unanswered.
_LISTEN: Final = "subscriptions/listen"
_CANCELLED: Final = "notifications/cancelled"
_AGAIN_S: Final = 1.0
# The longest that clients wait until the revisions of the watched catalogs are known.
_BEGIN_S: Final = 5.0
_ERRORS_MAX: Final = 10
_NO_SUCH: Final = ("catalog_not_found", "document_not_found", "out_of_scope")


def mcp_server(tools: AgentTools, gateway: Gateway, watched: Sequence[str] = ()) -> AgentServer:
    """``watched``: the catalogs whose changed documents are reported to clients."""
    bus = InMemorySubscriptionBus()
    listening = Listening(bus, watched, tools.scope.prefix)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncIterator[None]:
        prefix = tools.scope.prefix
        watchers = [ResourceWatcher(gateway, each, prefix, listening.close) for each in watched]
        # Each keeps a thread while the server lives: not one of those that answer requests.
        threads = anyio.CapacityLimiter(max(1, len(watchers)))
        async with anyio.create_task_group() as tasks:
            for each in watchers:
                tasks.start_soon(each.run, bus, threads)
            with anyio.move_on_after(_BEGIN_S):
                for each in watchers:
                    await each.begun.wait()
            try:
                yield
            finally:
                for each in watchers:
                    each.stop()
                tasks.cancel_scope.cancel()

    server = AgentServer(
        "metadata-gateway",
        title="Metadata gateway",
        version=version("metadata-gateway"),
        tools=_tools(tools),
        lifespan=lifespan,
        subscriptions=bus,
    )
    server.listen_by(listening)

    @server.resource(_URI, name="document", mime_type="application/json")
    async def document(catalog: str, key: str) -> str:
        """A document of a catalog."""
        try:
            read = partial(tools.read, catalog, key)
            return _with_text(await anyio.to_thread.run_sync(read))[1]
        except ToolRefused as refused:
            is_none = refused.result["code"] in _NO_SUCH
            error = ResourceNotFoundError if is_none else ResourceError
            raise error(str(refused)) from refused

    return server


class Listening(ListenHandler):
    """Acknowledges only documents whose changes clients will get: those of the ``watched`` catalogs
    whose keys begin with ``prefix``, under the URIs that the events have."""

    def __init__(self, bus: InMemorySubscriptionBus, watched: Sequence[str], prefix: str) -> None:
        super().__init__(bus)
        self._watched = watched
        self._prefix = prefix

    async def __call__(
        self, ctx: Any, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        asked = params.notifications.resource_subscriptions or ()
        watched = SubscriptionFilter(resource_subscriptions=[*filter(self._is_watched, asked)])
        return await super().__call__(ctx, params.model_copy(update={"notifications": watched}))

    def _is_watched(self, uri: str) -> bool:
        return any(
            key.startswith(self._prefix) and uri in _uris(catalog, key)
            for catalog in self._watched
            for head in _uris(catalog, "")
            if uri.startswith(head)
            for key in (uri.removeprefix(head), unquote(uri.removeprefix(head)))
        )


class AgentServer(MCPServer[Any]):
    """A server that answers every request, even a malformed one, because its client waits."""

    listening: Listening

    def listen_by(self, handler: Listening) -> None:
        self.listening = handler
        takes = SubscriptionsListenRequestParams
        self._lowlevel_server.add_request_handler(_LISTEN, takes, handler)

    async def run_stdio_async(self) -> None:
        lines = _Lines()
        async with stdio_server(lines) as (messages, stdout):  # type: ignore[arg-type]
            answers = _Answers(stdout, lines)
            lines.answer = answers.send
            lowlevel = self._lowlevel_server
            await lowlevel.run(messages, answers, lowlevel.create_initialization_options())

    def streamable_http_app(self, **terms: Any) -> Starlette:
        app = super().streamable_http_app(**terms)
        app.add_middleware(_PostedMessageCheck)
        app.add_middleware(  # comes first
            RequestBodyLimitMiddleware, max_body_size=DEFAULT_MAX_REQUEST_BODY_SIZE
        )
        return app


class _Lines:
    """The lines of stdin that hold messages; it answers the others.

    They end once every request has its answer, because their end cancels what still runs.
    """

    answer: Callable[[SessionMessage], Awaitable[None]]

    def __init__(self) -> None:
        self._unanswered: set[RequestId] = set()
        self._answered = anyio.Event()

    def answered(self, request: object) -> None:
        if isinstance(request, int | str):  # a client may cancel anything
            self._unanswered.discard(coerce_request_id(request))
            self._answered.set()

    def _received(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest) and message.method != _LISTEN:
            self._unanswered.add(coerce_request_id(message.id))
        elif isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
            self.answered((message.params or {}).get("requestId"))

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._messages():
            yield line
        while self._unanswered:
            self._answered = anyio.Event()
            await self._answered.wait()

    async def _messages(self) -> AsyncIterator[str]:
        stdin = os.dup(sys.stdin.fileno())
        async for line in anyio.wrap_file(os.fdopen(stdin, "rb", closefd=False)):
            try:
                self._received(_read_message(line))
            except _MessageRefused as refused:
                for answer in refused.answers:
                    await self.answer(SessionMessage(answer))
            else:
                yield line.decode()


class _PostedMessageCheck:
    """An ASGI application that passes on posts to ``app``, if they hold messages; it answers the
    others. Their bodies come in one piece."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces: list[Message] = []
        if scope["type"] == "http" and scope["method"] == "POST":
            pieces.append(await receive())
            try:
                _read_message(pieces[0].get("body", b""))
            except _MessageRefused as refused:
                text = refused.http_answer.model_dump_json(by_alias=True)
                answer = Response(text, status_code=400, media_type="application/json")
                await answer(scope, receive, send)
                return

        async def taken() -> Message:
            return pieces.pop() if pieces else await receive()

        await self._app(scope, taken, send)


class _Answers:
    """The stream of what the server sends. `lines` learns which requests are answered."""

    def __init__(self, stdout: WriteStream[SessionMessage], lines: _Lines) -> None:
        self._stdout = stdout
        self._lines = lines

    async def send(self, item: SessionMessage) -> None:
        await self._stdout.send(item)
        if (
            isinstance(item.message, (JSONRPCResponse, JSONRPCError))
            and item.message.id is not None
        ):
            self._lines.answered(item.message.id)

    async def aclose(self) -> None:
        await self._stdout.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _MessageRefused(Exception):
    """``line`` holds no message, or one that its client can't have meant."""

    def __init__(self, line: bytes, code: int, why: str) -> None:
        super().__init__(why)
        self._line = line
        self._said = ErrorData(code=code, message=why)

    @property
    def answers(self) -> list[JSONRPCError]:
        """The errors to answer with on stdout; none if nobody waits for one."""
        named = _named(self._line) if self._line.strip() else ()
        return [JSONRPCError(jsonrpc="2.0", id=each, error=self._said) for each in named]

    @property
    def http_answer(self) -> JSONRPCError:
        """The answer over HTTP, where each post has one."""
        return next(iter(self.answers), JSONRPCError(jsonrpc="2.0", id=None, error=self._said))


def _read_message(line: bytes) -> JSONRPCMessage:
    """The message in ``line``. Raises _MessageRefused."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        code = PARSE_ERROR if first["type"] == "json_invalid" else INVALID_REQUEST
        raise _MessageRefused(line, code, first["msg"]) from error
    if isinstance(message, JSONRPCNotification) and _named(line):
        raise _MessageRefused(line, INVALID_REQUEST, "the id must be an integer or a string")
    if (twice := repeated_member(line, b"")) is not None:
        why = f"it has the member '{join_pointer(twice)}' twice"
        raise _MessageRefused(line, INVALID_REQUEST, why)
    return message


def _named(line: bytes) -> tuple[int | str | None, ...]:
    """The id of a request, None if it can't be known; empty for a notification or an answer."""
    try:
        # Unlike the validation, it takes invalid Unicode and deeper nesting.
        request = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return (None,)
    if not isinstance(request, dict):
        return (None,)
    if "id" not in request or "method" not in request:
        return ()
    named = request["id"]  # null names none: only a notification has no id
    return (named if type(named) in (int, str) else None,)


def _tools(tools: AgentTools) -> list[Tool]:
    found = [
        _tool(tools.find, _READS),
        _tool(tools.read, _READS),
        _tool(tools.history, _READS),
        _tool(tools.preview, _READS),
    ]
    if not tools.scope.read_only:
        found += [
            _tool(tools.change, _CHANGES),
            _tool(tools.apply, _STATES),
            _tool(tools.undo, _CHANGES),
        ]
    return found


class StrictTool(Tool):
    """A tool whose refusals are data, also of unknown or invalid arguments, and its failures
    too."""

    async def run(
        self, arguments: dict[str, Any], context: Any, convert_result: bool = False
    ) -> Any:
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            cause = error.__cause__
            # One from within the tool isn't about its arguments.
            if isinstance(cause, ValidationError) and not isinstance(error, UnexpectedToolError):
                return _result(_refused_arguments(cause.errors()), refused=True)
            _log.exception("the tool %s failed", self.name)
            detail = f"internal error of this server: {type(cause).__name__}"
            refusal = {"code": "internal_error", "detail": detail, "applied": "unknown"}
            return _result(refusal, refused=True)


def _refused_arguments(errors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = [
        {"pointer": join_pointer(tuple(map(str, each["loc"]))), "detail": each["msg"]}
        for each in errors[:_ERRORS_MAX]
    ]
    return {"code": "invalid_argument", "applied": "no", **found[0], "errors": found}


def _result(result: dict[str, Any], *, refused: bool) -> CallToolResult:
    content, text = _with_text(result)
    return CallToolResult(
        content=[TextContent(text=text)], structured_content=content, is_error=refused
    )


def _with_text(result: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """``result`` and its text; if that is too large, a result that says so, with the same code."""
    result = marked(result)
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode(errors="surrogatepass")) <= RESULT_BYTES_MAX:
        return result, text
    detail = f"the result would be larger than {RESULT_BYTES_MAX} bytes: ask for less"
    short: dict[str, Any] = {"code": result.get("code", "too_large"), "detail": detail}
    short |= {name: result[name] for name in ("applied", "changed", "revision") if name in result}
    return _with_text(short)


def _tool(call: Callable[..., dict[str, Any]], hints: ToolAnnotations) -> Tool:
    """A tool that refuses unknown arguments."""

    @wraps(call)
    async def called(**arguments: Any) -> CallToolResult:
        try:
            result = await anyio.to_thread.run_sync(partial(call, **arguments))
        except ToolRefused as error:
            return _result(error.result, refused=True)
        return _result(result, refused=False)

    text = " ".join((call.__doc__ or "").replace("``", "'").split())
    made = StrictTool.from_function(
        called, call.__name__, description=text, annotations=hints, structured_output=False
    )
    arguments = made.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    made.parameters["additionalProperties"] = False
    return made


class ResourceWatcher:
    """Reports each changed document of a catalog to clients.

    If changes may be missed, ``missed`` ends the clients' subscriptions: they listen again, and
    read again what they keep. ``begun``: from now on, no change is missed.
    """

    def __init__(
        self, gateway: Gateway, catalog: str, prefix: str, missed: Callable[[], None]
    ) -> None:
        self.begun = anyio.Event()
        self._gateway = gateway
        self._catalog = catalog
        self._prefix = prefix
        self._missed = missed
        self._is_stopped = threading.Event()
        self._feed: Any = None
        self._position: int | None = None
        self._commit_id: str | None = None
        self._has_begun = False

    def stop(self) -> None:
        self._is_stopped.set()
        if self._feed is not None:
            self._feed.close()

    async def run(self, bus: InMemorySubscriptionBus, threads: anyio.CapacityLimiter) -> None:
        await anyio.to_thread.run_sync(self._follow, bus, abandon_on_cancel=True, limiter=threads)

    def _follow(self, bus: InMemorySubscriptionBus) -> None:
        while not self._is_stopped.is_set():
            try:
                if self._position is None:
                    self._position = self._head()
                if not self._has_begun:
                    anyio.from_thread.run_sync(self._begin)
                self._feed = self._gateway.catalog(self._catalog).changes(
                    self._position, commit_id=self._commit_id, prefix=self._prefix
                )
                if self._is_stopped.is_set():  # since the loop last asked
                    self._feed.close()
                with self._feed:
                    for commits in self._feed.pages():
                        for change in chain.from_iterable(each.changes for each in commits):
                            for uri in self._told(change):
                                anyio.from_thread.run(bus.publish, ResourceUpdated(uri))
                        # also if there were no commits
                        self._position, self._commit_id = self._feed.position, self._feed.commit_id
            except (Gone, NotFound) as error:
                # The missed changes are compacted, or never were.
                self._has_begun = False
                problem = error.problem
                self._position = problem.get("oldest_revision", problem.get("head_revision"))
                self._commit_id = None
            except ClientError as error:
                _log.info(
                    "can't read the changes of catalog %r, trying again: %s", self._catalog, error
                )
            except Exception as error:  # noqa: BLE001 - a token's file, say: the tools go on
                _log.warning(
                    "can't tell clients the changes of catalog %r, trying again: %s",
                    self._catalog,
                    error,
                )
            self._is_stopped.wait(_AGAIN_S)

    def _head(self) -> int:
        try:
            return self._gateway.catalog(self._catalog).settings.get().revision
        except NotFound:  # report its first commit, too; of a deleted one, all
            return 0

    def _begin(self) -> None:
        """Nobody has been told of earlier commits, so end the subscriptions."""
        self._has_begun = True
        self._missed()
        self.begun.set()

    def _told(self, change: Change) -> Sequence[str]:
        key = change.key
        if key is None or not key.startswith(self._prefix):  # the feed has whole commits
            return ()
        return _uris(self._catalog, key)


def _uris(catalog: str, key: str) -> Sequence[str]:
    """A document's URIs, as clients may write them: the expanded template; one by which any key can
    be read; and a plain one."""
    plain = f"metadata://{catalog}/{key}"
    exact = f"metadata://{quote(catalog, safe='')}/{quote(key, safe=_PLAIN)}"
    expanded = _expanded({"catalog": catalog, "key": key})
    return tuple(dict.fromkeys((expanded, exact, plain)))
