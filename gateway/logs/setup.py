"""Logging of a process, set up once: one handler, on stderr, for everybody who logs.

All code logs with the standard library, with `extra=` for fields; structlog makes the lines. A
library's own debugging is never shown: the MongoDB driver's would hold documents.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress
from typing import Any, Final, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from gateway.logs.context import current_request
from gateway.logs.scrub import scrub

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
