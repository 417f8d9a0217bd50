"""Puts the layers together; the only module that knows all of them."""

from __future__ import annotations

import atexit
import gc
import logging
import time

from flask import Flask

from gateway.access.authenticate import Authenticate, BearerTokens, Verifier, everybody
from gateway.access.limits import PrincipalLimits, Rate
from gateway.access.tokens import Tokens
from gateway.commit.turns import Turns
from gateway.feed.channel import WatchBounds
from gateway.http import RequestLimits, create_app
from gateway.http.door.admission import AdmissionBounds
from gateway.http.door.rate_limits import BODY_BYTES, OPERATIONS, REQUESTS
from gateway.metrics.meters import measured
from gateway.operation import operation
from gateway.retention.pins import RetentionLimits
from gateway.runtime import ThreadRuntime
from gateway.server.turns import MachineTurns, remove_left_over, turns_path
from gateway.service import Gateway, ServiceLimits
from gateway.settings import Settings
from gateway.store.mongodb import connect
from gateway.store.tokens import TokenStore
from patching import Limits

_log = logging.getLogger(__name__)


def create_application(settings: Settings) -> Flask:
    """The application of one worker process; made after the server has forked.

    Connects in the background. ValueError where no MongoDB is chosen or its URI is malformed.
    """
    if settings.mongodb_uri is None:
        raise ValueError("mongodb_uri is not set")
    watched = operation(access_log=settings.access_log)
    connected = connect(settings.mongodb_uri, settings.database, settings.store_timeout_ms)
    store = measured(connected, watched.store_meters)
    uploads = measured(connected.uploads(), watched.store_meters)
    runtime = ThreadRuntime()
    turns = _turns(settings.mongodb_uri, settings.database)
    gateway = Gateway(store, runtime, service_limits(settings), turns, uploads, watched.meters)
    gateway.retention.compactor.start()
    watched.watch(gateway, connected.uploads(), runtime)
    _collect_less_often()
    app = create_app(
        gateway,
        request_limits(settings),
        authenticate(settings, store.tokens()),
        watched.observers,
        watched.exposition,
        admission_bounds(settings),
        principal_limits(settings),
    )
    app.extensions["check_ready"] = gateway.check_ready
    return app


def authenticate(settings: Settings, store: TokenStore) -> Authenticate:
    """How requests are told apart: by the tokens that were issued, and those of the JWT issuer."""
    if not settings.access:
        return everybody
    verifiers: list[Verifier] = [Tokens(store)]
    if settings.jwt_jwks_url is not None:
        # Here, for it takes a tenth of a worker's start, and most have no issuer to ask.
        from gateway.access.web_tokens import KeySet, Trust, WebTokens, fetch_from

        trust = Trust(
            issuer=settings.jwt_issuer or "",
            audience=settings.jwt_audience or "",
            algorithms=settings.jwt_algorithms,
            grants_claim=settings.jwt_grants_claim,
            prefix=_subject_prefix(settings),
        )
        verifiers.append(WebTokens(KeySet(fetch_from(settings.jwt_jwks_url)), trust))
    return BearerTokens(*verifiers)


def _subject_prefix(settings: Settings) -> str:
    if settings.jwt_subject_prefix is None:
        return f"{settings.jwt_issuer}#"
    return "" if settings.jwt_subject_prefix == "-" else settings.jwt_subject_prefix


def _collect_less_often() -> None:
    """Look for cycles once in a page of documents or a batch, not some hundred times.

    Documents are trees: reference counts free them, and there are many. By Python's own thresholds
    a fifth of a worker's time in bulk writes and listings goes to looking at them in vain.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _turns(mongodb_uri: str, database: str) -> Turns | None:
    try:
        path = turns_path(mongodb_uri, database)
        turns = MachineTurns(path)
        remove_left_over(path)
        atexit.register(turns.close)
        return turns
    except OSError as error:
        # They save lost races; without them the workers pace themselves.
        _log.warning("workers of this machine can't take turns: %s", error)
        return None


def service_limits(settings: Settings) -> ServiceLimits:
    return ServiceLimits(
        patch=Limits(
            operations_max=settings.patch_operations_max,
            items_examined_max=settings.items_examined_max,
            copy_growth_bytes_max=settings.copy_growth_bytes_max,
            depth_max=settings.depth_max,
            result_bytes_max=settings.document_bytes_max,
        ),
        catalog_deletion_keys_max=settings.catalog_deletion_keys_max,
        attributes_bytes_max=settings.attributes_bytes_max,
        full_value_every=settings.full_value_every,
        batch_requests_max=settings.batch_operations_max,
        batch_bytes_max=settings.batch_bytes_max,
        queue_requests_max=settings.queue_requests_max,
        queue_bytes_max=settings.queue_bytes_max,
        cache_bytes_max=settings.cache_bytes_max,
        upload_bytes_max=settings.upload_bytes_max,
        upload_expiry_s=settings.upload_expiry_s,
        uploads_max=settings.uploads_max,
        uploads_bytes_max=settings.uploads_bytes_max,
        deadline_ms=settings.deadline_ms,
        leaders=settings.leaders,
        watch=WatchBounds(
            watchers_max=settings.watchers_max,
            lag_max=settings.watch_lag_max,
        ),
        retention=retention_limits(settings),
    )


def retention_limits(settings: Settings) -> RetentionLimits:
    return RetentionLimits(
        age_s=settings.retention_age_s,
        commits=settings.retention_commits,
        pin_seconds_max=settings.pin_seconds_max,
        pins_max=settings.pins_max,
        pins_per_principal_max=settings.pins_per_principal_max,
        idempotency_s=settings.idempotency_retention_s,
        tombstone_grace_s=settings.tombstone_grace_s,
        interval_s=settings.compaction_interval_s,
        pause_ms=settings.compaction_pause_ms,
    )


def admission_bounds(settings: Settings) -> AdmissionBounds:
    return AdmissionBounds(
        writes_in_flight_max=settings.writes_in_flight_max,
        writes_in_flight_bytes_max=settings.writes_in_flight_bytes_max,
        reads_in_flight_max=settings.reads_in_flight_max,
        bulk_requests_max=settings.bulk_requests_max,
    )


def principal_limits(settings: Settings) -> PrincipalLimits | None:
    """The share of this worker; None where principals aren't limited."""
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


def request_limits(settings: Settings) -> RequestLimits:
    return RequestLimits(
        body_bytes_max=settings.body_bytes_max,
        document_bytes_max=settings.document_bytes_max,
        depth_max=settings.depth_max,
        body_values_max=settings.body_values_max,
        key_bytes_max=settings.key_bytes_max,
        catalog_name_bytes_max=settings.catalog_name_bytes_max,
        transaction_actions_max=settings.transaction_actions_max,
        watch_bookmark_s=settings.watch_bookmark_s,
        send_stall_s=settings.send_stall_s,
        bulk_line_bytes_max=settings.bulk_line_bytes_max,
        bulk_answers_bytes_max=settings.bulk_answers_bytes_max,
        bulk_refused_lines_max=settings.bulk_refused_lines_max,
    )
