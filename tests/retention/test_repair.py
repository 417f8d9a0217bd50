"""`gateway repair`: documents that differ from their log are rewritten, beside live writers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from pymongo import MongoClient

from gateway.cli.main import main
from gateway.decide.edits import Delete
from gateway.model import CommitRecord
from gateway.retention.repair import Repair, Repaired
from gateway.retention.verification import Verification
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.state.replay import HistoryIncomplete
from gateway.store.contract import ForeignRecord
from gateway.store.mongodb import connect
from gateway.store.mongodb.records import commit_id, document_id
from patching import ABSENT
from patching.owners import Ownership, OwnerTree
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS
from tests.retention.history_checks import findings, settler_of, wait_until_written
from tests.retention.test_compaction import gateway_on, write_history
from tests.state.test_bases import Noted, gateway_that_never_writes_out
from tests.store.contract_suite import OWNERS
from tests.without_http import add, applied, content_of, put


@pytest.fixture
def store() -> MemoryStore:
    memory = MemoryStore()
    gateway = gateway_on(memory)
    for key in ("k", "gone"):
        applied(gateway.write("c", key, put({"n": 0})).outcome)
    applied(gateway.write("c", "k", add("/acknowledged", 1)).outcome)
    applied(gateway.write("c", "gone", Delete()).outcome)
    wait_until_written(gateway)
    return memory


def spoil(store: MemoryStore, key: str = "k", **fields: Any) -> None:
    """Not as the gateway writes: the commit's own id and revision, another state."""
    store._documents["c", key] = replace(store._documents["c", key], **fields)


def documents_differing(store: Any) -> list[str]:
    """Without findings about a whole value that was recorded from a wrong document: repair leaves
    history as it is."""
    beside = "the value isn't what the patch gives"
    return [each for each in findings(store, "c") if not each.endswith(beside)]


def repair(store: Any, *, apply: bool) -> list[str]:
    runtime = ThreadRuntime()
    settler = settler_of(store, runtime)
    repairing = Repair(store, settler, runtime, Verification(store, settler, runtime))
    done = repairing.repair("c", apply=apply)
    return [each.detail for each in done if isinstance(each, Repaired)]


RIGHT = {"n": 0, "acknowledged": 1}
# What is wrong, and what every gateway must read afterwards of k and of gone.
SPOILT: dict[str, Callable[[MemoryStore], object]] = {
    "a patch is missing": lambda s: spoil(s, content={"n": 0}, patches=99),
    "it was written on": lambda s: (
        spoil(s, content={"n": 0}, patches=99),
        wait_until_written(written_on(s)),
    ),
    "attributes": lambda s: spoil(s, attributes={"acl": {"read": ["eve"]}}),
    "owners": lambda s: spoil(s, owners=OwnerTree(((Ownership("eve", 1),),), 0)),
    "another commit": lambda s: spoil(s, commit_id="f" * 32),
    "an older one": lambda s: spoil(s, revision=1, content={"n": 0}),
    "it is missing": lambda s: s._documents.pop(("c", "k")),
    "it was deleted": lambda s: spoil(s, content=ABSENT),
    "it came back": lambda s: spoil(s, "gone", content={"n": 0}),
}


def written_on(store: MemoryStore) -> GatewayService:
    gateway = gateway_on(store)
    applied(gateway.write("c", "k", add("/later", 1)).outcome)
    return gateway


@pytest.mark.parametrize("how", SPOILT)
def test_a_document_that_differs_from_its_log_is_rewritten(store: MemoryStore, how: str) -> None:
    SPOILT[how](store)
    remembering = gateway_on(store)
    content_of(remembering)
    right = {**RIGHT, "later": 1} if how == "it was written on" else RIGHT
    assert findings(store, "c")
    before = dict(store._documents), dict(store._heads)
    (would,) = repair(store, apply=False)
    assert would.startswith("would be ")
    assert (store._documents, {"c": replace(store._heads["c"], claims=())}) == before
    (was,) = repair(store, apply=True)
    assert was.startswith("was ")
    assert documents_differing(store) == []
    for gateway in (remembering, gateway_on(store)):
        assert content_of(gateway) == right
        assert content_of(gateway, "gone") is ABSENT
    assert applied(remembering.write("c", "k", add("/m", 1)).outcome).documents["k"]
    wait_until_written(remembering)
    assert content_of(gateway_on(store)) == {**right, "m": 1}
    assert set(repair(store, apply=True)) <= {"is now as in the log"}
    commits = store._commits["c"]
    assert [each.author for each in commits.values()].count("gateway repair") == 1


