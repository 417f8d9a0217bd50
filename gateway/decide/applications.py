"""Applications: jobs whose rows are applied once, under any principal, however often they start.

An *application* is a name under which some principals write a catalog, one *version* after the
other. Its record says who they are, which version was begun last, and which one is finished. A
request with a *fence* is of a version: its idempotency key counts in the scope of the application
instead of the principal's, and it is decided only while that version is the one that was begun.

    begin 7                        the fence "7.5f0c.etl"
    lines under it                 applied once each, whichever of the principals sends them
    finish 7                       nothing is decided under it any more, by a task that slept either
    begin 7                        nothing to do: it is finished
    begin 8                        another fence

The records of a catalog are one document (``APPLICATIONS_KEY``), on which every request with a
fence depends: so a version ends at one revision, and nothing is applied under its fence above that.

A version has to be finished while its keys are remembered for sure. After that, nothing is decided
under it either, since what was applied already could be applied again.

A version that failed is started again with the same rows. Each start is a *run*, which its fence
tells. What was applied under a key stands for every run; a refusal stands for the run that it was
told, and is decided again for another one: the document may be there by now::

    run a   row 1 applied, row 2 refused: 404
    run b   row 1 replayed, row 2 applied

An *open* application is everybody's who may write the catalog, and its fences only guard: keys stay
those of their principals. Who begins a version of it ends what came before: a job that will never
be started again has one to itself, and the runs of a `sync` follow each other in one.

Where the table is full, a new name takes the place of the one that was begun longest ago, of those
that nothing more can come of: open ones that are finished, and all whose version is too old to be
finished.
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
# So that as many fit into one document, by whatever their principals are called.
_RECORD_BYTES_MAX: Final = 3 * 1024
_SCOPE_CHARACTERS: Final = 16

_NOTHING: Final = ApplyPatch(patching.parse([]))

_encode = msgspec.json.Encoder().encode


class Application(msgspec.Struct, frozen=True):
    """The record of an application. ``scope`` is that of its keys, another one for each time that
    the name is taken. ``version`` was begun last, at ``begun_us``; ``finished``: the last version
    of which nothing more is to come. None: there was none yet. ``kept_s``: for how long keys were
    remembered when the version was begun; None where an earlier gateway has begun it. ``keys``: how
    those of the version are made, as its begin told; None where it didn't."""

    scope: str
    principals: tuple[str, ...]
    version: int | None = None
    begun_us: int = 0
    finished: int | None = None
    kept_s: int | None = None
    keys: str | None = None
    open: bool = False

    def is_finished(self, version: int) -> bool:
        return self.finished is not None and version <= self.finished


class Term(NamedTuple):
    """When something is decided, and for how long keys are remembered by now.

    Of a version that was begun when they were remembered for less, some may be forgotten, however
    long they are remembered since: the lesser time counts.
    """

    now_us: int
    kept_s: int

    def of(self, application: Application) -> int:
        """For how many seconds after its begin the version is open."""
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
    """The text of the fence of the version that was begun last."""
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
            f"the fence isn't one of application {fence.name!r} of catalog {request.catalog!r},"
            " which was deleted since, or never existed"
        )
    _require_shared(fence.name, record, request.by)
    what = f"version {fence.version} of application {fence.name!r}"
    if record.is_finished(fence.version):
        raise ApplicationConflict(f"{what} is finished: nothing more is applied under its fence")
    if record.version != fence.version:
        raise ApplicationConflict(f"{what} isn't the one that was begun last: {record.version} is")
    _require_in_time(what, record, term)


def records_after_step(
    step: ApplicationStep, scope: str, by: Principal, document: DocumentRecord | None, term: Term
) -> ContentEdit:
    """What ``step`` does to the records; ``scope`` is for a new one. See ``ApplicationStep``.

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
            f"{what} wasn't finished before {record.version} was begun: nothing more of it is"
            " applied"
        )
    if step.version == record.version:
        if not step.finished:
            _require_in_time(what, record, term)
    else:
        begun = {"begun_us": term.now_us, "kept_s": term.kept_s, "keys": step.keys}
        record = replace(record, version=step.version, **begun)
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
            " the catalog"
        )


def _require_shared(name: str, record: Application, by: Principal) -> None:
    if not record.open and by.name not in record.principals:
        raise OfAnother(
            f"application {name!r} is shared by {', '.join(map(repr, record.principals))}, not by"
            f" {by.name!r}: one of them, or an admin of the catalog, can add it"
        )


def _require_named(step: ApplicationStep, record: Application, by: Principal) -> None:
    """Raise unless the step names all principals that share the application: each of them may begin
    and finish versions, so the caller must trust them all. Otherwise, a stranger that took the name
    first could finish the caller's versions."""
    strangers = sorted({*record.principals} - {by.name, *(step.principals or ())})
    if strangers:
        raise ApplicationConflict(
            f"application {step.name!r} is shared with {', '.join(map(repr, strangers))}, which the"
            " request doesn't name among its principals"
        )


def _require_in_time(what: str, record: Application, term: Term) -> None:
    if term.is_over(record):
        raise ApplicationConflict(
            f"{what} was begun more than {term.of(record)} seconds ago, and idempotency keys are"
            " remembered for no longer (idempotency_retention_s): what it applied could be applied"
            " again. Check what was written, then begin another version with what is missing"
        )


def _leaver(document: DocumentRecord | None, term: Term) -> str | None:
    """The application that a new one replaces; None: there is room. Raises AboveLimit."""
    records = applications(document)
    count = len(records)
    if count < _APPLICATIONS_MAX:
        return None
    ended = [name for name, record in records.items() if _is_ended(record, term)]
    if not ended:
        raise AboveLimit(
            f"the catalog has {count} applications, {_APPLICATIONS_MAX} are allowed; delete some"
            " that are no longer used",
            limit="applications_max",
            maximum=_APPLICATIONS_MAX,
            actual=count,
        )
    return min(ended, key=lambda name: records[name].begun_us)


def _is_ended(record: Application, term: Term) -> bool:
    """Whether nothing more can come of it. One that is shared and finished may be started again,
    and has to know that it is finished."""
    if record.version is None:
        return False
    if record.is_finished(record.version):
        return record.open
    return term.is_over(record)


def _edit(
    document: DocumentRecord | None, name: str, record: Application | None, leaves: str | None
) -> ContentEdit:
    """The edit of the records that leaves ``record`` under ``name``, and none where it is None;
    and none under ``leaves``."""
    value: Json = msgspec.to_builtins(record)
    size_bytes = len(_encode(value))
    if size_bytes > _RECORD_BYTES_MAX:
        raise AboveLimit(
            f"the record of application {name!r} would take {size_bytes} bytes, {_RECORD_BYTES_MAX}"
            " are allowed: name fewer principals",
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
