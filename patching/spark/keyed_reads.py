"""Planning for a few keys: their documents are asked for by name, in the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa

from patching.client import Transport
from patching.client.transport import segment

from .catalog_reads import patiently
from .options import Options
from .plan import UNCHANGED, Planned, Planner, There, Wanted, to_batches

_KEYS_MAX: Final = 100
# Servers and proxies take lines of 8 KB; a key has 1,000 bytes at most, three times that encoded.
_QUERY_BYTES_MAX: Final = 4000


class _Shape(msgspec.Struct):
    """An absent one has a key alone."""

    key: str
    etag: str | None
    value: msgspec.Raw = msgspec.Raw(b"")


class _Page(msgspec.Struct):
    documents: list[_Shape]


@dataclass(frozen=True)
class KeyedPlanner:
    """As ``Planner``, for rows (key, copies, value); what is there is read at ``revision``.

    Unchanged documents are told one by one: there are few.
    """

    planner: Planner
    options: Options
    revision: int

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        with self.options.open_transport() as transport:
            yield from to_batches(self._rows(transport, batches))

    def _rows(self, transport: Transport, batches: Iterator[pa.RecordBatch]) -> Iterator[Planned]:
        for batch in batches:
            rows = batch.to_pylist()
            for some in _groups(rows):
                there = self._there(transport, [row["key"] for row in some])
                for row in some:
                    key, copies = row["key"], row["copies"]
                    wanted = None if copies is None else Wanted(key, row["value"], copies)
                    planned = self.planner.plan(wanted, there.get(key), key)
                    yield planned if planned.action != UNCHANGED else Planned(UNCHANGED, key)

    def _there(self, transport: Transport, keys: Sequence[str]) -> dict[str, There]:
        if self.revision == 0:
            return {}
        path = f"/v1/catalogs/{segment(self.planner.catalog)}/documents"
        query: list[tuple[str, str | int]] = [("key", key) for key in keys]
        query.append(("revision", self.revision))
        answer = patiently(lambda: transport.request("GET", path, query=query), self.options)
        page = msgspec.json.decode(answer.body, type=_Page)
        return {
            each.key: There(each.etag, bytes(each.value).decode())
            for each in page.documents
            if each.etag is not None
        }


def _groups(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """As many rows at a time as one request may name the keys of."""
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        size_of_key = len(quote(row["key"], safe="")) + len("key=&")
        if group and (len(group) >= _KEYS_MAX or size + size_of_key > _QUERY_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(row)
        size += size_of_key
    if group:
        yield group
