"""Applications: jobs whose rows are applied once, under any principal, however often they start.

An *application* is a name under which some principals write a catalog, one *version* after the
other. Its record says who they are, which version was begun last, and which one is finished. A
request with a *fence* belongs to a version. Its idempotency key has the scope of the application,
not of the principal, and it is decided only while that version is the last that was begun, and
isn't finished.

    begin 7                        the fence "7.5f0c.etl"
    lines under it                 applied once each, whichever of the principals sends them
    finish 7                       nothing more is decided under it, not even for a task that slept
    begin 7                        nothing to do: it is finished
    begin 8                        another fence

The records of a catalog are one document (``APPLICATIONS_KEY``), on which every request with a
fence depends. So a version ends at one revision, and nothing is applied under its fence above that.

A version has to be finished while its keys are certainly remembered. After that, nothing more is
decided under it, because what was applied already could be applied again.

A version that failed is started again with the same rows. Each start is a *run*, which the fence
names. What was applied under a key holds for every run. A refusal holds only for the run that got
it, and is decided again for another one, because the document may be there by then::

    run a   row 1 applied, row 2 refused: 404
    run b   row 1 replayed, row 2 applied

A run that failed may be *ended*: nothing more is decided under its fence, while the version goes on
under another run. The record knows the runs of its version that were ended last.

An *open* application is shared by everybody who may write the catalog. Its fences only guard: keys
belong to their principals. Whoever begins a version of it ends the one before. A job that will
never be started again has an application to itself, and the runs of a `sync` follow each other in
one.

If the table is full, a new application replaces the one that was begun longest ago among those that
are over: open ones that are finished, and all whose version is too old to be finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

import patching
from gateway.access import Principal, Role
from gateway.decide.edits import ApplyPatch, ContentEdit, Delete, Put
from gateway.decide.request import ApplicationStep, Fence, Refused, Request
from gateway.errors import (
    AboveLimit,
    ApplicationConflict,
    CommitError,
    OfAnother,
)
from gateway.model import DocumentRecord, living
from patching import Json, join_pointer

_APPLICATIONS_MAX: Final = 1_000
# So that this many fit into one document, however long the names of their principals are.
_RECORD_BYTES_MAX: Final = 3 * 1024
_SCOPE_CHARACTERS: Final = 16
_ENDED_MAX: Final = 16

_NOTHING: Final = ApplyPatch(patching.parse([]))

_encode = msgspec.json.Encoder().encode


class Application(msgspec.Struct, frozen=True):
    """The record of an application.

    ``scope`` is that of its keys, a new one each time that the name is taken. ``version`` was begun
    last, at ``begun_us``, and ``finished`` is the last one that was finished; None: there was none.
    ``kept_s`` is how long keys were remembered when the version was begun; None if a gateway that
    didn't record it began it. ``keys`` says how those of the version are made; None if its begin
    didn't say. ``ended``: the runs of the version that were ended last."""

    scope: str
    principals: tuple[str, ...]
    version: int | None = None
    begun_us: int = 0
    finished: int | None = None
    kept_s: int | None = None
    keys: str | None = None
    open: bool = False
    ended: tuple[str, ...] = ()

    def is_finished(self, version: int) -> bool:
        return self.finished is not None and version <= self.finished


class Term(NamedTuple):
    """The time of a decision, and how long keys are remembered by now.

    If they were remembered for less when a version was begun, some of its keys may be forgotten
    already. So the shorter time counts.
    """

    now_us: int
    kept_s: int

    def of(self, application: Application) -> int:
        """For how many seconds after its begin requests of the version are decided."""
        kept_s = application.kept_s
        return self.kept_s if kept_s is None else min(kept_s, self.kept_s)

    def is_over(self, application: Application) -> bool:
        return self.now_us - application.begun_us > self.of(application) * 1_000_000


def applications(document: DocumentRecord | None) -> Mapping[str, Application]:
    """The records by name."""
    live = living(document)
    return msgspec.convert(live.content, dict[str, Application]) if live else {}


