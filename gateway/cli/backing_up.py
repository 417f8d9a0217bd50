"""`gateway backup` and `gateway restore`: a catalog with its history, in a file; and
`gateway advance`, which keeps a restored catalog from using the revisions of lost commits again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from gateway.cli.output import whole_file
from gateway.cli.verify import opened
from gateway.errors import CatalogNotFound, CatalogRestored, RevisionNotFound, StoreUnavailable
from gateway.limits import limits_of
from gateway.retention.backup import Backup, Saved
from gateway.retention.compaction import advance
from gateway.settings import Settings
from gateway.store.contract import BackupRefused, BeingRestored, ForeignRecord
from gateway.store.unreachable import as_unavailable

# The length of a file's name, with room for what is added to it while it is written; and of the
# part of a longer one that is kept.
_FILE_NAME_MAX: Final = 200
_READABLE: Final = 100
# Errors about one catalog; others can still be advanced.
_OF_ONE: Final = (ForeignRecord, BeingRestored, StoreUnavailable)


def run_backup(settings: Settings, catalog: str, path: Path) -> int:
    """Save the catalog to a new file, which appears once it is complete."""
    if path.exists():
        raise click.UsageError(f"the file {str(path)!r} already exists")
    with opened(settings) as (_, _, parts):
        try:
            _save(Backup(*parts), catalog, path)
        except BackupRefused as error:
            raise click.ClickException(str(error)) from error
    return 0


def run_backup_of_all(settings: Settings, folder: Path) -> int:
    """Save each catalog to a file in a new folder; the exit code is 1 if one can't be saved."""
    with opened(settings) as (verification, _, parts):
        backup, saved, left = Backup(*parts), 0, 0
        names = [*verification.catalogs()]
        try:  # only now: without MongoDB, no folder is left in the next try's way
            folder.mkdir()
        except OSError as error:
            raise click.UsageError(f"can't create {str(folder)!r}: {error.strerror}") from error
        for name in names:
            try:
                _save(backup, name, folder / _file_name(name))
                saved += 1
            except (BackupRefused, CatalogNotFound, CatalogRestored, ForeignRecord) as error:
                click.echo(f"catalog {name!r} was not saved: {error}", err=True)
                left += 1
    click.echo(f"saved: {saved}, not saved: {left}")
    return 1 if left else 0


def _save(backup: Backup, catalog: str, path: Path) -> None:
    with whole_file(path, is_new=True) as file:
        saved = backup.save(catalog, file)
    _note(backup, saved)
    click.echo(f"catalog {catalog!r} at revision {saved.revision}: {saved.commits} commits")


def _file_name(catalog: str) -> str:
    """A name for the file of a catalog, which has any characters; the file contains its name."""
    name = quote(catalog, safe=" ")
    if len(name) > _FILE_NAME_MAX:
        name = f"{name[:_READABLE]}-{hashlib.sha256(catalog.encode()).hexdigest()}"
    return f"{name}.backup"


def run_restore(settings: Settings, path: Path, name: str | None = None) -> int:
    """Restore the catalog of a file, under its name or ``name``, and verify it; the exit code is 1
    if there are findings."""
    if name is not None:
        _require_name(name, limits_of(settings).requests.catalog_name_bytes_max)
    with opened(settings) as (verification, _, parts), path.open("rb") as file:
        try:
            saved = Backup(*parts).restore(file, name)
        except BackupRefused as error:
            raise click.ClickException(str(error)) from error
        click.echo(
            f"catalog {saved.catalog!r} at revision {saved.revision}: {saved.commits} commits,"
            f" {saved.documents} documents and tombstones"
        )
        try:
            findings = [each.detail for each in verification.verify(saved.catalog)]
        except StoreUnavailable as error:
            why = f"{error.__cause__ or error}; see gateway verify"
            detail = f"the catalog was restored, but could not be verified: {why}"
            raise click.ClickException(detail) from error
        for each in findings:
            click.echo(each)
        click.echo(f"verified: {len(findings)} findings")
        return 1 if findings else 0


def run_advance(settings: Settings, catalog: str | None, by: int) -> int:
    """Advance one catalog, or (None) all; the exit code is 1 if one of these can't be."""
    with opened(settings) as (verification, _, (store, _, settler, runtime)), as_unavailable():
        left = 0
        for name in verification.catalogs() if catalog is None else [catalog]:
            try:
                advanced = advance(store, settler, runtime, name, by)
            except (*_OF_ONE, RevisionNotFound) as error:
                if catalog is None:
                    why = getattr(error, "detail", error)
                    click.echo(f"catalog {name!r} was not advanced: {why}", err=True)
                    left += 1
                    continue
                if isinstance(error, RevisionNotFound):
                    raise click.UsageError(f"catalog {name!r}: {error}") from error
                raise
            if advanced is not None:
                was, now = advanced
                click.echo(f"catalog {name!r}: from revision {was} to {now}")
            elif catalog is not None:
                raise CatalogNotFound(name, 0)
        return 1 if left else 0


def _require_name(name: str, bytes_max: int) -> None:
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError as error:
        raise click.UsageError("--as: a catalog's name must be valid UTF-8") from error
    if not 0 < size_bytes <= bytes_max:
        raise click.UsageError(f"--as: a catalog's name must have 1 to {bytes_max} bytes")


def _note(backup: Backup, saved: Saved) -> None:
    """Note the backup for the doctor. The file is complete even if this fails."""
    try:
        backup.note(saved)
    except StoreUnavailable as error:
        why = error.__cause__ or error
        click.echo(f"gateway: the backup could not be noted for gateway doctor: {why}", err=True)
