"""A job, to the gateway: a version of an application. Its rows are applied once, whoever runs it,
and no more once it is finished."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from patching.client import NotAuthorized, NotFound, Problem, RequestError
from patching.client.transport import Transport, segment
from patching.spark.json_values import encode
from patching.spark.options import Options, naming_the_option

# How earlier versions of this library made keys; they didn't say so in the record.
_KEYS_BEFORE: Final = "job"
_BEGUN_MAX: Final = 10_000
_STEPS_AT_ONCE: Final = 8
_ABORT_S: Final = 10.0
_FORBIDDEN: Final = 403


class VersionRefused(Exception):
    """A version can't be begun, continued or finished; the text says why."""


@dataclass(frozen=True, slots=True)
class Version:
    """A job: that of ``txnAppId`` and ``txnVersion``, a micro-batch of a query, or one that nobody
    will start again.

    ``run``: names one start; what another start was refused is decided again. ``open``: the fence
    only keeps late rows out, and keys are the principal's.
    """

    application: str
    number: int
    run: str | None = None
    open: bool = False

    def __str__(self) -> str:
        if self.open:
            return f"job {self.application!r}"
        return f"version {self.number} of application {self.application!r}"


class Begun(NamedTuple):
    """A version in a catalog. ``fence``: sent with its lines; ``keys``: how their idempotency keys
    are made, a value of the option ``idempotency``; ``finished``: nothing more is to be sent."""

    fence: str
    keys: str
    finished: bool


# By all that a begin depends on. A worker process runs many tasks of a job, one after the other.
_begun: dict[tuple[Any, ...], Begun] = {}


class FenceKeeper:
    """The fences of one version in the catalogs that a task writes. ``finished``: by catalog,
    whether it was finished there before (None: unknown, because every line was refused).

    A catalog's first lines begin the version themselves (``begin``), so that a task needs no
    request for it; the answers have the fence for the lines that follow. If the gateway refuses a
    ``begin``, or doesn't know it, a separate step finds out why.
    """

    def __init__(self, transport: Transport, options: Options, version: Version) -> None:
        self._transport = transport
        self._options = options
        self._version = version
        about = (options.url, options.token, options.token_file, options.certificate_file)
        self._about = (*about, options.txn_principals, options.idempotency, version)
        self._refused: set[str] = set()
        begin = {"application": version.application, **_terms(options, version, self.keys)}
        self._begin = encode({"begin": begin})[1:-1]
        self.finished: dict[str, bool | None] = {}

    @property
    def keys(self) -> str:
        """How keys are made, unless the version was begun otherwise."""
        return _keys(self._options, self._version)

    def begun(self, catalog: str) -> Begun | None:
        """The version there; None if the next line is to begin it. Raises VersionRefused."""
        begun = _begun.get((*self._about, catalog))
        if begun is None and catalog in self._refused:
            begun = self._keep(catalog, self._step(catalog))
        if begun is not None:
            self.finished[catalog] = begun.finished
        return begun

    def begin(self, catalog: str) -> bytes:
        """The member ``begin`` for the next line, in JSON."""
        self.finished.setdefault(catalog, None)
        return self._begin

    def note_fence(self, catalog: str, fence: str) -> None:
        """A line has begun the version."""
        self.finished[catalog] = False
        if (*self._about, catalog) not in _begun:
            self._keep(catalog, Begun(fence, self.keys, False))

    def note_refusal(self, catalog: str) -> None:
        """A line couldn't begin the version: a separate step is to do it."""
        self._refused.add(catalog)

    def _keep(self, catalog: str, begun: Begun) -> Begun:
        if len(_begun) >= _BEGUN_MAX:
            _begun.clear()
        _begun[(*self._about, catalog)] = begun
        return begun

    def _step(self, catalog: str) -> Begun:
        version, options, wanted = self._version, self._options, self.keys
        record = step(self._transport, options, catalog, version, keys=wanted)
        last = record["finished"]
        finished = last is not None and last >= version.number
        keys = wanted if version.open else record.get("keys") or _KEYS_BEFORE
        if options.idempotency not in (None, keys) and not finished:
            raise VersionRefused(
                f"{version} was begun with idempotency={keys} in {catalog!r}, and what it applied "
                f"would be applied again with {options.idempotency}: start it again with {keys}"
            )
        return Begun(record["fence"], keys, finished)


def finish(options: Options, version: Version, catalogs: Mapping[str, bool | None]) -> None:
    """Finish the version in each of ``catalogs`` where it isn't finished (``True``: it is).

    Raises VersionRefused: every row was applied, but the version isn't finished.
    """
    with options.open_transport() as transport:
        _finish_each(transport, options, version, catalogs, options.retry_timeout)