def test_a_missing_document_whose_last_commits_are_still_in_the_head_is_rewritten() -> None:
    """They are written out, but nobody has committed since."""
    store = MemoryStore()
    gateway = gateway_on(store)
    applied(gateway.write("c", "k", put({"n": 0})).outcome)
    wait_until_written(gateway)
    applied(gateway.write("c", "k", add("/acknowledged", 1)).outcome)
    wait_until_written(gateway)
    (head,) = store.tails(["c"]).values()
    assert [each.revision for each in head.tail or ()] == [2]
    del store._documents["c", "k"]
    assert repair(store, apply=True) == [
        "was rewritten, as in the log since revision 2, by commit 3"
    ]
    assert content_of(gateway_on(store)) == RIGHT


def test_clients_with_the_wrong_content_lose_their_token(store: MemoryStore) -> None:
    """Their token stood for something else."""
    spoil(store, content={"n": 0})
    token = gateway_on(store).read("c", "k").document
    repair(store, apply=True)
    now = gateway_on(store).read("c", "k").document
    assert token
    assert now
    assert now.token != token.token


def test_a_document_without_a_complete_log_is_reported_and_left(store: MemoryStore) -> None:
    commit = store._commits["c"][3]
    change = replace(commit.changes[0], base_revision=1, base_id="f" * 32)
    store._commits["c"][3] = replace(commit, changes=(change,))
    (told,) = repair(store, apply=True)
    assert told.startswith("can't be repaired: the log gives no state")
    assert store._heads["c"].revision == 4


def test_a_document_newer_than_the_head_is_reported_and_left(store: MemoryStore) -> None:
    spoil(store, revision=9)
    assert "k: the document is at 9, but the head at 4" in findings(store, "c")
    (told,) = repair(store, apply=True)
    assert told == "can't be repaired: it is stored as of 9, the head is at 4"


def test_owners_and_attributes_are_restored_from_the_log(store: MemoryStore) -> None:
    gateway = gateway_on(store)
    commit = applied(
        gateway.write("c", "k", put({"$a": 0, "a.b": {"": 1, "\0": 1}})).outcome
    ).commit
    wait_until_written(gateway)
    store.end_tails({"c": (5, 0)})
    change = replace(commit.changes[0], owners=OWNERS, attributes={"x": 1})
    store._commits["c"][5] = replace(commit, changes=(change,))
    repair(store, apply=True)
    assert findings(store, "c") == []
    stored = store.documents({"c": ["k"]})["c", "k"]
    assert (stored.revision, stored.owners, stored.attributes) == (6, OWNERS, {"x": 1})


class LongLog(MemoryStore):
    """To read its log from the beginning takes longer than others wait: one of them commits."""

    rival: GatewayService | None = None
    read_whole = 0

    def list_commits(self, catalog: str, after: int, *rest: Any) -> Sequence[CommitRecord]:
        found = super().list_commits(catalog, after, *rest)
        if after == 0 and "k" in rest and self.rival is not None:
            self.read_whole += 1
            self._heads[catalog] = replace(self._heads[catalog], claims=())  # they have ended
            applied(self.rival.write(catalog, "k", add("/n", self.read_whole)).outcome)
            wait_until_written(self.rival)
        return found


def test_a_race_lost_over_a_long_log_is_won_by_running_the_repair_again() -> None:
    store = LongLog()
    gateway = gateway_on(store)
    applied(gateway.write("c", "k", put({"n": 0})).outcome)
    applied(gateway.write("c", "k", add("/acknowledged", 1)).outcome)
    wait_until_written(gateway)
    spoil(store, content={"n": 0}, patches=99)
    store.rival = gateway_on(store)
    (done,) = repair(store, apply=True)
    assert done.startswith("was rewritten")
    assert store.read_whole == 1
    assert content_of(gateway_on(store)) == {**RIGHT, "n": 1}


