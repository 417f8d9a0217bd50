"""The sources' requests to a gateway, retried as the options allow; and pins that keep a revision
from compaction while it is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from patching.client import ClientError, Gone, NotFound, Pin, Unreachable
from patching.client._blocking import CallSender
from patching.client._documents import time_query
from patching.client._reading import key_chunks
from patching.client.errors import OverLimit, UnexpectedAnswer
from patching.client.results import PinState
from patching.client.transport import HttpAnswer, Query, Transport, segment
from patching.list_declarations import ListDeclarations, parse_declarations
from patching.spark.options import PARTITIONS_MAX, Options

_Page = TypeVar("_Page")
_PAGE: Final = 1000
_DIGESTS: Final = 10_000
# The most key ranges of one request; how many of them a sample takes, and documents of each.
_CUT: Final = 1000
_SAMPLED: Final = 5
_SAMPLE: Final = 50
# The most commits with whole documents on a page.
_IMAGES: Final = 100
# Above every revision: such a page of commits is empty, and its header has the head.
_BEYOND: Final = 2**63 - 1


class ReadFailed(ClientError):
    """Nothing can be read; the text tells the author of the query why."""


class CatalogMissing(ReadFailed):
    """There is no such catalog: it was never written, or was deleted."""


class Compacted(ReadFailed):
    """The requested revision is below ``oldest``, the oldest retained one. ``remedy``: sentences
    that say what to do."""

    def __init__(self, catalog: str, what: str, oldest: int | None, remedy: str = "") -> None:
        known = "" if oldest is None else f"; the oldest retained revision is {oldest}"
        why = f"catalog {catalog!r}: {what} can't be read, because its history was compacted{known}"
        super().__init__(f"{why}. {remedy}" if remedy else why)
        self.what = what
        self.oldest = oldest


class DocumentShape(msgspec.Struct, frozen=True):
    """A document of a page; values stay the JSON text that the gateway sent. If a key was asked for
    that has no document, ``etag`` is None."""

    key: str
    etag: str | None
    revision: int = 0
    create_revision: int = 0
    value: msgspec.Raw = msgspec.Raw(b"null")
    attributes: msgspec.Raw = msgspec.Raw(b"null")


class NextShape(msgspec.Struct, frozen=True):
    after: str
    revision: int


class DocumentPage(msgspec.Struct, frozen=True):
    revision: int
    documents: list[DocumentShape]
    next: NextShape | None


class DigestShape(msgspec.Struct, frozen=True):
    """``digest``: null if the request names a manager that owns nothing of the document."""

    key: str
    etag: str
    digest: str | None


class DigestPage(msgspec.Struct, frozen=True):
    revision: int
    documents: list[DigestShape]
    next: NextShape | None


class PlanShape(msgspec.Struct, frozen=True):
    """``bounds``: the keys with which one range ends; the next one begins above it."""

    revision: int
    bounds: list[str]

    @property
    def ranges(self) -> list[tuple[str, str | None]]:
        """(above this key, up to that one) for each range; None: to the last key."""
        return list(zip(["", *self.bounds], [*self.bounds, None], strict=True))


class ChangeShape(msgspec.Struct, frozen=True):
    key: str | None
    action: str
    create_revision: int
    patch: msgspec.Raw
    attributes: msgspec.Raw = msgspec.Raw(b"null")
    # The document before and after the commit, if asked for and there is one. ``withheld`` names
    # those that the gateway left out because of their size.
    before: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    withheld: list[str] = []

    @property
    def size(self) -> int:
        """Bytes of JSON of what it changes."""
        return len(bytes(self.patch)) + len(bytes(self.attributes))


class CommitShape(msgspec.Struct, frozen=True):
    revision: int
    time: str
    commit_id: str
    author: str | None
    message: str | None
    idempotency_key: str | None
    attempts: int
    changes: list[ChangeShape]
    deletes_catalog: bool = False
    # The id of the commit before it, if that is known.
    parent: str | None = None


class GrantShape(msgspec.Struct, frozen=True):
    """``role`` in the catalogs whose names match ``pattern``."""

    role: str
    pattern: str


class PrincipalShape(msgspec.Struct, frozen=True):
    grants: list[GrantShape]


class CatalogShape(msgspec.Struct, frozen=True):
    settings: dict[str, Any] | None
    revision: int
    time: str


class CommitRows(msgspec.Struct, frozen=True):
    commits: list[CommitShape]
    next: int | None


class ChangesPage(msgspec.Struct, frozen=True):
    """``revision``: the page has all commits up to it that were asked for."""

    commits: list[CommitShape]
    revision: int


class CatalogReads:
    """Requests about one catalog. They raise ReadFailed if the user can do something about it, else
    RequestError. The caller closes ``transport``."""

    def __init__(self, transport: Transport, options: Options) -> None:
        assert options.catalog is not None
        self.catalog: Final = options.catalog
        self._options = options
        self._transport = transport
        self._path = f"/v1/catalogs/{segment(options.catalog)}"

    def documents(self, *, after: str = "", limit: int = _PAGE, revision: int) -> DocumentPage:
        """A page of the documents above ``after`` whose keys begin with the option ``prefix``."""
        query: Query = [("limit", limit), ("revision", revision), *self._among(after)]
        return self._page("/documents", query, DocumentPage, f"revision {revision}")

    def plan(
        self, pieces: int = 1, *, revision: int | None = None, timestamp: str | None = None
    ) -> PlanShape:
        """The revision, and about ``pieces`` ranges, or fewer, of the keys that begin with the
        option ``prefix``. More than one request allows are cut in two steps."""
        sections = -(-pieces // _CUT)
        plan = self._cut(min(pieces, _CUT) if sections == 1 else sections, revision, timestamp)
        if sections == 1:
            return plan
        bounds: list[str] = []
        for after, until in plan.ranges:
            bounds += self._cut(-(-pieces // sections), plan.revision, None, after, until).bounds
            bounds += [] if until is None else [until]
        return PlanShape(plan.revision, bounds)

    def _cut(
        self,
        count: int,
        revision: int | None,
        timestamp: str | None,
        after: str = "",
        until: str | None = None,
    ) -> PlanShape:
        when = time_query(revision, timestamp)
        query: Query = [("count", count), *when, *self._among(after, until)]
        about = "the present state" if revision is None else f"revision {revision}"
        about = about if timestamp is None else f"the state at {timestamp}"
        return self._page("/partitions", query, PlanShape, about)

    def pieces(self, bytes_each: int, plan: PlanShape) -> int:
        """How many ranges have about ``bytes_each`` of documents each, by a sample: some ranges of
        ``plan``, which have about equally many documents, and the first documents of these."""
        ranges = plan.ranges
        count = size = sized = 0
        some = ranges[:: -(-len(ranges) // _SAMPLED)]
        for after, until in some:
            page = self.documents(after=after, limit=_SAMPLE, revision=plan.revision)
            size += sum(len(bytes(each.value)) for each in page.documents)
            sized += len(page.documents)
            count += self._count(after, until, plan.revision)
        total = count / len(some) * len(ranges) * size / max(sized, 1)
        return max(1, min(PARTITIONS_MAX, round(total / bytes_each)))

    def _count(self, after: str, until: str | None, revision: int) -> int:
        """How many documents there are above ``after`` up to ``until``."""
        found = 0
        while True:
            page = self.digests(after, revision)
            inside = sum(until is None or each.key <= until for each in page.documents)
            found += inside
            if page.next is None or inside < len(page.documents):
                return found
            after = page.next.after

    def digests(self, after: str, revision: int, manager: str | None = None) -> DigestPage:
        """A page of the digests of documents above ``after`` whose keys begin with the option
        ``prefix``; with ``manager``, of what it owns in them."""
        query: list[tuple[str, str | int]] = [("select", "digest"), ("limit", _DIGESTS)]
        query += [] if manager is None else [("manager", manager)]
        query += [("revision", revision), *self._among(after)]
        return self._page("/documents", query, DigestPage, f"revision {revision}")

    def named(self, keys: Sequence[str], revision: int) -> list[DocumentShape]:
        """The existing documents under ``keys``, which must fit into the line of a request. If they
        are too large for one answer, it asks for each half."""
        query: Query = [*(("key", key) for key in keys), ("revision", revision)]
        try:
            page = self._page("/documents", query, DocumentPage, f"revision {revision}")
        except ReadFailed as error:
            if not _is_too_large(error.__cause__) or len(keys) == 1:
                raise
            half = len(keys) // 2
            return self.named(keys[:half], revision) + self.named(keys[half:], revision)
        return [each for each in page.documents if each.etag is not None]

    def through(
        self,
        revision: int,
        keep: Callable[[], None],
        names: Sequence[str] | None = None,
        after: str = "",
        until: str | None = None,
    ) -> Iterator[DocumentShape]:
        """The documents ``names``; if None, those above ``after`` up to ``until`` (None: to the
        end) whose keys begin with the option ``prefix``. Calls ``keep`` before each request."""
        for some in () if names is None else key_chunks(names):
            keep()
            yield from self.named(some, revision)
        following: str | None = after if names is None else None
        while following is not None:
            keep()
            page = self.documents(after=following, revision=revision)
            for document in page.documents:
                if until is not None and document.key > until:
                    return
                yield document
            following = None if page.next is None else page.next.after

    def commits(self, after: int, limit: int, key: str | None = None) -> tuple[CommitRows, int]:
        """Commits above ``after``, of one ``key`` if given; and the catalog's head."""
        query: list[tuple[str, str | int]] = [("after", after), ("limit", min(limit, _PAGE))]
        query += [] if key is None else [("key", key)]
        about = f"the commits above revision {after}"
        answer = self._ask(f"{self._path}/commits", query, about)
        head = answer.headers.get("Catalog-Revision", "")
        if not head.isdigit():
            raise UnexpectedAnswer("the answer has no Catalog-Revision", status=200, applied="no")
        return _decoded(answer, CommitRows), int(head)

    def commit_id(self, revision: int) -> str | None:
        """The id of the commit at ``revision``; None if there is none. Raises Compacted."""
        page, _ = self.commits(revision - 1, 1)
        return next((each.commit_id for each in page.commits if each.revision == revision), None)

    def changes(self, after: int) -> ChangesPage:
        """The next commits above ``after``, which is below the head, with a change that the options
        ask for, and with the documents of the option ``include``. The page's revision is above
        ``after``."""
        options = self._options
        query: list[tuple[str, str | int]] = [("after", after), ("timeout", 0)]
        query += [("limit", _IMAGES), *(("include", each) for each in options.include)]
        query += [("key", options.key)] if options.key else []
        query += [("prefix", options.prefix)] if options.prefix else []

        def ask() -> ChangesPage:
            answer = self._transport.request("GET", self._path + "/changes", query=query)
            page = _decoded(answer, ChangesPage)
            if page.revision <= after:
                # A worker that is about to end answers like this: another one has the commits.
                why = f"the answer has nothing about the commits above revision {after}"
                raise UnexpectedAnswer(why, status=answer.status, applied="no", retryable=True)
            return page

        with self.explaining(f"the commits above revision {after}"):
            return self._options.tries().ask(ask)

    def content(self, key: str, revision: int) -> msgspec.Raw | None:
        """The document at ``revision``; None if there was none."""
        found = self.named([key], revision) if revision else []
        return found[0].value if found else None

    def head(self) -> int:
        """The catalog's revision, even if it was deleted. ReadFailed if it was never written."""
        head = self.head_if_any()
        if head == 0:
            self._refuse_catalog()
        return head

    def head_if_any(self) -> int:
        """The catalog's revision; 0 if it was never written."""
        return self.commits(_BEYOND, 1)[1]

    def catalog_state(self) -> CatalogShape:
        """Its revision, since when it has that, and its settings. ReadFailed if it isn't there."""
        return self._page("", (), CatalogShape, "its settings")

    def grants(self) -> list[GrantShape]:
        """The grants of the principal that reads, in all catalogs."""
        return _decoded(self._ask("/v1/principal", (), "its principal"), PrincipalShape).grants

    def lists(self) -> ListDeclarations:
        """The lists that the catalog declares now; none if it was deleted."""
        try:
            settings = self.catalog_state().settings or {}
        except CatalogMissing:
            settings = {}
        return parse_declarations(settings.get("arrays", []))

    def revision_at(self, timestamp: str) -> int:
        """The newest revision that isn't later than ``timestamp``."""
        return self.plan(timestamp=timestamp).revision

    def floor(self) -> int:
        """The oldest retained revision: all commits above it are there."""
        try:
            self.commits(0, 1)
        except Compacted as error:
            if error.oldest is None:
                raise
            return error.oldest
        return 0

    def pin(self, revision: int | None, seconds: int, note: str, **given: Any) -> Pin:
        """A pin, not yet taken. Take and keep it under ``explaining``."""
        calls = CallSender(self._transport, self._options.retry, self._options.retry_timeout)
        return Pin(calls, self._path, revision, seconds, note, **given)

    @contextmanager
    def explaining(self, about: str) -> Iterator[None]:
        """Turn what the user can do something about into ReadFailed; ``about`` was asked for."""
        catalog = f"catalog {self.catalog!r}"
        try:
            yield
        except Gone as error:
            oldest = error.problem.get("oldest_revision")
            known = oldest if isinstance(oldest, int) else None
            raise Compacted(self.catalog, about, known) from error
        except NotFound as error:
            if error.code == "catalog_not_found":
                self._refuse_catalog(error)
            if error.code == "revision_not_found":
                raise ReadFailed(f"{catalog}: {about}: {error.detail}") from error
            raise
        except OverLimit as error:
            if error.code != "over_limit":
                raise
            if _is_too_large(error):
                raise ReadFailed(f"{catalog}: {about}: {error.detail}") from error
            raise ReadFailed(
                f"{catalog}: {about} can't be held while it is read: {error.detail}. Each read"
                " holds its revision for the seconds of the option pinSeconds: set it to less, or"
                " to 0 to read without holding the revision"
            ) from error
        except Unreachable as error:
            raise ReadFailed(
                f"option 'url': no gateway answers at {self._options.url}"
                f" (asked {error.sends} times): {error.detail}"
            ) from error

    def _among(self, after: str, until: str | None = None) -> list[tuple[str, str]]:
        """The query for keys in this range that begin with the option ``prefix``."""
        asked = {"after": after, "until": until, "prefix": self._options.prefix}
        return [(name, text) for name, text in asked.items() if text]

    def _page(self, rest: str, query: Query, shape: type[_Page], about: str) -> _Page:
        return _decoded(self._ask(self._path + rest, query, about), shape)

    def _ask(self, path: str, query: Query, about: str) -> HttpAnswer:
        """Sends a GET again while it is refused for now or not answered, as the options say."""
        with self.explaining(about):
            return self._options.tries().ask(
                lambda: self._transport.request("GET", path, query=query)
            )

    def _refuse_catalog(self, error: Exception | None = None) -> NoReturn:
        raise CatalogMissing(
            f"option 'catalog': there is no catalog {self.catalog!r} at {self._options.url};"
            " its first write creates it"
        ) from error


