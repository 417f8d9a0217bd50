"""Which request a thread (or greenlet) works on, so that whatever it logs says so.

What is known of a request grows while it is worked on, so the context is a view of it that is
looked at when a line is written, not a copy that would have to be made for each request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol


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
