"""Which request a thread (or greenlet) works on, so that whatever it logs says so.

What is known of a request grows while it is worked on, so the context is a view of it that is
looked at when a line is written, not a copy that would have to be made for each request.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class RequestContext(Protocol):
    def log_fields(self) -> dict[str, str]:
        """``request_id``, ``principal``, ``trace_id``, ``catalog``: those that are known."""


current_request: ContextVar[RequestContext | None] = ContextVar("gateway.request", default=None)