@contextmanager
def catalog_reads(options: Options) -> Iterator[CatalogReads]:
    """CatalogReads over a connection pool of its own, closed at the end."""
    with options.open_transport() as transport:
        yield CatalogReads(transport, options)


def _is_too_large(error: BaseException | None) -> bool:
    return isinstance(error, OverLimit) and error.problem.get("limit") == "several_bytes_max"


def _decoded(answer: HttpAnswer, shape: type[_Page]) -> _Page:
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnexpectedAnswer(
            f"this is not a gateway's answer: {error}", status=answer.status, applied="no"
        ) from error


# The most seconds of a pin that is renewed: one that a dead driver leaves behind soon expires.
_SECONDS_MAX: Final = 600
_PERIODS: Final = 20


@contextmanager
def held_revision(options: Options, note: str, revision: int | None = None) -> Iterator[int]:
    """The revision, by default the catalog's head, pinned under ``note`` until the block ends.

    0 if the catalog was never written: there is nothing to pin. With the option pinSeconds=0,
    nothing is pinned either. Raises ReadFailed, RequestError, and Compacted if it is too late. If
    the pin is lost, reads may raise Compacted.
    """
    with catalog_reads(options) as reads:
        head = reads.head_if_any() if revision is None else revision
        if not (head and options.pin_seconds):
            yield head
            return
        with _pinned(reads, revision, options.pin_seconds, note) as pin:
            yield pin.revision


