"""Requests, the views that they are decided on, and their outcomes: immutable values.

A request is a list of edits (``gateway.decide.edits``) that are committed together, at one
revision, if its guards hold. A write of one document is a list of one. Instead of edits, a request
may ask for a step of an application; or it may be under the fence of an application's version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Final, NamedTuple, TypedDict

import msgspec
from msgspec.structs import force_setattr

from gateway.access import NOBODY, Principal
from gateway.decide.compares import (
    Compare,
    IsAbsent,
    IsUnchanged,
    TokenIs,
    compared_keys,
    compared_ranges,
)
from gateway.decide.conditions import NO_CONDITIONS, Preconditions
from gateway.decide.edits import EDIT_KINDS, KeyEdit, MoveKey, kind_of
from gateway.decide.ranges import (
    NO_RANGES,
    KnownChange,
    RangeEdit,
    RangeQuery,
    RangeReplacement,
    Ranges,
    queries,
)
from gateway.decide.settings import CatalogSettings
from gateway.errors import AboveLimit, CommitError, code_of, untraced
from gateway.limits import MIB, ServiceLimits
from gateway.model import (
    OWN_KEYS,
    SETTINGS_KEY,
    ChangeRecord,
    CommitRecord,
    DocumentRecord,
    Idempotency,
    Reply,
    Skipped,
    Verdict,
)
from patching import Json

# No name of a principal begins like this.
_SCOPE: Final = "\n"

_fence = re.compile(
    r"([0-9]{1,18})(?:-([0-9a-f]{1,32}))?(\*?)\.([0-9a-f]{1,32})\.(.{1,255})",
    re.ASCII | re.DOTALL,
).fullmatch


class Fence(NamedTuple):
    """A version of an application, as the answer to its begin names it; ``scope`` tells the
    application from an earlier one with that name.

    ``run`` names the start of the job that sends the request; None: the client didn't say.
    ``open``: the application is open; then the fence only guards, and idempotency keys belong to
    the principal.
    """

    version: int
    scope: str
    name: str
    run: str | None = None
    open: bool = False

    @property
    def text(self) -> str:
        run = "" if self.run is None else f"-{self.run}"
        return f"{self.version}{run}{'*' if self.open else ''}.{self.scope}.{self.name}"


class ApplicationStep(msgspec.Struct, frozen=True):
    """A step of an application; see ``decide.applications``.

    With a ``version``, that is begun and, with ``finished``, finished; ``principals`` are those
    that the caller expects to share the application, and they share it from then on. Without a
    version, ``principals`` are all that share it from then on; None: the application is forgotten.

    ``keys`` says how the caller makes the idempotency keys of the version. ``open``: everybody who
    may write the catalog shares the application. ``run`` is for the fence, and is recorded only if
    it is ``ended``.
    """

    catalog: str
    name: str
    version: int | None = None
    finished: bool = False
    principals: tuple[str, ...] | None = None
    keys: str | None = None
    open: bool = False
    run: str | None = None
    ended: bool = False

    @property
    def forgets(self) -> bool:
        return self.version is None and self.principals is None


def parse_fence(text: str) -> Fence | None:
    """The fence that ``text`` names; None if it isn't one."""
    found = _fence(text)
    if found is None:
        return None
    return Fence(int(found[1]), found[4], found[5], run=found[2], open=bool(found[3]))


def scope_of(fence: Fence | None, principal: str) -> str:
    """The scope of an idempotency key: the application's, or the name of the ``principal``."""
    return principal if fence is None or fence.open else _SCOPE + fence.scope


_SETTINGS_ALONE: Final = frozenset((SETTINGS_KEY,))
_NO_KEYS: Final[frozenset[str]] = frozenset()


