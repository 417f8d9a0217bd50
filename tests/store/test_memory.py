import pytest

from gateway.store.memory import MemoryStore
from tests.store.contract_suite import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()
