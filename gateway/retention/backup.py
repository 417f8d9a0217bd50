"""A catalog with its history, saved to a file at one revision beside live writers, and restored.

The log is all that is saved: documents, with their attributes and owners, and settings follow from
it. A pin keeps compaction away meanwhile; what is committed meanwhile isn't in it. Not saved are
pins, uploads, subscriptions, and the keys of requests that made no commit.

A restore keeps the catalog's name first, by a head that no gateway reads or moves, and replaces it
last. In between nobody has such a catalog, so what it writes is mixed with nothing: it is gone
where the restore fails, or, if that was killed, when the next one begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from gateway.model import DocumentRecord, Head
from gateway.retention.verification import HeldHead
from gateway.runtime import Runtime
from gateway.state.heads import Settler, as_unavailable
from gateway.state.replay import rebuild
from gateway.store.contract import BackupRefused, CopyStore, Store, StoredCommit

_COMMITS_AT_ONCE: Final = 500
_PAGE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Saved:
    """A catalog at ``revision``, the number of its commits that there are, and of documents and
    tombstones that were made of them (0: none were)."""

    catalog: str
    revision: int
    commits: int
    documents: int = 0


class Backup:
    """Every method raises StoreUnavailable."""

    def __init__(self, store: Store, copies: CopyStore, settler: Settler, runtime: Runtime) -> None:
        self._store = store
        self._copies = copies
        self._settler = settler
        self._runtime = runtime

    def save(self, catalog: str, file: BinaryIO) -> Saved:
        """Raises CatalogNotFound."""
        with as_unavailable():
            hold = HeldHead(self._store, self._runtime, catalog)
            try:
                # After the head was read: so whatever it stands for is written out.
                self._settler.settle(catalog)
                revision, copy = hold.head.revision, self._copies.copy_to(file, hold.head)
                for page in self._copies.commits(catalog, revision):
                    hold.renew()
                    for commit in page:
                        copy.add(commit)
                copy.end()
            finally:
                hold.end()
        return Saved(catalog, revision, copy.commits)

    def note(self, saved: Saved) -> None:
        """Keep that the catalog's copy is whole and in its place, so that the doctor can tell how
        old it is. A record for each catalog, which earlier gateways don't know."""
        with as_unavailable():
            self._copies.note_copy(saved.catalog, saved.revision, self._runtime.now_us())

    def restore(self, file: BinaryIO) -> Saved:
        """Make the catalog that a seekable file was saved of, under its name. Raises
        BackupRefused."""
        head, count = self._copies.copied_head(file)
        by = self._runtime.new_id()
        with as_unavailable():
            if not self._copies.begin_restore(head.catalog, by):
                raise BackupRefused(
                    f"there is a catalog {head.catalog!r}, or was one, whose history is kept:"
                    " restore it into another database (--database)"
                )
            try:
                documents = self._put_all(file, head, by)
                if not self._copies.put_head(head, by):
                    raise _elsewhere(head)
            except BaseException:
                self._copies.drop_restore(head.catalog, by)
                raise
        return Saved(head.catalog, head.revision, count, documents)

    def _put_all(self, file: BinaryIO, head: Head, by: str) -> int:
        """The commits and the documents that follow from them; how many these are."""
        keys: dict[str, None] = {}
        for page in _pages(self._copies.copied_commits(file)):
            if not self._copies.restores(head.catalog, by):
                raise _elsewhere(head)
            self._copies.put_commits([each.raw for each in page])
            keys |= dict.fromkeys(key for each in page for key in each.keys)
        return self._put_documents(head, keys)

    def _put_documents(self, head: Head, keys: dict[str, None]) -> int:
        some: list[DocumentRecord] = []
        count = size_bytes = 0
        for key in keys:
            document = rebuild(self._store, head.catalog, key, head.revision)
            if document is None:
                continue
            some.append(document)
            count += 1
            size_bytes += document.size_bytes
            if size_bytes > _PAGE_BYTES:
                self._store.write_documents({head.catalog: some})
                some, size_bytes = [], 0
        if some:
            self._store.write_documents({head.catalog: some})
        return count


def _elsewhere(head: Head) -> BackupRefused:
    return BackupRefused(f"somebody else restores {head.catalog!r}")


def _pages(commits: Iterator[StoredCommit]) -> Iterator[list[StoredCommit]]:
    page: list[StoredCommit] = []
    size_bytes = 0
    for each in commits:
        page.append(each)
        size_bytes += len(each.raw)
        if len(page) >= _COMMITS_AT_ONCE or size_bytes > _PAGE_BYTES:
            yield page
            page, size_bytes = [], 0
    if page:
        yield page
