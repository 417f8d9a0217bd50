import pytest

from tests.memory_store import MemoryStore, MemorySubscriptions, MemoryTokens, MemoryUploads
from tests.store.contract_suite import StoreContract
from tests.store.listings_suite import ListingsContract
from tests.store.ranges_suite import RangesContract
from tests.store.retention_suite import RetentionContract
from tests.store.signals_suite import LeasesContract, SignalsContract
from tests.store.subscriptions_suite import SubscriptionsContract
from tests.store.tokens_suite import TokensContract
from tests.store.uploads_suite import UploadsContract
from tests.store.verdicts_suite import VerdictsContract


class TestMemoryStore(
    StoreContract,
    VerdictsContract,
    ListingsContract,
    RangesContract,
    RetentionContract,
    SignalsContract,
    LeasesContract,
):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestMemoryUploads(UploadsContract):
    @pytest.fixture
    def uploads(self) -> MemoryUploads:
        return MemoryStore().uploads()


class TestMemorySubscriptions(SubscriptionsContract):
    @pytest.fixture
    def subscriptions(self) -> MemorySubscriptions:
        return MemoryStore().subscriptions()


class TestMemoryTokens(TokensContract):
    @pytest.fixture
    def tokens(self) -> MemoryTokens:
        return MemoryTokens()


def test_leases_use_the_given_clock() -> None:
    now = [100.0]
    store = MemoryStore(monotonic=lambda: now[0])
    assert store.take_lease("l", "ann", 10.0)
    now[0] = 109.9
    assert not store.take_lease("l", "bob", 10.0)
    now[0] = 110.0
    assert store.take_lease("l", "bob", 10.0)