@contextmanager
def held_history(options: Options, note: str, after: int) -> Iterator[int]:
    """The head. The retained commits above ``after`` are pinned under ``note`` until the block
    ends. Raises what ``held_revision`` raises."""
    with catalog_reads(options) as reads:
        head = reads.head()
        oldest = min(max(after, reads.floor()), head)
        if not options.pin_seconds:
            yield head
            return
        with _pinned(reads, oldest, options.pin_seconds, note):
            yield head


@contextmanager
def _pinned(reads: CatalogReads, revision: int | None, seconds: int, note: str) -> Iterator[Pin]:
    pin = reads.pin(revision, min(seconds, _SECONDS_MAX), note)
    with reads.explaining("its head" if revision is None else f"revision {revision}"):
        pin.take()
    with pin:
        yield pin


@dataclass(frozen=True, slots=True)
class Hold:
    """The pin of a read, shared by its tasks; it expires ``seconds`` after the last renewal.

    Spark doesn't tell a batch reader that its tasks are done, or that the query is over, so nobody
    removes the pin. ``seconds`` 0: nothing is pinned.

    The reads in a ``period``, a twentieth of ``seconds``, share the pin of the first of them,
    unless one reads an earlier revision. So there are some twenty pins at a time, however many
    reads of ever newer revisions there are, and history is held for little longer than if each had
    its own.
    """

    revision: int
    seconds: int
    pin_id: str | None = None
    period: int = 0

    @classmethod
    def take(cls, reads: CatalogReads, revision: int, seconds: int) -> Hold:
        """Pin ``revision``. Compacted if it is too late; ReadFailed if there are too many pins."""
        if not seconds:
            return cls(revision, 0)
        period = int(time.time() * _PERIODS) // seconds
        pin = cls(revision, seconds, period=period)._pin(reads)
        with reads.explaining(f"revision {revision}"):
            pin.take()
        return cls(revision, seconds, pin.id, period)

    def keeper(self, reads: CatalogReads) -> Callable[[], None]:
        """What a task calls before each request, even the first, as it may have waited long. It
        renews the pin. It raises Compacted if the pin has expired and it is too late for
        another."""
        if self.pin_id is None:
            return lambda: None
        pin = self._pin(reads)

        def keep() -> None:
            with reads.explaining(f"revision {self.revision}"):
                pin.keep()

        return keep

    def _pin(self, reads: CatalogReads) -> Pin:
        # Only reads with equal ``seconds`` share a pin, so a renewal never shortens it.
        kind = f"spark, {self.seconds} s at a time, "
        note = f"{kind}period {self.period}"

        def shared(held: PinState) -> bool:
            if held.revision == self.revision:
                return held.note.startswith(kind)
            return held.revision < self.revision and held.note == note

        given = {"shared": shared, "held": self.pin_id}
        return reads.pin(self.revision, self.seconds, note, **given)
