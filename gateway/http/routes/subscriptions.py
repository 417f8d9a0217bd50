"""`/v1/catalogs/{catalog}/subscriptions`: addresses that a catalog's commits are delivered to.

They are for admins of the catalog, because a receiver gets everything, whatever the acls say.
"""

from __future__ import annotations

import re
from typing import Any, Final

from gateway.access import Role
from gateway.decide.strict import SWITCH, Exact, choice, integer, strict, text
from gateway.http.context import Context
from gateway.http.door.admission import take_members
from gateway.http.door.authorization import EVERY_CATALOG, require
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire.body import refuse_member
from gateway.http.wire.cloud_events import FORMATS
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import (
    refuse_all_but_conditions,
    refuse_terms,
    require_tag,
    tag_conditions,
)
from gateway.http.wire.responses import Answer, body_answer, empty_answer, encode
from gateway.relay.addresses import AddressRefused, require_allowed_literal, target_of
from gateway.relay.managing import OVERLAP_S, Check, SubscriptionState, SubscriptionTerms
from gateway.relay.posting import SECRET_RULE, secret_bytes
from gateway.relay.relay import OPEN_FAILURES
from patching.values import rfc3339

_ALL: Final = f"{CATALOG}/subscriptions"
_is_name = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_OVERLAP_S_MAX: Final = 30 * 86_400


def _is_secret(given: str) -> bool:
    try:
        secret_bytes(given)
    except ValueError:
        return False
    return True


_FROM: Final = {"from": integer(), "initial": SWITCH}
SUBSCRIPTION: Final = strict(
    to=text(2048, required=True),
    prefix=text(1024, load_default=""),
    format=choice(FORMATS, load_default=FORMATS[0]),
    secret=Exact(str, SECRET_RULE, _is_secret),
    secret_overlap_s=integer(0, _OVERLAP_S_MAX, load_default=OVERLAP_S),
    **_FROM,
)
REPLAY: Final = strict(**_FROM)


