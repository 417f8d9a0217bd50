"""The Flask app: routes, converters, middlewares, and one handler for every error."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote

from flask import Flask, Response
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter, MapAdapter

from gateway import cpu
from gateway.access import Role
from gateway.access.token_buckets import PrincipalLimits
from gateway.errors import untraced
from gateway.http.context import (
    KEY,
    Context,
    Environ,
    Need,
    Observed,
    OpenContext,
    RouteTaken,
    Sender,
)
from gateway.http.door import audit, rate_limits
from gateway.http.door.admission import Admission, claim_share
from gateway.http.door.authorization import Authenticate, Authorization
from gateway.http.door.observation import Observation, Observer
from gateway.http.door.rate_limits import RateLimits
from gateway.http.routes import RouteRule, Routes
from gateway.http.routes.applications import ApplicationRoutes
from gateway.http.routes.bulk import BulkRoutes
from gateway.http.routes.catalogs import RetentionRoutes, WholeCatalogRoutes
from gateway.http.routes.changes import ChangesRoutes
from gateway.http.routes.console_sign_in import PeopleSignIn, SignInRoutes
from gateway.http.routes.documents import DocumentRoutes, OwnersRoutes
from gateway.http.routes.history import HistoryRoutes
from gateway.http.routes.issued_tokens import TokenIssuer, TokenRoutes
from gateway.http.routes.listing import ListingRoutes
from gateway.http.routes.reverts import RevertRoutes
from gateway.http.routes.static import ServiceRoutes, nothing_measured
from gateway.http.routes.subscriptions import SubscriptionRoutes
from gateway.http.routes.transactions import TransactionRoutes
from gateway.http.routes.uploads import UploadRoutes
from gateway.http.wire.problems import problem_answer
from gateway.http.wire.responses import Answer
from gateway.limits import AdmissionLimits, RequestLimits
from gateway.memory import Memory
from gateway.service import GatewayService

View = Callable[..., Response]
DEFAULT_LIMITS = RequestLimits()
DEFAULT_ADMISSION = AdmissionLimits()


class _Segment(BaseConverter):
    """One segment of the encoded path, which may be empty; the view decodes it."""

    regex = "[^/]*"
    # Then a route is found by its segments, not by trying one regular expression after the other.
    part_isolating = True


class _Rest(BaseConverter):
    """The rest of the encoded path, slashes included."""

    regex = ".*"
    part_isolating = False


class DirectRoute(NamedTuple):
    """A route that is found without Werkzeug; ``variable`` names the last part of its path."""

    endpoint: str
    route: str
    variable: str
    view: View


# A rule for one kind of resource in a catalog, whose name is the rest of the path.
_IN_A_CATALOG: Final = re.compile(r"/v1/catalogs/<segment:catalog>/([^/<>]+)/(?:<rest:(\w+)>|.+)")
# Statuses of answers that may depend on the state at a time.
_OF_THE_TIME: Final = (200, 304, 404, 412)


class _Doors:
    """The checks of a request before its view sees it, and of its answer."""

    def __init__(
        self, authorization: Authorization, limits: PrincipalLimits | None, request_cpu_s: float
    ) -> None:
        self._authorization = authorization
        self._rates = None if limits is None else RateLimits(limits)
        self._request_cpu_s = request_cpu_s

    def let_in(self, observed: Observed) -> OpenContext | None:
        """The context for its view; None if the request has no view. The order matters: the rates
        come before the roles, so that a refused request costs its principal something too."""
        cpu.begin(self._request_cpu_s)
        principal = self._authorization.identify(observed)
        if principal is None:
            return OpenContext(observed)
        spending = None if self._rates is None else self._rates.spending_of(principal)
        sender = observed.sender = Sender(principal, principal.holder, spending)
        claim_share(observed.counted, sender.holder)
        if spending is not None:
            rate_limits.admit(observed, spending)
        return self._authorization.admit(observed, sender)

    def let_out(self, observed: Observed, answer: Response) -> Response:
        """The answer to send and to audit: ``answer``, or one in its place."""
        if observed.is_provisional and answer.status_code in _OF_THE_TIME:
            answer.headers["Time-Provisional"] = "true"
        answer = self._authorization.withhold(observed, answer)
        if audit.log.isEnabledFor(logging.INFO):
            audit.log_request(observed, answer.status_code)
        observed.decided_write = None  # so its documents aren't held until the answer is sent
        return answer


def _decoded(names: Mapping[str, str], context: OpenContext | None) -> Mapping[str, str]:
    """The names in a path as the view gets them: the catalog is decoded, as it was authorized."""
    if isinstance(context, Context) and "catalog" in names:
        return {**names, "catalog": context.catalog}
    return names


@lru_cache(maxsize=1024)
def _template(rule: str) -> str:
    """The path as in the OpenAPI document: ``/v1/catalogs/{catalog}``."""
    parts = [part.rpartition(":")[2] for part in rule.replace("<", ">").split(">")]
    # Every other part was between the brackets.
    return "".join(f"{{{part}}}" if i % 2 else part for i, part in enumerate(parts))


def _raising(error: HTTPException) -> View:
    def view(_: OpenContext | None) -> Response:
        raise error

    return view


class GatewayFlask(Flask):
    """A Flask app that looks routes up itself. A ``gateway.server.exchange.ServedApp``."""

    begin_stop: Callable[[], None]
    has_room_for: Callable[[bytes], bool]
    check_ready: Callable[[], None]
    memory: Memory
    doors: _Doors
    direct_routes: Mapping[tuple[str, str], DirectRoute] = MappingProxyType({})

    def __init__(self) -> None:
        super().__init__("gateway", static_folder=None)
        # Only documents answer OPTIONS, because they have more to say than Allow.
        self.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
        self.url_map.merge_slashes = False
        self.url_map.converters |= {"segment": _Segment, "rest": _Rest}
        # By endpoint and method; what isn't in here, nobody may do.
        self.needs: dict[tuple[str, str], Role | Need] = {}

    def add_route(self, route: RouteRule, view: View) -> None:
        self.add_url_rule(route.rule, route.endpoint, view, methods=[route.method])
        self.needs[route.endpoint, route.method] = route.need

    def wsgi_app(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Let the request in, call its view, let the answer out; an error becomes the answer."""
        observed: Observed = environ[KEY]
        try:
            view, names = self._found(observed)
            context = self.doors.let_in(observed)
            answer = view(context, **_decoded(names, context))
        except Exception as error:  # noqa: BLE001 - each becomes a problem
            answer = _answer_error(error, observed)
        try:
            answer = self.doors.let_out(observed, answer)
        except Exception as error:  # noqa: BLE001 - a defect, which becomes a problem
            answer = _answer_error(error, observed)
        return answer(environ, start_response)

    def _found(self, observed: Observed) -> tuple[View, Mapping[str, str]]:
        """The view, and the names in the path. If there is no route, the view raises that, so that
        only a caller who is let in learns it.

        Most routes in a catalog, which most requests use, are found by one segment of the path and
        the method, others by Werkzeug. Hosts and schemes play no part.
        """
        # An empty path is the root's (RFC 9110, section 4.2.3). Werkzeug would redirect it.
        path = observed.environ["PATH_INFO"] or "/"
        parts = path.split("/", 5)
        if len(parts) == 6 and parts[1] == "v1" and parts[2] == "catalogs":
            _, _, _, catalog, kind, name = parts
            found = self.direct_routes.get((kind, observed.method))
            if found is not None and catalog and name:
                names = {"catalog": catalog, found.variable: name}
                self._take(observed, found.endpoint, found.route, names)
                return found.view, names
        if path.startswith("//"):
            # Werkzeug would ignore the empty segment. No route begins with the encoded slash.
            path = f"/%2F{path[2:]}"
        try:
            adapter = MapAdapter(self.url_map, "", "/", "", "http", path, observed.method)
            rule, named = adapter.match(return_rule=True)
        except HTTPException as error:
            # Its frames would hold the view, which holds it, where the caller isn't let in.
            return _raising(untraced(error)), {}
        self._take(observed, rule.endpoint, _template(rule.rule), named)
        return cast("View", self.view_functions[rule.endpoint]), named

    def _take(
        self, observed: Observed, endpoint: str, template: str, names: Mapping[str, str]
    ) -> None:
        method = "GET" if observed.method == "HEAD" else observed.method
        need = self.needs.get((endpoint, method))
        catalog = names.get("catalog")
        if catalog is not None and "%" in catalog:
            catalog = unquote(catalog, errors="backslashreplace")
        observed.route = RouteTaken(endpoint, template, need, names, catalog)

    def holder_of(self, environ: Environ) -> str | None:
        observed: Observed = environ[KEY]
        return None if observed.sender is None else observed.sender.holder

    def index_routes(self) -> None:
        """Fill ``direct_routes``. Called once all routes are registered."""
        found: dict[tuple[str, str], DirectRoute] = {}
        mixed: set[str] = set()  # kinds whose routes differ in more than the method
        for rule in self.url_map.iter_rules():
            parts = _IN_A_CATALOG.fullmatch(rule.rule)
            if parts is not None and parts[2] is None:
                mixed.add(parts[1])
            elif parts is not None:
                view = cast("View", self.view_functions[rule.endpoint])
                direct = DirectRoute(rule.endpoint, _template(rule.rule), parts[2], view)
                found |= {(parts[1], method): direct for method in rule.methods or ()}
        self.direct_routes = {at: each for at, each in found.items() if at[0] not in mixed}


