"""Indexes and validators that somebody added to the gateway's collections: the writes that they
refuse get a refusal, and all is well once they are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from gateway.access.principal import ANONYMOUS
from gateway.decide.conditions import NO_CONDITIONS
from gateway.decide.edits import KeyEdit, Put
from gateway.decide.request import Applied, Refused
from gateway.errors import DeadlineExceeded, StoreUnavailable
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Moved, Rejected, StoreUnreachable, Swept
from gateway.store.mongodb import MongoStore, connect
from tests.patience import WAIT_MS
from tests.store.contract_suite import commit, document, move
from tests.store.subscriptions_suite import made
from tests.without_http import SetClock, commit_each


@pytest.fixture
def store(mongodb_uri: str, database_name: str) -> Iterator[MongoStore]:
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    store.heads(["c"])
    yield store
    store.close()


@pytest.fixture
def database(mongodb_uri: str, database_name: str) -> Iterator[Database[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        yield client[database_name]


def test_a_duplicate_that_is_not_a_race_is_reported_and_not_retried(
    store: MongoStore, database: Database[dict[str, Any]]
) -> None:
    database["documents"].create_index("state.content.mail", unique=True)
    both = [document(1, key=key, content={"mail": "secret"}) for key in "ab"]
    with pytest.raises(StoreUnreachable, match=r"unique index on state\.content\.mail") as refused:
        store.write_documents({"c": both})
    assert "secret" not in str(refused.value)


def test_a_commit_refused_by_an_index_is_never_omitted_from_history(
    store: MongoStore, database: Database[dict[str, Any]]
) -> None:
    database["commits"].create_index("author", unique=True)
    with pytest.raises(StoreUnreachable, match="unique index on author"):
        store.write_commits([commit(1), commit(2)])
    database["commits"].drop_index("author_1")
    store.write_commits([commit(1), commit(2)])
    assert [each.revision for each in store.commits({"c": (0, 2)})["c"]] == [1, 2]


def test_a_sweep_refused_by_an_index_is_reported(
    store: MongoStore, database: Database[dict[str, Any]]
) -> None:
    store.write_commits([commit(1, author="ann"), commit(2, author="bob")])
    database["commits"].create_index("author", unique=True)
    with pytest.raises(StoreUnreachable, match="unique index on author"):
        store.sweep("c", [Swept(2, commit(2, author="ann"), frozenset("k"))])


def test_a_move_refused_by_an_index_is_not_taken_for_a_lost_race(
    store: MongoStore, database: Database[dict[str, Any]]
) -> None:
    """Nor is it in doubt; and the other moves of the call are made."""
    store.move_heads([move(commit(1, catalog="c", time_us=5))])
    database["catalogs"].create_index("time_us", unique=True)
    times = {"c": 6, "d": 5, "e": 7}
    moved = store.move_heads([move(commit(1, catalog=c, time_us=t)) for c, t in times.items()])
    rejected = moved.pop("d")
    assert isinstance(rejected, Rejected)
    assert "unique index on time_us" in rejected.reason
    assert not rejected.too_large
    assert moved == {"c": Moved.LOST, "e": Moved.WON}


def _view(database: Database[dict[str, Any]], name: str) -> None:
    database[name].rename("kept")
    database.command({"create": name, "viewOn": "kept", "pipeline": []})


FOREIGN: dict[str, Any] = {
    "a unique index": lambda database, name: database[name].create_index("content", unique=True),
    "a validator": lambda database, name: database.command(
        "collMod", name, validator={"never": {"$exists": True}}
    ),
    "view": _view,
}


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("step", ["open", "put_part"])
def test_a_refused_step_of_an_upload_is_reported_as_not_done(
    store: MongoStore, database: Database[dict[str, Any]], foreign: str, step: str
) -> None:
    """Otherwise the outcome would be unknown, and the client would retry in vain."""
    gateway = GatewayService(store, SetClock(), ServiceLimits())
    opened = gateway.uploads.open("c", "k", ANONYMOUS, NO_CONDITIONS, None)
    gateway.uploads.put_part(opened, 1, b"1")
    steps: dict[str, Callable[[], object]] = {
        "open": lambda: gateway.uploads.open("c", "k", ANONYMOUS, NO_CONDITIONS, None),
        "put_part": lambda: gateway.uploads.put_part(opened, 2, b"1"),
    }
    FOREIGN[foreign](database, {"open": "uploads", "put_part": "upload_parts"}[step])
    with pytest.raises(StoreUnavailable) as refused:
        steps[step]()
    said = "the database refuses this write, and nothing was applied: "
    assert refused.value.detail.startswith(said)
    assert foreign in refused.value.detail


def test_a_violation_of_a_foreign_unique_index_is_not_taken_for_an_existing_name(
    store: MongoStore, database: Database[dict[str, Any]]
) -> None:
    """A lease would seem to be another worker's, for ever, and nobody would do its work."""
    assert store.take_lease("a", "me", 60.0)
    assert not store.take_lease("a", "you", 60.0)
    database["leases"].create_index("holder", unique=True)
    with pytest.raises(StoreUnreachable, match="unique index on holder"):
        store.take_lease("b", "me", 60.0)
    store.subscriptions().create_subscription(made("s"))
    database["subscriptions"].create_index("to", unique=True)
    with pytest.raises(StoreUnreachable, match="unique index on to"):
        store.subscriptions().create_subscription(made("t"))