def application(document: DocumentRecord | None, name: str) -> Application | None:
    live = living(document)
    content = live.content if live else {}
    assert isinstance(content, dict)
    return msgspec.convert(content[name], Application) if name in content else None


def fence_of(name: str, application: Application, run: str | None = None) -> str:
    """The text of the fence of the last version that was begun."""
    version = application.version or 0
    return Fence(version, application.scope, name, run, application.open).text


def refusal(request: Request, document: DocumentRecord | None, term: Term) -> Refused | None:
    """The refusal of a request whose fence isn't in force: ApplicationConflict, or OfAnother."""
    try:
        _require_unfenced(request, document, term)
    except CommitError as error:
        return Refused(error)
    return None


def _require_unfenced(request: Request, document: DocumentRecord | None, term: Term) -> None:
    fence = request.fence
    if fence is None:
        return
    record = application(document, fence.name)
    if record is None or record.scope != fence.scope:
        raise ApplicationConflict(
            f"catalog {request.catalog!r} has no application {fence.name!r} with this fence: it was"
            " deleted, or never existed"
        )
    _require_shared(fence.name, record, request.by)
    what = f"version {fence.version} of application {fence.name!r}"
    if record.is_finished(fence.version):
        raise ApplicationConflict(f"{what} is finished: nothing more is applied under its fence")
    if record.version != fence.version:
        raise ApplicationConflict(
            f"{what} isn't the current one, which is {record.version}: nothing more is applied"
            " under its fence"
        )
    _require_going_on(what, record, fence.run)
    _require_in_time(what, record, term)


def records_after_step(
    step: ApplicationStep, scope: str, by: Principal, document: DocumentRecord | None, term: Term
) -> ContentEdit:
    """The edit of the records that ``step`` asks for (see ``ApplicationStep``). A new application
    gets its scope from ``scope``.

    Raises ApplicationConflict, OfAnother and AboveLimit.
    """
    record = application(document, step.name)
    leaves = None
    if record is None:
        if step.forgets:
            return _NOTHING if living(document) else Delete()
        leaves = _leaver(document, term)
        record = Application(scope[:_SCOPE_CHARACTERS], _principals(step, by), open=step.open)
    elif record.open or step.open:
        _require_open(step, record)
    elif step.version is None:
        if by.name not in record.principals and not by.may(Role.ADMIN, step.catalog):
            _require_shared(step.name, record, by)
    else:
        _require_shared(step.name, record, by)
        if not step.ended:  # that relies on nothing that others finished
            _require_named(step, record, by)
    after = None if step.forgets else _advanced(step, record, by, term)
    return _edit(document, step.name, after, leaves)


def _advanced(step: ApplicationStep, record: Application, by: Principal, term: Term) -> Application:
    replace = msgspec.structs.replace
    if step.version is None:
        assert step.principals
        return replace(record, principals=tuple(sorted(set(step.principals))))
    what = f"version {step.version} of application {step.name!r}"
    if record.is_finished(step.version):
        return record
    if record.version is not None and step.version < record.version:
        raise ApplicationConflict(
            f"{what} is over: version {record.version} was begun before it was finished"
        )
    if step.version == record.version:
        if not step.finished:
            _require_in_time(what, record, term)
    else:
        begun = {"begun_us": term.now_us, "kept_s": term.kept_s, "keys": step.keys, "ended": ()}
        record = replace(record, version=step.version, **begun)
    if not step.ended:
        _require_going_on(what, record, step.run)
    elif step.run is not None and step.run not in record.ended:
        record = replace(record, ended=(*record.ended, step.run)[-_ENDED_MAX:])
    already = () if record.open else record.principals
    record = replace(record, principals=_principals(step, by, already))
    return replace(record, finished=step.version) if step.finished else record


def _principals(
    step: ApplicationStep, by: Principal, already: tuple[str, ...] = ()
) -> tuple[str, ...]:
    own = () if step.version is None else (by.name,)
    return tuple(sorted({*own, *already, *(step.principals or ())}))


