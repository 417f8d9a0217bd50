"""The views: one class for each kind of resource. ``route`` gives a view its rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from gateway.access import Role
from gateway.http.context import Need
from gateway.limits import RequestLimits
from gateway.service import GatewayService

CATALOG: Final = "/v1/catalogs/<segment:catalog>"

_View = TypeVar("_View", bound=Callable[..., Any])
_ROUTES: Final = "routes"


class RouteRule(NamedTuple):
    """``endpoint`` is the name of the route; ``need`` is a role in the catalog of its path, or what
    it needs instead. HEAD needs what GET does."""

    method: str
    rule: str
    endpoint: str
    need: Role | Need


def route(method: str, rule: str, endpoint: str, need: Role | Need) -> Callable[[_View], _View]:
    """A decorator: the view serves the route."""

    def mark(view: _View) -> _View:
        served = RouteRule(method, rule, endpoint, need)
        setattr(view, _ROUTES, [*getattr(view, _ROUTES, ()), served])
        return view

    return mark


class Routes:
    """The routes of one kind of resource of ``gateway``."""

    def __init__(self, gateway: GatewayService, limits: RequestLimits) -> None:
        self._gateway = gateway
        self._limits = limits

    def views(self) -> Iterator[tuple[RouteRule, Callable[..., Any]]]:
        """The routes with their views."""
        for name, view in vars(type(self)).items():
            for served in getattr(view, _ROUTES, ()):
                yield served, getattr(self, name)
