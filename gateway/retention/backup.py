"""Saves a catalog with its history to a file, at one revision and next to live writers; and
restores it.

Only the log is saved: documents, with their attributes and owners, and settings follow from it. It
must be whole: from the floor on, each commit names the one before it, up to the head. A pin keeps
compaction away meanwhile; later commits aren't saved. The pin ends if this process stands still for
too long, and an admin may drop it, so the floor is read last. Pins, uploads, subscriptions, and the
keys of requests that made no commit aren't saved.

A restore first reserves the catalog's name with a head that no gateway reads or moves, and that
names this restore; it replaces that head last. In between, the catalog doesn't exist for anybody,
and each write of the restore checks the reservation in the same transaction, so its data isn't
mixed with any other, not even with that of another restore. If the restore fails, its data is
removed; if it was killed, the next one removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final, TypeVar

from msgspec.structs import replace

from gateway.limits import MIB
from gateway.model import DocumentRecord, Head
from gateway.retention.retrying import RetryingCalls
from gateway.retention.verification import HeldHead, LogChain
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.state.replay import HistoryIncomplete, WrongBase, rebuild
from gateway.store.contract import (
    BackupRefused,
    CopyStore,
    ForeignRecord,
    Store,
    StoredCommit,
)
from gateway.store.unreachable import as_unavailable

# How many records one call writes, and the bytes that end its page.
_PAGE_RECORDS: Final = 500
_PAGE_BYTES: Final = 8 * MIB

_Stored = TypeVar("_Stored", StoredCommit, DocumentRecord)


@dataclass(frozen=True, slots=True)
class Saved:
    """A catalog that was saved or restored at ``revision``, with the number of its commits, and of
    the documents and tombstones that a restore made from them (0 after saving)."""

    catalog: str
    revision: int
    commits: int
    documents: int = 0


class Backup:
    """Saves and restores catalogs. Every method raises StoreUnavailable."""

    def __init__(self, store: Store, copies: CopyStore, settler: Settler, runtime: Runtime) -> None:
        self._store = store
        self._copies = copies
        self._settler = settler
        self._runtime = runtime

    def save(self, catalog: str, file: BinaryIO) -> Saved:
        """Save a catalog. Raises CatalogNotFound, and BackupRefused if its log isn't whole."""
        retrying = RetryingCalls(self._runtime)
        copies = retrying.wrap(self._copies)
        with as_unavailable():
            hold = HeldHead(retrying.wrap(self._store), self._runtime, catalog)
            try:
                # Settled after the head was read, so everything up to it is written out.
                retrying.wrap(self._settler).settle(catalog)
                revision, copy = hold.head.revision, self._copies.copy_to(file, hold.head)
                chain = LogChain(hold.head)
                page, after = copies.commits(catalog, 0, revision)
                while page:
                    hold.renew()
                    for commit in page:
                        _require_whole(catalog, chain.fault_before(self._copies.logged(commit)))
                        copy.add(commit)
                    page, after = copies.commits(catalog, after, revision)
                _require_whole(catalog, chain.fault_at_end())
                if not hold.has_held():
                    raise BackupRefused(
                        f"the history of {catalog!r} was compacted during the backup: its pin"
                        " expired or was deleted; try again"
                    )
                copy.end()
            finally:
                hold.end()
        return Saved(catalog, revision, copy.commits)

    def note(self, saved: Saved) -> None:
        """Note that the catalog's copy is whole and in its place, so that the doctor can tell its
        age. There is one record per catalog; earlier gateways don't know these records."""
        with as_unavailable():
            self._copies.note_copy(saved.catalog, saved.revision, self._runtime.now_us())

    def restore(self, file: BinaryIO, catalog: str | None = None) -> Saved:
        """Make the catalog that is saved in a seekable file, under its name or another one. Raises
        BackupRefused."""
        head, count = self._copies.copied_head(file)
        if catalog is not None:
            head = replace(head, catalog=catalog)
        by = self._runtime.new_id()
        with as_unavailable():
            self._copies.begin_restore(head.catalog, by)
            try:
                documents = self._put_all(file, head, by)
                self._copies.put_head(head, by)
            except BaseException:
                with suppress(BackupRefused):  # the name belongs to a later restore
                    self._copies.drop_restore(head.catalog, by)
                raise
        return Saved(head.catalog, head.revision, count, documents)

    def _put_all(self, file: BinaryIO, head: Head, by: str) -> int:
        """Write the commits and the documents that follow from them; return how many documents."""
        keys: dict[str, None] = {}
        commits = self._copies.copied_commits(file, head)
        for page in _pages(commits, lambda commit: len(commit.raw)):
            self._copies.put_commits(head.catalog, by, [each.raw for each in page])
            keys |= dict.fromkeys(key for each in page for key in each.keys)
        return self._put_documents(head, by, keys)

    def _put_documents(self, head: Head, by: str, keys: dict[str, None]) -> int:
        rebuilt = (self._rebuilt(head, key) for key in keys)
        documents = (each for each in rebuilt if each is not None)
        count = 0
        for page in _pages(documents, lambda document: document.size_bytes):
            self._copies.put_documents(head.catalog, by, page)
            count += len(page)
        return count

    def _rebuilt(self, head: Head, key: str) -> DocumentRecord | None:
        try:
            return rebuild(self._store, head.catalog, key, head.revision)
        except (HistoryIncomplete, WrongBase, ForeignRecord) as error:
            why = str(error) or "a part of it is gone"
            raise BackupRefused(
                f"document {key!r} can't be rebuilt from the file's log: {why}"
            ) from error


def _require_whole(catalog: str, fault: str | None) -> None:
    """Raise BackupRefused if there is a fault."""
    if fault is not None:
        raise BackupRefused(f"the history of {catalog!r} isn't whole: {fault}; see gateway verify")


def _pages(
    records: Iterable[_Stored], size_bytes_of: Callable[[_Stored], int]
) -> Iterator[list[_Stored]]:
    """The records in their order, in pages that one call can write."""
    page: list[_Stored] = []
    size_bytes = 0
    for each in records:
        page.append(each)
        size_bytes += size_bytes_of(each)
        if len(page) >= _PAGE_RECORDS or size_bytes > _PAGE_BYTES:
            yield page
            page, size_bytes = [], 0
    if page:
        yield page
