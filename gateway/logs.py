"""How the process speaks: lines with structure, with the request they belong to, and no secret.

Logging of a process, set up once: one handler, on stderr, for everybody who logs.

All code logs with the standard library, with `extra=` for fields; structlog makes the lines. A
library's own debugging is never shown: the MongoDB driver's would hold documents.

Which request a thread (or greenlet) works on, so that whatever it logs says so.

What is known of a request grows while it is worked on, so the context is a view of it that is
looked at when a line is written, not a copy that would have to be made for each request.

Secrets don't belong in logs; where one slips in all the same, it ends here.

Looked for in the finished line, so that it makes no difference what part of it they are in: a
message, an argument, an exception's text, a traceback.

gunicorn's own messages, on the same way as all others.
"""

from __future__ import annotations

import logging
import re
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


def configure(
    log_format: str, log_level: str, *, audit: bool = True, stream: TextIO | None = None
) -> None:
    """``log_format`` is ``json`` or ``console``, ``log_level`` a name of ``logging``'s, any case.

    Access and audit lines have switches of their own, and no level; without ``audit`` there are
    no audit lines. Replaces what was set up before. Uncaught exceptions of threads are logged too.
    """
    handler = _Handler(stream or sys.stderr)
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
                colors=False,  # they would come between a name and its value, where secrets are
                timestamp_key="time",
                # The default one shows the values of variables.
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


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A line that can't be made says so. What it held is not shown: nobody has scrubbed it."""
        line = {
            "level": "error",
            "logger": record.name,
            "event": f"a line can't be logged, of {record.pathname}:{record.lineno}",
        }
        with suppress(Exception):  # nothing can be written any more
            self.stream.write(_encode(line).decode() + self.terminator)
            self.flush()


class _Scrubbed(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


def _add_request(_logger: Any, _method: str, event: EventDict) -> EventDict:
    request = current_request.get()
    if request is not None:
        for name, value in request.log_fields().items():
            event.setdefault(name, value)
    return event


def _in_order(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """What every line has comes first, whoever wrote it."""
    ordered = {name: event.pop(name) for name in _FIRST if name in event}
    return {**ordered, **event}


def _as_json(_logger: Any, _method: str, event: EventDict) -> str:
    try:
        return _encode(event).decode()
    except (TypeError, ValueError, RecursionError):
        # Keys that are no text, or text that is no UTF-8.
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
        """``request_id``, ``principal``, ``trace_id``, ``catalog``: those that are known."""


def for_this_request(work: Callable[[], None]) -> Callable[[], None]:
    """``work`` to be done by another thread, whose log lines belong to the request of this one."""
    request = current_request.get()

    def run() -> None:
        current_request.set(request)
        work()

    return run


current_request: ContextVar[RequestContext | None] = ContextVar("gateway.request", default=None)


_SCRUBBED: Final = "[scrubbed]"
# In a line of JSON a quote has a backslash before it.
_QUOTE: Final = r"""\\*["']"""
_SECRETS: Final = re.compile(
    # A MongoDB URI: whatever lies between the scheme and the last @ before it ends.
    r"(?P<uri>mongodb(?:\+srv)?://)[^\s\"'<>]*@"
    # Passwords in its options.
    r"|(?P<option>(?:tlsCertificateKeyFilePassword|authMechanismProperties)=)[^&;\s\"'\\]*"
    # Authorization, as a header or as a member of a dict or of WSGI's environ.
    rf"|(?P<header>(?:proxy[-_])?authorization(?:{_QUOTE})?\s*[:=,]\s*(?:b?{_QUOTE})?)"
    # A scheme and what follows it, or what there is without one.
    r"(?:[\w-]+[ ]+)?[^\s,;}\"'\\]+"
    # A token by itself, ours or a JWT.
    r"|(?P<token>\bgwt_)[\w.~+/=-]+"
    r"|(?P<jwt>\beyJ)[\w-]{5,}\.[\w-]{5,}\.[\w-]*"
    r"|(?P<bearer>\bbearer\s+)[\w.~+/=-]{16,}",
    re.IGNORECASE,
)


# A secret has one of these beside it. Looking for them takes a fiftieth of the time.
_SIGNS: Final = ("mongodb", "authorization", "gwt_", "eyj", "bearer", "password", "authmechanism")


def scrub(line: str) -> str:
    """``line`` without the secrets that can be told from other text."""
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
    """Has no handlers of its own, and writes no access log: the gateway's has more to say.

    What is wrong is told at any level, what goes on (workers that start and end) from ``debug`` on.
    """

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self._access_log_enabled = False
        is_debugging = logging.getLogger("gateway").getEffectiveLevel() <= logging.DEBUG
        self.error_log.setLevel(logging.INFO if is_debugging else logging.WARNING)
        self.error_log.propagate = True
