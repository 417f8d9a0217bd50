"""A catalog's settings, which are a document of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .calls import Calls
from .catalog_routes import CatalogState, parse_state
from .documents import write_call
from .results import CatalogWritten, parse_catalog_written
from .terms import Terms, Tokens, WriteTerms, condition_headers, encoded, is_final


class Settings:
    """What ``Catalog.settings`` is."""

    def __init__(self, calls: Calls, catalog: str, catalog_path: str) -> None:
        self._calls = calls
        self._catalog = catalog
        self._path = catalog_path

    def get(self) -> CatalogState:
        """The catalog's state, whose ``settings`` are None where nothing was set and whose ``etag``
        is the settings' token. NotFound where there is no catalog."""
        return read_state(self._calls, self._path)

    def put(
        self,
        value: Mapping[str, Any],
        *,
        if_match: Tokens | None = None,
        if_absent: bool = False,
        **terms: Unpack[WriteTerms],
    ) -> CatalogWritten:
        """Set all of them; what is left out is as if it had never been set. Makes the catalog where
        there is none. The conditions are about the settings."""
        asked = Terms(**terms)
        headers = {"Content-Type": "application/json", **condition_headers(if_match, if_absent)}
        call = write_call(
            self._calls,
            "PUT",
            self._path,
            self._path,
            asked,
            body=encoded(value),
            headers=headers,
            final=is_final(if_match, asked.resource_version, if_absent=if_absent),
        )
        return parse_catalog_written(self._catalog, self._calls.send(call, asked.timeout_s))


def read_state(calls: Calls, catalog_path: str) -> CatalogState:
    return parse_state(calls.get(catalog_path).json())
