"""Catalogs and documents in the order of their names."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.model import Document, Head
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import Part
from gateway.store.mongodb.ranges import names_after


class ListingsPart(Part):
    """See ``gateway.store.contract.Store``."""

    def list_heads(self, after: str, prefix: str, limit: int) -> Sequence[Head]:
        query = {"_id": names_after(after, prefix)}
        with self._on.reading() as session:
            cursor = self._on.catalogs.find(query, records.BARE_HEAD, session=session)
            return [records.head_from(record) for record in cursor.sort("_id").limit(limit)]

    def scan_documents(
        self, catalog: str, after: str, prefix: str, limit: int, bytes_max: int
    ) -> Sequence[Document]:
        first, beginning = (records.document_id(catalog, name) for name in (after, prefix))
        query = {"_id": names_after(first, beginning)}
        documents: list[Document] = []
        with self._on.reading() as session:
            cursor = self._on.raw_documents.find(query, session=session).sort("_id").limit(limit)
            with cursor:
                for raw in cursor:
                    documents.append(records.document_from(raw)[1])
                    bytes_max -= len(raw.raw)
                    if bytes_max <= 0:
                        break
        return documents
