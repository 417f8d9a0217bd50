"""The views: one class for each kind of resource. ``route`` gives a view its rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from flask import Flask

from gateway.limits import RequestLimits
from gateway.service import GatewayService

CATALOG: Final = "/v1/catalogs/<segment:catalog>"

_View = TypeVar("_View", bound=Callable[..., Any])
_RULES: Final = "rules"


def route(method: str, rule: str, endpoint: str) -> Callable[[_View], _View]:
    """A decorator: the view answers ``method`` at ``rule``, and is ``endpoint`` in ``ROLES``."""

    def mark(view: _View) -> _View:
        setattr(view, _RULES, [*getattr(view, _RULES, ()), (method, rule, endpoint)])
        return view

    return mark


class Routes:
    """The routes of one kind of resource of ``gateway``."""

    def __init__(self, gateway: GatewayService, limits: RequestLimits) -> None:
        self._gateway = gateway
        self._limits = limits

    def register(self, app: Flask) -> None:
        for name, view in vars(type(self)).items():
            for method, rule, endpoint in getattr(view, _RULES, ()):
                app.add_url_rule(rule, endpoint, getattr(self, name), methods=[method])
