"""`gateway repair` makes a head anew from its log: one that can't be read, is gone, or isn't where
the log ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import main
from gateway.limits import MIB, PASSED_OVER
from gateway.model import PinRecord
from gateway.retention.head_repair import HeadRepair
from gateway.runtime import ThreadRuntime
from gateway.store.contract import ForeignRecord
from gateway.store.mongodb import MongoStore, connect
from gateway.store.mongodb.records import commit_id
from tests.patience import WAIT_MS
from tests.retention.history_checks import findings, history_of, wait_until_written
from tests.retention.test_compaction import compaction_of, nothing
from tests.state.sleeping import gateway_on
from tests.state.test_bases import Noted, gateway_that_never_writes_out
from tests.store.undecodable import FAR_DATE, NO_TEXT, without_utf8
from tests.store.verdicts_suite import verdict
from tests.without_http import add, applied, content_of, put

pytestmark = pytest.mark.mongod

Run = Callable[..., Result]
FLOOR = 3


@pytest.fixture
def store(mongodb_uri: str, database_name: str) -> Iterator[MongoStore]:
    """c is at 5, with a floor and a pin."""
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        gateway = gateway_on(store)
        applied(gateway.write("c", "k", put({"n": 0})).outcome)
        for number in range(1, 5):
            applied(gateway.write("c", "k", add(f"/m{number}", number)).outcome)
        wait_until_written(gateway)
        compaction_of(store, ThreadRuntime(), sweep_grace_s=0).compact("c", FLOOR, nothing)
        assert store.set_pin("c", PinRecord("p", 4, 2**50, "ann"))
        yield store


@pytest.fixture
def run(mongodb_uri: str, database_name: str) -> Run:
    def run(*asked: str) -> Result:
        where = (f"--mongodb-uri={mongodb_uri}", f"--database={database_name}")
        return CliRunner().invoke(main, [*asked, *where])

    return run


RIGHT = {"n": 0, **{f"m{number}": number for number in range(1, 5)}}


def unwritten(store: MongoStore) -> None:
    """Commit 6 is in the head alone."""
    gateway = gateway_that_never_writes_out(store, Noted())
    applied(gateway.write("c", "k", add("/m5", 5)).outcome)


def spoil(store: MongoStore, **fields: Any) -> None:
    done = store._on.catalogs.update_one(
        {"_id": "c"}, {"$set": {name.replace("__", "."): value for name, value in fields.items()}}
    )
    assert done.modified_count == 1


def take_away(store: MongoStore, name: str) -> None:
    store._on.catalogs.update_one({"_id": "c"}, {"$unset": {name: ""}})


# What somebody may do to a head that still says that it stands for no other commit.
SURE: dict[str, Callable[[MongoStore], object]] = {
    "a time that is text": lambda s: spoil(s, time_us="x"),
    "no time": lambda s: take_away(s, "time_us"),
    "another revision": lambda s: spoil(s, head__revision=2),
    "a revision far above": lambda s: spoil(s, head__revision=2**40),
    "a revision that is text": lambda s: spoil(s, head__revision="5"),
    "no commit's id": lambda s: spoil(s, head__last=None),
    "a commit's id that is no UTF-8": lambda s: s._on.catalogs.update_one(
        {"_id": "c"}, without_utf8("head.last")
    ),
    "no format": lambda s: spoil(s, head__format=None),
    "a verdict that is none": lambda s: spoil(s, head__verdict=7, head__judged="x"),
    "a deletion that is none": lambda s: spoil(s, deleted="no"),
    "claims that are none": lambda s: spoil(s, claims=[{"by": 1}]),
    "nowhere written out": lambda s: take_away(s, "out"),
    "another pin that is none": lambda s: spoil(s, pins__1={"id": "q", "revision": FAR_DATE}),
    "a sweep that is none": lambda s: spoil(s, swept="x"),
    "a time that is no date": lambda s: spoil(s, time_us=FAR_DATE),
    "a deletion that is no text": lambda s: spoil(s, deleted=NO_TEXT),
    "something else beside its revision": lambda s: spoil(s, head__more=1),
}


@pytest.mark.parametrize("has_tail", [False, True], ids=["all written out", "with a tail"])
@pytest.mark.parametrize("how", SURE)
def test_a_head_that_names_its_last_commit_is_rebuilt_at_that_commit(
    store: MongoStore, run: Run, how: str, has_tail: bool
) -> None:
    right, last = RIGHT, 5
    if has_tail:
        unwritten(store)
        right, last = {**RIGHT, "m5": 5}, 6
    remembering = gateway_on(store)
    assert content_of(remembering) == right
    SURE[how](store)
    before = store._on.catalogs.find_one({"_id": "c"})
    assert run("verify", "c").exit_code == 1
    told = run("repair", "c")
    assert (told.exit_code, "would be rebuilt" in told.output) == (1, True), told.output
    assert store._on.catalogs.find_one({"_id": "c"}) == before
    done = run("repair", "c", "--apply")
    assert done.exit_code == 0, done.output
    assert f"it was rebuilt from the log, at revision {last}\n" in done.output
    assert run("verify", "c").exit_code == 0
    for gateway in (gateway_on(store), remembering):
        assert content_of(gateway) == right
    bounds = store.retention("c")
    assert bounds is not None
    assert (bounds.floor, [pin.id for pin in bounds.pins]) == (FLOOR, ["p"])
    written = applied(gateway.write("c", "k", add("/later", 1)).outcome)
    assert written.commit.revision == last + 1
    assert content_of(gateway) == {**right, "later": 1}
    wait_until_written(gateway)
    assert findings(store, "c") == []
    assert run("repair", "c").output == "nothing is left to repair\n"


LOST: dict[str, Callable[[MongoStore], object]] = {
    "no head": lambda s: s._on.catalogs.delete_one({"_id": "c"}),
    "nothing of it": lambda s: s._on.catalogs.replace_one({"_id": "c"}, {"x": 1}),
    "no place": lambda s: spoil(s, head="x", tail=[]),
    "an older one": lambda s: spoil(
        s, head__revision=4, head__last=s.list_commits("c", 3, 4, 1, None, 1)[0].id, tail=[]
    ),
    "one of lost commits that can't be read": lambda s: spoil(
        s, head__revision=8, head__last="f" * 32, time_us="x", tail=[]
    ),
}


@pytest.mark.parametrize("has_tail", [False, True], ids=["all written out", "with a tail"])
@pytest.mark.parametrize("how", LOST)
def test_a_head_that_may_have_had_further_commits_continues_above_them(
    store: MongoStore, run: Run, how: str, has_tail: bool
) -> None:
    """A client may remember them: their revisions come to no others."""
    if has_tail:
        unwritten(store)
    remembering = gateway_on(store)
    content_of(remembering)
    LOST[how](store)
    told = run("repair", "c")
    assert (told.exit_code, "would be rebuilt" in told.output) == (1, True), told.output
    done = run("repair", "c", "--apply")
    assert (done.exit_code, "may be lost" in done.output) == (0, True), done.output
    assert run("verify", "c").exit_code == 0
    head = store.heads(["c"])["c"]
    assert head.revision >= 5 + PASSED_OVER
    assert head.floor == head.revision
    for gateway in (gateway_on(store), remembering):
        assert content_of(gateway) == RIGHT
    applied(remembering.write("c", "k", add("/later", 1)).outcome)
    wait_until_written(remembering)
    assert findings(store, "c") == []


def test_a_tail_that_continues_the_log_is_kept_even_if_the_head_names_a_later_commit(
    store: MongoStore, run: Run
) -> None:
    unwritten(store)
    spoil(store, head__revision=9, head__last="f" * 32, time_us="x")
    done = run("repair", "c", "--apply")
    assert (done.exit_code, "may be lost" in done.output) == (0, True), done.output
    assert store.heads(["c"])["c"].revision >= 9 + PASSED_OVER
    assert content_of(gateway_on(store)) == {**RIGHT, "m5": 5}
    assert run("verify", "c").exit_code == 0


@pytest.mark.parametrize("is_swept", [False, True])
def test_an_unreadable_floor_is_replaced_by_the_oldest_revision_that_can_be_rebuilt(
    mongodb_uri: str, database_name: str, run: Run, is_swept: bool
) -> None:
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        gateway = gateway_on(store)
        for number in range(1, 6):
            applied(gateway.write("c", "k", put({"n": number})).outcome)
        wait_until_written(gateway)
        if is_swept:
            compaction_of(store, ThreadRuntime(), sweep_grace_s=0).compact("c", 3, nothing)
        spoil(store, floor="x")
        done = run("repair", "c", "--apply")
        assert done.exit_code == 0, done.output
        assert store.heads(["c"])["c"].floor == (5 if is_swept else 0)
        assert run("verify", "c").exit_code == 0
        assert history_of(store).document_at_revision("c", "k", 5).content == {"n": 5}


def test_no_head_is_rebuilt_from_an_incomplete_log(store: MongoStore, run: Run) -> None:
    spoil(store, time_us="x")
    commits = store._on.commits
    (gone,) = store.list_commits("c", 3, 4, 1, None, 1)
    name = {"_id": f"c\0{gone.revision:016x}"}
    record = commits.find_one(name)
    for spoilt in (None, {**record, "id": 7}):
        commits.delete_one(name)
        if spoilt is not None:
            commits.insert_one(spoilt)
        before = store._on.catalogs.find_one({"_id": "c"})
        told = run("repair", "c", "--apply")
        assert (told.exit_code, "it can't be rebuilt" in told.output) == (1, True), told.output
        assert store._on.catalogs.find_one({"_id": "c"}) == before


def write_five_without(store: MongoStore, revisions: Iterable[int]) -> None:
    """A log of five commits that lacks these."""
    gateway = gateway_on(store)
    for number in range(1, 6):
        applied(gateway.write("c", "k", put({"n": number})).outcome)
    wait_until_written(gateway)
    for revision in revisions:
        store._on.commits.delete_one({"_id": commit_id("c", revision)})


def test_no_head_is_rebuilt_from_a_log_without_its_beginning(
    mongodb_uri: str, database_name: str, run: Run
) -> None:
    """Below a floor it may be: compaction takes it away."""
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        write_five_without(store, range(1, 5))
        spoil(store, time_us="x")
        told = run("repair", "c", "--apply")
        assert (told.exit_code, "no commit between 0 and 5" in told.output) == (1, True), (
            told.output
        )
        spoil(store, floor=5)
        assert run("repair", "c", "--apply").exit_code == 0
        assert run("verify", "c").exit_code == 0


@pytest.mark.parametrize(
    ("floor", "gone", "is_refused"),
    [
        (0, [1], True),
        (1, [1], False),
        (1, [1, 2], True),
        (2, [1, 2], False),
        (2, [2, 3], True),
        (2, [3], True),
        (3, [1, 2], False),
    ],
)
def test_a_gap_in_the_log_above_the_floor_is_refused(
    mongodb_uri: str, database_name: str, floor: int, gone: list[int], is_refused: bool
) -> None:
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        write_five_without(store, gone)
        spoil(store, floor=floor, time_us="x")
        heads = HeadRepair(store, store.mending(), ThreadRuntime())
        refused = pytest.raises(ForeignRecord, match="the log has no commit between")
        with refused if is_refused else nullcontext():
            assert heads.mended("c").head.floor == floor


def test_a_head_with_a_long_tail_is_rebuilt_too(
    mongodb_uri: str, database_name: str, run: Run
) -> None:
    """Twice it would be too large for a call."""
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        gateway = gateway_on(store)
        applied(gateway.write("c", "k", put({"n": 0})).outcome)
        wait_until_written(gateway)
        for key in ("a", "b", "c"):
            gateway = gateway_that_never_writes_out(store, Noted())
            applied(gateway.write("c", key, put("x" * 3 * MIB)).outcome)
        spoil(store, time_us="x")
        done = run("repair", "c", "--apply")
        assert done.exit_code == 0, done.output
        assert "it was rebuilt from the log, at revision 4\n" in done.output
        assert run("verify", "c").exit_code == 0


def test_commits_that_do_not_fit_the_log_are_named(store: MongoStore, run: Run) -> None:
    """Gateways have gone on at an older head, beside the log."""
    LOST["an older one"](store)
    gateway = gateway_on(store)
    theirs = applied(gateway.write("c", "other", put(1)).outcome).commit
    wait_until_written(gateway)
    assert theirs.revision == 5
    named = f"without these commits of its tail, which don't fit the log: 5 ({theirs.id})"
    for flags in ((), ("--apply",)):
        told = run("repair", "c", *flags)
        assert "the log's commit 5 isn't that of the head's tail" in told.output
        assert named in told.output
    assert told.exit_code == 0, told.output
    assert run("verify", "c").exit_code == 0
    assert content_of(gateway_on(store)) == RIGHT


def test_only_the_verdict_with_the_highest_number_is_read(store: MongoStore) -> None:
    store.write_verdicts([verdict(number) for number in range(1, 9)], kept_s=2**32)
    store._on.database.command("profile", 2)
    lost = store.mending().lost_head("c")
    store._on.database.command("profile", 0)
    assert lost.judged == 8
    of_verdicts = f"{store._on.database.name}.verdicts"
    (read,) = store._on.database["system.profile"].find({"ns": of_verdicts})
    assert read["nreturned"] == 1


def test_a_head_that_changed_in_the_meantime_is_not_replaced(store: MongoStore) -> None:
    spoil(store, time_us="x")
    heads = HeadRepair(store, store.mending(), ThreadRuntime())
    mended = heads.mended("c")
    spoil(store, time_us="y")
    assert not heads.put(mended)
    assert heads.put(heads.mended("c"))
    assert heads.fault("c") is None
    store._on.catalogs.delete_one({"_id": "c"})
    first, second = heads.mended("c"), heads.mended("c")
    assert heads.put(first)
    assert not heads.put(second)
