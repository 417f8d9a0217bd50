"""The Flask application: routes, converters, middlewares, and one handler for every error."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import flask
from flask import Flask, Request
from werkzeug.routing import BaseConverter, MapAdapter, Rule

from gateway import cpu
from gateway.access.limits import PrincipalLimits
from gateway.http.context import context_of, this_request
from gateway.http.door.admission import Admission, claim_share
from gateway.http.door.audit import Audit
from gateway.http.door.authorization import Authenticate, Authorization
from gateway.http.door.observation import Observation, Observer, note_route
from gateway.http.door.rate_limits import RateLimits
from gateway.http.routes.applications import ApplicationRoutes
from gateway.http.routes.bulk import BulkRoutes
from gateway.http.routes.catalogs import CatalogRoutes
from gateway.http.routes.changes import ChangesRoutes
from gateway.http.routes.differences import DifferenceRoutes
from gateway.http.routes.documents import DocumentRoutes
from gateway.http.routes.history import HistoryRoutes
from gateway.http.routes.listing import ListingRoutes
from gateway.http.routes.owners import OwnersRoutes
from gateway.http.routes.partitions import PartitionRoutes
from gateway.http.routes.pins import RetentionRoutes
from gateway.http.routes.reverts import RevertRoutes
from gateway.http.routes.static import (
    ConsoleRoutes,
    DocsPageRoutes,
    MetricsRoutes,
    ServiceRoutes,
    nothing_measured,
)
from gateway.http.routes.transactions import TransactionRoutes
from gateway.http.routes.uploads import UploadRoutes
from gateway.http.wire.answers import Answer
from gateway.http.wire.problems import problem_answer
from gateway.limits import AdmissionLimits, RequestLimits
from gateway.memory import Memory
from gateway.service import Gateway

DEFAULT_LIMITS = RequestLimits()
DEFAULT_ADMISSION = AdmissionLimits()


class _Segment(BaseConverter):
    """One segment of the encoded path, even an empty one; its view decodes it."""

    regex = "[^/]*"
    # A route is found by its segments then, instead of by one regular expression after the other.
    part_isolating = True


class _Rest(BaseConverter):
    """The rest of the encoded path, slashes and all."""

    regex = ".*"
    part_isolating = False


class _Adapter(MapAdapter):
    """Finds the routes of what is in a catalog, which most requests are for, by two segments of
    their paths and the method; all others as Werkzeug does."""

    def __init__(self, app: _Application, path: str, method: str) -> None:
        super().__init__(app.url_map, "", "/", "", "http", path, method)
        self._in_catalogs = app.in_catalogs

    def match(self, *given: Any, **named: Any) -> Any:
        parts = self.path_info.split("/", 5)
        if len(parts) == 6 and parts[1] == "v1" and parts[2] == "catalogs":
            _, _, _, catalog, kind, name = parts
            found = self._in_catalogs.get((kind, self.default_method))
            if found is not None and catalog and name and not given and named == _RULE_ALONE:
                rule, variable = found
                return rule, {"catalog": catalog, variable: name}
        return super().match(*given, **named)


_RULE_ALONE: Final = {"return_rule": True}
# A rule of one kind of what is in a catalog: all that its name may be.
_IN_A_CATALOG: Final = re.compile(r"/v1/catalogs/<segment:catalog>/([^/<>]+)/(?:<rest:(\w+)>|.+)")


class _Application(Flask):
    """Flask, which routes by the path alone: neither hosts nor schemes play a part here.

    ``begin_stop`` is what the server calls when it stops: answers that wait for something end.
    ``has_room_for`` it asks before it reads a request, of which it knows the first bytes. It makes
    room where ``memory`` is short.
    """

    begin_stop: Callable[[], None]
    has_room_for: Callable[[bytes], bool]
    memory: Memory
    in_catalogs: Mapping[tuple[str, str], tuple[Rule, str]] = MappingProxyType({})

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Nothing here is a coroutine; to find that out for each call takes longer than most."""
        return func

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        if request is None:
            return super().create_url_adapter(None)
        # Without the host and scheme, which take longer to find out than the route itself.
        return _Adapter(self, request.path, request.method)

    def index_routes(self) -> None:
        """Once all routes are there: see ``_Adapter``."""
        found: dict[tuple[str, str], tuple[Rule, str]] = {}
        mixed: set[str] = set()  # where routes are told apart by more than that
        for rule in self.url_map.iter_rules():
            parts = _IN_A_CATALOG.fullmatch(rule.rule)
            if parts is not None and parts[2] is None:
                mixed.add(parts[1])
            elif parts is not None:
                found |= {(parts[1], method): (rule, parts[2]) for method in rule.methods or ()}
        self.in_catalogs = {at: each for at, each in found.items() if at[0] not in mixed}


