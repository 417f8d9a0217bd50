"""Steps of applications on the wire: a body of their own, or the ``begin`` of a bulk line.

A task that writes rows under a version of an application begins the version with its first lines,
so it needs no request before them::

    {"catalog": "c", "key": "k", "op": "put", …, "idempotency_key": "row-1",
     "begin": {"application": "nightly", "version": 7, "run": "a1"}}

The first line with a begin takes the step, for all lines of its request with the same begin. Each
of these then counts as a line with the fence of that version; its answer says the fence. If the
step is refused, so are the lines: their problems point to ``/begin``.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from gateway.access import Principal
from gateway.access.principal import NAME_CHARACTERS_MAX
from gateway.decide.applications import Application, applications, fence_of
from gateway.decide.request import ApplicationStep, Fence, Request, WriteOutcome, parse_fence
from gateway.decide.strict import SWITCH, Exact, integer, load, strict
from gateway.errors import ApplicationConflict, CommitError, HeldBack, UnknownOutcome, untraced
from gateway.http.wire.body import decode_value, invalid_body
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.headers import is_application_name
from gateway.http.write.answer import Result, result_of
from gateway.limits import RequestLimits
from gateway.model import APPLICATIONS_KEY
from gateway.service import GatewayService

# The pointer to the begin in a line.
BEGIN: Final = "/begin"
_PRINCIPALS_MAX: Final = 20
# A fence contains the version, and is parsed with at most this many digits.
_VERSION_MAX: Final = 10**18 - 1
_RECORD_BYTES: Final = 1_000  # what a step counts for, besides the names of its principals


def _are_names(names: list[Any]) -> bool:
    return 1 <= len(names) <= _PRINCIPALS_MAX and all(
        isinstance(name, str) and 1 <= len(name) <= NAME_CHARACTERS_MAX and name.isprintable()
        for name in names
    )


_NAMES: Final = f"it must be a list of 1 to {_PRINCIPALS_MAX} principals' names"
_KEYS: Final = "it must be a lowercase letter, then at most 31 lowercase letters, digits or _"
_is_run = re.compile(r"[0-9a-f]{1,32}", re.ASCII).fullmatch
_is_keys = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII).fullmatch
_OF_BOTH: Final = {
    "open": SWITCH,
    "run": Exact(str, "it must be 1 to 32 lowercase hexadecimal digits", _is_run),
    "keys": Exact(str, _KEYS, _is_keys),
    "principals": Exact(list, _NAMES, _are_names),
}
APPLICATION_REQUEST: Final = strict(
    version=integer(0, _VERSION_MAX), finished=SWITCH, ended=SWITCH, **_OF_BOTH
)
_NAME: Final = f"it must have 1 to {NAME_CHARACTERS_MAX} characters and no NUL"
_BEGIN: Final = strict(
    application=Exact(str, _NAME, is_application_name, required=True),
    version=integer(0, _VERSION_MAX, required=True),
    **_OF_BOTH,
)


class BeginRefused(Exception):
    """The version of a line can't be begun; ``error`` says why."""

    def __init__(self, error: CommitError) -> None:
        super().__init__(error.detail)
        self.error = error


class BeginNeeded(NamedTuple):
    """A line can't be read before ``step`` is taken. ``place``: its catalog, and its begin's
    digest."""

    step: ApplicationStep
    place: tuple[str, bytes]


def read_begin(raw: bytes, catalog: str, limits: RequestLimits) -> ApplicationStep:
    """The step that a ``begin`` asks for. Raises RequestRefused with a pointer into the line."""
    value = decode_value(raw, limits, BEGIN)
    members = load(_BEGIN, value, _invalid)
    return step_of(catalog, members.pop("application"), members)


def _invalid(pointer: str, reason: str, errors: list[dict[str, str]]) -> RequestRefused:
    placed = [each | {"pointer": BEGIN + each["pointer"]} for each in errors]
    return invalid_body(BEGIN + pointer, reason, errors=placed)


def step_of(catalog: str, name: str, members: dict[str, Any]) -> ApplicationStep:
    """``members``: the other fields of the step, as a schema loads them."""
    if members["principals"] is not None:
        members["principals"] = tuple(members["principals"])
    return ApplicationStep(catalog, name, **members)


def step_request(gateway: GatewayService, by: Principal, step: ApplicationStep) -> Request:
    return gateway.request(
        step.catalog,
        (),
        by=by,
        author=by.name,
        message=_message(step),
        step=step,
        size_bytes=_RECORD_BYTES + sum(map(len, step.principals or ())),
    )


def _message(step: ApplicationStep) -> str:
    if step.version is not None:
        done = "finished" if step.finished else "begun"
        version = f"version {step.version} of application {step.name}"
        return f"run {step.run} of {version} ended" if step.ended else f"{version} {done}"
    return f"application {step.name} {'forgotten' if step.forgets else 'shared'}"


def record_after(result: Result, name: str) -> Application:
    return applications(result.outcome.documents[APPLICATIONS_KEY])[name]


def begun_fence(step: ApplicationStep, written: WriteOutcome) -> Fence | BeginRefused:
    """The fence for the lines of the version that ``step`` begins, or why they are refused.

    They are refused if the version is finished, or was begun with idempotency keys of another kind:
    rows that were applied under those would be applied again.
    """
    try:
        record = record_after(result_of(written, APPLICATIONS_KEY, dry_run=False), step.name)
        _require_as_asked(step, record)
    except UnknownOutcome as error:
        why = f"it isn't known whether the version was begun ({error.detail}): send the line again"
        return BeginRefused(HeldBack(why))
    except CommitError as error:
        return BeginRefused(untraced(error))
    fence = parse_fence(fence_of(step.name, record, step.run))
    assert fence is not None
    return fence


def _require_as_asked(step: ApplicationStep, record: Application) -> None:
    assert step.version is not None
    what = f"version {step.version} of application {step.name!r}"
    if record.is_finished(step.version):
        raise ApplicationConflict(f"{what} is finished: nothing more is applied under its fence")
    if not record.open and step.keys is not None and step.keys != record.keys:
        raise ApplicationConflict(
            f"{what} was begun with keys {record.keys!r}, not {step.keys!r}: with other keys, what"
            " it applied would be applied again"
        )
