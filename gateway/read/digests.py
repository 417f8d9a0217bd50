"""Digests of documents at one revision, which show without the contents which documents differ.

A document is stored with its digest, unless it is large. The digest is computed if none is stored,
or if the document was changed after the revision that was asked for: then from its state at that
revision, rebuilt from history.

For a manager, the digest is that of its part, which is what it owns (``patching.part_digests``).
Such digests are stored with the owners, unless items of lists are owned: then they are computed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import NamedTuple, cast

from gateway import cpu, memory
from gateway.cpu import interruptible
from gateway.limits import MIB
from gateway.model import SETTINGS_KEY, Digested, DocumentRecord
from gateway.read.listing import Listing, growing
from gateway.read.visibility import Viewer
from gateway.state.replay import scanned_digests, stored_digests, stored_documents
from gateway.store.contract import Store
from gateway.store.unreachable import as_unavailable
from patching import Json, digest
from patching.list_declarations import NO_DECLARATIONS, ListDeclarations, parse_declarations
from patching.part_digests import owned_digest

# The most contents, and bytes of contents, that are read for a page; it ends before the next one.
_CONTENTS_MAX = 500
_CONTENTS_BYTES_MAX = 4 * MIB
# How many keys are read for a page of keys that contain a text.
_KEYS_MAX = 10_000
# How many keys are checked for visibility at first; later there are more at a time.
_SEEN_AT_ONCE = 100
# How often a page of folders reads on (after the end of a folder, for example), and how many
# records it reads each time.
_SEEKS_MAX = 200
_STEP = 20
# With this after a folder's name, it comes after nearly all keys in the folder. If a key comes even
# later, two pages may list its folder.
_LAST = "\U0010ffff"


class KeyDigest(NamedTuple):
    """A document's key, version token, digest and revision. The digest is that of the content, or
    of the manager's part; None: the manager owns nothing of the document."""

    key: str
    token: str
    digest: str | None
    revision: int


class Names(NamedTuple):
    """Which keys to list: all, those that ``contain`` a text, or those of one folder.

    With a ``delimiter``, a key that has it after the prefix is listed as a folder: the part of the
    key up to and including the delimiter.
    """

    contain: str = ""
    delimiter: str = ""


ANY_NAME = Names()


class _Scan(NamedTuple):
    catalog: str
    prefix: str
    at: int
    viewer: Viewer | None
    manager: str | None
    digests: bool

    def is_known(self, record: Digested) -> bool:
        """Whether the record has all that is wanted, or shows that there is no document."""
        if record.revision > self.at:
            return False
        digest = record.digest if self.manager is None else record.parts
        return digest is not None or not (record.exists and self.digests)

    def digest_of(self, record: Digested) -> str | None:
        return record.digest if self.manager is None else (record.parts or {}).get(self.manager)


@dataclass(frozen=True, slots=True)
class KeyDigestPage:
    """The live documents at ``revision``, by key. ``next_after`` None: this is the last page."""

    revision: int
    documents: Sequence[KeyDigest]
    next_after: str | None
    folders: Sequence[str] = ()


