"""A catalog as a whole: what it is now, and deleting it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from gateway.decide.guards import require_revision
from gateway.decide.request import Delete, KeyEdit, Outcome, Refused, Request, Unchanged, Written
from gateway.errors import (
    CatalogNotFound,
    CommitError,
    DeadlineExceeded,
    OverLimit,
    PreconditionFailed,
    RevisionCompacted,
)
from gateway.limits import ServiceLimits
from gateway.model import APPLICATIONS_KEY, SETTINGS_KEY, Document
from gateway.read.listing import DocumentPage, Listing, not_overtaken
from gateway.runtime import Runtime
from gateway.state.heads import Settler, as_unavailable


@dataclass(frozen=True, slots=True)
class CatalogState:
    """``settings`` is the live settings document, None where nothing was set."""

    catalog: str
    revision: int
    time_us: int
    floor: int
    settings: Document | None


class Catalogs:
    def __init__(
        self,
        settler: Settler,
        listing: Listing,
        commit: Callable[[Request], Written],
        runtime: Runtime,
        limits: ServiceLimits,
    ) -> None:
        self._settler = settler
        self._listing = listing
        self._commit = commit
        self._runtime = runtime
        self._keys_max = limits.catalog_deletion_keys_max
        self._page_documents = limits.listing_page_documents

    def read(self, catalog: str) -> CatalogState:
        """The catalog at one revision, now. Raises CatalogNotFound, also where it was deleted."""
        return not_overtaken(None, lambda: self._read(catalog))

    def _read(self, catalog: str) -> CatalogState:
        with as_unavailable():
            standing = self._settler.settle(catalog)
        if standing.revision == 0 or standing.deleted:
            raise CatalogNotFound(catalog, standing.revision)
        _, found = self._listing.several(catalog, [SETTINGS_KEY], revision=standing.revision)
        return CatalogState(
            catalog, standing.revision, standing.time_us, standing.floor, found[SETTINGS_KEY]
        )

    def delete(self, request: Request) -> Written:
        """Delete every document, the settings and the applications, in one commit.

        ``request`` has no edits yet. What is there is listed, and deleted if the catalog is still
        at the revision that was listed; else it is listed again, until the request's deadline.
        Raises CatalogNotFound, PreconditionFailed where the catalog isn't at the revision that the
        request wants, OverLimit, DeadlineExceeded, and what ``commit`` raises.
        """
        refusal: CommitError = CatalogNotFound(request.catalog, 0)
        request = replace(request, once=False)  # several requests under one key
        while True:
            try:
                deletion = self.deletion_of(request)
            except RevisionCompacted:
                self._require_time(request)
                continue
            except (CatalogNotFound, PreconditionFailed, OverLimit) as error:
                if request.idempotency is None:
                    raise
                # It may be this very request that deleted it, also where the catalog was made
                # again since; without edits it only looks.
                deletion, refusal = request, error
            written = self._commit(deletion)
            if not _came_too_late(written.outcome, deletion):
                if deletion is request and isinstance(written.outcome, Unchanged):
                    raise refusal
                return written
            if request.resource_version is not None:
                return written
            self._require_time(request)

    def _require_time(self, request: Request) -> None:
        if self._runtime.monotonic() >= request.deadline:
            raise DeadlineExceeded(
                "the catalog was written or compacted all the time; nothing was deleted"
            )

    def deletion_of(self, request: Request) -> Request:
        page = self._page(request.catalog, "", None)
        # Looked at afterwards: so it isn't the deletion of somebody else that was listed.
        self._listing.head(request.catalog)
        require_revision(request, page.revision)
        keys = [document.key for document in page.documents]
        while page.next_after is not None:
            self._require_few(len(keys))
            page = self._page(request.catalog, page.next_after, page.revision)
            keys += [document.key for document in page.documents]
        self._require_few(len(keys))
        edits = tuple(KeyEdit(key, Delete()) for key in (SETTINGS_KEY, APPLICATIONS_KEY, *keys))
        return replace(request, edits=edits, resource_version=page.revision, deletes_catalog=True)

    def _page(self, catalog: str, after: str, revision: int | None) -> DocumentPage:
        limit = self._page_documents
        return self._listing.page(catalog, prefix="", after=after, limit=limit, revision=revision)

    def _require_few(self, keys: int) -> None:
        if keys > self._keys_max:
            raise OverLimit(
                f"the catalog has {keys} documents or more, {self._keys_max} can be deleted at"
                " once; delete some of them first",
                limit="catalog_deletion_keys_max",
                maximum=self._keys_max,
                actual=keys,
            )


def _came_too_late(outcome: Outcome, deletion: Request) -> bool:
    """Whether it was refused because the catalog has moved on since it was listed."""
    if not deletion.deletes_catalog or not isinstance(outcome, Refused):
        return False
    error = outcome.error
    # A condition of the client's own may be about the catalog, too: told at the revision that was
    # listed, it stays false.
    return (
        isinstance(error, PreconditionFailed)
        and error.conflict.catalog_revision != deletion.resource_version
    )
