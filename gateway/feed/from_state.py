"""A feed that begins with the state: the documents as of revision R, and a watcher from R on.

Worked example. A client asks for catalog c, whose head is at 7: its watcher joins at 7, and the
documents are read as 7 had them. Somebody commits 8 meanwhile; the watcher takes it afterwards. The
client is cut off after key b and comes back with 7 and b, to any gateway: it gets the documents
after b as 7 had them, and then 8. Compaction can't pass 7 before the client has taken 8, because
the list's pin holds 7 until then.

The watcher joins before the list is read: a short list has no pin, but what is committed while it
is sent is in the ring.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gateway.errors import CatalogNotFound, DocumentNotFound, RevisionCompacted
from gateway.feed.channel import Selection
from gateway.feed.watcher import Watcher, WatchService
from gateway.model import SETTINGS_KEY, DocumentRecord
from gateway.read.history import HistoryReads
from gateway.read.listing import CatalogExport, Listing, not_overtaken
from gateway.read.visibility import Viewer
from gateway.store.unreachable import as_unavailable

_Item = TypeVar("_Item")
# Makes the feed's event about a document as of a revision.
EncodeAt = Callable[[DocumentRecord, int], _Item]


class MadeBy(NamedTuple):
    """The id and time of the commit that made a revision."""

    commit_id: str
    time_us: int


@dataclass(frozen=True, slots=True)
class FromState(Generic[_Item]):
    """The parts of a feed from the state.

    ``watcher`` takes nothing before its ``begin``, and must be closed. ``export`` None: nothing was
    ever written. ``settings`` is what ``encode`` made of the settings, ``made`` the commit that
    made the revision; each None if there is none. The list begins after the key ``after``.

    Call ``export.close`` once the watcher has caught up, but not if the client is cut off before.
    """

    watcher: Watcher
    export: CatalogExport[_Item] | None
    settings: _Item | None
    made: MadeBy | None
    after: str

    @property
    def revision(self) -> int:
        """The revision that is listed, as long as the watcher hasn't begun."""
        return self.watcher.position


class FeedsFromState:
    """Begins feeds from the state. Thread-safe."""

    def __init__(self, listing: Listing, history: HistoryReads) -> None:
        self._listing = listing
        self._history = history

    def begin(
        self,
        feed: WatchService,
        catalog: str,
        encode: EncodeAt[_Item],
        *,
        owner: str,
        prefix: str = "",
        position: tuple[int, str] | None = None,
        viewer: Viewer | None = None,
        holder: str | None = None,
        page_documents: int | None = None,
        settings: bool = False,
    ) -> FromState[_Item]:
        """A feed from the state of the documents whose keys begin with ``prefix``. ``position`` is
        a revision, and the key after which to go on; None: the whole present, with the settings.

        ``settings``: the feed also has later changes of the settings, whatever the prefix.

        Raises what ``WatchService.watch`` and ``Listing.export`` raise. ``owner``: of the pin.
        """

        def begin() -> FromState[_Item]:
            watcher = feed.watch(
                catalog,
                after=None if position is None else position[0],
                selection=Selection(prefix=prefix, settings=settings),
                holder=holder,
            )
            try:
                watcher.begin_later()
                at, after = position or (watcher.position, "")
                export = self._export(
                    catalog,
                    encode,
                    at,
                    owner=owner,
                    prefix=prefix,
                    viewer=viewer,
                    after=after,
                    page_documents=page_documents,
                )
                settings_event = self._settings(catalog, encode, at) if position is None else None
                return FromState(watcher, export, settings_event, self._made(catalog, at), after)
            except BaseException:
                watcher.close()
                raise

        return not_overtaken(None if position is None else position[0], begin)

    def _export(
        self,
        catalog: str,
        encode: EncodeAt[_Item],
        revision: int,
        *,
        owner: str,
        prefix: str,
        viewer: Viewer | None,
        after: str,
        page_documents: int | None,
    ) -> CatalogExport[_Item] | None:
        with suppress(CatalogNotFound):
            return self._listing.export(
                catalog,
                lambda document: encode(document, revision),
                owner=owner,
                prefix=prefix,
                revision=revision,
                viewer=viewer,
                after=after,
                page_documents=page_documents,
                resumable=True,
            )
        return None

    def _settings(self, catalog: str, encode: EncodeAt[_Item], revision: int) -> _Item | None:
        with suppress(DocumentNotFound), as_unavailable():
            found = self._history.document_at_revision(catalog, SETTINGS_KEY, revision)
            return encode(found, revision)
        return None

    def _made(self, catalog: str, revision: int) -> MadeBy | None:
        """The commit at the revision; None if history doesn't have it any more."""
        if not revision:
            return None
        with suppress(RevisionCompacted), as_unavailable():
            return self._history.encoded_commit(
                catalog,
                revision,
                lambda commits: [MadeBy(each.id, each.time_us) for each in commits],
            )
        return None
