"""A catalog is described as of one revision, whatever others do to it meanwhile."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.errors import CatalogNotFound
from gateway.limits import ServiceLimits
from gateway.model import SETTINGS_KEY
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from tests.patience import WAIT_MS
from tests.without_http import WatchedStore, once, put

SETTINGS = {"require_precondition": False, "retention": {"commits": 5}}
CALLS = [("after", "heads"), ("before", "commits"), ("before", "documents"), ("after", "documents")]


def gateway_on(store: object) -> GatewayService:
    return GatewayService(cast(Store, store), ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))


@pytest.mark.parametrize(("when", "call"), CALLS)
@pytest.mark.parametrize("then", ["deleted", "made again", "compacted"])
def test_a_catalog_is_read_as_of_a_single_revision(
    store: Store, when: str, call: str, then: str
) -> None:
    other = gateway_on(store)
    other.write("c", SETTINGS_KEY, put(SETTINGS))
    watched = WatchedStore(store)
    reader = gateway_on(watched)

    def meanwhile() -> None:
        if then != "compacted":
            other.catalogs.delete(other.request("c", ()))
        if then != "deleted":
            other.write("c", "k", put(1))
        if then == "compacted":
            other.retention.compact("c", 2)

    getattr(watched, when)[call] = once(meanwhile)
    state = reader.catalogs.read("c")
    was = state.settings
    if state.revision == 1 or then == "compacted":
        assert was is not None
        assert was.content == SETTINGS
    else:
        assert (then, state.revision, was) == ("made again", 3, None)


@pytest.mark.parametrize("after", [None, "k"])
def test_a_catalog_exists_only_between_its_creation_and_deletion(
    store: Store, after: str | None
) -> None:
    gateway = gateway_on(store)
    with pytest.raises(CatalogNotFound):
        gateway.catalogs.read("c")
    gateway.write("c", "k", put(1))
    gateway.catalogs.delete(gateway.request("c", ()))
    with pytest.raises(CatalogNotFound) as deleted:
        gateway.catalogs.read("c")
    assert deleted.value.head_revision == 2
    if after is not None:
        gateway.write("c", after, put(1))
        assert gateway.catalogs.read("c").settings is None