class Request(msgspec.Struct, frozen=True):
    """A write as the client asked for it; the same for every attempt.

    All of ``edits`` are committed, in order, at one revision, if the guards hold: the
    ``conditions`` on the document of the first edit, the catalog's ``resource_version``, and all of
    ``compare``. If a compare is false, ``otherwise`` is committed, if there is one. With
    ``rebase``, a patch that was made for an older state is applied if nothing that it reads or
    writes has changed since.

    ``commit_id`` is fixed before the first attempt, so that the outcome can be looked up.
    ``deadline`` is in seconds of the runtime's monotonic clock. ``size_bytes`` is the length of
    what was sent, for the bounds of queue and batch. ``keys`` and ``ranges`` are all that the
    decision depends on; ``token_keys`` are the keys whose contents it doesn't need. These three
    follow from the other fields.

    ``lists_checked``: if the request declares lists, the revision at which no document broke them;
    None: that wasn't checked. Without ``checks_lists``, it needn't be checked. ``read_ahead``: what
    was found out about its ranges ahead. ``is_transaction``: a refusal names its action, even a
    single one.

    ``by`` is the principal, and ``author`` whom the commit names. ``once``: the idempotency key
    decides once, whatever the outcome; without it, a refusal isn't remembered. ``fence``: the
    request is decided only while the fence is in force, and its key belongs to the application.
    ``step``: the step of an application, instead of edits.

    Two facts are found out before the decision. ``refusal`` is why the request must be refused; its
    key remembers that, unless it has decided before. ``as_of`` is the only revision at which the
    edits, or their absence, are right; at another one, the request is refused with OvertakenLook,
    which isn't remembered.
    """

    catalog: str
    edits: tuple[KeyEdit, ...]
    commit_id: str
    deadline: float
    conditions: Preconditions = NO_CONDITIONS
    resource_version: int | None = None
    compare: tuple[Compare, ...] = ()
    otherwise: tuple[KeyEdit, ...] | None = None
    is_transaction: bool = False
    rebase: bool = False
    deletes_catalog: bool = False
    lists_checked: int | None = None
    checks_lists: bool = True
    by: Principal = NOBODY
    author: str = "anonymous"
    message: str | None = None
    idempotency: Idempotency | None = None
    once: bool = False
    fence: Fence | None = None
    step: ApplicationStep | None = None
    refusal: CommitError | None = None
    as_of: int | None = None
    dry_run: bool = False
    size_bytes: int = 0
    keys: frozenset[str] = _NO_KEYS
    token_keys: frozenset[str] = _NO_KEYS
    ranges: tuple[RangeQuery, ...] = ()
    read_ahead: tuple[KnownChange, ...] = ()

    def __post_init__(self) -> None:
        keys = self._keys()
        force_setattr(self, "keys", keys)
        alone = len(keys) <= 2  # one document, and the settings
        if self.fence is not None or self.step is not None:
            force_setattr(self, "keys", keys | OWN_KEYS)
        if not alone:
            force_setattr(self, "token_keys", self._token_keys(keys))

    @property
    def key(self) -> str:
        """The key of the document that the conditions are about."""
        return self.edits[0].key if self.edits else SETTINGS_KEY

    def _token_keys(self, keys: frozenset[str]) -> frozenset[str]:
        worked_on = {each.key for each in self._branches() if kind_of(each.edit).sees}
        replaced = replaced_keys(self._branches())
        by_token = (TokenIs, IsAbsent, IsUnchanged)
        looked_into = compared_keys(c for c in self._compares() if not isinstance(c, by_token))
        return keys - worked_on - replaced - looked_into - _SETTINGS_ALONE

    def _keys(self) -> frozenset[str]:
        """The keys that the decision depends on; sets ``ranges``, too."""
        if len(self.edits) == 1 and not self.compare and not self.conditions.unchanged_under:
            (each,) = self.edits
            if not each.when and EDIT_KINDS[type(each.edit)].is_of_one:
                return frozenset((each.key, SETTINGS_KEY, *self.conditions.keys))
        edits, compares = self._branches(), self._compares()
        in_ranges = (each.edit for each in edits if isinstance(each.edit, RangeEdit))
        compared = (*self.conditions.unchanged_under, *compared_ranges(compares))
        force_setattr(self, "ranges", queries(compared, in_ranges))
        moved_to = (each.edit.to for each in edits if isinstance(each.edit, MoveKey))
        return reduce(
            frozenset.union,
            (
                frozenset(each.key for each in edits),
                frozenset(moved_to),
                replaced_keys(edits),
                compared_keys(compares),
                self.conditions.keys,
            ),
            _SETTINGS_ALONE,
        )

    def _branches(self) -> tuple[KeyEdit, ...]:
        return (*self.edits, *(self.otherwise or ()))

    def _compares(self) -> tuple[Compare, ...]:
        return (*self.compare, *chain.from_iterable(each.when for each in self._branches()))


