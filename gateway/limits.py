"""The limits of one process, in one frozen tree.

A field made by ``_setting`` is the setting of that name: the table of settings has its meaning and
its default. The other fields can't be configured.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

import patching
from gateway.settings.kinds import MIB as MIB
from gateway.settings.kinds import Network
from gateway.settings.table import Settings

# How many revisions are skipped after commits were lost, so that no other commit gets one of
# theirs.
PASSED_OVER: Final = 1_000_000_000

_DEFAULTS: Final = Settings()
_Limits = TypeVar("_Limits")


def _setting(name: str) -> Any:
    return field(default=getattr(_DEFAULTS, name), metadata={"setting": name})


def _from(settings: Settings, limits: type[_Limits], **parts: object) -> _Limits:
    """``limits`` with the values of ``settings``; ``parts`` are the fields that aren't settings."""
    named = {each.name: each.metadata.get("setting") for each in fields(limits)}  # type: ignore[arg-type]
    return limits(**{n: getattr(settings, s) for n, s in named.items() if s}, **parts)


def _patch_limits(settings: Settings) -> patching.Limits:
    return patching.Limits(
        operations_max=settings.patch_operations_max,
        items_examined_max=settings.items_examined_max,
        copy_growth_bytes_max=settings.copy_growth_bytes_max,
        depth_max=settings.depth_max,
        result_bytes_max=settings.document_bytes_max,
        owned_leaves_max=settings.owned_leaves_max,
        owners_bytes_max=settings.owners_bytes_max,
        managers_max=settings.managers_max,
        owners_max=settings.owners_max,
    )