def give_up(
    options: Options,
    version: Version,
    catalogs: Mapping[str, bool | None],
    maybe: str | None = None,
) -> None:
    """Finish a version for which nobody waits, or only its run if it may be started again; also in
    the catalog ``maybe``, if it is there. The log says what failed."""
    timeout_s = min(options.retry_timeout, _ABORT_S)
    try:
        known = {**catalogs}
        if maybe is not None and is_there(options, maybe, timeout_s):
            known.setdefault(maybe, False)
        with options.open_transport() as transport:
            last = "finished" if version.open else "ended"
            _finish_each(transport, options, version, known, timeout_s, last)
    except (VersionRefused, RequestError) as error:
        what = "rows of it that are still on their way may yet be applied"
        print(f"metadata: {version}: {what}: {error}", file=sys.stderr, flush=True)


def _finish_each(
    transport: Transport,
    options: Options,
    version: Version,
    catalogs: Mapping[str, bool | None],
    timeout_s: float,
    last: str = "finished",
) -> None:
    def one(catalog: str) -> None:
        try:
            # To end the run may be to begin the version, if all of its rows are on their way.
            keys = _keys(options, version) if last == "ended" else None
            step(transport, options, catalog, version, last, keys=keys, timeout_s=timeout_s)
        except VersionRefused as error:
            if last == "ended" and _is_over(error.__cause__):
                return
            # A catalog that refuses every line also refuses this.
            if catalogs[catalog] is not None or not _is_of_the_catalog(error.__cause__):
                raise
            print(f"metadata: {error}; all rows for it were refused", file=sys.stderr, flush=True)

    left = sorted(catalog for catalog, finished in catalogs.items() if not finished)
    if len(left) == 1:
        one(left[0])
    elif left:
        with ThreadPoolExecutor(_STEPS_AT_ONCE) as pool:
            list(pool.map(one, left))


def _is_over(error: BaseException | None) -> bool:
    """Whether the version was finished or followed by another, so nothing of it is applied."""
    return isinstance(error, Problem) and error.code == "application_conflict"


def _is_of_the_catalog(error: BaseException | None) -> bool:
    """Whether the gateway refused it for good, and not because of an invalid token."""
    final = isinstance(error, Problem) and error.applied == "no" and not error.retryable
    return final and not (isinstance(error, NotAuthorized) and error.status != _FORBIDDEN)


def is_there(options: Options, catalog: str, timeout_s: float | None = None) -> bool:
    """Whether the catalog was written, and not deleted, as far as the principal may know. Raises
    RequestError."""
    try:
        return _listed(options, catalog, timeout_s) is not None
    except NotAuthorized as error:
        if error.status != _FORBIDDEN:
            raise
        return False


def applications(options: Options, catalog: str) -> Sequence[Mapping[str, Any]]:
    """The records of its applications; none if it was never written. Raises RequestError."""
    return _listed(options, catalog) or ()


def _listed(
    options: Options, catalog: str, timeout_s: float | None = None
) -> Sequence[Mapping[str, Any]] | None:
    path = f"/v1/catalogs/{segment(catalog)}/applications"
    with options.open_transport() as transport:
        try:
            answer = options.tries(timeout_s).ask(lambda: transport.request("GET", path))
        except NotFound:
            return None
    found: Sequence[Mapping[str, Any]] = answer.json()["applications"]
    return found


def step(
    transport: Transport,
    options: Options,
    catalog: str,
    version: Version,
    last: str | None = None,
    *,
    keys: str | None = None,
    timeout_s: float | None = None,
) -> Mapping[str, Any]:
    """The application's record afterwards. To repeat it changes nothing. ``last``: the version is
    ``finished``, or its run ``ended``; None: it is begun. Raises VersionRefused."""
    path = f"/v1/catalogs/{segment(catalog)}/applications/{segment(version.application)}"
    asked = {**({last: True} if last else {}), **_terms(options, version, keys)}
    try:
        answer = options.tries(timeout_s).ask(lambda: transport.request("PUT", path, json=asked))
    except RequestError as error:
        why = naming_the_option(error)
        raise VersionRefused(
            f"{version} could not be {last or 'begun'} in {catalog!r}: {why}"
        ) from error
    record: Mapping[str, Any] = answer.json()
    return record


def _keys(options: Options, version: Version) -> str:
    return options.idempotency or ("job" if version.open else "content")


def _terms(options: Options, version: Version, keys: str | None) -> Mapping[str, Any]:
    """How a step or a line's ``begin`` describes the version."""
    asked: dict[str, Any] = {"version": version.number}
    if version.open:
        asked["open"] = True
    elif options.txn_principals is not None:
        asked["principals"] = options.txn_principals
    more = {"run": version.run, "keys": keys}
    return asked | {name: value for name, value in more.items() if value is not None}
