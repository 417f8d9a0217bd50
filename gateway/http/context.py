"""The context of a request: one object with all facts about it, from its first byte to its last.

The outermost middleware (``door.observation``) makes it, and the WSGI environment carries it. The
module that a part is named after fills that part in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, cast

from gateway.access import Principal
from gateway.decide.request import WriteOutcome
from gateway.logs import current_request
from gateway.memory import Account

Environ = dict[str, Any]
HeaderList = list[tuple[str, str]]
WsgiApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Recheck = Callable[[], None]

KEY: Final = "gateway.context"
NO_ROUTE: Final = "(none)"


class Seat(Protocol):
    """The request's place among those under way; see ``door.admission``."""

    def take(self, size: int) -> None: ...

    def claim(self, holder: str) -> None: ...


class RateSpending(Protocol):
    """The request's account with its principal's rates; see ``door.rate_limits``."""

    def take(self, amounts: dict[str, int]) -> None: ...

    def spend(self, name: str, amount: int) -> None: ...

    def pace(self, name: str, amount: int, is_over: Callable[[], bool]) -> bool: ...

    def fields(self) -> HeaderList: ...


class Decided(NamedTuple):
    """A write that was decided; ``author``: whom its commit names."""

    author: str
    dry_run: bool
    written: WriteOutcome


class Context:
    """A request and what was answered, as far as that has come.

    ``endpoint`` is its route's name, None where there is none; ``names`` are those in its path, as
    they were sent. ``route`` is the template of its path, ``catalog`` the one in it, ``status`` 0
    before the answer began. ``trace_id`` is that of ``traceparent``, or of the span that was begun
    for the request.
    ``problem`` is the code of the problem that was answered, and ``helps`` what was found for it
    beside what its error says. ``holder`` names whose share of what there is only so much of counts
    (``gateway.access.token_buckets``), if anybody's. ``is_provisional``: a commit may yet change
    what was read. ``account`` is what it holds of the process's memory.
    """

    endpoint: str | None = None
    names: Mapping[str, str] = MappingProxyType({})
    route = NO_ROUTE
    status = 0
    sent_bytes = 0
    catalog: str | None = None
    principal: Principal | None = None
    holder: str | None = None
    recheck: Recheck | None = None
    seat: Seat | None = None
    account: Account | None = None
    spending: RateSpending | None = None
    decided: Decided | None = None
    helps: dict[str, Any] | None = None
    problem: str | None = None
    commit_id: str | None = None
    is_provisional = False
    span: Any = None

    def __init__(self, environ: Environ, request_id: str, trace_id: str | None = None) -> None:
        self.begun = time.perf_counter()
        self.environ = environ
        self.method: str = environ["REQUEST_METHOD"]
        self.request_id = request_id
        self.trace_id = trace_id

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begun

    @property
    def by(self) -> Principal:
        """The principal that was authenticated. LookupError, a defect, where nobody asked who."""
        if self.principal is None:
            raise LookupError("nobody has looked whom the request is from")
        return self.principal

    @property
    def principal_name(self) -> str | None:
        """None where it is not known, as on routes that are open to everybody."""
        return None if self.principal is None else self.principal.name

    def require_still_let_in(self) -> None:
        """After whatever may have taken long, and before it leads to anything.

        Raises AccessError where the request would no longer be let in, and StoreUnavailable. Costs
        nothing where it was called a moment ago.
        """
        if self.recheck is None:
            raise LookupError("nobody has said what lets this request in")
        self.recheck()

    def log_fields(self) -> dict[str, str]:
        """See ``gateway.logs.RequestContext``."""
        fields = {
            "request_id": self.request_id,
            "principal": self.principal_name,
            "trace_id": self.trace_id,
            "commit_id": self.commit_id,
            "catalog": self.catalog,
        }
        return {name: value for name, value in fields.items() if value is not None}


def this_request() -> Context:
    """The one that is being answered."""
    return cast("Context", current_request.get())


def context_of(environ: Environ) -> Context:
    context: Context = environ[KEY]
    return context


def declared_bytes(environ: Environ) -> int | None:
    """How long the body is said to be; None where that is known at its end, as of a chunked one."""
    if "HTTP_TRANSFER_ENCODING" in environ:
        return None
    declared: str = environ.get("CONTENT_LENGTH") or "0"
    return int(declared) if declared.isascii() and declared.isdigit() else None