class DigestListing:
    def __init__(self, store: Store, listing: Listing) -> None:
        self._store = store
        self._listing = listing

    def page(
        self,
        catalog: str,
        *,
        prefix: str,
        after: str,
        limit: int,
        revision: int | None,
        viewer: Viewer | None = None,
        names: Names = ANY_NAME,
        manager: str | None = None,
        digests: bool = True,
    ) -> KeyDigestPage:
        """Like ``Listing.page``, with the same errors; a page has fewer documents if contents have
        to be read.

        With ``names``, a page may be empty although more follow. With ``manager``, the digests are
        those of its parts. Without ``digests``, none is made: no content is read for them.
        """

        def page(at: int) -> KeyDigestPage:
            scan = _Scan(catalog, prefix, at, viewer, manager, digests)
            with memory.account().holding(memory.REPLY_BYTES):
                if names.contain:
                    found = self._containing(scan, after, limit, names.contain.casefold())
                elif names.delimiter:
                    found = self._in_folders(scan, after, limit, names.delimiter)
                else:
                    found = self._page(scan, after, limit)
            self._listing.require_above_floor(catalog, scan.at)
            return found

        return self._listing.read_at(catalog, revision, page)

    def several(
        self,
        catalog: str,
        keys: Collection[str],
        *,
        revision: int | None,
        viewer: Viewer | None = None,
        manager: str | None = None,
    ) -> tuple[int, Mapping[str, KeyDigest | None]]:
        """Like ``Listing.several``, for digests; with ``manager``, for those of its parts."""

        def read(at: int) -> tuple[int, Mapping[str, KeyDigest | None]]:
            digested = self._digested(catalog, at, manager)
            return at, self._listing.several_at(at, catalog, keys, digested, viewer)

        return self._listing.read_at(catalog, revision, read)

    def _digested(
        self, catalog: str, at: int, manager: str | None = None
    ) -> Callable[[DocumentRecord], KeyDigest]:
        """A function that computes the digest of a live document at revision ``at``: see
        ``page``."""
        if manager is None:
            return _content_digest
        lists = self._lists(catalog, at)
        return lambda document: _part_digest(document, manager, lists)

    def _lists(self, catalog: str, at: int) -> ListDeclarations:
        with as_unavailable():
            found = stored_documents(self._store, {catalog: [SETTINGS_KEY]})
            settings = found.get((catalog, SETTINGS_KEY))
            document = self._listing.as_of(catalog, SETTINGS_KEY, settings, at)
        if document is None or not isinstance(document.content, dict):
            return NO_DECLARATIONS
        return parse_declarations(document.content.get("arrays", []))

    def _page(self, scan: _Scan, after: str, limit: int) -> KeyDigestPage:
        found: list[KeyDigest] = []
        more, steps = True, growing(limit)
        while len(found) < limit:
            records = self._records(scan, after, next(steps))
            more = bool(records)
            if not records:
                break
            some, after = self._visible(scan, records, limit - len(found))
            found += some
            is_long = cpu.is_half_used()
            # As in ``Listing``, hidden documents don't end the page.
            if (found or is_long) if scan.viewer is None else (found and is_long):
                break
        more = more and bool(self._store.scan_keys(scan.catalog, after, scan.prefix, 1))
        last = after if scan.viewer is None or not found else found[-1].key
        return KeyDigestPage(scan.at, found, last if more else None)

    def _containing(self, scan: _Scan, after: str, limit: int, text: str) -> KeyDigestPage:
        """The documents among the next _KEYS_MAX keys whose keys contain ``text``, which is
        casefolded. With a viewer, it reads on until there is a visible key after which the next
        page can begin."""
        while True:
            page, keys = self._next_containing(scan, after, limit, text)
            if scan.viewer is None or page.next_after is None:
                return page
            after = page.next_after
            last = page.documents[-1].key if page.documents else None
            last = last or _last_seen(scan.viewer, [key for key in keys if key <= after])
            if last is not None:
                return replace(page, next_after=last)

    def _next_containing(
        self, scan: _Scan, after: str, limit: int, text: str
    ) -> tuple[KeyDigestPage, Sequence[str]]:
        """The page from the next _KEYS_MAX keys, and these keys."""
        keys = self._store.scan_keys(scan.catalog, after, scan.prefix, _KEYS_MAX)
        matching = [key for key in keys if text in key.casefold()]
        found: Sequence[KeyDigest] = ()
        last = keys[-1] if keys else after
        parts = scan.manager is not None
        for step in growing(limit):
            some = matching[:step]
            if not some:
                break
            records = stored_digests(self._store, scan.catalog, some, parts=parts)
            found, reached = self._visible(scan, records, limit) if records else ((), some[-1])
            matching = matching[bisect_right(matching, reached) :]
            if matching and (found or scan.viewer is None):
                last = reached
                break
        more = len(keys) == _KEYS_MAX or (keys and last < keys[-1])
        return KeyDigestPage(scan.at, found, last if more else None), keys

    def _in_folders(self, scan: _Scan, after: str, limit: int, delimiter: str) -> KeyDigestPage:
        """The documents without the delimiter after the prefix, and the folders of the others.

        A folder is read only until a document is found in it.
        """
        documents: list[KeyDigest] = []
        folders: list[str] = []
        last_key = ""  # the last key that was found
        steps = growing(min(limit, _STEP))

        def folder_of(key: str) -> str | None:
            end = key.find(delimiter, len(scan.prefix))
            return None if end < 0 else key[: end + len(delimiter)]

        for seeks in count():
            left = limit - len(documents) - len(folders)
            # With a viewer, the page can't end before a visible key, which the next one begins
            # after.
            is_long = seeks >= _SEEKS_MAX or (seeks > 0 and cpu.is_half_used())
            if not left or (is_long and (scan.viewer is None or last_key)):
                break
            records = self._records(scan, after, next(steps))
            if not records:
                return KeyDigestPage(scan.at, documents, None, folders)
            found, after = self._visible(scan, records, left)
            if found:
                last_key = found[-1].key
                steps = growing(min(left, _STEP))
            documents += [each for each in found if folder_of(each.key) is None]
            for folder in filter(None, (folder_of(each.key) for each in found)):
                if folder not in folders[-1:]:
                    folders.append(folder)
            if folders and folder_of(after) == folders[-1]:
                after = max(after, folders[-1] + _LAST)
        more = self._store.scan_keys(scan.catalog, after, scan.prefix, 1)
        if scan.viewer is not None:
            after = max([last_key, *(each + _LAST for each in folders[-1:])])
        return KeyDigestPage(scan.at, documents, after if more else None, folders)

    def _records(self, scan: _Scan, after: str, limit: int) -> Sequence[Digested]:
        parts = scan.manager is not None
        return scanned_digests(self._store, scan.catalog, after, scan.prefix, limit, parts=parts)

    def _visible(
        self, scan: _Scan, records: Sequence[Digested], limit: int
    ) -> tuple[Sequence[KeyDigest], str]:
        """At most ``limit`` of the first ``records`` that were live and are visible; and the key of
        the last record that was considered."""
        records = _within_bounds(scan, records)
        with memory.account().holding():
            found = self._digests_of(scan, records)
        if len(found) > limit:
            return found[:limit], found[limit - 1].key
        return found, records[-1].key

    def _digests_of(self, scan: _Scan, records: Sequence[Digested]) -> Sequence[KeyDigest]:
        viewer = scan.viewer
        found: list[KeyDigest] = []
        contents = self._contents(scan, records)
        digested = self._of_documents(scan) if contents else None
        for each in records:
            if scan.is_known(each):
                if each.exists and (viewer is None or viewer.sees_past(each, each)):
                    digest = scan.digest_of(each)
                    found.append(KeyDigest(each.key, each.token, digest, each.revision))
            elif (
                digested is not None
                and (document := contents.get(each.key))
                and (viewer is None or viewer.sees_past(document, each))
            ):
                found.append(digested(document))
        return found

    def _of_documents(self, scan: _Scan) -> Callable[[DocumentRecord], KeyDigest]:
        if not scan.digests:
            return lambda document: KeyDigest(document.key, document.token, None, document.revision)
        return self._digested(scan.catalog, scan.at, scan.manager)

    def _contents(self, scan: _Scan, records: Sequence[Digested]) -> Mapping[str, DocumentRecord]:
        """By key, the live documents of those records that don't have the wanted digest."""
        catalog, at = scan.catalog, scan.at
        unknown = [each for each in records if not scan.is_known(each)]
        keys = [each.key for each in unknown if each.revision <= at]
        stored = stored_documents(self._store, {catalog: keys}) if keys else {}
        found = {
            document.key: self._listing.as_of(catalog, document.key, document, at)
            for document in stored.values()
        }
        for each in unknown:
            if each.revision > at:
                found[each.key] = self._listing.rebuilt(catalog, each.key, at)
        return {key: document for key, document in found.items() if document is not None}


