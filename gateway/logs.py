"""The log of a process: structured lines on stderr, each with its request, none with a secret.

All code logs with the standard library, with `extra=` for fields; structlog makes the lines. Debug
lines of libraries are never shown, because those of the MongoDB driver contain documents.
gunicorn's messages are logged in the same way.

The context of a thread (or greenlet) says which request it works on. It is a view of the request
that is read when a line is written, since some facts become known only while it is worked on.

Secrets don't belong in logs. Still, the finished line is searched for them, so it makes no
difference whether a message, an argument, an exception or a traceback contains one.
"""

from __future__ import annotations

import io
import logging
import os
import re
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, Protocol, TextIO

import msgspec
import structlog
from gunicorn.glogging import Logger
from structlog.typing import EventDict, Processor

__all__ = ["RequestContext", "configure", "current_request", "for_this_request"]


_FIRST: Final = ("time", "level", "logger", "event")
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
# Characters that a terminal obeys: controls (JSON doesn't escape DEL and those of C1) except tabs
# and line ends; and, in Unicode, those that end lines or change the direction of writing.
_COMMANDS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def configure(
    log_format: str, log_level: str, *, audit: bool = True, stream: TextIO | None = None
) -> None:
    """Set up logging; replaces an earlier setup. ``log_format`` is ``json`` or ``console``,
    ``log_level`` a level's name in any case.

    Access lines and audit lines don't depend on the level; ``audit`` switches the latter. Uncaught
    exceptions of threads are logged, too.
    """
    handler = _Handler(stream or _stderr())
    handler.setFormatter(_formatter(log_format))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    level = logging.getLevelName(log_level.upper())
    logging.getLogger("gateway").setLevel(level)
    logging.getLogger("patching").setLevel(level)
    logging.getLogger("gateway.access").setLevel(logging.INFO)
    logging.getLogger("gateway.audit").setLevel(logging.INFO if audit else logging.WARNING)
    logging.captureWarnings(True)
    threading.excepthook = _log_uncaught