@pytest.mark.mongod
def test_a_repair_beside_a_live_writer_loses_nothing(mongodb_uri: str, database_name: str) -> None:
    """It writes the very document, through a gateway that remembers the wrong one."""
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    gateway = gateway_on(store)
    applied(gateway.write("c", "k", put({"n": 0})).outcome)
    applied(gateway.write("c", "k", add("/acknowledged", 1)).outcome)
    wait_until_written(gateway)
    with MongoClient[Any](mongodb_uri) as client:
        wrong = {"$set": {"state.content": {"n": 0}, "state.patches": 99}}
        client[database_name]["documents"].update_one({"_id": document_id("c", "k")}, wrong)
    live = gateway_on(store)
    assert content_of(live) == {"n": 0}
    stop, written = threading.Event(), [0]
    later: dict[str, int] = {}

    def write() -> None:
        while not stop.is_set():
            field = f"w{written[0] % 10}"
            applied(live.write("c", "k", add(f"/{field}", written[0])).outcome)
            later[field] = written[0]
            written[0] += 1

    writer = threading.Thread(target=write)
    writer.start()

    def run(*flags: str) -> tuple[int, str]:
        named = (f"--mongodb-uri={mongodb_uri}", f"--database={database_name}")
        result = CliRunner().invoke(main, ["repair", *flags, *named])
        return result.exit_code, result.output

    try:
        code, output = run("c")
        assert (code, "would be rewritten" in output) == (1, True), output
        assert "acknowledged" not in content_of(live)
        code, output = run("c", "--apply")
        assert (code, "was rewritten" in output) == (0, True), output
        assert output.endswith("nothing is left to repair\n")
    finally:
        stop.set()
        writer.join()
    wait_until_written(live)
    right = {"n": 0, "acknowledged": 1, **later}
    assert content_of(live) == right
    assert store.documents({"c": ["k"]})["c", "k"].content == right
    assert documents_differing(store) == []
    assert run("--all")[0] == 0
    assert run()[0] == 2
    store.close()


@pytest.mark.mongod
def test_a_digest_that_does_not_match_the_content_is_rewritten(
    mongodb_uri: str, database_name: str
) -> None:
    """By it `sync` would pass over a document that isn't as it should be."""
    where = [f"--mongodb-uri={mongodb_uri}", f"--database={database_name}"]
    with (
        closing(connect(mongodb_uri, database_name, WAIT_MS)) as store,
        MongoClient[dict[str, Any]](mongodb_uri) as client,
    ):
        write_history(gateway_on(store), store)
        (right,) = store.digests_of("c", ["a"])
        client[database_name]["documents"].update_one(
            {"catalog": "c", "key": "a"}, {"$set": {"state.digest": "0" * 64}}
        )
        mended = CliRunner().invoke(main, ["repair", "c", "--apply", *where])
        assert (mended.exit_code, "was rewritten" in mended.output) == (0, True), mended.output
        assert [each.digest for each in store.digests_of("c", ["a"])] == [right.digest]
    assert CliRunner().invoke(main, ["verify", "c", *where]).exit_code == 0


@pytest.mark.mongod
@pytest.mark.parametrize(
    ("member", "value"),
    [("state", "x"), ("state.patches", "x"), ("key", None), ("state.revision", 2**40)],
)
def test_an_unreadable_or_too_new_record_is_replaced(
    mongodb_uri: str, database_name: str, member: str, value: Any
) -> None:
    """Its record can't be read, or is newer than the head."""
    where = [f"--mongodb-uri={mongodb_uri}", f"--database={database_name}"]
    with (
        closing(connect(mongodb_uri, database_name, WAIT_MS)) as store,
        MongoClient[dict[str, Any]](mongodb_uri) as client,
    ):
        write_history(gateway_on(store), store)
        right = content_of(gateway_on(store), "a")
        documents = client[database_name]["documents"]
        name = {"_id": document_id("c", "a")}
        documents.update_one(name, {"$set": {member: value}})
        before = documents.find_one(name)
        told = CliRunner().invoke(main, ["repair", "c", *where])
        assert (told.exit_code, told.output.count("would be rebuilt")) == (1, 1), told.output
        assert documents.find_one(name) == before
        mended = CliRunner().invoke(main, ["repair", "c", "--apply", *where])
        assert mended.exit_code == 0, mended.output
        assert content_of(gateway_on(store), "a") == right
        assert store.documents({"c": ["a"]})["c", "a"].content == right
    assert CliRunner().invoke(main, ["verify", "c", *where]).exit_code == 0


