"""What a revert undoes, whatever is committed while it is looked up."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.errors import RevisionNotFound
from gateway.limits import ServiceLimits
from gateway.read.reverts import RevertTerms
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from tests.patience import WAIT_MS
from tests.without_http import WatchedStore, once, put

TERMS = RevertTerms("c", "", "refuse", 100, None)


def gateway_on(store: object) -> GatewayService:
    return GatewayService(cast(Store, store), ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))


def test_a_commit_made_during_a_revert_to_its_revision_is_not_undone(store: Store) -> None:
    other = gateway_on(store)
    other.write("c", "k", put(1))
    watched = WatchedStore(store)
    gateway = gateway_on(watched)
    watched.after["tails"] = once(lambda: other.write("c", "k", put(2)))
    with pytest.raises(RevisionNotFound):
        gateway.reverts.to_revision(2, None, TERMS)
    assert gateway.reverts.to_revision(2, None, TERMS) == []