_PATCH: Final = _patch_limits(_DEFAULTS)


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """``ring_commits_max`` and ``ring_bytes_max`` bound the recent commits kept for the watchers of
    one catalog, ``rings_bytes_max`` those of all catalogs. A watcher gets a bookmark after
    ``bookmark_commits`` commits that it doesn't want. The commits of a catalog are kept for
    ``linger_s`` after its last watcher has left. ``images_bytes_max`` bounds the documents that are
    sent with the changes of one commit.
    """

    watchers_max: int = _setting("watchers_max")
    lag_max: int = _setting("watch_lag_max")
    ring_commits_max: int = 1024
    ring_bytes_max: int = 4 * MIB
    rings_bytes_max: int = 64 * MIB
    bookmark_commits: int = 1000
    linger_s: float = 15.0
    images_bytes_max: int = 8 * MIB


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """``worker_max`` bounds the subscriptions that this process delivers to, ``catalog_max`` those
    of a catalog. History is kept for ``hold_s`` for a subscription that fails or is paused.
    Besides the public internet, ``networks`` may be delivered to.

    A worker that doesn't renew its claim of a subscription for ``claim_s`` loses it; it checks its
    claims at least every ``poll_s``. ``events_max`` and ``events_bytes_max`` bound one delivery.
    """

    worker_max: int = _setting("relay_subscriptions_max")
    catalog_max: int = _setting("subscriptions_max")
    hold_s: int = _setting("subscription_hold_s")
    networks: tuple[Network, ...] = _setting("subscription_networks")
    claim_s: float = _setting("subscription_claim_s")
    poll_s: float = 2.0
    events_max: int = 100
    events_bytes_max: int = 1 * MIB

    @property
    def deadline_s(self) -> float:
        """The time for one delivery, which so ends well before the worker's claim does."""
        return self.claim_s / 3


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """``pins_max`` bounds the pins of a catalog, ``pins_per_principal_max`` those of one principal
    in it; concurrent requests may exceed them a little. If ``age_s`` and ``commits`` are None,
    history is kept for ever.
    """

    age_s: int | None = _setting("retention_age_s")
    commits: int | None = _setting("retention_commits")
    pin_seconds_max: int = _setting("pin_seconds_max")
    pins_max: int = _setting("pins_max")
    pins_per_principal_max: int = _setting("pins_per_principal_max")
    idempotency_s: int = _setting("idempotency_retention_s")
    sweep_grace_s: float = _setting("sweep_grace_s")
    tombstone_grace_s: int = _setting("tombstone_grace_s")
    interval_s: int = _setting("compaction_interval_s")
    pause_ms: int = _setting("compaction_pause_ms")

    @property
    def late_s(self) -> float:
        """How long after reading a head a worker may rely on it: neither history above its floor
        nor tombstones are removed for twice as long."""
        return min(self.sweep_grace_s, self.tombstone_grace_s) / 2


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """``bytes_max`` bounds the memory of a process for all requests, ``request_bytes_max`` that for
    one request, which waits at most ``patience_s`` for others to free theirs. See
    ``gateway.memory``."""

    bytes_max: int = _setting("memory_bytes_max")
    request_bytes_max: int = _setting("request_memory_bytes_max")
    patience_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The limits of the gateway without HTTP.

    ``stored_bytes_max`` bounds the record of one document, and of one commit. ``batch_bytes_max``
    bounds the records of one batch, unless there is only one. ``full_value_every`` is K: every K-th
    change of a document records its full value. ``write_out_grace_ms`` is how long a tail is left
    to its makers before another worker writes it out. ``tail_commits_max`` and ``tail_bytes_max``
    bound what a worker may still have to write out of a catalog when it moves the head,
    ``head_bytes_max`` the commits and verdicts in a head. To catch up by more than
    ``catch_up_commits_max`` commits costs more than to read the documents again.
    ``history_page_bytes_max`` and ``listing_page_bytes_max`` bound pages of commits and documents;
    ``listing_page_documents`` is how many documents of a whole catalog are read at once.
    """

    patch: patching.Limits = _PATCH
    attributes_bytes_max: int = _setting("attributes_bytes_max")
    catalog_deletion_keys_max: int = _setting("catalog_deletion_keys_max")
    full_value_every: int = _setting("full_value_every")
    stored_bytes_max: int = 15 * MIB
    batch_requests_max: int = _setting("batch_operations_max")
    batch_bytes_max: int = _setting("batch_bytes_max")
    queue_requests_max: int = _setting("queue_requests_max")
    queue_bytes_max: int = _setting("queue_bytes_max")
    cache_bytes_max: int = _setting("cache_bytes_max")
    upload_bytes_max: int = _setting("upload_bytes_max")
    upload_expiry_s: int = _setting("upload_expiry_s")
    uploads_max: int = _setting("uploads_max")
    uploads_bytes_max: int = _setting("uploads_bytes_max")
    deadline_ms: int = _setting("deadline_ms")
    request_cpu_ms: int = _setting("request_cpu_ms")
    write_out_grace_ms: int = 100
    tail_commits_max: int = 16
    tail_bytes_max: int = 1 * MIB
    head_bytes_max: int = 14 * MIB
    cached_catalogs_max: int = 200_000
    catch_up_commits_max: int = 1_000
    history_page_bytes_max: int = 8 * MIB
    listing_page_bytes_max: int = 4 * MIB
    listing_page_documents: int = 500
    leaders: int = _setting("leaders")
    watch: WatchLimits = WatchLimits()
    relay: RelayLimits = RelayLimits()
    retention: RetentionLimits = RetentionLimits()
    memory: MemoryLimits = MemoryLimits()

    @property
    def replies_kept_s(self) -> int:
        """How long replies are remembered: also as long as an upload, whose commit has the upload
        as its idempotency key."""
        return max(self.retention.idempotency_s, self.upload_expiry_s)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits that are checked before a request reaches the service. Sizes are in bytes.

    ``watch_bookmark_s`` is for event streams, ``send_stall_s`` for answers to bulk requests.
    """

    body_bytes_max: int = _setting("body_bytes_max")
    document_bytes_max: int = _setting("document_bytes_max")
    depth_max: int = _setting("depth_max")
    body_values_max: int = _setting("body_values_max")
    key_bytes_max: int = _setting("key_bytes_max")
    catalog_name_bytes_max: int = _setting("catalog_name_bytes_max")
    transaction_actions_max: int = _setting("transaction_actions_max")
    watch_bookmark_s: int = _setting("watch_bookmark_s")
    send_stall_s: int = _setting("send_stall_s")
    bulk_line_bytes_max: int = _setting("bulk_line_bytes_max")
    bulk_answers_bytes_max: int = _setting("bulk_answers_bytes_max")
    bulk_refused_lines_max: int = _setting("bulk_refused_lines_max")


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How many requests may be under way."""

    writes_in_flight_max: int = _setting("writes_in_flight_max")
    writes_in_flight_bytes_max: int = _setting("writes_in_flight_bytes_max")
    reads_in_flight_max: int = _setting("reads_in_flight_max")
    bulk_requests_max: int = _setting("bulk_requests_max")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """``head_timeout_s`` is for a TLS handshake, and for the head of a request once it has begun.

    While a body arrives, ``body_timeout_s`` bounds the time without a byte, and
    ``body_whole_timeout_s`` the whole time. ``bodies_bytes_max`` bounds the bytes of all bodies
    that are arriving.
    """

    head_timeout_s: float = _setting("head_timeout_s")
    send_stall_s: float = _setting("send_stall_s")
    unsent_bytes_max: int = _setting("unsent_bytes_max")
    body_timeout_s: float = _setting("body_timeout_s")
    body_whole_timeout_s: float = _setting("body_whole_timeout_s")
    bodies_bytes_max: int = _setting("bodies_bytes_max")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    service: ServiceLimits = ServiceLimits()
    requests: RequestLimits = RequestLimits()
    admission: AdmissionLimits = AdmissionLimits()
    connections: ConnectionLimits = ConnectionLimits()


def limits_of(settings: Settings) -> ProcessLimits:
    service = _from(
        settings,
        ServiceLimits,
        patch=_patch_limits(settings),
        watch=_from(settings, WatchLimits),
        relay=_from(settings, RelayLimits),
        retention=_from(settings, RetentionLimits),
        memory=_from(settings, MemoryLimits),
    )
    return ProcessLimits(
        service,
        _from(settings, RequestLimits),
        _from(settings, AdmissionLimits),
        _from(settings, ConnectionLimits),
    )
