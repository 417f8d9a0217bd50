"""A document as it is at a moment within the call, even if that state isn't written out yet."""

from __future__ import annotations

from typing import NamedTuple

from gateway import memory
from gateway.model import DocumentRecord
from gateway.runtime import Runtime, elapsed_s, moment
from gateway.state.cache import Cache
from gateway.state.heads import HeadReader, ObservedHead, Settler
from gateway.state.replay import HistoryIncomplete, WrongBase, laid_over, stored_documents
from gateway.state.sharing import SharedReads
from gateway.store.contract import Store


class DocumentReading(NamedTuple):
    """A document (live, tombstone or None), and the head revision it was read at."""

    document: DocumentRecord | None
    catalog_revision: int


class CurrentDocuments:
    """Reads documents as they are now. The head is read first, by one call for all readers of the
    process; then the document, unless it is cached at that revision. Then the head's tail is
    applied to it."""

    def __init__(
        self,
        store: Store,
        cache: Cache,
        head_reader: HeadReader,
        settler: Settler,
        runtime: Runtime,
        late_s: float,
    ) -> None:
        """``late_s``: see ``RetentionLimits``."""
        self._store = store
        self._cache = cache
        self._settler = settler
        self._runtime = runtime
        self._late_s = late_s
        self._reads = SharedReads(head_reader.observe, runtime, parallel=2)

    def read(self, catalog: str, key: str) -> DocumentReading:
        """The document under ``key``. Raises StoreUnreachable."""
        since = moment(self._runtime)
        reading = self._read(catalog, key)
        # If this process slept after it read the head, the document may have been deleted and
        # purged meanwhile, though it existed at that head.
        if reading.document is None and elapsed_s(since, moment(self._runtime)) > self._late_s:
            return self._read(catalog, key)
        return reading

    def _read(self, catalog: str, key: str) -> DocumentReading:
        head = self._reads.read((catalog,))[catalog]
        known = self._cache.document(catalog, key, head.revision)
        if known is not None:
            return DocumentReading(*known)
        try:
            return self._stored(catalog, key, head)
        except (HistoryIncomplete, WrongBase):
            # The tail was written out and compacted meanwhile: read without it.
            return self._stored(catalog, key, self._settler.settle(catalog))

    def _stored(self, catalog: str, key: str, head: ObservedHead) -> DocumentReading:
        account = memory.account()
        account.take(memory.DOCUMENT_BYTES)
        stored = stored_documents(self._store, {catalog: [key]}).get((catalog, key))
        account.give_back(memory.DOCUMENT_BYTES)
        meters = self._cache.meters
        document = laid_over(self._store, meters, catalog, {key: stored}, head.tail)[key]
        if document is None or document.revision <= head.revision:
            self._cache.learn(catalog, head.revision, {key: document})
        newest = 0 if document is None else document.revision
        return DocumentReading(document, max(head.revision, newest))
