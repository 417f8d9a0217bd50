import dataclasses
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson.timestamp import Timestamp
from msgspec.structs import replace
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import ConfigurationError, OperationFailure

from gateway.store.contract import BeingRestored, ForeignRecord, StoreUnreachable
from gateway.store.mongodb import MongoStore, MongoUploads, connect
from gateway.store.mongodb import connection as connection_module
from gateway.store.mongodb.connection import Connection
from gateway.store.mongodb.subscription_records import MongoSubscriptions
from gateway.store.mongodb.tokens import MongoTokens
from patching import digest
from patching.owners import Ownership, OwnerTree
from tests.patience import WAIT_MS
from tests.service import own_database
from tests.store.contract_suite import StoreContract, commit, document, move
from tests.store.listings_suite import ListingsContract
from tests.store.ranges_suite import RangesContract
from tests.store.retention_suite import RetentionContract
from tests.store.signals_suite import LeasesContract, SignalsContract
from tests.store.subscriptions_suite import SubscriptionsContract
from tests.store.subscriptions_suite import made as subscription
from tests.store.tokens_suite import TOKEN, TokensContract
from tests.store.undecodable import UNDECODABLE
from tests.store.uploads_suite import UploadsContract, upload
from tests.store.verdicts_suite import VerdictsContract


@pytest.fixture
def store(mongodb_uri: str, database_name: str) -> Iterator[MongoStore]:
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    yield store
    store.close()


@pytest.fixture(scope="module")
def emptied(mongodb_uri: str) -> Iterator[Callable[[], MongoStore]]:
    """The store of one database, without a record: to make its indexes takes MongoDB longer than
    most tests do, and these change none."""
    with (
        own_database(mongodb_uri) as name,
        MongoClient[Any](mongodb_uri) as client,
        closing(connect(mongodb_uri, name, timeout_ms=WAIT_MS)) as store,
    ):

        def empty() -> MongoStore:
            for each in set(client[name].list_collection_names()) - {"format"}:
                client[name][each].delete_many({})
            return store

        yield empty


class OnMongo:
    @pytest.fixture
    def store(self, emptied: Callable[[], MongoStore]) -> MongoStore:
        return emptied()


class TestMongoStore(
    OnMongo,
    StoreContract,
    VerdictsContract,
    ListingsContract,
    RangesContract,
    RetentionContract,
    SignalsContract,
    LeasesContract,
):
    pass


class TestMongoUploads(OnMongo, UploadsContract):
    @pytest.fixture
    def uploads(self, store: MongoStore) -> MongoUploads:
        return store.uploads()


class TestMongoSubscriptions(OnMongo, SubscriptionsContract):
    @pytest.fixture
    def subscriptions(self, store: MongoStore) -> MongoSubscriptions:
        return store.subscriptions()


class TestMongoTokens(OnMongo, TokensContract):
    @pytest.fixture
    def tokens(self, store: MongoStore) -> MongoTokens:
        return store.tokens()


def test_a_lease_taken_while_the_databases_clock_was_ahead_expires(
    mongodb_uri: str, database_name: str
) -> None:
    """Its holder may be dead, and then nobody would work until that time has come."""
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    subscriptions = store.subscriptions()
    assert store.take_lease("l", "ann", 60.0)
    assert subscriptions.create_subscription(subscription())
    assert subscriptions.claim_subscription("c", "s", "ann", 60.0)
    with MongoClient[Any](mongodb_uri) as client:
        for name in ("leases", "subscriptions"):
            records = client[database_name][name]
            (record,) = records.find()
            records.update_one({}, {"$set": {"until": record["until"] + timedelta(seconds=50)}})
        # Clocks differ a little.
        assert not store.take_lease("l", "bob", 60.0)
        assert subscriptions.claimable("bob", 9) == ([], [])
        for name in ("leases", "subscriptions"):
            records = client[database_name][name]
            records.update_one({}, {"$set": {"until": record["until"] + timedelta(hours=1)}})
    assert not subscriptions.save_progress(subscription(), "ann")
    assert subscriptions.claimable("bob", 9) == ([], [("c", "s")])
    assert subscriptions.claim_subscription("c", "s", "bob", 60.0)
    assert store.take_lease("l", "bob", 60.0)
    assert not store.take_lease("l", "ann", 60.0)
    store.close()