def create_app(
    gateway: Gateway,
    limits: RequestLimits = DEFAULT_LIMITS,
    authenticate: Authenticate | None = None,
    observers: Sequence[Observer] = (),
    exposition: Callable[[], bytes] = nothing_measured,
    admission: AdmissionLimits = DEFAULT_ADMISSION,
    principal_limits: PrincipalLimits | None = None,
) -> Flask:
    """The service over ``gateway``; a WSGI application that needs nothing else.

    ``authenticate`` tells whom a request is from; None: access control is off.
    ``observers`` are told of each request; ``exposition`` is what ``/metrics`` answers.
    ``admission`` is what it takes on at a time; ``principal_limits`` what each principal may ask
    for, None: as much as it likes.
    """
    app = _Application("gateway", static_folder=None)
    # OPTIONS is answered where there is more to say than Allow: at documents.
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False
    app.url_map.converters |= {"segment": _Segment, "rest": _Rest}
    Audit().register(app)
    authorization = Authorization(authenticate, limits)
    # After the audit, so that it decides about answers before they are told of.
    app.after_request(authorization.withhold)
    rate_limits = None if principal_limits is None else RateLimits(principal_limits)

    @app.before_request
    def let_in() -> None:
        """All that decides about a request before its route sees it, in this order."""
        cpu.begin(gateway.limits.request_cpu_ms / 1000)
        request: Request = flask.request._get_current_object()  # type: ignore[attr-defined]
        note_route(request)
        authorization.identify(request)
        claim_share(context_of(request.environ))
        if rate_limits is not None:  # who is refused again and again pays for that, too
            rate_limits.admit(request)
        authorization.admit(request)

    _register_routes(app, gateway, limits, exposition)
    app.index_routes()
    app.register_error_handler(Exception, _answer_error)
    admitting = Admission(app.wsgi_app, admission, gateway.memory)
    app.has_room_for = admitting.has_room_for
    app.memory = gateway.memory
    app.wsgi_app = Observation(admitting, observers)  # type: ignore[method-assign]
    return app


def _register_routes(
    app: _Application, gateway: Gateway, limits: RequestLimits, exposition: Callable[[], bytes]
) -> None:
    DocumentRoutes(gateway, limits, "content").register(app)
    DocumentRoutes(gateway, limits, "attributes").register(app)
    OwnersRoutes(gateway, limits).register(app)
    TransactionRoutes(gateway, limits).register(app)
    RevertRoutes(gateway, limits).register(app)
    CatalogRoutes(gateway, limits).register(app)
    ApplicationRoutes(gateway, limits).register(app)
    ListingRoutes(gateway, limits).register(app)
    PartitionRoutes(gateway, limits).register(app)
    HistoryRoutes(gateway, limits).register(app)
    DifferenceRoutes(gateway, limits).register(app)
    BulkRoutes(gateway, limits).register(app)
    UploadRoutes(gateway, limits).register(app)
    RetentionRoutes(gateway, limits).register(app)
    changes = ChangesRoutes(gateway, limits)
    changes.register(app)
    app.begin_stop = changes.stop
    ServiceRoutes(gateway).register(app)
    DocsPageRoutes().register(app)
    ConsoleRoutes().register(app)
    MetricsRoutes(exposition).register(app)


def _answer_error(error: Exception) -> Answer:
    cpu.conclude()  # an account that is used up would break this off, too
    return problem_answer(error, this_request())
