"""A request on its way in: a type for each step, with the facts that are known by then.

    Observed      the request has arrived: its own data, and its outcome so far; made by
                  ``door.observation``, carried by the WSGI environment, sent to observers
    Counted       it was admitted: its place among those under way, its memory (``door.admission``)
    RouteTaken    its route was found (``app``)
    Sender        its principal is known (``door.authorization``)
    Context       it was let in: the argument of a view; ``OpenContext`` for a route that is open to
                  everybody

``Observed`` keeps all of these except the last, because observers get every request, however far it
got.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from gateway.access import Principal, Role
from gateway.decide.request import WriteOutcome
from gateway.memory import Account

Environ = dict[str, Any]
HeaderList = list[tuple[str, str]]
WsgiApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Recheck = Callable[[], None]

KEY: Final = "gateway.observed"
# Methods that change nothing.
READING: Final = ("GET", "HEAD", "OPTIONS")


class Seat(Protocol):
    """The request's place among those under way; see ``door.admission``."""

    def take(self, size: int) -> None: ...

    def claim(self, holder: str) -> None: ...


class RateSpending(Protocol):
    """The request's account with its principal's rates; see ``door.rate_limits``."""

    def take(self, amounts: dict[str, int]) -> None: ...

    def spend(self, name: str, amount: int) -> None: ...

    def pace(self, name: str, amount: int, is_over: Callable[[], bool]) -> None: ...

    def fields(self) -> HeaderList: ...


class Counted(NamedTuple):
    """``seat`` is None if the request is counted elsewhere, or not at all. ``account`` counts the
    request's memory; None if other bounds apply."""

    seat: Seat | None
    account: Account | None


class Need(Enum):
    """What a route needs if it isn't a role in the catalog of its path."""

    NOTHING = "open to everybody"
    TOKEN = "any principal"
    EVERYTHING = "admin of every catalog"


class RouteTaken(NamedTuple):
    """``endpoint`` is the route's name, ``template`` its path; None and "(none)" if there is no
    route. ``need`` None: nobody may use it. ``names`` are those in the path, as they were sent;
    ``catalog`` is decoded."""

    endpoint: str | None
    template: str
    need: Role | Need | None
    names: Mapping[str, str]
    catalog: str | None


class Sender(NamedTuple):
    """``holder`` names the principal in whose shares the request counts, if there are shares (see
    ``gateway.access.principal``). ``spending`` is None if there are no rates."""

    principal: Principal
    holder: str | None
    spending: RateSpending | None


class DecidedWrite(NamedTuple):
    """A write that was decided; ``author`` is named by its commit."""

    author: str
    dry_run: bool
    written: WriteOutcome


NOT_COUNTED: Final = Counted(None, None)
NO_ROUTE: Final = RouteTaken(None, "(none)", None, MappingProxyType({}), None)


class Observed:
    """A request, and its outcome so far.

    ``body_bytes`` is the declared length of its body; None if that is known only at its end.
    ``sender`` is None before it is known, and on routes that are open to everybody. ``status`` is 0
    before the answer begins. ``trace_id`` is that of ``traceparent``, or of the span that was begun
    for the request. ``problem`` is the code of the problem that was answered, and ``helps`` are
    members of the problem that its error lacks. ``audited`` are further facts for the audit log
    alone. ``is_provisional``: a commit may yet change what was read. ``require_still_let_in`` is
    that of its context, None if it wasn't let in.
    """

    counted = NOT_COUNTED
    route = NO_ROUTE
    sender: Sender | None = None
    require_still_let_in: Recheck | None = None
    status = 0
    sent_bytes = 0
    decided_write: DecidedWrite | None = None
    helps: Mapping[str, Any] = MappingProxyType({})
    problem: str | None = None
    commit_id: str | None = None
    audited: Mapping[str, str] = MappingProxyType({})
    is_provisional = False
    span: Any = None

    def __init__(self, environ: Environ, request_id: str, trace_id: str | None = None) -> None:
        self.begun = time.perf_counter()
        self.environ = environ
        self.method: str = environ["REQUEST_METHOD"]
        self.body_bytes = _declared_bytes(environ)
        self.request_id = request_id
        self.trace_id = trace_id

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begun

    @property
    def principal_name(self) -> str | None:
        """The principal's name; None if unknown, as on routes that are open to everybody."""
        return None if self.sender is None else self.sender.principal.name

    def log_fields(self) -> dict[str, str]:
        """The fields of the request's log lines; see ``gateway.logs.RequestContext``."""
        fields = {
            "request_id": self.request_id,
            "principal": self.principal_name,
            "trace_id": self.trace_id,
            "commit_id": self.commit_id,
            "catalog": self.route.catalog,
        }
        return {name: value for name, value in fields.items() if value is not None}


class OpenContext:
    """A request that was let in, on a route that is open to everybody.

    ``require_still_let_in`` is to be called after anything that may have taken long, before the
    result is used. It raises AccessError if the request would no longer be let in, and
    StoreUnavailable. It costs nothing if it was called a moment ago.
    """

    __slots__ = ("environ", "observed", "require_still_let_in", "spending")

    def __init__(
        self,
        observed: Observed,
        require_still_let_in: Recheck = lambda: None,
        spending: RateSpending | None = None,
    ) -> None:
        self.observed = observed
        self.environ = observed.environ
        self.spending = spending
        observed.require_still_let_in = self.require_still_let_in = require_still_let_in


class Context(OpenContext):
    """A request that was let in: its principal ``by`` has the role that its route needs.
    ``holder``: see ``Sender``. ``catalog`` is that of the path, decoded."""

    __slots__ = ("by", "catalog", "holder")

    def __init__(
        self, observed: Observed, sender: Sender, catalog: str, require_still_let_in: Recheck
    ) -> None:
        super().__init__(observed, require_still_let_in, sender.spending)
        self.by = sender.principal
        self.holder = sender.holder
        self.catalog = catalog


def _declared_bytes(environ: Environ) -> int | None:
    if "HTTP_TRANSFER_ENCODING" in environ:
        return None
    declared: str = environ.get("CONTENT_LENGTH") or "0"
    return int(declared) if declared.isascii() and declared.isdigit() else None
