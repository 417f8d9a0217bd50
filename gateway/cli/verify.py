"""`gateway verify` and `gateway repair`: the log of catalogs against their documents, from the
command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

import click

from gateway.cli.exit_codes import MongodbOutOfReach
from gateway.cli.output import Output, progress
from gateway.errors import CatalogNotFound, StoreUnavailable
from gateway.limits import limits_of
from gateway.retention.repair import Repair, Repaired
from gateway.retention.verification import Verification
from gateway.runtime import ThreadRuntime
from gateway.settings import Settings
from gateway.state.cache import Cache
from gateway.state.heads import HeadReader, Settler
from gateway.store.contract import ForeignRecord
from gateway.store.embedded import DataDirectoryInUse, EmbeddedMongod, MongodError
from gateway.store.mongodb import MongoStore, connect
from gateway.store.mongodb.backup_copies import MongoCopies
from patching import ABSENT, Json
from patching.values import Absent

_OUTPUT: Final = Output(pretty=False, quiet=False)


def run_verify(
    settings: Settings, catalog: str | None, *, independent: bool = False, after: str = ""
) -> int:
    """Verify one catalog, or (None) all with names after ``after``; returns the exit code. Raises
    click's errors.

    ``independent``: the package jsonpatch applies each recorded patch as well.
    """
    with opened(settings) as (verification, _, _):
        if independent:
            verification.second = applied_by_jsonpatch
        names = verification.catalogs(after) if catalog is None else [catalog]
        return _report(verification, names, independent=independent)


def run_repair(settings: Settings, catalog: str | None, *, apply: bool) -> int:
    """Verify one catalog, or (None) all, and rewrite what differs from the log; without ``apply``,
    only say what would be. The exit code is 1 if something is left."""
    with opened(settings) as (verification, repair, _):
        left = 0
        for name in verification.catalogs() if catalog is None else [catalog]:
            for each in repair.repair(name, apply=apply):
                about = "" if each.key is None else f", document {each.key!r}"
                click.echo(f"catalog {each.catalog!r}{about}: {each.detail}")
                if isinstance(each, Repaired):
                    left += not each.mended
                else:
                    left += each.key is None
        click.echo("nothing is left to repair" if not left else f"left: {left}")
        return 1 if left else 0


Parts = tuple[MongoStore, MongoCopies, Settler, ThreadRuntime]


@contextmanager
def opened(settings: Settings) -> Iterator[tuple[Verification, Repair, Parts]]:
    """Verification and repair on the MongoDB of the settings, and their parts. Raises click's
    errors."""
    with connected(settings) as store:
        runtime = ThreadRuntime()
        # Leave other workers' tails to them for as long as the service itself would.
        limits = replace(limits_of(settings).service, cache_bytes_max=0)
        cache = Cache(runtime, limits)
        settler = Settler(store, cache, HeadReader(store, cache, limits), runtime, limits)
        verification = Verification(store, settler, runtime)
        try:
            yield (
                verification,
                Repair(store, settler, runtime, verification, store.mending()),
                (store, store.copies(), settler, runtime),
            )
        except CatalogNotFound as error:
            raise click.UsageError(f"{error} in database {settings.database!r}") from error
        except ForeignRecord as error:
            raise click.ClickException(f"{error}; see gateway verify") from error
        except StoreUnavailable as error:
            why = "" if error.__cause__ is None else f": {error.__cause__}"
            raise MongodbOutOfReach(f"{error}{why}") from error


def applied_by_jsonpatch(content: Json | Absent, patch: Any) -> Json | Absent:
    """The state that jsonpatch makes of ``content``. Raises ValueError if it refuses.

    An operation that removes a whole document is done here: RFC 6902 allows it, jsonpatch doesn't.
    """
    from jsonpatch import JsonPatch, JsonPatchException
    from jsonpointer import JsonPointerException

    state = deepcopy(content)
    try:
        for operation in deepcopy(patch):
            if operation["op"] == "remove" and operation["path"] == "":
                state = ABSENT
            else:
                whole = None if state is ABSENT else state
                state = JsonPatch([operation]).apply(whole, in_place=True)
    except (JsonPatchException, JsonPointerException, TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
    return state


def _report(verification: Verification, names: Iterable[str], *, independent: bool) -> int:
    tally = verification.tally
    verified, findings = None, 0
    try:
        for name in names:
            _verify(verification, name)
            verified, findings = name, tally.findings
    except BaseException:  # Ctrl+C, too
        if verified is not None:
            # Not the command itself: a connection string may hold a password.
            text = (
                f"verified up to catalog {verified!r}, findings: {findings}; for the rest, give the"
                f" same command with {shlex.quote(f'--after={verified}')}"
            )
            uncounted = "; its exit code won't count these findings" if findings else ""
            click.echo(f"{text}{uncounted}", err=True)
        raise
    found = "clean" if tally.findings == 0 else f"findings: {tally.findings}"
    twice = f" patches applied twice: {tally.patches}," if independent else ""
    click.echo(
        f"catalogs: {tally.catalogs}, documents: {tally.documents}, commits: {tally.commits},"
        f"{twice} {found}"
    )
    return 1 if tally.findings else 0


def _verify(verification: Verification, name: str) -> None:
    # Their number isn't known before they are read.
    with progress(_OUTPUT, f"commits and documents of {name}", None) as looked:
        for finding in verification.verify(name, looked):
            looked.clear()
            about = "" if finding.key is None else f", document {finding.key!r}"
            click.echo(f"catalog {finding.catalog!r}{about}: {finding.detail}")


@contextmanager
def connected(settings: Settings) -> Iterator[MongoStore]:
    """The database of the settings, on their MongoDB. Raises click's errors."""
    with _mongodb_of(settings) as uri:
        try:
            store = connect(uri, settings.database, settings.store_timeout_ms)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        with closing(store):
            yield store


@contextmanager
def _mongodb_of(settings: Settings) -> Iterator[str]:
    """The connection string of the MongoDB that the settings choose, started if it is to be."""
    if settings.mongodb_uri is not None:
        yield settings.mongodb_uri
        return
    try:
        with EmbeddedMongod(settings.data_dir) as mongod:
            yield mongod.uri
    except DataDirectoryInUse as error:
        raise click.ClickException(
            f"{error}; or, where the service runs it, ask that one: --mongodb-uri"
            f" '{EmbeddedMongod(settings.data_dir).uri}'"
        ) from error
    except MongodError as error:
        raise click.ClickException(str(error)) from error