def _require_open(step: ApplicationStep, record: Application) -> None:
    if step.version is not None and step.open != record.open:
        raise ApplicationConflict(
            f"application {step.name!r} is {'' if record.open else 'not '}open to all who may write"
            f' the catalog; send "open": {"true" if record.open else "false"}'
        )


def _require_shared(name: str, record: Application, by: Principal) -> None:
    if not record.open and by.name not in record.principals:
        raise OfAnother(
            f"application {name!r} is shared by {', '.join(map(repr, record.principals))}, not by"
            f" {by.name!r}; one of them, or an admin of the catalog, can add {by.name!r}"
        )


def _require_named(step: ApplicationStep, record: Application, by: Principal) -> None:
    """Raise ApplicationConflict unless the step names all principals that share the application.
    Each of them may begin and finish versions, so the caller must trust them all. Otherwise, a
    stranger that took the name first could finish the caller's versions."""
    strangers = sorted({*record.principals} - {by.name, *(step.principals or ())})
    if strangers:
        raise ApplicationConflict(
            f"application {step.name!r} is shared with {', '.join(map(repr, strangers))}: if you"
            " trust them, name them among the request's principals"
        )


def _require_going_on(what: str, record: Application, run: str | None) -> None:
    if run in record.ended:
        raise ApplicationConflict(
            f"run {run} of {what} was ended: nothing more is applied under its fence. Start the job"
            " again, which is another run"
        )


def _require_in_time(what: str, record: Application, term: Term) -> None:
    if term.is_over(record):
        raise ApplicationConflict(
            f"{what} was begun more than {term.of(record)} seconds ago, so its idempotency keys are"
            " no longer remembered (idempotency_retention_s), and what it applied could be applied"
            " again. Check what was written, then begin another version with what is missing"
        )


def _leaver(document: DocumentRecord | None, term: Term) -> str | None:
    """The name of the application that a new one replaces; None if there is room. Raises
    AboveLimit."""
    records = applications(document)
    count = len(records)
    if count < _APPLICATIONS_MAX:
        return None
    ended = [name for name, record in records.items() if _is_ended(record, term)]
    if not ended:
        raise AboveLimit(
            f"the catalog has {count} applications; the limit is {_APPLICATIONS_MAX}: delete some"
            " that are no longer used",
            limit="applications_max",
            maximum=_APPLICATIONS_MAX,
            actual=count,
        )
    return min(ended, key=lambda name: records[name].begun_us)


def _is_ended(record: Application, term: Term) -> bool:
    """Whether the record is no longer needed. That of a finished version still is, unless the
    application is open: the version may be started again, and must then be found finished."""
    if record.version is None:
        return False
    if record.is_finished(record.version):
        return record.open
    return term.is_over(record)


def _edit(
    document: DocumentRecord | None, name: str, record: Application | None, leaves: str | None
) -> ContentEdit:
    """The edit of the records that sets ``record`` under ``name``, or removes it if it is None, and
    removes the one under ``leaves``."""
    value: Json = msgspec.to_builtins(record)
    size_bytes = len(_encode(value))
    if size_bytes > _RECORD_BYTES_MAX:
        raise AboveLimit(
            f"the record of application {name!r} would take {size_bytes} bytes; the limit is"
            f" {_RECORD_BYTES_MAX}: name fewer principals",
            limit="application_bytes_max",
            maximum=_RECORD_BYTES_MAX,
            actual=size_bytes,
        )
    if living(document) is None:
        return Put({name: value}, len(_encode({name: value})))
    if record is not None and record == application(document, name):
        return _NOTHING
    place = join_pointer([name])
    operation: dict[str, Json] = {"op": "remove", "path": place}
    if record is not None:
        operation = {"op": "add", "path": place, "value": value}
    operations: list[Json] = [operation]
    if leaves is not None:
        operations.append({"op": "remove", "path": join_pointer([leaves])})
    return ApplyPatch(patching.parse(operations))