def create_app(
    gateway: GatewayService,
    limits: RequestLimits = DEFAULT_LIMITS,
    authenticate: Authenticate | None = None,
    observers: Sequence[Observer] = (),
    exposition: Callable[[], bytes] = nothing_measured,
    admission: AdmissionLimits = DEFAULT_ADMISSION,
    principal_limits: PrincipalLimits | None = None,
    tokens: TokenIssuer | None = None,
    sign_in: PeopleSignIn | None = None,
) -> GatewayFlask:
    """The app that serves ``gateway`` over HTTP.

    ``authenticate`` finds the principal of a request; None: access control is off. ``observers``
    get each request; ``exposition`` makes the answer of ``/metrics``. ``admission`` bounds the
    requests under way; ``principal_limits`` the rates of each principal; None: there are none.
    ``tokens`` issues and revokes tokens over HTTP, ``sign_in`` lets people get one from an issuer;
    None: that isn't offered.
    """
    app = GatewayFlask()
    request_cpu_s = gateway.limits.request_cpu_ms / 1000
    app.doors = _Doors(Authorization(authenticate, limits), principal_limits, request_cpu_s)
    changes = ChangesRoutes(gateway, limits)
    app.begin_stop = changes.stop
    for routes in (
        DocumentRoutes(gateway, limits, "content"),
        DocumentRoutes(gateway, limits, "attributes"),
        *(each(gateway, limits) for each in _ROUTES),
        changes,
        ServiceRoutes(gateway, limits, exposition),
        TokenRoutes(gateway, limits, tokens),
        SignInRoutes(gateway, limits, sign_in),
    ):
        for route, view in routes.views():
            app.add_route(route, view)
    app.index_routes()
    admitting = Admission(app.wsgi_app, admission, gateway.memory)
    app.has_room_for = admitting.has_room_for
    app.check_ready = gateway.check_ready
    app.memory = gateway.memory
    app.wsgi_app = Observation(admitting, observers)  # type: ignore[method-assign]
    return app


# The routes that need only the gateway and the limits.
_ROUTES: Final[tuple[type[Routes], ...]] = (
    OwnersRoutes,
    TransactionRoutes,
    RevertRoutes,
    WholeCatalogRoutes,
    ApplicationRoutes,
    ListingRoutes,
    HistoryRoutes,
    BulkRoutes,
    UploadRoutes,
    RetentionRoutes,
    SubscriptionRoutes,
)


def _answer_error(error: Exception, observed: Observed) -> Answer:
    cpu.conclude()  # else an account that is used up would break this off too
    answer = problem_answer(error, observed)
    untraced(error)
    return answer