def _last_seen(viewer: Viewer, keys: Sequence[str]) -> str | None:
    """The last of ``keys`` under which there is a visible document; None: there is none."""
    steps = growing(_SEEN_AT_ONCE)
    while keys:
        step = next(steps)
        visible = viewer.visible(keys[-step:])
        if visible:
            return visible[-1]
        keys = keys[:-step]
    return None


@interruptible
def _content_digest(document: DocumentRecord) -> KeyDigest:
    content = cast(Json, document.content)
    return KeyDigest(document.key, document.token, digest(content), document.revision)


@interruptible
def _part_digest(document: DocumentRecord, manager: str, lists: ListDeclarations) -> KeyDigest:
    rules = lists.lists_of(document.key)
    part = owned_digest(cast(Json, document.content), document.owners, manager, rules)
    return KeyDigest(document.key, document.token, part, document.revision)


def _within_bounds(scan: _Scan, records: Sequence[Digested]) -> Sequence[Digested]:
    """The first of ``records``, at least one, as long as few contents have to be read for them."""
    contents = size_bytes = 0
    for number, record in enumerate(records):
        if not scan.is_known(record):
            contents += 1
            size_bytes += record.size_bytes
            if contents > 1 and (contents > _CONTENTS_MAX or size_bytes > _CONTENTS_BYTES_MAX):
                return list(islice(records, number))
    return records