@pytest.mark.mongod
@pytest.mark.parametrize("fields", [{"state": "x"}, {"state.revision": 2**40}])
def test_the_document_exists_at_every_moment_of_its_repair(
    mongodb_uri: str, database_name: str, fields: dict[str, Any]
) -> None:
    """Otherwise readers would get a 404, and writers would create it."""
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        write_history(gateway_on(store), store)
        name = {"_id": document_id("c", "a")}
        store._on.documents.update_one(name, {"$set": fields})
        with store._on.documents.watch([{"$match": {"documentKey": name}}]) as changes:
            (done,) = repair_with(store, store.mending())
            assert done.mended
            first = changes.next()
            assert (first["operationType"], changes.try_next()) == ("replace", None)
        # The head was moved with it, so whoever remembers another state hears of it.
        head = store.heads(["c"])["c"]
        assert first["fullDocument"]["state"]["commit_id"] == head.last


class Meanwhile:
    """A mending during which others do something, once: after a record was found to be bad, or
    right before another one is put there."""

    def __init__(
        self, mending: Any, done: Callable[[], object], *, before_put: bool = False
    ) -> None:
        self._mending = mending
        self._done: list[Callable[[], object]] = [done]
        self._before_put = before_put
        self.put: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mending, name)

    def found_document(self, *asked: Any) -> Any:
        found = self._mending.found_document(*asked)
        while self._done and not self._before_put:
            self._done.pop()()
        return found

    def put_document(self, found: Any, move: Any, document: Any) -> bool:
        while self._done:
            self._done.pop()()
        self.put.append(self._mending.put_document(found, move, document))
        return self.put[-1]


def repair_with(store: Any, mending: Any, settler: Any = None) -> list[Repaired]:
    runtime = ThreadRuntime()
    verification = Verification(store, settler_of(store, runtime), runtime)
    repairing = Repair(store, settler or settler_of(store, runtime), runtime, verification, mending)
    return [each for each in repairing.repair("c", apply=True) if isinstance(each, Repaired)]


BAD: list[dict[str, Any]] = [{"key": None}, {"state.patches": "x"}, {"state.revision": 2**40}]


@pytest.mark.mongod
@pytest.mark.parametrize("before_put", [False, True])
@pytest.mark.parametrize("fields", BAD)
def test_a_commit_made_during_the_replacement_is_not_lost(
    mongodb_uri: str, database_name: str, fields: dict[str, Any], before_put: bool
) -> None:
    """By a worker that remembers the document: nothing that it writes out is above the bad one."""
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        gateway = gateway_on(store)
        applied(gateway.write("c", "k", put({"n": 0})).outcome)
        applied(gateway.write("c", "k", add("/acknowledged", 1)).outcome)
        wait_until_written(gateway)
        store._on.documents.update_one({"_id": document_id("c", "k")}, {"$set": fields})

        def write() -> None:
            applied(gateway.write("c", "k", add("/later", 1)).outcome)
            wait_until_written(gateway)

        mending = Meanwhile(store.mending(), write, before_put=before_put)
        (done,) = repair_with(store, mending)
        assert done.mended
        assert not (before_put and mending.put[0])
        right = {**RIGHT, "later": 1}
        assert content_of(gateway_on(store)) == content_of(gateway) == right
        assert store.documents({"c": ["k"]})["c", "k"].content == right
        assert findings(store, "c") == []


@pytest.mark.mongod
def test_a_record_repaired_by_others_in_the_meantime_is_left(
    mongodb_uri: str, database_name: str
) -> None:
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        write_history(gateway_on(store), store)
        name = {"_id": document_id("c", "a")}
        store._on.documents.update_one(name, {"$set": {"state.revision": 2**40}})
        theirs = Meanwhile(store.mending(), lambda: None)
        ours = Meanwhile(store.mending(), lambda: repair_with(store, theirs))
        (done,) = repair_with(store, ours)
        assert (done.detail, done.mended) == ("is now as in the log", True)
        assert (theirs.put, ours.put) == ([True], [])
        assert findings(store, "c") == []
        # The very record, too, is asked for.
        store._on.documents.update_one(name, {"$set": {"state.revision": 2**40}})
        spoilt_anew = Meanwhile(
            store.mending(),
            lambda: store._on.documents.update_one(name, {"$set": {"state.revision": 2**41}}),
        )
        assert [each.mended for each in repair_with(store, spoilt_anew)] == [True]
        assert spoilt_anew.put == [False, True]
        assert findings(store, "c") == []