class SubscriptionRoutes(Routes):
    @route("GET", _ALL, "list_subscriptions", Role.ADMIN)
    def page(self, context: Context, catalog: str) -> Answer:
        """All subscriptions of the catalog, by name."""
        refuse_terms(context.environ)
        found = self._gateway.subscriptions.page(catalog)
        return body_answer(encode({"subscriptions": [_shape(each) for each in found]}), [])

    @route("GET", f"{_ALL}/<segment:subscription>", "read_subscription", Role.ADMIN)
    def read(self, context: Context, catalog: str, subscription: str) -> Answer:
        refuse_terms(context.environ)
        return _answer(self._gateway.subscriptions.read(catalog, _name(subscription)))

    @route("PUT", f"{_ALL}/<segment:subscription>", "put_subscription", Role.ADMIN)
    def put(self, context: Context, catalog: str, subscription: str) -> Answer:
        """Make or change a subscription; its position stays unless the body says where to begin."""
        name, check = self._change(context, subscription)
        members = take_members(context, self._limits, SUBSCRIPTION)
        self._require_address(context, members["to"])
        _refuse_two_beginnings(members)
        wanted = SubscriptionTerms(
            members["to"],
            members["prefix"],
            members["format"],
            members["from"],
            members["initial"],
            members["secret"],
            members["secret_overlap_s"],
        )
        put = self._gateway.subscriptions.put(catalog, name, wanted, context.by.name, check)
        more = {} if put.secret is None else {"secret": put.secret}
        return _answer(put.state, 201 if put.is_made else 200, **more)

    @route("DELETE", f"{_ALL}/<segment:subscription>", "delete_subscription", Role.ADMIN)
    def delete(self, context: Context, catalog: str, subscription: str) -> Answer:
        self._gateway.subscriptions.drop(catalog, *self._change(context, subscription))
        return empty_answer([])

    @route("POST", f"{_ALL}/<segment:subscription>/pause", "pause_subscription", Role.ADMIN)
    def pause(self, context: Context, catalog: str, subscription: str) -> Answer:
        name, check = self._change(context, subscription)
        return _answer(self._gateway.subscriptions.pause(catalog, name, context.by.name, check))

    @route("POST", f"{_ALL}/<segment:subscription>/resume", "resume_subscription", Role.ADMIN)
    def resume(self, context: Context, catalog: str, subscription: str) -> Answer:
        name, check = self._change(context, subscription)
        return _answer(self._gateway.subscriptions.resume(catalog, name, context.by.name, check))

    @route("POST", f"{_ALL}/<segment:subscription>/replay", "replay_subscription", Role.ADMIN)
    def replay(self, context: Context, catalog: str, subscription: str) -> Answer:
        """Deliver again from a revision on, or begin anew with the state."""
        name, check = self._change(context, subscription)
        members = take_members(context, self._limits, REPLAY)
        _refuse_two_beginnings(members)
        if members["from"] is None and not members["initial"]:
            refuse_member(
                "/from", "it is missing; to start with all documents, send 'initial': true"
            )
        by, after = context.by.name, members["from"]
        return _answer(self._gateway.subscriptions.replay(catalog, name, after, by, check))

    def _change(self, context: Context, subscription: str) -> tuple[str, Check]:
        """The subscription's name, and a check of the request's conditions by its tag."""
        environ, name = context.environ, _name(subscription)
        refuse_all_but_conditions(environ)
        conditions, about = tag_conditions(environ), f"subscription {name!r}"

        def check(tag: str | None) -> None:
            require_tag(conditions, tag, about)

        return name, check

    def _require_address(self, context: Context, url: str) -> None:
        """Refuse an address by its text. What its name resolves to is checked when connecting.

        The services of this machine may trust whoever reaches them, so only its operators may
        deliver to them."""
        try:
            target = target_of(url)
            require_allowed_literal(target, self._gateway.limits.relay.networks)
        except AddressRefused as error:
            refuse_member("/to", str(error))
        if target.names_loopback:
            to = "a receiver on the gateway's machine"
            require(context.by, Role.ADMIN, EVERY_CATALOG, to)


def _refuse_two_beginnings(members: dict[str, Any]) -> None:
    if members["initial"] and members["from"] is not None:
        refuse_member("/initial", "it can't be given together with 'from'")


def _name(segment: str) -> str:
    if _is_name(segment) is None:
        detail = "a subscription's name must be 1 to 64 letters, digits, '_' and '-'"
        raise RequestRefused("invalid_name", detail)
    return segment


def _answer(state: SubscriptionState, status: int = 200, **more: Any) -> Answer:
    headers = [("ETag", f'"{state.tag}"'), ("Catalog-Revision", str(state.head))]
    return body_answer(encode(_shape(state) | more), headers, status)


def _shape(state: SubscriptionState) -> dict[str, Any]:
    record, revision = state.record, state.revision
    error = None if record.error is None else dict(record.error)
    if error is not None:
        error["time"] = rfc3339(error.pop("time_us"))
    activity = "active"
    if record.paused:
        activity = "paused"
    elif record.failures:
        activity = "failing" if record.failures >= OPEN_FAILURES else "retrying"
    return {
        "name": record.name,
        "etag": state.tag,
        "to": record.to,
        "prefix": record.prefix,
        "format": record.format,
        "state": activity,
        "revision": revision,
        "position": record.position,
        "head": state.head,
        "lag": None if revision is None else max(0, state.head - revision),
        "delivered": record.delivered,
        "last_delivery": _time(record.delivered_us),
        "failures": record.failures,
        "last_error": error,
        "next_try": None if record.paused else _time(record.next_try_us),
        "secrets": sum(not until or until > state.now_us for _, until in record.secrets),
        "created": rfc3339(record.created_us),
        "changed_by": record.by,
    }


def _time(time_us: int) -> str | None:
    return rfc3339(time_us) if time_us else None
