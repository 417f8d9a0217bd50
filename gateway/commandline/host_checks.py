"""What `gateway doctor` looks at on this machine: versions, settings, MongoDB, disk."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .findings import Finding, fail, ok, warn

if TYPE_CHECKING:
    from gateway.settings import Settings
    from gateway.store.mongodb.diagnosis import Diagnosis

_MIB: Final = 1024 * 1024
_DISK_LOW_BYTES: Final = 2048 * _MIB
# mongod itself refuses to start where it can't lay out its journal.
_DISK_NONE_BYTES: Final = 500 * _MIB
_MONGODB_OLDEST: Final = (6, 0)
_ACKNOWLEDGED_SLOW_MS: Final = 200.0
_PACKAGES: Final = ("metadata-gateway", "urllib3", "pymongo", "gunicorn")


def check_host(flags: Mapping[str, Any]) -> Iterator[Finding]:
    """``flags``: those of the settings, as `gateway.settings.resolve` takes them."""
    yield _versions()
    settings: Settings | None = None
    for finding, resolved in _settings(flags):
        settings = resolved
        yield finding
    if settings is None:
        return
    if settings.mongodb_uri is not None:
        yield from _mongodb(settings.mongodb_uri, settings.database, settings.store_timeout_ms)
    elif settings.embedded:
        yield _disk(settings.data_dir)
    else:
        yield ok("mongodb", "none is configured here: it wasn't looked at")


def _versions() -> Finding:
    found = [f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ok("versions", ", ".join(found))


def _settings(flags: Mapping[str, Any]) -> Iterator[tuple[Finding, Settings | None]]:
    try:
        # By name: a client's installation needn't have what they need.
        module: Any = import_module("gateway.settings")
        resolved = module.resolve(flags)
    except ImportError as error:
        yield (
            ok("settings", f"not looked at: {error.name} isn't installed (clients need none)"),
            None,
        )
        return
    except module.SettingError as error:
        yield fail("settings", str(error), "correct it; docs/settings.md has all of them"), None
        return
    given = sorted(name for name, source in resolved.sources.items() if source != "default")
    yield (
        ok("settings", f"{', '.join(given) or 'none'} given, the others by default"),
        (resolved.settings),
    )
    for name, near in module.unknown_variables():
        yield warn("settings", f"{name} is no setting", f"did you mean {near}?"), resolved.settings


def _mongodb(uri: str, database: str, timeout_ms: int) -> Iterator[Finding]:
    try:
        module: Any = import_module("gateway.store.mongodb.diagnosis")
        unreachable = import_module("gateway.store.contract").Unreachable
    except ImportError as error:
        yield warn("mongodb", f"not looked at: {error.name} isn't installed", "pip install it")
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
            "is it running, is it reachable from here, are user and password right?",
        )
        return
    yield from diagnosed(diagnosis)


def diagnosed(diagnosis: Diagnosis) -> Iterator[Finding]:
    major, minor = (int(part) for part in diagnosis.version.split(".")[:2])
    said = f"{diagnosis.version}, {diagnosis.topology}"
    if (major, minor) < _MONGODB_OLDEST:
        yield fail("mongodb", said, "MongoDB 6.0 or later is needed")
    elif not diagnosis.replicated:
        yield fail(
            "mongodb",
            said,
            "make it a replica set (of one, at least): start it with --replSet and rs.initiate()",
        )
    else:
        yield ok("mongodb", said)
    if diagnosis.refused is not None:
        yield fail(
            "write concern",
            f"no journaled write at a majority: {diagnosis.refused}",
            "are a majority of its members up, and may this user write?",
        )
    else:
        waited = f"a journaled write at a majority takes {diagnosis.acknowledged_ms:.0f} ms"
        if diagnosis.acknowledged_ms > _ACKNOWLEDGED_SLOW_MS:
            help = "writes are as slow as this: look at disks and network"
            yield warn("write concern", waited, help)
        else:
            yield ok("write concern", waited)
    yield _indexes(diagnosis.foreign)


def _indexes(foreign: Sequence[str]) -> Finding:
    if not foreign:
        return ok("indexes", "none that could refuse a write")
    return fail(
        "indexes",
        "; ".join(foreign),
        "drop them: what they refuse to take keeps its whole catalog from being written",
    )


def _without(uri: str, text: str) -> str:
    """What the driver says, in short. It quotes hosts alone; should it ever quote the whole, that
    holds a password."""
    text = text.partition(" (configured timeouts")[0].partition(", Timeout:")[0]
    authority = uri.partition("://")[2]
    secret = authority.rpartition("@")[0]
    return text.replace(secret, "***") if secret else text


def _disk(data_dir: Path) -> Finding:
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
            "disk", said, "MongoDB stops writing soon: make room, or choose another --data-dir"
        )
    if usage.free < _DISK_LOW_BYTES:
        return warn("disk", said, "make room before it is needed")
    return ok("disk", said)
