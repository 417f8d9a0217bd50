"""The parts of the store's contract that mongomock can run, without a server.

``UNABLE`` has the others with the reason; each is expected to fail, so that a mongomock that learns
it is noticed. Signals are left out as a whole: mongomock has no change streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bson
import mongomock
import pytest
from bson.raw_bson import RawBSONDocument
from mongomock.collection import BulkOperationBuilder

from gateway.store.mongodb import MongoStore, MongoUploads
from gateway.store.mongodb.connection import Connection
from gateway.store.mongodb.tokens import MongoTokens
from tests.store.contract_suite import StoreContract
from tests.store.listings_suite import ListingsContract
from tests.store.retention_suite import RetentionContract
from tests.store.signals_suite import LeasesContract
from tests.store.tokens_suite import TokensContract
from tests.store.uploads_suite import UploadsContract
from tests.store.verdicts_suite import VerdictsContract

_RANGES = "mongomock doesn't order embedded documents, so it finds no ranges of them"
_CLOCK = "mongomock has no $$NOW, the clock of the database"
_RAW = "mongomock has no raw batches"
_HINTS = "mongomock knows no hints"
_TRANSACTIONS = "mongomock has no transactions"
_UNIONS = "mongomock knows no $unionWith"
_UPSERTS = "mongomock makes a record of two conditions on one field"
_SIZES = "mongomock has no maximum of a document's size"
UNABLE = {
    "test_a_bare_document_has_its_acl_and_no_other_attribute": _RANGES,
    "test_a_document_comes_back_with_its_owners": _RANGES,
    "test_a_document_is_written_only_over_an_older_one": _RANGES,
    "test_many_new_documents_are_written_only_where_no_newer_ones_are": _RANGES,
    "test_a_scan_has_tombstones_but_not_the_settings": _RANGES,
    "test_a_scan_of_digests_is_a_scan_without_contents": _RAW,
    "test_a_scan_of_digests_can_include_what_each_manager_owns": _RAW,
    "test_a_scan_of_digests_can_omit_old_documents": _RANGES,
    "test_a_digest_belongs_to_the_stored_content": _RAW,
    "test_a_scan_is_bounded_in_count_and_bytes": _RANGES,
    "test_a_tombstone_has_no_content_and_can_be_written_over": _RANGES,
    "test_names_with_a_common_prefix_do_not_mix": _RANGES,
    "test_catalogs_without_a_head_are_listed_too": _RANGES,
    "test_old_tombstones_are_purged_and_nothing_else": _RANGES,
    "test_a_head_advances_only_from_its_known_position": _TRANSACTIONS,
    "test_the_content_of_large_documents_can_be_withheld": _RANGES,
    "test_a_lease_belongs_to_its_holder_until_it_is_over": _CLOCK,
    "test_an_expired_lease_can_be_taken": _CLOCK,
    "test_a_renewed_lease_expires_by_the_new_time": _CLOCK,
    "test_the_floor_rises_no_higher_than_a_pin": _CLOCK,
    "test_expired_pins_hold_nothing_and_are_dropped": _CLOCK,
    "test_a_raised_floor_has_an_age_until_it_is_swept": _CLOCK,
    "test_replies_are_dropped_once_nothing_else_needs_them": _HINTS,
    "test_a_commit_without_changes_is_stored_like_any_other": _HINTS,
    "test_a_move_from_a_revision_makes_no_head": _UPSERTS,
    "test_a_move_that_is_too_large_is_rejected_alone": _SIZES,
    "test_a_swept_commit_is_found_under_its_keys_alone": _UNIONS,
    "test_replies_are_found_by_catalog_principal_and_key": _UNIONS,
    "test_verdicts_are_found_like_replies": _UNIONS,
    "test_of_two_verdicts_under_one_key_the_later_is_returned": _UNIONS,
    "test_of_a_commit_and_a_verdict_under_one_key_the_commit_is_returned": _UNIONS,
    "test_of_two_states_at_one_revision_the_same_one_wins_in_any_order": _RANGES,
    "test_the_commit_at_a_time_is_the_last_one_by_then": _HINTS,
}


@pytest.fixture(autouse=True)
def _is_able(request: pytest.FixtureRequest) -> None:
    if reason := UNABLE.get(request.node.originalname):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(autouse=True)
def _bulks_of_todays_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver hands ``sort`` on, which mongomock's bulks don't know and the store never sets."""
    for name in ("add_update", "add_replace"):
        known = getattr(BulkOperationBuilder, name)

        def adding(*given: Any, known: Any = known, sort: None = None, **named: Any) -> Any:
            assert sort is None
            return known(*given, **named)

        monkeypatch.setattr(BulkOperationBuilder, name, adding)


class RawDocuments:
    """What the driver reads undecoded."""

    def __init__(self, documents: Any) -> None:
        self._documents = documents

    def find(self, *given: Any, **named: Any) -> Any:
        found = self._documents.find(*given, **named)
        return (RawBSONDocument(bson.encode(each)) for each in found)


class MockConnection(Connection):
    def _use(self, client: Any) -> None:
        self.client = client
        self.database = client[self._database_name]
        self.catalogs = self.database["catalogs"]
        self.commits = self.database["commits"]
        self.verdicts = self.database["verdicts"]
        self.documents = self.database["documents"]
        self.raw_documents = RawDocuments(self.documents)

    def ensure_indexes(self) -> None:
        pass

    @contextmanager
    def reading(self) -> Iterator[Any]:
        with self.as_unreachable():
            yield None

    writing = reading


@pytest.fixture
def store() -> MongoStore:
    return MongoStore(MockConnection(mongomock.MongoClient, "gateway"))


# What races is left out: mongomock's updates aren't atomic.


class TestStore(
    StoreContract, VerdictsContract, ListingsContract, RetentionContract, LeasesContract
):
    test_exactly_one_of_several_racing_moves_is_won = None  # type: ignore[assignment]
    test_of_a_racing_pin_and_compaction_one_is_refused = None  # type: ignore[assignment]
    test_exactly_one_of_several_racing_holders_gets_a_lease = None  # type: ignore[assignment]
    # Ranges again, each with many parameters.
    test_names_are_sorted_and_within_their_bounds = None
    test_a_document_comes_back_as_it_was_written = None  # type: ignore[assignment]
    test_attributes_come_back_as_they_were_written = None  # type: ignore[assignment]


class TestUploads(UploadsContract):
    test_racing_requests_for_room_get_no_more_than_there_is = None  # type: ignore[assignment]
    test_a_part_put_many_times_at_once_is_there_once = None  # type: ignore[assignment]

    @pytest.fixture
    def uploads(self, store: MongoStore) -> MongoUploads:
        return store.uploads()


class TestTokens(TokensContract):
    test_exactly_one_of_several_racing_revocations_counts = None  # type: ignore[assignment]

    @pytest.fixture
    def tokens(self, store: MongoStore) -> MongoTokens:
        return store.tokens()