@pytest.mark.parametrize(
    "broken", [{"$set": {"head": {"revision": 1}}}, {"$unset": {"out": 1}}], ids=["head", "out"]
)
def test_an_unreadable_head_hides_no_other(
    mongodb_uri: str, database_name: str, broken: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Nor keeps those that go over all catalogs from them."""
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    names = [f"c{number}" for number in range(5)]
    store.move_heads([move(commit(1, catalog=name)) for name in names])
    with MongoClient[Any](mongodb_uri) as client:
        heads = client[database_name]["catalogs"]
        for name in ("c0", "c2", "c3"):
            heads.update_one({"_id": name}, broken)
    there = ["c1", "c4"]
    assert [head.catalog for head in store.list_heads("", "", 9)] == there
    assert [head.catalog for head in store.list_heads("", "", 2)] == there
    assert [head.catalog for head in store.list_heads("", "", 1)] == there[:1]
    assert {head.catalog for head in store.open_tails(1 << 60, 9)} == set(there)
    assert "catalog 'c2': the head can't be read" in caplog.text
    store.close()


def when_a_headless_catalog_is_found(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], object]
) -> None:
    """``make`` is called for the first catalog that has no head and is found to have commits."""
    find_one = store._on.commits.find_one

    def later(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(store._on.commits, "find_one", find_one)
        found = find_one(*given, **named)
        make(found["_id"].partition("\0")[0])
        return found

    monkeypatch.setattr(store._on.commits, "find_one", later)


def test_a_catalog_made_at_that_moment_hides_no_missing_head(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else that one would be begun a second time."""
    store.write_commits([commit(1, catalog=name) for name in "ab"])
    made: list[str] = []

    def make(catalog: str) -> None:
        made.append(catalog)
        store.move_heads([move(commit(1, catalog=catalog))])

    when_a_headless_catalog_is_found(store, monkeypatch, make)
    with pytest.raises(ForeignRecord) as gone:
        store.tails("ab")
    assert [*made, gone.value.catalog] in (["a", "b"], ["b", "a"])


def test_all_catalogs_made_at_that_moment_are_found(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_commits([commit(1, catalog=name) for name in "ab"])
    heads = [move(commit(1, catalog=name)) for name in "ab"]
    when_a_headless_catalog_is_found(store, monkeypatch, lambda _: store.move_heads(heads))
    assert store.tails("abc").keys() == {"a", "b"}


def test_a_restore_that_begins_at_that_moment_is_reported(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_commits([commit(1)])
    restored = store.copies()
    when_a_headless_catalog_is_found(
        store, monkeypatch, lambda name: restored.begin_restore(name, "me")
    )
    with pytest.raises(BeingRestored):
        store.heads(["c"])


def test_documents_can_be_queried_by_people(mongodb_uri: str, database_name: str) -> None:
    """Content is native BSON, not an opaque blob."""
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    store.write_documents({"c": [document(1, content={"owner": {"name": "ann"}})]})
    with MongoClient(mongodb_uri) as client:
        found = client[database_name]["documents"].find_one({"state.content.owner.name": "ann"})
    assert found is not None
    assert (found["catalog"], found["key"]) == ("c", "k")
    store.close()


def test_a_read_of_replies_uses_its_index(mongodb_uri: str, database_name: str) -> None:
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    store.heads(["c"])
    store.write_commits([commit(1)])
    with MongoClient(mongodb_uri) as client:
        plan = client[database_name].command(
            "explain",
            {
                "find": "commits",
                "filter": {"reply_id": {"$in": ["a", "b"]}},
            },
            verbosity="queryPlanner",
        )
    assert "reply_id_1" in str(plan["queryPlanner"]["winningPlan"])
    store.close()


def test_a_replaced_mongodb_with_a_clock_behind_fails_one_read_only(
    store: MongoStore,
) -> None:
    """A restored one whose clock is behind: one read fails, and the next ones don't."""
    store.heads(["c"])
    store._on._seen_until = Timestamp(2**31, 1)
    with pytest.raises(StoreUnreachable):
        store.heads(["c"])
    assert store.heads(["c"]) == {}
    store.move_heads([move(commit(1))])
    assert store.heads(["c"])["c"].revision == 1


@pytest.mark.parametrize("reason", ["KeyNotFound", "TimeProofMismatch"])
def test_a_cluster_time_that_the_server_cannot_verify_is_dropped_with_its_client(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """The driver sends the latest time it has seen with every command, and never forgets it."""
    monkeypatch.setattr(connection_module, "_REPLACED_AFTER_S", 0.0)
    client = store._on.client
    with pytest.raises(StoreUnreachable), store._on.as_unreachable():
        raise OperationFailure("no keys found for HMAC", 211, {"codeName": reason})
    assert store._on.client is not client
    assert store.heads(["c"]) == {}


def test_elections_are_always_observed_by_streaming() -> None:
    """Asked every so often, the driver would miss that a member was elected twice in between."""
    store = connect("mongodb://127.0.0.1:1/?serverMonitoringMode=poll", "x", timeout_ms=300)
    assert store._on.client.options.server_monitoring_mode == "stream"
    store.close()


@pytest.mark.parametrize("what", ["an index", "commits", "documents"])
def test_a_dropped_index_is_created_again(
    store: MongoStore,
    mongodb_uri: str,
    database_name: str,
    what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also with its collection, which is nowhere else to be seen once it has records again."""
    store.heads(["c"])
    with MongoClient[Any](mongodb_uri) as client:
        if what == "an index":
            client[database_name]["commits"].drop_indexes()
        else:
            client[database_name][what].drop()
    store.write_documents({"c": [document(1)]})
    store.write_commits([commit(1)])

    def read() -> object:
        if what == "documents":
            return store.purge_tombstones("c", 1, 1, 1)
        return list(store.changes_of("c", "secret key", 1))

    with pytest.raises(StoreUnreachable, match="hint") as refused:
        read()
    assert "secret" not in str(refused.value)
    assert "secret" not in caplog.text
    assert "See `gateway verify --all`" in caplog.text
    assert not read()


def test_indexes_that_could_not_be_created_for_lack_of_a_thread_are_created_later(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(connection_module, "Thread", NoThread)
        with pytest.raises(RuntimeError):
            store.heads(["c"])
    assert store.heads(["c"]) == {}


def test_an_unreachable_database_is_reported_within_the_timeout() -> None:
    store = connect("mongodb://127.0.0.1:1/?replicaSet=none", "x", timeout_ms=300)
    with pytest.raises(StoreUnreachable):
        store.heads(["c"])
    with pytest.raises(StoreUnreachable):
        store.move_heads([move(commit(1))])
    store.close()


def test_a_malformed_uri_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="MongoDB URI"):
        connect("mongodb://[", "x", timeout_ms=300)


def test_a_mongodb_without_sessions_does_not_get_a_new_client_for_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[MongoClient[Any]] = []

    def open_client() -> MongoClient[Any]:
        opened.append(MongoClient("mongodb://127.0.0.1:1/", connect=False))
        return opened[-1]

    def refused() -> None:
        with pytest.raises(StoreUnreachable), connection.as_unreachable():
            raise ConfigurationError("Sessions are not supported by this MongoDB deployment")

    monkeypatch.setattr(connection_module, "_REPLACED_AFTER_S", 3600.0)
    connection = Connection(open_client, "x")
    for _ in range(3):
        refused()
    assert connection.client is opened[0]
    monkeypatch.setattr(connection_module, "_REPLACED_AFTER_S", 0.0)
    refused()
    assert connection.client is opened[1]
    assert connection.catalogs.database.client is opened[1]
    assert len(opened) == 2
    connection.client.close()


def test_the_server_expires_parts_before_their_upload(
    store: MongoStore, mongodb_uri: str, database_name: str
) -> None:
    made = upload()
    store.uploads().create_upload(made)
    store.uploads().put_part(made, 1, b"x")
    with MongoClient(mongodb_uri, tz_aware=True) as client:
        expiries = []
        for name in ("upload_parts", "uploads"):
            indexes = client[database_name][name].index_information()
            assert indexes["expires_1"]["expireAfterSeconds"] == 0
            record = client[database_name][name].find_one({})
            assert record is not None
            expiries.append(record["expires"].timestamp())
    # MongoDB's clock, by which they go, may be ahead of that by which the upload has time.
    assert expiries[0] >= made.expires_us / 1e6 + 300
    assert expiries[1] >= expiries[0] + 300


def test_a_part_too_large_for_a_record_is_refused(store: MongoStore) -> None:
    with pytest.raises(ValueError, match="12582912 bytes"):
        store.uploads().put_part(upload(), 1, b"x" * (12 * 1024 * 1024 + 1))


def test_default_values_are_not_stored(
    store: MongoStore, mongodb_uri: str, database_name: str
) -> None:
    store.write_commits([commit(1)])
    store.write_documents({"c": [document(1)]})
    with MongoClient(mongodb_uri) as client:
        written = client[database_name]["commits"].find_one({})
        kept = client[database_name]["documents"].find_one({})
    assert written is not None
    assert kept is not None
    assert not {"succeeded", "rebased_from", "deletes_catalog", "message"} & set(written)
    assert "attributes" not in written["changes"]
    assert "attributes" not in kept["state"]


def test_a_large_content_is_stored_without_its_digest(store: MongoStore) -> None:
    """With it, a patch of a document of 1 MB took half as long again."""
    large = replace(document(2, key="large"), size_bytes=1_000_000)
    store.write_documents({"c": [large, document(1, key="small")]})
    assert [each.digest is None for each in store.scan_digests("c", "", "", 9)] == [True, False]


def test_parts_of_large_contents_and_many_managers_are_not_stored(
    store: MongoStore, mongodb_uri: str, database_name: str
) -> None:
    """Nor those that an earlier version wrote."""
    many = OwnerTree((tuple(Ownership(f"m{n:02}", 1) for n in range(17)),), {"n": 0})
    one = OwnerTree(((Ownership("m", 1),),), {"n": 0})
    owned = [replace(document(n, key=key), owners=one) for n, key in enumerate(("old", "small"), 1)]
    large = replace(document(3, key="large"), size_bytes=1_000_000, owners=one)
    store.write_documents({"c": [large, replace(document(4, key="many"), owners=many), *owned]})
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        of_old = {"_id": "c\0old"}
        client[database_name]["documents"].update_one(of_old, {"$unset": {"state.parts": 1}})
    found = store.scan_digests("c", "", "", 9, parts=True)
    assert {each.key: each.parts for each in found} == {
        "large": None,
        "many": None,
        "old": None,
        "small": {"m": digest({"n": 2})},
    }


def test_a_content_that_was_stored_without_its_digest_is_scanned_without_one(
    store: MongoStore, mongodb_uri: str, database_name: str
) -> None:
    store.write_documents({"c": [document(1, key="old"), document(2, key="young")]})
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        of_old = {"_id": "c\0old"}
        client[database_name]["documents"].update_one(of_old, {"$unset": {"state.digest": 1}})
    assert [each.digest is None for each in store.scan_digests("c", "", "", 9)] == [True, False]


@pytest.mark.parametrize(
    "foreign",
    [
        {"_id": "b1"},
        {"_id": {"a": 1}},
        {"_id": "b1", **dataclasses.asdict(TOKEN), "secret_sha256": 5},
        {"_id": "b1", **dataclasses.asdict(TOKEN), "expires_us": "never"},
        *({"_id": "b1", **dataclasses.asdict(TOKEN), "expires_us": each} for each in UNDECODABLE),
    ],
)
def test_a_foreign_token_record_is_ignored_and_hides_no_other(
    store: MongoStore, foreign: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tokens, issued = store.tokens(), TOKEN
    tokens.create_token(issued)
    store._on.database["tokens"].insert_one(foreign)
    for _ in range(2):
        assert tokens.tokens_of({issued.id, "b1"}) == {issued.id: issued}
        assert tokens.tokens() == [issued]
    assert tokens.token("b1") is None
    assert tokens.revoke_token("b1", 5) is None
    told = {each for each in caplog.messages if "can't be read" in each}
    assert len(caplog.messages) == len(told) == 1


def test_an_upload_is_deleted_before_its_parts(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are deleted one after the other: who reads them meanwhile finds some."""
    uploads, made = store.uploads(), upload()
    uploads.create_upload(made)
    uploads.put_part(made, 1, b"1")
    delete, there = Collection.delete_many, []

    def noting(self: Collection[Any], *given: Any, **terms: Any) -> Any:
        there.append(uploads.upload(made.catalog, made.id))
        return delete(self, *given, **terms)

    monkeypatch.setattr(Collection, "delete_many", noting)
    uploads.drop_upload(made)
    assert there == [None]
    assert uploads.parts(made) == []


WRITTEN: dict[str, Any] = dataclasses.asdict(subscription())


@pytest.mark.parametrize(
    "foreign",
    [
        {"_id": "c\0a"},
        {"_id": 7},
        {"_id": "c\0a", "catalog": "c"},
        {"_id": "c\0a", **WRITTEN},  # under the name of another one
        *(
            {"_id": "c\0a", **WRITTEN, "name": "a", **edited}
            for edited in (
                *({"position": 5}, {"position": "five"}, {"secrets": ["s"]}, {"secrets": [[1, 2]]}),
                *({"failures": "1"}, {"failing_since_us": "today"}, {"paused": 0}, {"error": "e"}),
                *({"error": each} for each in UNDECODABLE),
            )
        ),
        *(
            {"_id": "c\0a", "catalog": "c", "until": until, "lasts_ms": lasts_ms}
            for until in ("never", datetime(9999, 1, 1, tzinfo=UTC))
            for lasts_ms in ("long", [1], -1, math.nan, math.inf, 1e300, 2**62)
        ),
    ],
)
def test_a_foreign_subscription_record_hides_no_other(
    store: MongoStore, foreign: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    subscriptions = store.subscriptions()
    assert subscriptions.create_subscription(subscription())
    store._on.database["subscriptions"].insert_one(foreign)
    _, free = subscriptions.claimable("me", 9)
    assert ("c", "s") in free
    claimed = [subscriptions.claim_subscription(*named, "me", 60) for named in free]
    assert [each for each in claimed if each is not None] == [subscription()]
    for _ in range(3):
        assert subscriptions.claimable("me", 9) == ([subscription()], [])
    assert subscriptions.subscriptions_of("c") == [subscription()]
    told = [each for each in caplog.messages if "can't be read" in each]
    assert len(told) == (foreign["_id"] != 7), "once: a worker looks each second"
    if foreign["_id"] != 7:
        assert subscriptions.subscription("c", "a") is None
        made = dataclasses.replace(subscription(), name="a")
        assert subscriptions.create_subscription(made)
        assert not subscriptions.create_subscription(made)
        assert subscriptions.subscription("c", "a") == made