class RequestTerms(TypedDict, total=False):
    """Fields of a ``Request`` besides its edits, as keywords; each has a default there."""

    conditions: Preconditions
    resource_version: int | None
    compare: tuple[Compare, ...]
    otherwise: tuple[KeyEdit, ...] | None
    is_transaction: bool
    rebase: bool
    checks_lists: bool
    by: Principal
    author: str
    message: str | None
    idempotency: Idempotency | None
    once: bool
    fence: Fence | None
    step: ApplicationStep | None
    dry_run: bool
    size_bytes: int


class Applied(msgspec.Struct, frozen=True):
    """The request is in the catalog's history as ``commit``, once.

    ``documents`` are the states that it left, for all keys in its edits. They are empty if it is
    ``replayed``: then the answer is made from the commit alone.
    """

    commit: CommitRecord
    documents: Mapping[str, DocumentRecord | None]
    replayed: bool = False

    @property
    def document(self) -> DocumentRecord | None:
        """The state that a request on one document left."""
        return next(iter(self.documents.values()), None)


class Unchanged(msgspec.Struct, frozen=True):
    """There was nothing to change (or it was a dry run): no commit, no new revision.

    ``documents`` are the states that it would leave, by key, None if there is no live document. For
    a dry run that would change something, ``would_change`` is true, ``changes`` says what, and the
    tokens of changed documents aren't valid. ``succeeded`` is false if a compare was false, so that
    ``otherwise`` was decided. ``replayed``: it was decided by an earlier try; contents are
    WITHHELD. ``skipped`` and ``left_out`` are as in ``CommitRecord``.
    """

    documents: Mapping[str, DocumentRecord | None]
    catalog_revision: int
    would_change: bool = False
    succeeded: bool = True
    changes: tuple[ChangeRecord, ...] = ()
    rebased_from: str | None = None
    replayed: bool = False
    skipped: tuple[Skipped, ...] = ()
    left_out: tuple[int, ...] = ()

    @property
    def document(self) -> DocumentRecord | None:
        return next(iter(self.documents.values()), None)


class Refused(msgspec.Struct, frozen=True):
    """Certainly not applied. The reason was true at a moment between call and answer."""

    error: CommitError

    def __post_init__(self) -> None:
        untraced(self.error)


class Unknown(msgspec.Struct, frozen=True):
    """The connection broke around the commit, and MongoDB couldn't be asked in time."""

    commit_id: str


Outcome = Applied | Unchanged | Refused | Unknown


def is_for_now(outcome: Outcome) -> bool:
    """Whether the same request may be applied if it is sent again."""
    return isinstance(outcome, Unknown) or (
        isinstance(outcome, Refused) and outcome.error.retryable
    )


class WriteOutcome(msgspec.Struct, frozen=True):
    """A request's outcome, the id its commit has or would have had, and the attempts it took."""

    outcome: Outcome
    commit_id: str
    attempts: int


# The most bytes of one request's documents together, unless they are few.
DOCUMENTS_BYTES_MAX: Final = 32 * MIB


