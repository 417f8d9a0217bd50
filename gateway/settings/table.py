"""The table of settings: the fields of `Settings`, in this order.

To add a setting, add a field: its flag, its environment variable, `gateway settings` and
docs/settings.md follow from it. `lookup` decides which source of a value wins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from gateway.settings import kinds
from gateway.settings.kinds import MIB, Address, Kind, Network

PREFIX = "GATEWAY_"
# Only asymmetric algorithms: with a symmetric one, a public key would pass for the shared secret.
JWT_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)

# Removed and renamed settings, and what to do instead. They are refused: they would do nothing.
REMOVED: Final[Mapping[str, str]] = {
    "worker_class": "was removed: every worker runs on gevent; leave it out",
    "threads": "was removed: a worker on gevent has no pool of threads; leave it out",
    "watch_stall_s": "is now send_stall_s, and holds for every answer",
}


class SettingError(Exception):
    """A setting that can't be used. `str()` is one line and holds no secret.

    `setting` is its name, `source` its flag or variable, `reason` the allowed values.
    """

    def __init__(self, setting: str, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.setting = setting
        self.source = source
        self.reason = reason


def _setting(
    kind: Kind, default: object, help: str, *, secret: bool = False, choose: str = ""
) -> Any:
    """A field of the table. `default` is the value itself, or a function that computes it; `choose`
    describes that."""
    make_default: Callable[[], object] = default if callable(default) else lambda: default
    row = {
        "kind": kind,
        "help": help,
        "secret": secret,
        "default_shown": choose or ("none" if default is None else f"`{kind.show(default)}`"),
        "make_default": make_default,
    }
    return field(default_factory=make_default, metadata=row, repr=not secret)


def _default_workers() -> int:
    """1 on up to two cores, because clients and MongoDB need the other core; else 2."""
    return 1 if (os.cpu_count() or 1) <= 2 else 2


def _default_log_format() -> str:
    return "console" if sys.stderr is not None and sys.stderr.isatty() else "json"


def _default_data_dir() -> Path:
    """A permanent folder of the user, where the next start finds the data of `--embedded`."""
    home = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification says to ignore a relative path.
    base = Path(home) if home.startswith("/") else Path("~/.local/share").expanduser()
    return base / "metadata-gateway" / "mongodb"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Effective settings. `lookup.resolve` checks them; this constructor doesn't."""

    # Server
    bind: Address = _setting(
        kinds.address(),
        Address("127.0.0.1", 8080),
        "address to listen on; by default only this machine can connect",
    )
    workers: int = _setting(
        kinds.integer(1, 256),
        _default_workers,
        "worker processes. Take at most one for each core that MongoDB and the clients leave free:"
        " workers that wait for a core slow each other down, and only one at a time writes to a"
        " catalog",
        choose="1 on a machine with at most two cores, else 2",
    )
    connections_max: int = _setting(
        kinds.integer(1, 65536), 4096, "open connections in a worker, idle ones and feeds included"
    )
    worker_timeout_s: int = _setting(
        kinds.integer(2, 3600),
        120,
        "seconds without a sign of life after which a worker is killed and replaced",
    )
    graceful_timeout_s: int = _setting(
        kinds.integer(1, 3600),
        30,
        "seconds that running requests may take to finish once the gateway is stopped",
    )

    # Access
    access: bool = _setting(
        kinds.switch(),
        True,
        "require a token (docs/access.md). When off, every client may do everything; `bind` must"
        " then be an address that only this machine can reach",
    )
    tls_certificate: Path | None = _setting(
        kinds.file(),
        None,
        "certificate for HTTPS, PEM, with the chain to its authority; requires `tls_key`",
    )
    tls_key: Path | None = _setting(
        kinds.file(), None, "private key of `tls_certificate`, PEM, not encrypted"
    )
    tls_client_ca: Path | None = _setting(
        kinds.file(),
        None,
        "certificates, PEM, of the authorities that may issue client certificates; without this,"
        " clients need none. A certificate doesn't replace a token",
    )
    jwt_jwks_url: str | None = _setting(
        kinds.web_url(),
        None,
        "address of the public keys that verify JWTs; without this, no JWT is accepted",
    )
    jwt_issuer: str | None = _setting(
        kinds.text("the value of `iss` in the JWTs"),
        None,
        "issuer of the JWTs that are accepted",
    )
    jwt_audience: str | None = _setting(
        kinds.text("the value of `aud` in the JWTs, or one of its values"),
        None,
        "audience that a JWT must be issued for",
    )
    jwt_subject_prefix: str | None = _setting(
        kinds.text("a text of at most 100 characters", 100),
        None,
        "text before a JWT's `sub` in its principal's name, to tell it from other principals;"
        " `-`: none, so that a subject and a token of the same name are one principal",
        choose="`jwt_issuer` and `#`",
    )
    jwt_algorithms: tuple[str, ...] = _setting(
        kinds.choices(*JWT_ALGORITHMS),
        ("RS256", "ES256", "EdDSA"),
        "algorithms that may sign a JWT",
    )
    jwt_grants_claim: str = _setting(
        kinds.text("the name of a claim"),
        "grants",
        "claim of a JWT that lists its subject's grants, each as `role:pattern`",
    )
    jwt_name_claim: str = _setting(
        kinds.text("the name of a claim"),
        "sub",
        "claim of a JWT that names its holder, such as `email`; the issuer must never give one"
        " value to two people",
    )
    oidc_client_id: str | None = _setting(
        kinds.text("the id of a client"),
        None,
        "client id of the console at the issuer `jwt_issuer`; without this, people enter a token"
        " instead of signing in by OpenID Connect",
    )
    oidc_client_secret: str | None = _setting(
        kinds.text("the secret of a client"),
        None,
        "secret of `oidc_client_id`, if the issuer gave it one",
        secret=True,
    )
    oidc_scopes: str = _setting(
        kinds.text("scopes, separated by spaces"),
        "openid profile email",
        "scopes to ask for when somebody signs in",
    )

    # Logs, on stderr
    log_format: str = _setting(
        kinds.choice("json", "console"),
        _default_log_format,
        "one JSON object per line, or lines for people",
        choose="`console` on a terminal, else `json`",
    )
    log_level: str = _setting(
        kinds.choice("debug", "info", "warning", "error"),
        "info",
        "lowest level that is logged; access and audit lines are logged at any level",
    )
    access_log: bool = _setting(
        kinds.switch(),
        False,
        "log a line for each request (costs a few percent of a small request's time)",
    )

    audit_log: bool = _setting(
        kinds.switch(),
        True,
        "log a line for each request that can change something and for each that access control"
        " refuses; none while access control is off",
    )

    # MongoDB
    mongodb_uri: str | None = _setting(
        kinds.mongodb_uri(),
        None,
        "connection string of the MongoDB replica set or sharded cluster; the alternative is"
        " `embedded`",
        secret=True,
    )
    database: str = _setting(kinds.database_name(), "metadata", "database for all data")
    embedded: bool = _setting(
        kinds.switch(), False, "start a private MongoDB, for trials, tests and demos"
    )
    data_dir: Path = _setting(
        kinds.directory(),
        _default_data_dir,
        "folder for the data of the embedded MongoDB",
        choose="`$XDG_DATA_HOME/metadata-gateway/mongodb`",
    )
    store_timeout_ms: int = _setting(
        kinds.integer(100, 600_000), 5000, "milliseconds to wait for one answer from MongoDB"
    )

    # The commit loop
    deadline_ms: int = _setting(
        kinds.integer(1, 600_000),
        10_000,
        "milliseconds that a write may take, lost races included; a client may shorten them",
    )
    request_cpu_ms: int = _setting(
        kinds.integer(10, 600_000),
        2_000,
        "milliseconds of processor time that a request, or a line of a bulk request, may take"
        " before it is refused (too_much_work); other requests go on in between",
    )
    leaders: int = _setting(
        kinds.integer(1, 64),
        2,
        "batches, of different catalogs, that a worker may have under way",
    )
    batch_operations_max: int = _setting(
        kinds.integer(1, 10_000), 512, "requests in one batch of one catalog"
    )
    batch_bytes_max: int = _setting(
        kinds.size(1024, 12 * MIB),
        8 * MIB,
        "size of one batch of one catalog; the catalog's head holds it and must stay below 16 MB",
    )
    queue_requests_max: int = _setting(
        kinds.integer(1, 1_000_000), 4096, "writes waiting in a worker; more are refused with 429"
    )
    queue_bytes_max: int = _setting(
        kinds.size(1024, 16 * 1024 * MIB), 64 * MIB, "size of the writes waiting in a worker"
    )
    cache_bytes_max: int = _setting(
        kinds.size(0, 256 * 1024 * MIB),
        128 * MIB,
        "size of a worker's cache of documents",
    )
    full_value_every: int = _setting(
        kinds.integer(1, 10_000),
        64,
        "number of changes of a document after which history stores it whole, not as a patch",
    )

    # History
    retention_age_s: int | None = _setting(
        kinds.integer(1, 1_000_000_000),
        None,
        "seconds that commits are kept; without this and `retention_commits`, forever. A catalog's"
        " own settings override both",
    )
    retention_commits: int | None = _setting(
        kinds.integer(1, 1_000_000_000),
        None,
        "number of latest commits of a catalog that are kept; with `retention_age_s`, a commit is"
        " kept as long as either setting keeps it",
    )
    idempotency_retention_s: int = _setting(
        kinds.integer(1, 1_000_000_000),
        604_800,
        "seconds that an answer is remembered under its idempotency key, even if the history is"
        " compacted",
    )
    sweep_grace_s: int = _setting(
        kinds.integer(10, 1_000_000),
        300,
        "seconds that compacted history stays in the database; must exceed twice any suspension of"
        " a worker in the middle of a write, and any difference between the machines' clocks",
    )
    tombstone_grace_s: int = _setting(
        kinds.integer(600, 1_000_000_000),
        86_400,
        "minimum number of seconds that a deletion is remembered, even if its history is compacted;"
        " must exceed any suspension of a worker and any difference between the machines' clocks",
    )
    pin_seconds_max: int = _setting(
        kinds.integer(1, 1_000_000_000), 86_400, "seconds that a pin may hold until it is renewed"
    )
    pins_max: int = _setting(
        kinds.integer(1, 1000), 400, "pins of a catalog, including those of running exports"
    )
    pins_per_principal_max: int = _setting(
        kinds.integer(1, 1000), 100, "pins of a catalog that one principal may have"
    )
    compaction_interval_s: int = _setting(
        kinds.integer(0, 1_000_000_000),
        300,
        "seconds between two rounds of the compactor, which runs in one worker of all gateways;"
        " 0: never in this process",
    )
    compaction_pause_ms: int = _setting(
        kinds.integer(0, 60_000), 10, "milliseconds that compaction pauses after each step"
    )

    # Feeds
    watchers_max: int = _setting(
        kinds.integer(1, 65536),
        2000,
        "feeds and long polls in a worker, at most three quarters of `connections_max`; more are"
        " refused with 429",
    )
    watch_lag_max: int = _setting(
        kinds.integer(1, 1_000_000_000),
        10_000,
        "commits that a feed may fall behind, from when it was closest to the head, before it is"
        " ended",
    )
    watch_bookmark_s: int = _setting(
        kinds.integer(1, 3600),
        10,
        "seconds without a commit after which an event stream sends a bookmark",
    )

    # Subscriptions
    relay_subscriptions_max: int = _setting(
        kinds.integer(0, 10_000),
        100,
        "subscriptions that a worker delivers for at a time; 0: none in this process",
    )
    subscriptions_max: int = _setting(
        kinds.integer(0, 10_000), 20, "subscriptions that a catalog may have"
    )
    subscription_hold_s: int = _setting(
        kinds.integer(0, 1_000_000_000),
        86_400,
        "seconds for which history is held for a subscription that fails or is paused; after that,"
        " it may have to start again with the state",
    )
    subscription_claim_s: int = _setting(
        kinds.integer(1, 600),
        30,
        "seconds after which another worker takes over the subscriptions of one that died; a"
        " delivery may take a third of that",
    )
    subscription_networks: tuple[Network, ...] = _setting(
        kinds.networks(),
        (),
        "networks that subscriptions may deliver to besides the public internet, over https",
    )

    # Work of a worker at a time
    writes_in_flight_max: int = _setting(
        kinds.integer(1, 1_000_000),
        256,
        "writes that a worker may have under way, not counting bulk requests; more are refused with"
        " 429 within seconds, before their bodies are read",
    )
    writes_in_flight_bytes_max: int = _setting(
        kinds.size(1024, 16 * 1024 * MIB),
        64 * MIB,
        "size of the bodies of the writes that a worker may have under way",
    )
    reads_in_flight_max: int = _setting(
        kinds.integer(1, 1_000_000),
        1024,
        "reads that a worker may have under way, not counting feeds; more are refused with 429",
    )
    memory_bytes_max: int = _setting(
        kinds.size(64 * MIB, 1024 * 1024 * MIB),
        256 * MIB,
        "memory of a worker for what requests read and build, and for answers that wait to be sent;"
        " beyond it, requests wait",
    )
    request_memory_bytes_max: int = _setting(
        kinds.size(32 * MIB, 1024 * 1024 * MIB),
        192 * MIB,
        "memory of a worker for one request; one that needs more is refused with 413",
    )
    bulk_requests_max: int = _setting(
        kinds.integer(1, 65536),
        2048,
        "bulk requests that a worker may have under way; more are refused with 429",
    )

    # Limits per principal (docs/limits.md)
    principal_requests_per_s: int | None = _setting(
        kinds.integer(1, 1_000_000_000),
        None,
        "requests per second of one principal; more are refused with 429. Each worker counts alone"
        " and allows its share: this value divided by `workers`",
    )
    principal_body_bytes_per_s: int | None = _setting(
        kinds.size(1024, 1024 * 1024 * MIB),
        None,
        "bytes of request bodies per second of one principal, counted likewise",
    )
    principal_operations_per_s: int | None = _setting(
        kinds.integer(1, 1_000_000_000),
        None,
        "operations per second of one principal, counted likewise: writes, actions of transactions,"
        " lines of bulk requests, and each operation of a patch",
    )
    principal_window_s: int = _setting(
        kinds.integer(1, 3600),
        10,
        "seconds' worth of these rates that a principal may use at once",
    )

    # Connections
    head_timeout_s: int = _setting(
        kinds.integer(1, 3600),
        10,
        "seconds that a TLS handshake, or the head of a request that has begun, may take before the"
        " connection is closed",
    )
    send_stall_s: int = _setting(
        kinds.integer(1, 3600),
        30,
        "seconds in which a client must take 64 KiB of an answer, or the rest of it, before its"
        " connection is closed",
    )
    unsent_bytes_max: int = _setting(
        kinds.size(1024, 16 * 1024 * MIB),
        256 * MIB,
        "size of a worker's answers that clients have not taken; beyond it, the client that has"
        " taken nothing for longest is cut off",
    )

    # Limits of one request
    body_timeout_s: int = _setting(
        kinds.integer(1, 3600),
        30,
        "seconds to wait for the next bytes of a request body before the request is refused with"
        " 408",
    )
    body_whole_timeout_s: int = _setting(
        kinds.integer(1, 86_400),
        300,
        "seconds that a whole request body may take, except in bulk requests, before the request is"
        " refused with 408",
    )
    bodies_bytes_max: int = _setting(
        kinds.size(MIB, 16 * 1024 * MIB),
        256 * MIB,
        "size of the request bodies that a worker is receiving; beyond it, more are refused with"
        " 429",
    )
    body_bytes_max: int = _setting(
        kinds.size(1024, 1024 * MIB), 8 * MIB, "size of a request body, except in bulk requests"
    )
    document_bytes_max: int = _setting(
        kinds.size(1024, 12 * MIB), 4 * MIB, "size of a document, as JSON"
    )
    attributes_bytes_max: int = _setting(
        kinds.size(0, MIB), 64 * 1024, "size of a document's attributes, as JSON"
    )
    owned_leaves_max: int = _setting(
        kinds.integer(1, 1_000_000), 10_000, "fields of one document that have owners"
    )
    managers_max: int = _setting(
        kinds.integer(1, 10_000), 100, "managers that own anything in one document"
    )
    owners_max: int = _setting(
        kinds.integer(1, 10_000_000),
        200_000,
        "owners of the fields of one document; one that owns two fields counts twice",
    )
    owners_bytes_max: int = _setting(
        kinds.size(1024, 4 * MIB), MIB, "size of a document's owners after an apply"
    )
    catalog_deletion_keys_max: int = _setting(
        kinds.integer(1, 100_000),
        20_000,
        "documents that one commit may delete, if a catalog is deleted as a whole",
    )
    patch_operations_max: int = _setting(kinds.integer(1, 100_000), 1000, "operations in one patch")
    transaction_actions_max: int = _setting(
        kinds.integer(1, 100_000),
        4096,
        "compares and actions in one transaction, and documents in one revert",
    )
    items_examined_max: int = _setting(
        kinds.integer(1000, 100_000_000),
        2_000_000,
        "array items that the predicates, set operations and keyed arrays of one request may"
        " examine, over all its patches and tests; large values and long texts count as several",
    )
    copy_growth_bytes_max: int = _setting(
        kinds.size(0, 12 * MIB), MIB, "bytes that the copy operations of one patch may add"
    )
    bulk_line_bytes_max: int = _setting(
        kinds.size(1024, 64 * MIB), 8 * MIB, "size of one line of a bulk request"
    )
    bulk_answers_bytes_max: int = _setting(
        kinds.size(MIB, 1024 * 1024 * MIB),
        256 * MIB,
        "size of the bulk answers that wait in a worker, many of them on disk, for clients to take"
        " them; beyond it, no more lines are read until they do",
    )
    bulk_refused_lines_max: int = _setting(
        kinds.integer(1, 1_000_000_000),
        1000,
        "lines in a row of a bulk request that may be blank, or refused as malformed or for lack of"
        " rights, before the rest is left unread",
    )
    upload_bytes_max: int = _setting(
        kinds.size(1024, 1024 * MIB), 16 * MIB, "total size of an upload's parts"
    )
    upload_expiry_s: int = _setting(
        kinds.integer(1, 7 * 24 * 3600), 3600, "seconds after which an upload is dropped"
    )
    uploads_max: int = _setting(
        kinds.integer(1, 1_000_000),
        1000,
        "open uploads in the database, of all gateways; more are refused with 429",
    )
    uploads_bytes_max: int = _setting(
        kinds.size(MIB, 1024 * 1024 * MIB),
        1024 * MIB,
        "total size of the parts of all open uploads in the database",
    )
    # MongoDB's documented limit for a stored document is 100 levels.
    depth_max: int = _setting(kinds.integer(1, 100), 100, "levels of nesting in a document")
    # Once parsed, an empty array takes 72 bytes of memory for three bytes of JSON; and a worker
    # that parses, compares and encodes a million values does nothing else for a second.
    body_values_max: int = _setting(
        kinds.integer(1000, 16_000_000),
        2**19,
        "values in one body, upload or line of a bulk request, counting every member of an object"
        " and every item of an array",
    )
    key_bytes_max: int = _setting(kinds.integer(1, 1024), 1024, "bytes of a document key, as UTF-8")
    catalog_name_bytes_max: int = _setting(
        kinds.integer(1, 512), 512, "bytes of a catalog name, as UTF-8"
    )


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One row of the table. `kind.show(value)` is safe to print, also for a secret."""

    name: str
    kind: Kind
    help: str
    secret: bool
    default_shown: str
    make_default: Callable[[], Any]

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def help_in_terminal(self) -> str:
        """The help and the default, without Markdown."""
        return f"{self.help}. Default: {self.default_shown}.".replace("`", "")

    @property
    def variable(self) -> str:
        return variable_of(self.name)

    def parse(self, text: str, source: str) -> Any:
        """The value that `text` means. Raises `SettingError` if it isn't allowed; the error quotes
        no secret."""
        try:
            return self.kind.parse(text)
        except ValueError:
            given = "this value" if self.secret else f"{text[:80]!r}"
            reason = f"{self.name} must be {self.kind.allowed}, not {given}"
            raise SettingError(self.name, source, reason) from None

    def show(self, value: Any) -> str:
        return "" if value is None else self.kind.show(value)


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    return PREFIX + name.upper()


SETTINGS = tuple(SettingRow(column.name, **column.metadata) for column in fields(Settings))