@pytest.mark.mongod
def test_a_document_that_no_commit_made_is_removed(mongodb_uri: str, database_name: str) -> None:
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        write_history(gateway_on(store), store)
        store._on.documents.insert_one({"_id": document_id("c", "aa"), "state": "x"})
        (done,) = repair_with(store, store.mending())
        assert done.mended
        assert findings(store, "c") == []
        assert store._on.documents.find_one({"_id": document_id("c", "aa")}) is None


class MeetsAnother:
    """A settler to whom another document is in the way, as of a tail that was made once the catalog
    was verified."""

    def __init__(self, met: Exception) -> None:
        self._met = met

    def settle(self, catalog: str) -> Any:
        del catalog
        raise self._met


@pytest.mark.mongod
@pytest.mark.parametrize(
    ("met", "why"),
    [
        (ForeignRecord("c", "other", "it can't be read: x"), "it can't be read: x"),
        (
            HistoryIncomplete(),
            "the log doesn't lead to what the head has: a part of it is gone",
        ),
    ],
)
def test_another_document_in_the_way_is_reported(
    mongodb_uri: str, database_name: str, met: Exception, why: str
) -> None:
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        write_history(gateway_on(store), store)
        names = [{"_id": document_id("c", key)} for key in ("a", "c")]
        for name in names:
            store._on.documents.update_one(name, {"$set": {"state": "x"}})
        before = [store._on.documents.find_one(name) for name in names]
        told = [each.detail for each in repair_with(store, store.mending(), MeetsAnother(met))]
        assert told == [f"can't be repaired: {why}"] * 2
        assert [store._on.documents.find_one(name) for name in names] == before


@pytest.mark.mongod
def test_a_catalog_whose_log_does_not_lead_to_its_tail_stops_no_other_repair(
    mongodb_uri: str, database_name: str
) -> None:
    where = [f"--mongodb-uri={mongodb_uri}", f"--database={database_name}"]
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        gateway = gateway_on(store)
        for catalog in ("c", "d"):
            applied(gateway.write(catalog, "k", put({"n": 0})).outcome)
            wait_until_written(gateway, catalog)
        store.end_tails({"c": (1, 0)})
        applied(gateway_that_never_writes_out(store, Noted()).write("c", "k", add("/m", 1)).outcome)
        store._on.commits.delete_one({"_id": commit_id("c", 1)})
        for catalog in ("c", "d"):
            store._on.documents.delete_one({"_id": document_id(catalog, "k")})
        told = "catalog 'c': the log doesn't lead to what the head has: a part of it is gone"
        for command in (["verify"], ["repair", "--apply"]):
            result = CliRunner().invoke(main, [*command, "--all", *where])
            assert (result.exit_code, told in result.output) == (1, True), result.output
        assert content_of(gateway_on(store), "k", "d") == {"n": 0}


@pytest.mark.mongod
def test_the_record_of_a_document_without_a_complete_log_is_not_deleted(
    mongodb_uri: str, database_name: str
) -> None:
    where = [f"--mongodb-uri={mongodb_uri}", f"--database={database_name}"]
    with (
        closing(connect(mongodb_uri, database_name, WAIT_MS)) as store,
        MongoClient[dict[str, Any]](mongodb_uri) as client,
    ):
        gateway = gateway_on(store)
        applied(gateway.write("c", "k", put({"n": 0})).outcome)
        applied(gateway.write("c", "k", add("/m", 1)).outcome)
        wait_until_written(gateway)
        client[database_name]["commits"].delete_one({"_id": f"c\0{1:016x}"})
        documents = client[database_name]["documents"]
        documents.update_one({}, {"$set": {"state.revision": "x"}})
        before = documents.find_one()
        told = CliRunner().invoke(main, ["repair", "c", "--apply", *where])
        assert (told.exit_code, "the log gives no state" in told.output) == (1, True), told.output
        assert documents.find_one() == before
