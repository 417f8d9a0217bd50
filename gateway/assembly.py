"""Assembles everything for one worker; the only module that knows all layers."""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.access.principal import subject_prefix
from gateway.access.token_buckets import PrincipalLimits, Rate
from gateway.commit.messages import ByMessages, message_handler
from gateway.http import create_app
from gateway.http.app import GatewayFlask
from gateway.http.door.authorization import Authenticate, BearerTokens, Verifier
from gateway.http.door.rate_limits import BODY_BYTES, OPERATIONS, REQUESTS
from gateway.http.wire import cloud_events
from gateway.http.wire.problems import encode_refusal
from gateway.http.wire.shapes import commit_event
from gateway.limits import ServiceLimits, limits_of
from gateway.metrics.prometheus import measured
from gateway.observability import observability, package_version
from gateway.runtime import ThreadRuntime
from gateway.server.exchange import ServedApp
from gateway.server.neighbours import Neighbours
from gateway.server.resolving import own_resolver
from gateway.server.turns import MachineTurns, remove_left_over, turns_path
from gateway.service import GatewayService
from gateway.settings import Settings
from gateway.settings.kinds import web_url
from gateway.store.contract import TokenStore
from gateway.store.mongodb import connect
from gateway.tokens.issued import ServedTokens, Tokens

if TYPE_CHECKING:
    from gateway.tokens.openid_sign_in import OpenIdSignIn
    from gateway.tokens.web import WebTokens

_log = logging.getLogger(__name__)


def create_application(settings: Settings) -> ServedApp:
    """The app of one worker process; call this after the server has forked.

    Connects in the background. Raises ValueError if no MongoDB is chosen or its URI is malformed.
    """
    if settings.mongodb_uri is None:
        raise ValueError("mongodb_uri is not set")
    watched = observability(access_log=settings.access_log)
    connected = connect(settings.mongodb_uri, settings.database, settings.store_timeout_ms)
    store = measured(connected, watched.store_meters)
    runtime = ThreadRuntime()
    limits = limits_of(settings)
    trusted = web_tokens(settings)
    turns = _turns(settings.mongodb_uri, settings.database)
    neighbours = None if turns is None else _neighbours(limits.service, turns)
    handed_to = None if neighbours is None else ByMessages(neighbours)
    gateway = GatewayService(
        store, runtime, limits.service, turns, watched.meters, encode_refusal, handed_to
    )
    if neighbours is not None:
        _listen(neighbours, gateway)
    gateway.retention.compactor.start()
    gateway.janitor.start()
    watched.watch(gateway, connected.uploads(), runtime)
    _collect_less_often()
    _return_large_blocks()
    app = create_app(
        gateway,
        limits.requests,
        authenticate(settings, store.tokens(), trusted),
        watched.observers,
        watched.exposition,
        limits.admission,
        principal_limits(settings),
        ServedTokens(Tokens(store.tokens())),
        sign_in(settings, trusted),
    )
    _deliver(app, gateway)
    return app


def _deliver(app: GatewayFlask, gateway: GatewayService) -> None:
    """Deliver for subscriptions, until the server stops."""
    resolve = own_resolver(max(1, gateway.limits.relay.worker_max))
    relay = gateway.relay(commit_event, cloud_events, resolve)
    stop_feeds = app.begin_stop

    def begin_stop() -> None:
        relay.stop()
        stop_feeds()

    app.begin_stop = begin_stop
    relay.start()


def authenticate(
    settings: Settings, store: TokenStore, trusted: WebTokens | None = None
) -> Authenticate | None:
    """How requests are authenticated: by issued tokens, and by those of the JWT issuer.

    None if access control is off.
    """
    if not settings.access:
        return None
    verifiers: list[Verifier] = [Tokens(store)]
    if trusted is not None:
        verifiers.append(trusted)
    return BearerTokens(*verifiers)


# The code about issuers is imported only if there is one: that takes a tenth of a worker's start.
def web_tokens(settings: Settings) -> WebTokens | None:
    """The tokens of the JWT issuer, if one is trusted."""
    if settings.jwt_jwks_url is None or not settings.access:
        return None
    from gateway.tokens.web import KeySet, Trust, WebTokens, fetch_from

    trust = Trust(
        issuer=settings.jwt_issuer or "",
        audience=settings.jwt_audience or "",
        algorithms=settings.jwt_algorithms,
        grants_claim=settings.jwt_grants_claim,
        prefix=subject_prefix(settings.jwt_issuer, settings.jwt_subject_prefix) or "",
        name_claim=settings.jwt_name_claim,
    )
    return WebTokens(KeySet(fetch_from(settings.jwt_jwks_url)), trust)


def sign_in(settings: Settings, trusted: WebTokens | None) -> OpenIdSignIn | None:
    """How people get a token of the JWT issuer, if the console can sign in there."""
    if settings.oidc_client_id is None or trusted is None:
        return None
    from gateway.tokens.openid_sign_in import OpenIdClient, OpenIdSignIn

    client = OpenIdClient(
        settings.oidc_client_id, settings.oidc_client_secret, settings.oidc_scopes
    )
    return OpenIdSignIn(settings.jwt_issuer or "", client, trusted, web_url().parse)


def _collect_less_often() -> None:
    """Look for cycles once per page of documents or batch, not some hundred times.

    Documents are trees: there are many, and reference counts free them. With Python's own
    thresholds, a worker spends a fifth of its time in bulk writes and listings on looking at them
    in vain. The worker itself decides when to look at all objects (``server.garbage``).
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# The parameter of glibc's mallopt for the size from which on a block is mapped by itself.
_MMAP_THRESHOLD: Final = -3
_LARGE_BLOCK_BYTES: Final = 512 * 1024


def _return_large_blocks() -> None:
    """Have each large block returned to the system as soon as it is freed.

    Bodies, answers and replies of the database are such blocks. By default, the C library puts more
    and more of them on its heap, where small blocks in use keep large free ones from being
    returned.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def _turns(mongodb_uri: str, database: str) -> MachineTurns | None:
    try:
        turns = MachineTurns(turns_path(mongodb_uri, database))
        remove_left_over(turns.path)
        atexit.register(turns.close)
        return turns
    except OSError as error:
        # Turns only save lost races; without them, the workers pace themselves.
        _log.warning("workers on this machine can't take turns: %s", error)
        return None


def _neighbours(limits: ServiceLimits, turns: MachineTurns) -> Neighbours:
    # The same for workers that decide alike and can read each other's messages.
    group = f"{turns.path} {Path(__file__).parent} {package_version()} {limits}"
    return Neighbours(group, turns.secret, turns.others)


def _listen(neighbours: Neighbours, gateway: GatewayService) -> None:
    try:
        neighbours.listen(message_handler(gateway.commit_for))
        atexit.register(neighbours.close)
    except OSError as error:
        _log.warning("other workers on this machine can't hand writes over to this one: %s", error)


def principal_limits(settings: Settings) -> PrincipalLimits | None:
    """This worker's share of the rate limits per principal; None if there are none."""
    rates = (
        (REQUESTS, settings.principal_requests_per_s),
        (BODY_BYTES, settings.principal_body_bytes_per_s),
        (OPERATIONS, settings.principal_operations_per_s),
    )
    limited = [
        Rate(name, per_s / settings.workers, settings.principal_window_s)
        for name, per_s in rates
        if per_s is not None
    ]
    return PrincipalLimits(limited, time.monotonic) if limited else None
