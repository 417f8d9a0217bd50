"""A catalog's export, read document by document while it comes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import urllib3
from urllib3.exceptions import HTTPError

from .calls import Calls
from .commits import expecting
from .documents import time_query
from .errors import Unreachable, in_words


class ExportStream:
    """Pairs of key and content, as the catalog had them at ``revision``; iterated once.

    Unreachable where it breaks off before its end: what came until then is right, but not all.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, revision: int) -> None:
        self.revision = revision
        self._response = response

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        import ijson  # here, since nothing else needs it

        try:
            yield from ijson.kvitems(self._response, "metadata", use_float=True)
        except (ijson.JSONError, HTTPError, OSError) as error:
            raise Unreachable(f"the export broke off: {in_words(error)}", applied="no") from error
        finally:
            self.close()

    def close(self) -> None:
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_export(
    calls: Calls,
    catalog_path: str,
    prefix: str,
    revision: int | None,
    at: datetime | str | None,
) -> ExportStream:
    """See `Catalog.export`."""
    query = time_query(revision, at)
    if prefix:
        query.append(("prefix", prefix))
    response = calls.open(f"{catalog_path}/export", query)
    with expecting("export"):
        return ExportStream(response, int(response.headers["Catalog-Revision"]))
