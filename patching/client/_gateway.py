"""The client's entry: one gateway, and everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from patching.client._bulk import BulkAnswer, BulkLine, BulkTerms, BulkWriter, bulk_lines
from patching.client._calls import Calls
from patching.client._catalog import Catalog
from patching.client._errors import Problem
from patching.client._follower import Follower
from patching.client._listing import catalogs
from patching.client._results import CatalogHead
from patching.client._retry import Retry
from patching.client._transport import Closable, Transport


class Gateway(Closable):
    """The gateway at ``url``. Thread-safe; holds connections until ``close``.

    ``token`` goes out as a bearer token; a callable is asked for each request, so that it can be
    renewed. It is in no repr and no error, and goes nowhere else: redirects aren't followed.
    ``timeout_s`` is the deadline of each call, all its retries included. ``retry`` says what is
    sent again, and when: what the gateway calls retryable, and what got lost where sending it again
    can't do it twice. No precondition is ever left out of what is sent again.

    ``ca_file``: certificates to trust instead of the system's, for a gateway with TLS;
    ``certificate_file`` and ``key_file``: the client's own, for one that asks for it. ``headers``
    go out with each request.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Callable[[], str] | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        pool_size: int = 10,
        connect_timeout_s: float = 5.0,
    ) -> None:
        if timeout_s <= 0:
            raise ValueError("timeout_s is more than 0")

        def connect() -> Transport:
            return Transport(
                url,
                token=token,
                headers=headers,
                pool_size=pool_size,
                connect_timeout_s=connect_timeout_s,
                ca_file=ca_file,
                certificate_file=certificate_file,
                key_file=key_file,
            )

        self.url = url.rstrip("/")
        self._connect = connect
        self._transport = connect()
        self._calls = Calls(self._transport, retry or Retry(), timeout_s)

    def catalog(self, name: str) -> Catalog:
        """The catalog of that name, which needn't exist: its first write makes it."""
        return Catalog(self._calls, self._connect, name)

    def catalogs(self, *, prefix: str = "", page_size: int = 200) -> Iterator[CatalogHead]:
        """Those whose names begin with ``prefix`` and that may be read, by name."""
        return catalogs(self._calls, prefix, page_size)

    def bulk(
        self, lines: Iterable[BulkLine | Mapping[str, Any]], terms: BulkTerms | None = None
    ) -> Iterator[BulkAnswer]:
        """Many independent writes to any catalogs, answered in order, as `BulkWriter` does it.

        A line is a mapping with the contract's members (``catalog``, ``op``, ``key``, …), which
        comes back as ``answer.line.subject``. One without ``idempotency_key`` is given one, as
        ``retry.make_keys`` says.
        """
        made = bulk_lines(lines, make_keys=self._calls.retry.make_keys)
        return BulkWriter(self._transport, terms).write(made)

    def follower(self, catalog: str, **options: Any) -> Follower:
        """A `Follower` of ``catalog``, not started yet; it has connections of its own. ``options``
        are the keywords of `Follower`."""
        return Follower(self.url, catalog, connect=self._connect, **options)

    def is_ready(self, *, timeout_s: float = 5.0) -> bool:
        """Whether its database answers. Unreachable where the gateway itself doesn't."""
        try:
            self._transport.request("GET", "/readyz", read_timeout_s=timeout_s)
        except Problem:
            return False
        return True

    def close(self) -> None:
        """Calls under way in other threads end with Unreachable, and so do later ones."""
        self._transport.close()

    def __repr__(self) -> str:
        return f"<Gateway {self.url}>"
