"""The settings: one table, which is the fields of `Settings` in the order written here.

To add a setting, add a field: its flag, its environment variable, `gateway settings` and
docs/settings.md follow from it. `source` tells which of the sources wins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from gateway.settings import kinds
from gateway.settings.kinds import MIB, Address, Kind

PREFIX = "GATEWAY_"
# Asymmetric algorithms alone: with a symmetric one, a public key would pass for the shared secret.
JWT_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)


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
    """`default` is the value itself, or a function that computes it, described by `choose`."""
    metadata = {"kind": kind, "help": help, "secret": secret, "default_shown": choose}
    if callable(default):
        return field(default_factory=default, metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


def _default_log_format() -> str:
    return "console" if sys.stderr is not None and sys.stderr.isatty() else "json"


def _default_data_dir() -> Path:
    """A folder of the user's own that lasts: the next start finds the data of `--embedded`."""
    home = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification says to ignore a relative path.
    base = Path(home) if home.startswith("/") else Path("~/.local/share").expanduser()
    return base / "metadata-gateway" / "mongodb"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Effective settings. `source.resolve` checks them; this constructor doesn't."""

    # Server
    bind: Address = _setting(
        kinds.address(),
        Address("127.0.0.1", 8080),
        "where to listen; this machine alone by default",
    )
    workers: int = _setting(
        kinds.integer(1, 256),
        2,
        "worker processes. Two carry one hot document better than one (measured); more of them race"
        " each other on it, but serve more catalogs: one for each core that MongoDB leaves free",
    )
    worker_class: str = _setting(
        kinds.choice("gevent", "gthread"),
        "gevent",
        "how a worker runs requests side by side: one greenlet each, or a pool of threads"
        " (a sixth slower on a trivial request, and every feed holds a thread)",
    )
    threads: int = _setting(
        kinds.integer(1, 4096), 64, "requests at a time in a worker; only for worker class gthread"
    )
    connections_max: int = _setting(
        kinds.integer(1, 65536), 4096, "open connections in a worker, idle ones and feeds included"
    )
    worker_timeout_s: int = _setting(
        kinds.integer(2, 3600),
        120,
        "seconds after which a worker that shows no sign of life is killed and replaced",
    )
    graceful_timeout_s: int = _setting(
        kinds.integer(1, 3600), 30, "seconds that running requests have to finish when it stops"
    )

    # Access
    access: bool = _setting(
        kinds.switch(),
        True,
        "let in who has a token (docs/access.md); off, everybody may do everything, which only an"
        " address of this machine alone allows (`bind`)",
    )
    tls_certificate: Path | None = _setting(
        kinds.file(),
        None,
        "certificate for HTTPS, PEM, with the chain that leads to its authority; with `tls_key`",
    )
    tls_key: Path | None = _setting(
        kinds.file(), None, "private key of `tls_certificate`, PEM, not encrypted"
    )
    tls_client_ca: Path | None = _setting(
        kinds.file(),
        None,
        "certificates, PEM, of the authorities one of which a client's certificate has to be of;"
        " without this, clients need none. A token is needed beside it",
    )
    jwt_jwks_url: str | None = _setting(
        kinds.web_url(),
        None,
        "where the public keys are that JWTs are verified with; without this, none are taken",
    )
    jwt_issuer: str | None = _setting(
        kinds.text("the text that `iss` of a JWT must be"),
        None,
        "issuer of the JWTs that are taken",
    )
    jwt_audience: str | None = _setting(
        kinds.text("the text that `aud` of a JWT must be or hold"),
        None,
        "what a JWT must be made out to",
    )
    jwt_subject_prefix: str | None = _setting(
        kinds.text("a text of at most 100 characters", 100),
        None,
        "what comes before `sub` of a JWT in its principal's name, so that it is no other's; `-`:"
        " nothing, then a subject and a token of the same name are one principal",
        choose="`jwt_issuer` and `#`",
    )
    jwt_algorithms: tuple[str, ...] = _setting(
        kinds.choices(*JWT_ALGORITHMS),
        ("RS256", "ES256", "EdDSA"),
        "algorithms by which a JWT may be signed",
    )
    jwt_grants_claim: str = _setting(
        kinds.text("the name of a claim"),
        "grants",
        "claim of a JWT that lists what its subject may do, each as `role:pattern`",
    )

    # Logs, on stderr
    log_format: str = _setting(
        kinds.choice("json", "console"),
        _default_log_format,
        "a JSON object a line, or lines for people",
        choose="`console` on a terminal, else `json`",
    )
    log_level: str = _setting(
        kinds.choice("debug", "info", "warning", "error"),
        "info",
        "the least that is logged; access and audit lines are logged at any level",
    )
    access_log: bool = _setting(
        kinds.switch(),
        False,
        "log a line for each request (a few percent of a small request's time)",
    )

    audit_log: bool = _setting(
        kinds.switch(),
        True,
        "log a line for each request that can change something, and for each that access control"
        " refused; where that is off, none is logged",
    )

    # MongoDB
    mongodb_uri: str | None = _setting(
        kinds.mongodb_uri(),
        None,
        "connection string of the MongoDB replica set or sharded cluster; or else use `embedded`",
        secret=True,
    )
    database: str = _setting(kinds.database_name(), "metadata", "database that holds everything")
    embedded: bool = _setting(
        kinds.switch(), False, "start a MongoDB of its own, for trying out, tests and demos"
    )
    data_dir: Path = _setting(
        kinds.directory(),
        _default_data_dir,
        "where the embedded MongoDB keeps its data",
        choose="`$XDG_DATA_HOME/metadata-gateway/mongodb`",
    )
    store_timeout_ms: int = _setting(
        kinds.integer(100, 600_000), 5000, "milliseconds to wait for one answer of MongoDB"
    )

    # The commit loop
    deadline_ms: int = _setting(
        kinds.integer(1, 600_000),
        10_000,
        "milliseconds in which a write is decided, lost races included; a client may shorten it",
    )
    leaders: int = _setting(
        kinds.integer(1, 64),
        2,
        "batches that a worker has under way at a time, of different catalogs",
    )
    batch_operations_max: int = _setting(
        kinds.integer(1, 10_000), 512, "requests in one batch of one catalog"
    )
    batch_bytes_max: int = _setting(
        kinds.size(1024, 12 * MIB),
        8 * MIB,
        "size of one batch of one catalog; its head holds the batch and must stay below 16 MB",
    )
    queue_requests_max: int = _setting(
        kinds.integer(1, 1_000_000), 4096, "writes that wait in a worker; more are refused with 429"
    )
    queue_bytes_max: int = _setting(
        kinds.size(1024, 16 * 1024 * MIB), 64 * MIB, "size of the writes that wait in a worker"
    )
    cache_bytes_max: int = _setting(
        kinds.size(0, 256 * 1024 * MIB),
        128 * MIB,
        "size of the documents that a worker keeps cached",
    )
    full_value_every: int = _setting(
        kinds.integer(1, 10_000),
        64,
        "changes of a document after which history stores it whole, not as a patch",
    )

    # History
    retention_age_s: int | None = _setting(
        kinds.integer(1, 1_000_000_000),
        None,
        "seconds that commits are kept; without this and `retention_commits`, for ever. A catalog's"
        " own settings overrule both",
    )
    retention_commits: int | None = _setting(
        kinds.integer(1, 1_000_000_000),
        None,
        "commits of a catalog that are kept; with `retention_age_s`, those that are older are kept"
        " if they are among these",
    )
    idempotency_retention_s: int = _setting(
        kinds.integer(1, 1_000_000_000),
        86_400,
        "seconds that a reply can be asked for under its idempotency key, history kept or not",
    )
    tombstone_grace_s: int = _setting(
        kinds.integer(600, 1_000_000_000),
        86_400,
        "seconds that a deletion is remembered whose history was compacted: longer than any worker"
        " sleeps, and than the clocks of two machines differ",
    )
    pin_seconds_max: int = _setting(
        kinds.integer(1, 1_000_000_000), 86_400, "seconds that a pin can hold without being renewed"
    )
    pins_max: int = _setting(
        kinds.integer(1, 1000), 400, "pins of a catalog, those of running exports among them"
    )
    pins_per_principal_max: int = _setting(
        kinds.integer(1, 1000), 100, "pins of a catalog that one principal may have"
    )
    compaction_interval_s: int = _setting(
        kinds.integer(0, 1_000_000_000),
        300,
        "seconds between two rounds of the compactor, which one worker of all runs; 0: this process"
        " never does",
    )
    compaction_pause_ms: int = _setting(
        kinds.integer(0, 60_000), 10, "milliseconds that compaction rests after each piece of work"
    )

    # Feeds
    watchers_max: int = _setting(
        kinds.integer(1, 65536),
        2000,
        "feeds and long polls in a worker; more are refused with 429",
    )
    watch_lag_max: int = _setting(
        kinds.integer(1, 1_000_000_000),
        10_000,
        "commits that a feed may fall back by, further than it was when it was nearest to the head;"
        " then it is ended",
    )
    watch_bookmark_s: int = _setting(
        kinds.integer(1, 3600),
        10,
        "seconds without a commit after which an event stream tells how far it has come",
    )

    # Work of a worker at a time
    writes_in_flight_max: int = _setting(
        kinds.integer(1, 1_000_000),
        256,
        "writes that a worker has under way, bulk requests aside; more are refused with 429, before"
        " their bodies are read and after some seconds at most",
    )
    writes_in_flight_bytes_max: int = _setting(
        kinds.size(1024, 16 * 1024 * MIB),
        64 * MIB,
        "size of the bodies of the writes that a worker has under way",
    )
    reads_in_flight_max: int = _setting(
        kinds.integer(1, 1_000_000),
        1024,
        "reads that a worker has under way, feeds aside; more are refused with 429",
    )
    bulk_requests_max: int = _setting(
        kinds.integer(1, 65536),
        64,
        "bulk requests that a worker has under way, each of which takes up to 16 MiB of memory;"
        " more are refused with 429",
    )

    # Limits per principal (docs/limits.md)
    principal_requests_per_s: int | None = _setting(
        kinds.integer(1, 1_000_000_000),
        None,
        "requests a second of one principal; more are refused with 429. Each worker counts for"
        " itself and allows its share: this, divided by `workers`",
    )
    principal_body_bytes_per_s: int | None = _setting(
        kinds.size(1024, 1024 * 1024 * MIB),
        None,
        "bytes of request bodies a second of one principal, counted likewise",
    )
    principal_operations_per_s: int | None = _setting(
        kinds.integer(1, 1_000_000_000),
        None,
        "operations a second of one principal, counted likewise: writes, actions of transactions,"
        " lines of bulk requests, and of patches each operation",
    )
    principal_window_s: int = _setting(
        kinds.integer(1, 3600),
        10,
        "seconds' worth of these rates that a principal may ask for at once",
    )

    # Connections
    head_timeout_s: int = _setting(
        kinds.integer(1, 3600),
        10,
        "seconds that a TLS handshake may take, and the head of a request once it has begun; then"
        " the connection is closed",
    )
    send_stall_s: int = _setting(
        kinds.integer(1, 3600),
        30,
        "seconds in which a client must take 64 KiB of an answer, or what is left of it; else its"
        " connection is closed",
    )
    unsent_bytes_max: int = _setting(
        kinds.size(1024, 16 * 1024 * MIB),
        256 * MIB,
        "size of the answers in a worker that clients have not taken; beyond it, whose client has"
        " taken nothing for longest is cut off",
    )

    # Limits of one request
    body_timeout_s: int = _setting(
        kinds.integer(1, 3600),
        30,
        "seconds to wait for the next bytes of a request body; then the request is refused with"
        " 408",
    )
    body_whole_timeout_s: int = _setting(
        kinds.integer(1, 86_400),
        300,
        "seconds in which a request body has to be there as a whole, bulk requests aside; then the"
        " request is refused with 408",
    )
    bodies_bytes_max: int = _setting(
        kinds.size(MIB, 16 * 1024 * MIB),
        256 * MIB,
        "size of the request bodies that a worker is receiving; more are refused with 429",
    )
    body_bytes_max: int = _setting(
        kinds.size(1024, 1024 * MIB), 8 * MIB, "size of a request body that is not a stream"
    )
    document_bytes_max: int = _setting(
        kinds.size(1024, 12 * MIB), 4 * MIB, "size of a document, as JSON"
    )
    attributes_bytes_max: int = _setting(
        kinds.size(0, MIB), 64 * 1024, "size of a document's attributes, as JSON"
    )
    catalog_deletion_keys_max: int = _setting(
        kinds.integer(1, 100_000),
        20_000,
        "documents of a catalog that is deleted as a whole, in one commit",
    )
    patch_operations_max: int = _setting(kinds.integer(1, 100_000), 1000, "operations in one patch")
    transaction_actions_max: int = _setting(
        kinds.integer(1, 100_000), 4096, "compares and actions in one transaction"
    )
    items_examined_max: int = _setting(
        kinds.integer(1000, 100_000_000),
        2_000_000,
        "array items that the predicates, set operations and keyed arrays of one patch may look at;"
        " large values and long texts count as several",
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
        "size of the answers of bulk requests that wait in a worker, on disk where they are many,"
        " until clients take them; where it is reached, of each request no more is read until then",
    )
    bulk_refused_lines_max: int = _setting(
        kinds.integer(1, 1_000_000_000),
        1000,
        "lines of a bulk request that may be refused in a row, for what they are or for lack of"
        " rights; then no more of it is read",
    )
    upload_bytes_max: int = _setting(
        kinds.size(1024, 1024 * MIB), 16 * MIB, "size of an upload's parts together"
    )
    upload_expiry_s: int = _setting(
        kinds.integer(1, 7 * 24 * 3600), 3600, "seconds after which an upload is dropped"
    )
    uploads_max: int = _setting(
        kinds.integer(1, 1_000_000),
        1000,
        "uploads that are open in the database, of all gateways; more are refused with 429",
    )
    uploads_bytes_max: int = _setting(
        kinds.size(MIB, 1024 * 1024 * MIB),
        1024 * MIB,
        "size of the parts of all open uploads in the database together",
    )
    # MongoDB documents 100 levels as its limit for a stored document.
    depth_max: int = _setting(kinds.integer(1, 100), 100, "levels of nesting in a document")
    # Parsed, an empty array takes 72 bytes of memory for three of JSON; and a worker that parses,
    # compares and encodes a million values does nothing else for a second.
    body_values_max: int = _setting(
        kinds.integer(1000, 16_000_000),
        2**19,
        "values in one body, upload or line of a bulk request, members of objects and items of"
        " arrays all counted",
    )
    key_bytes_max: int = _setting(kinds.integer(1, 1024), 1024, "bytes of a document key, as UTF-8")
    catalog_name_bytes_max: int = _setting(
        kinds.integer(1, 512), 512, "bytes of a catalog name, as UTF-8"
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `kind.show(value)` is safe to print, also for a secret."""

    name: str
    kind: Kind
    help: str
    secret: bool
    default_shown: str
    make_default: Callable[[], Any]

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    def parse(self, text: str, source: str) -> Any:
        """Raises `SettingError` when `text` is not allowed; the error quotes no secret."""
        try:
            return self.kind.parse(text)
        except ValueError:
            given = "this value" if self.secret else f"{text[:80]!r}"
            reason = f"{self.name} must be {self.kind.allowed}, not {given}"
            raise SettingError(self.name, source, reason) from None

    def show(self, value: Any) -> str:
        return "" if value is None else self.kind.show(value)


def _table() -> tuple[Setting, ...]:
    rows = []
    for column in fields(Settings):
        factory = column.default_factory
        fixed = column.default
        make = partial(_same, fixed) if factory is MISSING else factory
        kind = column.metadata["kind"]
        shown = column.metadata["default_shown"] or _shown_default(kind, fixed)
        rows.append(
            Setting(
                name=column.name,
                kind=kind,
                help=column.metadata["help"],
                secret=column.metadata["secret"],
                default_shown=shown,
                make_default=make,
            )
        )
    return tuple(rows)


def _same(value: Any) -> Any:
    return value


def _shown_default(kind: Kind, value: Any) -> str:
    return "none" if value is None else f"`{kind.show(value)}`"


SETTINGS = _table()
