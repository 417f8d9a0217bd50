"""`gateway doctor`: checks on this machine (versions, settings, MongoDB, disk) and over HTTP (the
service, the token, the clock), with a finding for each."""

from __future__ import annotations

import platform
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote, urlsplit

import click

from gateway.cli import exit_codes
from gateway.cli.command import ReadCommand, Session
from gateway.cli.exit_codes import explained
from gateway.cli.names import CATALOG
from patching.client import Catalog, ClientError, NotAuthorized, Problem, RequestError
from patching.client.transport import HttpAnswer, Transport
from patching.command_line import printable

if TYPE_CHECKING:
    from gateway.settings import Settings
    from gateway.store.mongodb.diagnosis import BackupAges, Diagnosis

State = Literal["ok", "warn", "FAIL"]
COLORS: Final[dict[State, str]] = {"ok": "green", "warn": "yellow", "FAIL": "red"}
_MIB: Final = 1024 * 1024
_DISK_LOW_BYTES: Final = 2048 * _MIB
# With less, mongod can't create its journal, and refuses to start.
_DISK_NONE_BYTES: Final = 500 * _MIB
_MONGODB_OLDEST: Final = (6, 0)
# By major version, the last day of support (mongodb.com/legal/support-policy/lifecycles).
_MONGODB_SUPPORTED: Final = {
    6: date(2025, 7, 31),
    7: date(2027, 8, 31),
    8: date(2029, 10, 31),
}
# Certificates and tokens that end within it are worth a warning.
_ENDS_SOON: Final = timedelta(days=21)
_BACKUP_OLD: Final = timedelta(days=8)
_ACKNOWLEDGED_SLOW_MS: Final = 200.0
_PACKAGES: Final = ("metadata-gateway", "urllib3", "pymongo", "gunicorn")
# The header has whole seconds. More than this is worth a warning; more than this breaks tokens.
_CLOCK_WARN_S: Final = 2.0
_CLOCK_FAIL_S: Final = 60.0
_TIMEOUT_S: Final = 10.0
_LOOPBACK: Final = ("127.", "localhost", "::1")
_VERSION: Final = re.compile(rb"(?m)^  version: ([^\s]+)$")


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """``detail``: what was found; ``help``: what to do about it. Neither holds a secret."""

    state: State
    check: str
    detail: str
    help: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "state": self.state,
            "detail": self.detail,
            "help": self.help or None,
        }

    def line(self) -> str:
        """Without the state, which is shown before it."""
        return f"{self.check}: {self.detail}" + (f" -> {self.help}" if self.help else "")


def ok(check: str, detail: str) -> CheckFinding:
    return CheckFinding("ok", check, detail)


def warn(check: str, detail: str, help: str) -> CheckFinding:
    return CheckFinding("warn", check, detail, help)


def fail(check: str, detail: str, help: str) -> CheckFinding:
    return CheckFinding("FAIL", check, detail, help)