def test_a_view_instead_of_the_heads_refuses_a_write(
    store: MongoStore, database: Database[dict[str, Any]]
) -> None:
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
    assert isinstance(gateway.write("c", "k", Put(1, 1)).outcome, Applied)
    _view(database, "catalogs")
    refused = gateway.write("c", "k", Put(2, 1)).outcome
    assert isinstance(refused, Refused)
    assert "is a view" in str(refused.error)


def test_a_validator_rejects_only_its_own_move(
    store: MongoStore, database: Database[dict[str, Any]]
) -> None:
    store.move_heads([move(commit(1, catalog="c"))])
    database.command("collMod", "catalogs", validator={"_id": {"$ne": "d"}})
    moved = store.move_heads([move(commit(1, catalog=name)) for name in "de"])
    assert isinstance(moved["d"], Rejected)
    assert "see `gateway doctor`" in moved["d"].reason
    assert moved["e"] is Moved.WON


def test_with_one_catalog_refused_the_others_are_written(
    store: MongoStore, database: Database[dict[str, Any]]
) -> None:
    """In one round; the refusal comes at once, and not as an unknown outcome."""
    names = [*"abcdefgh", "sick"]
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))

    def written(value: int) -> dict[str, Any]:
        requests = [gateway.request(name, (KeyEdit("k", Put(value, 1)),)) for name in names]
        told = commit_each(gateway, requests)
        return {name: each.outcome for name, each in zip(names, told, strict=True)}

    written(0)
    database.command("collMod", "catalogs", validator={"_id": {"$ne": "sick"}})
    for value in (1, 2, 3):
        told = written(value)
        refused = told.pop("sick")
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, StoreUnavailable)
        assert all(isinstance(each, Applied) for each in told.values())


@pytest.mark.parametrize("index", [{"unique": True}, {"kind": "2dsphere"}])
def test_a_catalog_recovers_when_the_foreign_index_is_dropped(
    store: MongoStore, database: Database[dict[str, Any]], index: dict[str, Any]
) -> None:
    """Its head has moved, so nothing is lost and all is read; until then it takes few more writes,
    for its tail is bounded, and others do."""
    database["documents"].create_index(
        [("state.content.at", index.get("kind", 1))],
        unique=index.get("unique", False),
        sparse=True,
        name="foreign",
    )
    limits = ServiceLimits(deadline_ms=WAIT_MS, leaders=1, tail_commits_max=3)
    gateway = GatewayService(store, ThreadRuntime(), limits)

    def put(catalog: str, key: str, value: Any, wait_s: float | None = None) -> Any:
        return gateway.write(catalog, key, Put(value, 9), wait_s=wait_s).outcome

    place = {"at": "nowhere"}
    unique = "unique" in index
    assert isinstance(put("c", "a", place if unique else {}), Applied)
    assert isinstance(put("c", "b", place), Applied)
    outcomes = [put("c", f"b{number}", {}, wait_s=0.3) for number in range(6)]
    assert isinstance(outcomes[-1], Refused)
    assert isinstance(outcomes[-1].error, DeadlineExceeded)
    assert isinstance(put("other", "a", {}), Applied)
    found = gateway.read("c", "b").document
    assert found is not None
    assert found.content == place
    database["documents"].drop_index("foreign")
    assert isinstance(put("c", "c", {}), Applied)
    document = gateway.read("c", "b").document
    assert document is not None
    assert document.content == place
