"""What a job is to the gateway: a version of an application, whose rows are applied once whoever
runs it, and by nobody when it is finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patching.client import RequestError
from patching.client.transport import Transport, segment
from patching.spark.options import Options, naming_the_option


class VersionRefused(Exception):
    """The gateway won't have anything more of this version, or not from this principal."""


@dataclass(frozen=True, slots=True)
class Version:
    """A job: that of ``txnAppId`` and ``txnVersion``, or a micro-batch of a query."""

    application: str
    number: int

    def __str__(self) -> str:
        return f"version {self.number} of application {self.application!r}"


class FenceKeeper:
    """The fences of one version in the catalogs that a task writes; ``finished`` says in which of
    these it was finished before."""

    def __init__(self, transport: Transport, options: Options, version: Version) -> None:
        self._transport = transport
        self._options = options
        self._version = version
        self._known: dict[str, str] = {}
        self.finished: dict[str, bool] = {}

    def fence(self, catalog: str) -> str | None:
        """What lines of the catalog are sent with; None where nothing is to be sent any more.

        The version is begun with the first line. Raises VersionRefused.
        """
        if catalog not in self.finished:
            record = step(self._transport, self._options, catalog, self._version)
            last = record["finished"]
            self.finished[catalog] = last is not None and last >= self._version.number
            self._known[catalog] = record["fence"]
        return None if self.finished[catalog] else self._known[catalog]


def finish(options: Options, version: Version, catalogs: Mapping[str, bool]) -> None:
    """Say that nothing more is to come, in each of ``catalogs`` where nobody has (``True``).

    Raises VersionRefused: every row was applied, and nothing says so.
    """
    with options.open_transport() as transport:
        for catalog, finished in sorted(catalogs.items()):
            if not finished:
                step(transport, options, catalog, version, finished=True)


def step(
    transport: Transport,
    options: Options,
    catalog: str,
    version: Version,
    *,
    finished: bool = False,
) -> Mapping[str, Any]:
    """The application's record afterwards. Repeated, it changes nothing."""
    path = f"/v1/catalogs/{segment(catalog)}/applications/{segment(version.application)}"
    asked: dict[str, Any] = {"version": version.number, "finished": finished}
    if options.txn_principals is not None:
        asked["principals"] = options.txn_principals
    tries = options.retry.tries(options.retry_timeout)
    try:
        answer = tries.ask(lambda: transport.request("PUT", path, json=asked))
    except RequestError as error:
        what = "finished" if finished else "begun"
        why = naming_the_option(error)
        raise VersionRefused(f"{version} could not be {what} in {catalog!r}: {why}") from error
    record: Mapping[str, Any] = answer.json()
    return record
