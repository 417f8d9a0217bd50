"""A catalog as a whole: reads it, sets it up, examines and deletes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from msgspec.structs import replace

from gateway import cpu
from gateway.conflict import Required, StateConflict
from gateway.decide.conditions import ANY, NO_CONDITIONS
from gateway.decide.declaring_lists import BROKEN_MAX, broken
from gateway.decide.edits import Delete, KeyEdit, Put
from gateway.decide.guards import require_revision
from gateway.decide.ranges import RangeDeletion
from gateway.decide.request import Outcome, Refused, Request, WriteOutcome
from gateway.decide.settings import CatalogSettings, parse_settings, schema_fault
from gateway.errors import (
    CatalogNotFound,
    ConditionFailed,
    DeadlineExceeded,
    DocumentsBreakSettings,
    ListsUnchecked,
    OvertakenRead,
    RevisionCompacted,
)
from gateway.limits import ServiceLimits
from gateway.model import APPLICATIONS_KEY, OWN_KEYS, SETTINGS_KEY, DocumentRecord
from gateway.read.history import HistoryReads
from gateway.read.listing import Listing, as_is, not_overtaken
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.store.unreachable import as_unavailable

_COMMITS = 1_000
# How many documents are read at once: even the largest ones may be that many.
_DOCUMENTS = 4
_EXAMINED_AT_ONCE = 100

_UNDELETED: Final = "others keep deleting and re-creating the catalog; nothing was deleted"
_UNCHECKED: Final = (
    "the deadline passed before all documents were checked for list items that share a key or have"
    " none; nothing was changed. To declare lists without this check, send check_documents=false"
)


@dataclass(frozen=True, slots=True)
class LiveCatalog:
    """A catalog at one revision. ``settings`` is its live settings document, None if nothing was
    set."""

    catalog: str
    revision: int
    time_us: int
    floor: int
    settings: DocumentRecord | None


@dataclass(frozen=True, slots=True)
class Examined:
    """How many ``documents`` were checked against schemas, and the ``broken`` ones: each with its
    ``key``, ``pointer`` and ``message``. ``complete``: all documents that the schemas apply to were
    checked."""

    documents: int
    complete: bool
    broken: Sequence[dict[str, str]]


class CatalogWide:
    def __init__(
        self,
        settler: Settler,
        listing: Listing,
        history: HistoryReads,
        commit: Callable[[Request], WriteOutcome],
        runtime: Runtime,
        limits: ServiceLimits,
    ) -> None:
        self._settler = settler
        self._listing = listing
        self._history = history
        self._commit = commit
        self._runtime = runtime
        self._keys_max = limits.catalog_deletion_keys_max

    def read(self, catalog: str) -> LiveCatalog:
        """The catalog now, at one revision. Raises CatalogNotFound, also if it was deleted."""
        return not_overtaken(None, lambda: self._read(catalog))

    def _read(self, catalog: str) -> LiveCatalog:
        with as_unavailable():
            head = self._settler.settle(catalog)
        if head.revision == 0 or head.deleted:
            raise CatalogNotFound(catalog, head.revision)
        _, found = self._listing.several(catalog, [SETTINGS_KEY], as_is, revision=head.revision)
        return LiveCatalog(catalog, head.revision, head.time_us, head.floor, found[SETTINGS_KEY])

    def set_up(self, request: Request) -> WriteOutcome:
        """Commit new settings. If they declare lists, all documents are checked first, then those
        that were written meanwhile, until so few are left that the decision can check them.

        Raises DeadlineExceeded, what ``commit`` raises, and DocumentsBreakSettings; with an
        idempotency key, the latter is returned as the outcome.
        """
        written = self._commit(request)
        (each,) = request.edits
        assert isinstance(each.edit, Put)
        check = None
        while isinstance(written.outcome, Refused) and isinstance(
            written.outcome.error, ListsUnchecked
        ):
            check = check or _ListCheck(
                self._listing,
                self._history,
                request,
                parse_settings(each.edit.value),
                lambda: self._require_time(request, _UNCHECKED),
            )
            try:
                at = check.run()
            except DocumentsBreakSettings as error:
                if request.idempotency is None:
                    raise
                return self._commit(replace(request, refusal=error))
            written = self._commit(replace(request, lists_checked=at))
        return written

    def examine(self, request: Request, settings: CatalogSettings, count: int) -> Examined:
        """Which of the first ``count`` documents by key the schemas of ``settings`` would refuse.

        It ends sooner if half of the time of ``request`` is over, or half of its processor time is
        used, or a hundred documents are broken. Raises StoreUnavailable.
        """
        check = _SchemaCheck(settings, request.deadline, count, self._runtime)
        after: str | None = "" if settings.schemas else None
        try:
            while after is not None:
                after = self._listing.page(
                    request.catalog,
                    check.add,
                    prefix=check.prefix,
                    after=after,
                    limit=_EXAMINED_AT_ONCE,
                    revision=None,
                ).next_after
        except _CheckedEnough:
            return Examined(check.documents, False, check.broken)
        except CatalogNotFound:
            pass
        return Examined(check.documents, True, check.broken)

    def delete(self, request: Request) -> WriteOutcome:
        """Delete every document, the settings and the applications, in one commit.

        ``request`` has no edits yet. Its idempotency key decides once here, too, even that there is
        no catalog, and so nothing to do. Raises DeadlineExceeded if others make and delete the
        catalog all the time, and what ``commit`` raises; without a key, also CatalogNotFound and
        ConditionFailed.
        """
        while True:
            try:
                deletion = self.deletion_of(request)
            except CatalogNotFound as error:
                deletion = _deletion_of_none(request, error)
            except ConditionFailed as error:
                if request.idempotency is None:
                    raise
                deletion = replace(request, refusal=error)
            written = self._commit(deletion)
            if not _is_overtaken(written.outcome):
                return written
            self._require_time(request)

    def _require_time(self, request: Request, detail: str = _UNDELETED) -> None:
        if self._runtime.monotonic() >= request.deadline:
            raise DeadlineExceeded(detail)

    def deletion_of(self, request: Request) -> Request:
        """``request`` with its edits. The documents to delete are found when it is decided, like
        those of a range, so it loses no more races than any other write.

        Raises CatalogNotFound, and ConditionFailed if the catalog isn't at the revision that the
        request requires.
        """
        require_revision(request, self._listing.head(request.catalog).revision)
        edits = (
            KeyEdit(SETTINGS_KEY, Delete()),
            KeyEdit(APPLICATIONS_KEY, Delete()),
            KeyEdit(SETTINGS_KEY, RangeDeletion("", self._keys_max, "catalog_deletion_keys_max")),
        )
        return replace(request, edits=edits, deletes_catalog=True)


def _deletion_of_none(request: Request, error: CatalogNotFound) -> Request:
    """The request to delete a catalog that doesn't exist. Under its idempotency key, it is decided
    as refused if it has a condition, and otherwise as unchanged. Without a key, raises that refusal
    or ``error``."""
    refusal = None
    if request.conditions is not NO_CONDITIONS or request.resource_version is not None:
        about = f"the catalog: {error.detail}"
        refusal = ConditionFailed(StateConflict(Required.IF_MATCH, (ANY,), about=about))
    if request.idempotency is None:
        raise refusal or error from error
    return replace(request, refusal=refusal, as_of=error.head_revision)


def _is_overtaken(outcome: Outcome) -> bool:
    return isinstance(outcome, Refused) and isinstance(outcome.error, OvertakenRead)


class _CheckedEnough(Exception):
    """Raised at the first document that is no longer checked."""


class _SchemaCheck:
    """Checks documents one after the other, as long as the request has time left."""

    def __init__(
        self, settings: CatalogSettings, deadline: float, count: int, runtime: Runtime
    ) -> None:
        self._schemas = settings.schemas
        self._count = count
        self._runtime = runtime
        self._until = (runtime.monotonic() + deadline) / 2
        self.documents = 0
        self.broken: list[dict[str, str]] = []
        # All keys that a schema applies to begin with this.
        self.prefix = _common([each.pattern.partition("*")[0] for each in self._schemas])

    def add(self, document: DocumentRecord) -> None:
        """Check a document. Raises _LookedEnough."""
        if self._runtime.monotonic() >= self._until or cpu.is_half_used():
            raise _CheckedEnough
        schemas = [each for each in self._schemas if each.matches(document.key)]
        if not schemas:
            return
        if self.documents == self._count or len(self.broken) == BROKEN_MAX:
            raise _CheckedEnough
        self.documents += 1
        wrong = schema_fault(schemas, document)
        if wrong is not None:
            self.broken.append({"key": document.key, **wrong})


def _common(texts: Sequence[str]) -> str:
    """The longest text that all of these begin with."""
    first, last = min(texts, default=""), max(texts, default="")
    length = next((at for at, each in enumerate(first) if last[at] != each), len(first))
    return first[:length]


# How a document breaks the list rules; None: it doesn't.
_Broken = dict[str, str] | None


class _ListCheck:
    """A check for documents that break the lists that new settings declare.

    The first pass checks every document, each later one those that were written since."""

    def __init__(
        self,
        listing: Listing,
        history: HistoryReads,
        request: Request,
        settings: CatalogSettings,
        require_time: Callable[[], None],
    ) -> None:
        """``require_time`` is called before each document, and raises if the time is over."""
        self._listing = listing
        self._history = history
        self._catalog = request.catalog
        self._by = request.by
        self._lists = settings.lists
        self._require_time = require_time
        self._at: int | None = None

    def run(self) -> int:
        """A revision at which no document breaks the lists.

        Raises DocumentsBreakSettings, what ``require_time`` raises, StoreUnavailable, and
        AboveLimit if the principal has too many pins to pin the revision meanwhile.
        """
        if self._at is not None:
            try:
                self._at = self._check_since(self._at)
                return self._at
            except RevisionCompacted:
                pass
        self._at = self._check_all()
        return self._at

    def _check_all(self) -> int:
        try:
            export = self._listing.export(
                self._catalog,
                self._broken,
                owner=self._by.name,
                require_time=self._require_time,
            )
        except CatalogNotFound:
            return 0
        try:
            self._require_right(chain.from_iterable(export.pages))
        finally:
            export.close()
        return export.revision

    def _check_since(self, revision: int) -> int:
        keys: set[str] = set()
        after: int | None = revision
        while after is not None:
            self._require_time()
            with as_unavailable():
                page = self._history.commits(self._catalog, after=after, limit=_COMMITS, key=None)
            keys.update(change.key for commit in page.commits for change in commit.changes)
            revision = page.commits[-1].revision if page.commits else revision
            after = page.next_after

        def results() -> Iterable[_Broken]:
            changed = sorted(keys - OWN_KEYS)
            for start in range(0, len(changed), _DOCUMENTS):
                self._require_time()
                some = changed[start : start + _DOCUMENTS]
                _, found = self._listing.several(
                    self._catalog, some, lambda each: (self._broken(each),), revision=revision
                )
                yield from (each[0] for each in found.values() if each is not None)

        self._require_right(results())
        return revision

    def _broken(self, document: DocumentRecord) -> _Broken:
        return broken(self._lists, document)

    def _require_right(self, results: Iterable[_Broken]) -> None:
        found: list[dict[str, str]] = []
        complete = True
        for wrong in results:
            if wrong is None:
                continue
            if len(found) == BROKEN_MAX:
                complete = False
                break
            found.append(wrong)
        if found:
            raise DocumentsBreakSettings(found, complete=complete)