def check_host(flags: Mapping[str, Any]) -> Iterator[CheckFinding]:
    """``flags``: those of the settings, as `gateway.settings.resolve` takes them."""
    yield _versions()
    settings: Settings | None = None
    for finding, resolved in _settings(flags):
        settings = resolved
        yield finding
    if settings is None:
        return
    if settings.tls_certificate is not None and settings.tls_key is not None:
        yield check_certificate(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    if settings.mongodb_uri is not None:
        yield from _mongodb(settings.mongodb_uri, settings.database, settings.store_timeout_ms)
    elif settings.embedded:
        yield _disk(settings.data_dir)
    else:
        yield ok("mongodb", "not checked: none is configured here")


def _versions() -> CheckFinding:
    found = [f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ok("versions", ", ".join(found))


def _settings(flags: Mapping[str, Any]) -> Iterator[tuple[CheckFinding, Settings | None]]:
    try:
        # By name: a client's installation may lack what they need.
        module: Any = import_module("gateway.settings")
        resolved = module.resolve(flags)
    except ImportError as error:
        yield (
            ok("settings", f"not checked: {error.name} isn't installed (clients need none)"),
            None,
        )
        return
    except module.SettingError as error:
        yield fail("settings", str(error), "correct it; docs/settings.md lists all settings"), None
        return
    given = sorted(name for name, source in resolved.sources.items() if source != "default")
    yield (
        ok("settings", f"given: {', '.join(given) or 'none'}; all others have their defaults"),
        (resolved.settings),
    )
    for name, near in module.unknown_variables():
        yield (
            warn("settings", f"{name} is not a setting", f"did you mean {near}?"),
            resolved.settings,
        )


def check_certificate(
    certificate: Path, key: Path, client_ca: Path | None, now: datetime | None = None
) -> CheckFinding:
    """Whether TLS can be served with these files, and until when."""
    try:
        module: Any = import_module("gateway.server.certificates")
        x509: Any = import_module("cryptography.x509")
    except ImportError as error:
        return ok("certificate", f"not checked: {error.name} isn't installed")
    try:
        module.require_usable(certificate, key, client_ca)
    except module.CertificateUnusable as error:
        return fail("certificate", str(error), "correct it: the gateway can't start with it")
    end = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    left = end - (now or datetime.now(UTC))
    said = f"{certificate} is valid until {end:%Y-%m-%d %H:%M} UTC"
    if left < timedelta():
        return fail("certificate", said, "renew it: clients refuse it")
    if left < _ENDS_SOON:
        return warn("certificate", said, "renew it; the gateway needs no restart")
    return ok("certificate", said)


def _mongodb(uri: str, database: str, timeout_ms: int) -> Iterator[CheckFinding]:
    try:
        module: Any = import_module("gateway.store.mongodb.diagnosis")
        unreachable = import_module("gateway.store.contract").StoreUnreachable
    except ImportError as error:
        why = f"not checked: {error.name} isn't installed"
        yield warn("mongodb", why, "pip install '.[server]' in the gateway's repository")
        return
    try:
        diagnosis: Diagnosis = module.diagnose(uri, database, timeout_ms)
    except ValueError as error:
        yield fail("mongodb", _without(uri, str(error)), "correct --mongodb-uri")
        return
    except unreachable as error:
        yield fail(
            "mongodb",
            f"out of reach: {_without(uri, str(error))}",
            "check that it runs, can be reached from here, and takes this user and password",
        )
        return
    yield from diagnosed(diagnosis)


def diagnosed(diagnosis: Diagnosis, today: date | None = None) -> Iterator[CheckFinding]:
    major, minor = (int(part) for part in diagnosis.version.split(".")[:2])
    said = f"{diagnosis.version}, {diagnosis.topology}"
    supported_until = _MONGODB_SUPPORTED.get(major, date.max)
    if (major, minor) < _MONGODB_OLDEST:
        yield fail("mongodb", said, "upgrade it: the gateway needs MongoDB 6.0 or later")
    elif not diagnosis.replicated:
        yield fail(
            "mongodb",
            said,
            "make it a replica set (one member is enough): start it with --replSet, rs.initiate()",
        )
    elif (today or date.today()) > supported_until:
        said += f", out of support since {supported_until}"
        yield warn("mongodb", said, "upgrade it, one major version after the other")
    else:
        yield ok("mongodb", said)
    yield from _users(diagnosis)
    if diagnosis.refused is not None:
        yield fail(
            "write concern",
            f"a journaled write to a majority failed: {diagnosis.refused}",
            "check that a majority of its members is up, and that this user may write",
        )
    else:
        waited = f"a journaled write to a majority takes {diagnosis.acknowledged_ms:.0f} ms"
        if diagnosis.acknowledged_ms > _ACKNOWLEDGED_SLOW_MS:
            help = "check disks and network: every write takes at least this long"
            yield warn("write concern", waited, help)
        else:
            yield ok("write concern", waited)
    if diagnosis.unknown_format is not None:
        said, _, help = diagnosis.unknown_format.partition(": ")
        yield fail("format", said, help)
    if diagnosis.misfits:
        help = "stop the gateways, and replace it by a plain collection with the same records"
        yield fail("collections", "; ".join(diagnosis.misfits), help)
    yield _indexes(diagnosis.foreign)
    if diagnosis.backups is not None:
        yield check_backups(diagnosis.backups, datetime.now(UTC))
    if diagnosis.broken_restores:
        shown = ", ".join(repr(each) for each in diagnosis.broken_restores[:3])
        more = ", …" if len(diagnosis.broken_restores) > 3 else ""
        said = f"unfinished, so nobody can use these catalogs: {shown}{more}"
        yield fail("restores", said, "run gateway restore again, with any backup of each")


def _users(diagnosis: Diagnosis) -> Iterator[CheckFinding]:
    if diagnosis.open_to_all:
        yield warn(
            "mongodb users",
            "it asks for no password: whoever reaches it may change everything",
            "switch its access control on, and give the gateway a user with readWrite",
        )
    if diagnosis.forbidden:
        shown = "; ".join(diagnosis.forbidden[:3])
        more = "; …" if len(diagnosis.forbidden) > 3 else ""
        yield fail(
            "mongodb rights",
            f"the user may not do {shown}{more}",
            "give it the role readWrite in this database",
        )


def check_backups(backups: BackupAges, now: datetime) -> CheckFinding:
    """Whether each catalog has been saved by `gateway backup`, and not long ago if it changes."""
    help = "run gateway backup regularly, unless you back up MongoDB as a whole"
    if backups.without:
        shown = ", ".join(repr(each) for each in backups.without[:3])
        more = ", …" if len(backups.without) > 3 else ""
        said = f"{len(backups.without)} of {backups.catalogs} catalogs have none: {shown}{more}"
        return warn("backups", said, help)
    if backups.oldest is None:
        return ok("backups", "no catalog has changed since its last backup")
    catalog, time = backups.oldest
    old = _age(now - time)
    said = f"the oldest of a catalog that has changed since is {old} old: {catalog!r}"
    return warn("backups", said, help) if now - time > _BACKUP_OLD else ok("backups", said)


def _age(age: timedelta) -> str:
    hours = max(age, timedelta()) // timedelta(hours=1)
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"


def _indexes(foreign: Sequence[str]) -> CheckFinding:
    if not foreign:
        return ok("indexes", "none that could refuse a write")
    return fail(
        "indexes",
        "; ".join(foreign),
        "drop them: if one refuses a value, its whole catalog can't be written any more",
    )


def _without(uri: str, text: str) -> str:
    """The driver's message, shortened. It quotes only hosts; should it ever quote the whole
    connection string, the password is masked."""
    text = text.partition(" (configured timeouts")[0].partition(", Timeout:")[0]
    authority = uri.partition("://")[2]
    secret = authority.rpartition("@")[0]
    return text.replace(secret, "***") if secret else text


def _disk(data_dir: Path) -> CheckFinding:
    there = data_dir
    while not there.exists():
        there = there.parent
    try:
        usage = shutil.disk_usage(there)
    except OSError as error:
        return fail("disk", f"{data_dir}: {error.strerror}", "choose another --data-dir")
    said = f"{usage.free // _MIB} MiB free at {data_dir}"
    if usage.free < _DISK_NONE_BYTES:
        return fail(
            "disk", said, "make room or choose another --data-dir: MongoDB will stop writing soon"
        )
    if usage.free < _DISK_LOW_BYTES:
        return warn("disk", said, "make room before it is full")
    return ok("disk", said)


def _advice(error: RequestError) -> str:
    if "certificate has expired" in error.detail:
        return "renew the certificate that it serves; the gateway needs no restart"
    if "CERTIFICATE_VERIFY_FAILED" in error.detail:
        return "name the certificate of the authority that issued it by --ca-file"
    return "check that it runs, and that --url is its address"


def check_service(session: Session, catalog: str | None) -> Iterator[CheckFinding]:
    with Transport(
        session.url, token=session.token, ca_file=session.ca_file, read_timeout_s=_TIMEOUT_S
    ) as transport:
        yield from _url(session)
        begun = time.time()
        try:
            alive = transport.request("GET", "/livez")
        except RequestError as error:
            yield fail("livez", explained(error), _advice(error))
            return
        yield ok("livez", f"answered in {(time.time() - begun) * 1000:.0f} ms")
        yield check_clock(alive, (begun + time.time()) / 2)
        yield _ready(transport)
        yield _contract(transport)
        yield from _access(session, transport, catalog)


def _url(session: Session) -> Iterator[CheckFinding]:
    parts = urlsplit(session.url)
    host = parts.hostname or ""
    if parts.scheme == "http" and session.token is not None and not host.startswith(_LOOPBACK):
        yield warn("url", f"{session.url}: the token is sent unencrypted", "use https")
    else:
        yield ok("url", session.url)


def check_clock(answer: HttpAnswer, now_s: float) -> CheckFinding:
    text = answer.headers.get("Date")
    try:
        there_s = parsedate_to_datetime(text or "").timestamp()
    except ValueError:
        return warn(
            "clock", "the answer has no Date, or an invalid one", "compare the clocks by hand"
        )
    # The header cuts the fraction off: on average, half a second.
    difference_s = there_s + 0.5 - now_s
    way = "ahead" if difference_s > 0 else "behind"
    said = f"the server's clock is {abs(difference_s):.0f} s {way}"
    if abs(difference_s) > _CLOCK_FAIL_S:
        return fail("clock", said, "set both by NTP: otherwise, tokens and conditions by date fail")
    if abs(difference_s) > _CLOCK_WARN_S:
        return warn("clock", said, "set both by NTP")
    return ok("clock", "the same here and there, to the second")


def _ready(transport: Transport) -> CheckFinding:
    try:
        transport.request("GET", "/readyz")
    except RequestError as error:
        return fail("readyz", explained(error), "it can't reach its MongoDB: see the gateway's log")
    return ok("readyz", "its database answers")


def _contract(transport: Transport) -> CheckFinding:
    try:
        body = transport.request("GET", "/openapi.yaml").body
    except RequestError as error:
        return warn("contract", explained(error), "check that --url is a metadata gateway")
    found = _VERSION.search(body)
    version = found[1].decode(errors="replace") if found else "unknown"
    if not version.startswith("1."):
        return warn(
            "contract", f"version {version}, but this client speaks 1", "update this client"
        )
    return ok("contract", f"version {version}")


def _access(session: Session, transport: Transport, catalog: str | None) -> Iterator[CheckFinding]:
    given = "a token" if session.token is not None else "no token"
    try:
        answer = transport.request("GET", "/v1/catalogs", query=[("limit", 100)])
        listed = answer.json()["catalogs"]
    except NotAuthorized as error:
        help = "set a valid one in GATEWAY_TOKEN or GATEWAY_TOKEN_FILE"
        yield fail("token", f"{given}: {explained(error)}", help)
        return
    except ClientError as error:
        yield fail("token", f"{given}: {explained(error)}", "see the gateway's log")
        return
    shown = ", ".join(each["catalog"] for each in listed[:5]) or "none so far"
    more = ", …" if len(listed) > 5 else ""
    said = "the token is accepted" if session.token is not None else "none is required"
    yield ok("token", f"{said}; catalogs to read: {shown}{more}")
    yield from _tokens(transport)
    if catalog is not None:
        yield _rights(session.gateway.catalog(catalog), transport)


def _tokens(transport: Transport) -> Iterator[CheckFinding]:
    """The tokens that end soon, if the principal may list tokens."""
    try:
        listed = transport.request("GET", "/v1/tokens").json()
    except ClientError:  # it isn't admin of everything, or it is an earlier gateway
        return
    yield check_tokens(listed.get("tokens", ()), datetime.now(UTC))


def check_tokens(tokens: Sequence[Mapping[str, Any]], now: datetime) -> CheckFinding:
    """``tokens`` as ``GET /v1/tokens`` lists them."""
    ends = {
        f"{each['name']} ({each['id']})": datetime.fromisoformat(each["expires"])
        for each in tokens
        if each["expires"] is not None and each["revoked"] is None
    }
    soon = sorted((end, name) for name, end in ends.items() if now < end < now + _ENDS_SOON)
    if not soon:
        return ok("tokens", "none expires soon")
    shown = ", ".join(f"{name} on {end:%Y-%m-%d}" for end, name in soon[:5])
    more = f", and {len(soon) - 5} more" if len(soon) > 5 else ""
    help = "issue new ones, and revoke the old ones once the new ones are in use"
    return warn("tokens", f"these expire soon: {shown}{more}", help)


def _rights(catalog: Catalog, transport: Transport) -> CheckFinding:
    """The principal's rights in the catalog, found by requests that change nothing."""
    path = f"/v1/catalogs/{quote(catalog.name, safe='')}"
    roles = []
    try:
        for role, method, rest in (
            ("read", "GET", "/documents?limit=1"),
            ("write", "POST", "/touch?dry_run=true"),
            # Refused in any case: nothing is compacted by this.
            ("admin", "POST", "/compactions?revision"),
        ):
            if _allows(transport, method, path + rest):
                roles.append(role)
    except RequestError as error:
        return fail("access", explained(error), "see the gateway's log")
    if not roles:
        help = "ask for a token with a grant on it, as from `gateway token create --grant read:…`"
        return fail("access", f"no rights on {catalog.name!r}", help)
    return ok("access", f"{', '.join(roles)} on {catalog.name!r}")


def _allows(transport: Transport, method: str, path: str) -> bool:
    try:
        transport.request(method, path)
    except NotAuthorized:
        return False
    except Problem as error:
        if error.status >= 500 or error.status == 429:
            raise
        return True  # let in, and refused for another reason
    return True


@click.command("doctor", cls=ReadCommand)
@click.argument("catalog", type=CATALOG, required=False)
@click.option("--mongodb-uri", metavar="URI", help="Check this MongoDB, too. A setting.")
@click.option("--database", metavar="NAME", help="Database of that MongoDB. A setting.")
@click.option(
    "--embedded/--no-embedded", default=None, help="Check the data directory's disk. A setting."
)
@click.option("--data-dir", metavar="DIR", help="Data of the embedded MongoDB. A setting.")
@click.pass_obj
def doctor(session: Session, /, catalog: str | None, **flags: Any) -> int:
    """Check the setup, and say what to do.

    Checks versions, settings, MongoDB and disk here; then the service, its database and clock, the
    token and its grants (on CATALOG, if given). Each check is a line, ok, warn or FAIL, with
    advice. The exit code is 1 if a check failed. Nothing is changed.
    """
    failed = False
    for finding in chain(check_host(flags), check_service(session, catalog)):
        failed = failed or finding.state == "FAIL"
        _show(session, finding)
    return exit_codes.FAILED if failed else exit_codes.DONE


def _show(session: Session, finding: CheckFinding) -> None:
    output = session.output
    if output.quiet and finding.state == "ok":
        return
    if session.json_asked:
        output.record(finding.as_json(), "")
        return
    state = f"{finding.state:<4}"
    line = f"{state}  {printable(finding.line())}"
    if output.pretty:
        color = COLORS[finding.state]
        output.text([line], lambda safe: click.style(state, fg=color) + safe.removeprefix(state))
    else:
        output.text([line])