def _formatter(log_format: str) -> logging.Formatter:
    renderers: list[Processor]
    if log_format == "json":
        renderers = [structlog.processors.format_exc_info, _in_order, _as_json]
    else:
        renderers = [
            structlog.dev.ConsoleRenderer(
                colors=False,  # they would separate a name from its value, and hide a secret
                timestamp_key="time",
                # The default traceback shows the values of variables.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    return _Scrubbed(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            _add_request,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )


class _Pipe(io.TextIOBase):
    """Writes lines to a pipe without waiting: if nobody reads the pipe, a write would block, and
    the whole process with it.

    The pipe is opened again, so that others that have it aren't affected. Raises OSError if that
    isn't possible, or ``descriptor`` is no pipe.
    """

    def __init__(self, descriptor: int) -> None:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError("no pipe")
        mode = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
        self._pipe = os.open(f"/proc/self/fd/{descriptor}", mode)
        self._begun = b""  # what is left of a line

    def write(self, line: str) -> int:
        """Write a line; return 0 if there is no room for any of it, and the line is lost."""
        try:
            while self._begun:
                self._begun = self._begun[os.write(self._pipe, self._begun) :]
            data = line.encode(errors="backslashreplace")
            self._begun = data[os.write(self._pipe, data) :]
        except BlockingIOError:
            return 0
        return len(line)


def _stderr() -> TextIO | _Pipe:
    try:
        return _Pipe(sys.stderr.fileno())
    except (OSError, ValueError):  # a file, a terminal, closed; or not Linux
        return sys.stderr


class _Handler(logging.StreamHandler[Any]):
    _lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._lost and self._write(_lines_lost(self._lost)):
            self._lost = 0
        if self._lost or not self._write(record):
            self._lost += 1

    def _write(self, record: logging.LogRecord) -> bool:
        """False if the line is lost because nobody reads."""
        try:
            is_written: bool = self.stream.write(self.format(record) + self.terminator) != 0
            self.flush()
        except RecursionError:  # like logging's own handlers
            raise
        except Exception:  # noqa: BLE001 - no code may fail because it logs
            self.handleError(record)
            return True
        return is_written

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Log that a line can't be made; without its content, which isn't scrubbed."""
        line = {
            "level": "error",
            "logger": record.name,
            "event": f"a log line of {record.pathname}:{record.lineno} could not be formatted",
        }
        with suppress(Exception):  # stderr is closed
            self.stream.write(_encode(line).decode() + self.terminator)
            self.flush()


def _lines_lost(count: int) -> logging.LogRecord:
    text = "%d earlier lines were lost, because nobody read the log"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (count,), None)


class _Scrubbed(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        # In JSON, these characters can only be inside strings, where this escape means the same.
        line = _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
        return scrub(line)


def _add_request(_logger: Any, _method: str, event: EventDict) -> EventDict:
    request = current_request.get()
    if request is not None:
        for name, value in request.log_fields().items():
            event.setdefault(name, value)
    return event


def _in_order(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """The same fields; those that every line has come first."""
    ordered = {name: event.pop(name) for name in _FIRST if name in event}
    return {**ordered, **event}


def _as_json(_logger: Any, _method: str, event: EventDict) -> str:
    try:
        return _encode(event).decode()
    except (TypeError, ValueError, RecursionError):
        # Keys that aren't text, or text that isn't UTF-8.
        plain = {str(name): repr(value) for name, value in event.items()}
        return _encode(plain).decode("utf-8", "backslashreplace")


def _log_uncaught(uncaught: threading.ExceptHookArgs) -> None:
    if uncaught.exc_type is SystemExit or uncaught.exc_value is None:
        return
    name = uncaught.thread.name if uncaught.thread is not None else "a thread"
    logging.getLogger("gateway").error(
        "%s failed",
        name,
        exc_info=(uncaught.exc_type, uncaught.exc_value, uncaught.exc_traceback),
    )


class RequestContext(Protocol):
    def log_fields(self) -> dict[str, str]:
        """Those of ``request_id``, ``principal``, ``trace_id`` and ``catalog`` that are known."""


def for_this_request(work: Callable[[], None]) -> Callable[[], None]:
    """``work``, to be run in another thread; its log lines will belong to this thread's request."""
    request = current_request.get()

    def run() -> None:
        current_request.set(request)
        work()

    return run


current_request: ContextVar[RequestContext | None] = ContextVar("gateway.request", default=None)


_SCRUBBED: Final = "[scrubbed]"
# In a line of JSON, a quote has a backslash before it.
_QUOTE: Final = r"""\\*["']"""
_SECRETS: Final = re.compile(
    # The user and password of a MongoDB URI: from the scheme to the last @ before its end.
    r"(?P<uri>mongodb(?:\+srv)?://)[^\s\"'<>]*@"
    # Passwords in the URI's options.
    r"|(?P<option>(?:tlsCertificateKeyFilePassword|authMechanismProperties)=)[^&;\s\"'\\]*"
    # Authorization: a header, or a member of a dict or of WSGI's environ.
    rf"|(?P<header>(?:proxy[-_])?authorization(?:{_QUOTE})?\s*[:=,]\s*(?:b?{_QUOTE})?)"
    # A scheme and its credentials, or credentials without a scheme.
    r"(?:[\w-]+[ ]+)?[^\s,;}\"'\\]+"
    # A token by itself, opaque or a JWT.
    r"|(?P<token>\bgwt_)[\w.~+/=-]+"
    r"|(?P<jwt>\beyJ)[\w-]{5,}\.[\w-]{5,}\.[\w-]*"
    r"|(?P<bearer>\bbearer\s+)[\w.~+/=-]{16,}",
    re.IGNORECASE,
)


# Each secret has one of these in it or next to it. To search for these takes a fiftieth of the
# time.
_SIGNS: Final = ("mongodb", "authorization", "gwt_", "eyj", "bearer", "password", "authmechanism")


def scrub(line: str) -> str:
    """``line`` without the secrets that can be recognized."""
    lower = line.lower()
    for sign in _SIGNS:
        if sign in lower:
            return _SECRETS.sub(_without, line)
    return line


def _without(found: re.Match[str]) -> str:
    kind = found.lastgroup
    kept = "" if kind in (None, "jwt") else found[str(kind)]
    return f"{kept}{_SCRUBBED}" + ("@" if kind == "uri" else "")


class GunicornLogs(Logger):
    """gunicorn's logger, without handlers and without an access log of its own.

    Errors are logged at any level; starts and ends of workers only at ``debug``.
    """

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self._access_log_enabled = False
        is_debugging = logging.getLogger("gateway").getEffectiveLevel() <= logging.DEBUG
        self.error_log.setLevel(logging.INFO if is_debugging else logging.WARNING)
        self.error_log.propagate = True
