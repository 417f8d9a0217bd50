"""Requests that say, where the gateway doesn't take their token, which option it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import urllib3

from patching.client import Answer, NotAuthorized, RequestError, Transport
from patching.client.transport import Query

_HINT: Final = " (option 'token' or 'tokenFile')"
_UNAUTHENTICATED: Final = 401


class OptionsTransport(Transport):
    """A Transport whose token is of the options."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float | None = None,
    ) -> Answer:
        try:
            return super().request(
                method,
                path,
                query=query,
                json=json,
                body=body,
                headers=headers,
                read_timeout_s=read_timeout_s,
            )
        except NotAuthorized as error:
            raise naming_the_option(error) from error.__cause__

    def open(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        try:
            return super().open(method, path, query=query, body=body, headers=headers)
        except NotAuthorized as error:
            raise naming_the_option(error) from error.__cause__


def naming_the_option(error: RequestError) -> RequestError:
    """``error``, with a detail that names the option where it is the token's fault."""
    if isinstance(error, NotAuthorized) and error.status == _UNAUTHENTICATED:
        error.detail = error.detail.removesuffix(_HINT) + _HINT
    return error