# Returns what a verdict keeps of a refusal: the arguments of ``RefusedBefore``.
EncodeRefusal = Callable[[CommitError], Mapping[str, Json]]


def code_and_detail(error: CommitError) -> dict[str, Json]:
    return {"code": code_of(error), "detail": error.detail}


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a decision, besides the state.

    ``stored_bytes`` measures a content as the store will hold it; ``settings_of`` returns the
    settings of a settings document, or of None (see ``CompiledSettings``). ``encode_refusal``
    returns what a verdict keeps of a refusal.
    """

    limits: ServiceLimits
    stored_bytes: Callable[[Json], int]
    settings_of: Callable[[DocumentRecord | None], CatalogSettings]
    encode_refusal: EncodeRefusal = code_and_detail


class View(msgspec.Struct, frozen=True):
    """A catalog's state at ``revision``, as far as its batch needs it.

    ``documents`` has every key that the batch names: a document, a tombstone, or None if the key
    never existed. ``replies`` has, by (principal, key), what the idempotency keys of the batch have
    decided already; other keys weren't used up to ``revision``. ``bases`` has, by (key, token), the
    documents that patches to be rebased were made for, and ``ranges`` what the batch asks of
    ranges.

    If a request asks for it (``lists_checked``), ``changed`` has the keys of all documents that
    were written after ``changed_since``; large ones may be WITHHELD.

    ``judged`` is the number of the catalog's last verdict; ``last`` and ``last_verdict`` are the
    ids of its last commit and verdict, see ``Head``. ``tail`` and ``verdicts`` are the last commits
    and verdicts that may not be written out; the decision doesn't use them. ``requests``: for how
    many requests of the batch, from the first one on, the view was read; None: all. ``too_heavy``:
    the refusal of the first request if its documents are more than are read for one request; then
    they are missing. ``deleted``: the catalog was deleted at ``revision``.
    """

    catalog: str
    revision: int
    time_us: int
    documents: Mapping[str, DocumentRecord | None]
    replies: Mapping[tuple[str, str], Reply] = msgspec.field(default_factory=dict)
    bases: Mapping[tuple[str, str], DocumentRecord] = msgspec.field(default_factory=dict)
    tail: tuple[CommitRecord, ...] = ()
    judged: int = 0
    verdicts: tuple[Verdict, ...] = ()
    requests: int | None = None
    too_heavy: AboveLimit | None = None
    ranges: Ranges = NO_RANGES
    changed_since: int | None = None
    changed: frozenset[str] = frozenset()
    deleted: bool = False
    last: str = ""
    last_verdict: str = ""


class Decision(msgspec.Struct, frozen=True):
    """``commits`` at revisions view.revision + 1, + 2, …; ``verdicts`` numbered view.judged + 1,
    + 2, …; one outcome per request, in order.

    ``outcomes`` may be shorter than the batch: the other requests no longer fit, and are decided in
    the next one. ``documents`` are the states that the commits leave, by key.
    """

    commits: tuple[CommitRecord, ...]
    outcomes: tuple[Outcome, ...]
    documents: Mapping[str, DocumentRecord]
    verdicts: tuple[Verdict, ...] = ()


def replaced_keys(edits: Iterable[KeyEdit]) -> frozenset[str]:
    """The keys of the documents that replacements of ranges put."""
    ranges = (each.edit for each in edits if isinstance(each.edit, RangeReplacement))
    return frozenset(key for each in ranges for key, _, _ in each.documents)


def named_keys(edits: Sequence[KeyEdit]) -> list[str]:
    """The keys that ``edits`` name, targets of moves included, each once."""
    if len(edits) == 1 and EDIT_KINDS[type(edits[0].edit)].is_of_one:
        return [edits[0].key]
    keys = dict.fromkeys(each.key for each in edits)
    keys |= dict.fromkeys(each.edit.to for each in edits if isinstance(each.edit, MoveKey))
    return list(keys)
