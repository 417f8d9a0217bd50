"""`gateway verify`: clean where all is well, and a finding for each thing that must not be."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from click.testing import CliRunner
from msgspec.structs import replace
from pymongo import MongoClient

from gateway.cli.main import main
from gateway.cli.verify import applied_by_jsonpatch
from gateway.decide.edits import Delete
from gateway.errors import CatalogNotFound
from gateway.model import ChangeRecord, DocumentRecord
from gateway.retention.verification import Verification
from gateway.runtime import ThreadRuntime
from gateway.store.contract import Store, Swept
from gateway.store.mongodb import MongoStore, connect
from gateway.store.mongodb.records import document_id
from patching import ABSENT, Json
from patching.values import Absent
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS
from tests.retention.history_checks import (
    compaction_of,
    findings,
    settler_of,
    wait_until_written,
)
from tests.retention.test_compaction import gateway_on, nothing, write_history
from tests.store.contract_suite import OWNERS, commit
from tests.store.verdicts_suite import judging, verdict
from tests.without_http import add, applied, put


@pytest.fixture
def store() -> MemoryStore:
    memory = MemoryStore()
    write_history(gateway_on(memory), memory)
    return memory


def stored(store: MemoryStore, key: str) -> DocumentRecord:
    return store._documents["c", key]


def overwrite(store: MemoryStore, key: str, **fields: object) -> None:
    store._documents["c", key] = replace(stored(store, key), **fields)  # type: ignore[arg-type]


def drop_document(store: MemoryStore, key: str) -> None:
    del store._documents["c", key]


def drop(store: MemoryStore, revision: int) -> None:
    del store._commits["c"][revision]


def edit(store: MemoryStore, revision: int, **fields: object) -> None:
    commit = store._commits["c"][revision]
    store._commits["c"][revision] = replace(commit, **fields)  # type: ignore[arg-type]


def test_a_sound_catalog_is_clean(store: MemoryStore) -> None:
    assert findings(store, "c") == []
    for floor in (3, 8, 12):
        compaction_of(store).compact("c", floor, nothing)
        assert findings(store, "c") == []


BREAKAGES: dict[str, tuple[Callable[[MemoryStore], object], str]] = {
    "content": (lambda s: overwrite(s, "c", content={"n": 7}), "the content at 9"),
    "attributes": (lambda s: overwrite(s, "c", attributes={"x": 1}), "the attributes at 9"),
    "revision": (lambda s: overwrite(s, "c", revision=8), "changed at 9, but the document is at 8"),
    "create_revision": (lambda s: overwrite(s, "c", create_revision=1), "create_revision is 1"),
    "commit id": (lambda s: overwrite(s, "c", commit_id="x"), "commit_id is 'x'"),
    "document gone": (lambda s: drop_document(s, "c"), "changed at 9, but there is no"),
    "revived": (lambda s: overwrite(s, "d", content={"n": 1}), "but the log has none"),
    "tombstone gone": (lambda s: drop_document(s, "d"), "changed at 11, but there is no"),
    "gap": (lambda s: drop(s, 5), "the log has no commit 5"),
    "time": (lambda s: edit(s, 5, time_us=1), "commit 5 isn't later"),
    "patch": (
        lambda s: edit(
            s, 9, changes=(ChangeRecord("c", "patch", 8, [{"op": "remove", "path": "/q"}]),)
        ),
        "the patch of 9 doesn't fit",
    ),
    "value": (
        lambda s: edit(
            s, 9, changes=(replace(s._commits["c"][9].changes[0], value={"n": "other"}),)
        ),
        "the value isn't what the patch gives",
    ),
    "unknown document": (
        lambda s: s.write_documents({"c": [replace(stored(s, "c"), key="never", revision=4)]}),
        "never: the document is at 4, but the log has none",
    ),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_each_kind_of_damage_is_found(store: MemoryStore, name: str) -> None:
    breakage, expected = BREAKAGES[name]
    breakage(store)
    found = findings(store, "c")
    assert any(expected in each for each in found), found


KEYS = [f"many-{number:03}" for number in range(250)]


@pytest.fixture
def many() -> MemoryStore:
    """A few hundred documents, of which each was patched once, most of them at one moment."""
    memory = MemoryStore()
    gateway = gateway_on(memory)
    for key in KEYS:
        applied(gateway.write("c", key, put({"n": 0})).outcome)
    for key in KEYS:
        applied(gateway.write("c", key, add("/n", 1)).outcome)
    wait_until_written(gateway)
    return memory


@pytest.mark.parametrize("name", ["content", "owners", "a base", "a record"])
def test_one_damaged_document_among_many_is_the_only_finding(many: MemoryStore, name: str) -> None:
    key, number = KEYS[120], 120
    if name == "content":
        overwrite(many, key, content={"n": 7})
    elif name == "owners":
        many._documents["c", key] = replace(stored(many, key), owners=OWNERS)
    elif name == "a base":
        change = many._commits["c"][251 + number].changes[0]
        edit(many, 251 + number, changes=(replace(change, base_id="f" * 32),))
    else:
        edit(many, 251 + number, changes=())
    runtime = ThreadRuntime()
    verification = Verification(many, settler_of(many, runtime), runtime)
    found = list(verification.verify("c"))
    assert {each.key for each in found} == {key}
    assert verification.tally.documents == len(KEYS)


def test_many_documents_are_read_together(many: MemoryStore) -> None:
    asked: list[str] = []

    class Counting:
        def __getattr__(self, name: str) -> object:
            asked.append(name)
            return getattr(many, name)

    for floor in (0, 300):
        if floor:
            compaction_of(many).compact("c", floor, nothing)
        asked.clear()
        assert findings(Counting(), "c") == []  # type: ignore[arg-type]
        assert len(asked) < len(KEYS) / 5, asked


def test_documents_that_are_large_together_are_replayed_one_by_one(
    many: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.retention.verification._HELD_BYTES_MAX", 1_000)
    alone: list[object] = []
    listed = many.list_commits

    def list_commits(*given: Any, **terms: Any) -> Any:
        alone.append(given[4] is not None and len(given[4]) == 1)
        return listed(*given, **terms)

    monkeypatch.setattr(many, "list_commits", list_commits)
    assert findings(many, "c") == []
    assert alone.count(True) >= 200  # the last fifty fit together


def test_damage_below_the_floor_is_found(store: MemoryStore) -> None:
    first = store._commits["c"][4]
    compaction_of(store).compact("c", 12, nothing)
    store.write_commits([first])  # d was put at 4, and deleted since
    assert findings(store, "c") == ["d: changed at 4, but there is no document"]
    store.sweep("c", [Swept(4, None)])
    assert findings(store, "c") == []
    store.write_documents({"c": [replace(stored(store, "c"), key="d", revision=4)]})
    assert findings(store, "c") == ["d: the document is at 4, but the log has none"]


def test_a_catalog_with_verdicts_only_is_not_found(store: MemoryStore) -> None:
    store.move_heads([judging(verdict(1, catalog="empty", revision=0), base=0)])
    with pytest.raises(CatalogNotFound):
        findings(store, "empty")


def test_verification_leaves_no_pin_behind(store: MemoryStore) -> None:
    findings(store, "c")
    bounds = store.retention("c")
    assert bounds is not None
    assert bounds.pins == ()


def test_concurrent_writes_are_not_findings(store: MemoryStore) -> None:
    gateway = gateway_on(store)

    class Busy:
        """Writes something before each page of documents is read."""

        def __getattr__(self, name: str) -> object:
            if name == "scan_documents":
                gateway.write("c", "a", put({"n": gateway.read("c", "a").catalog_revision}))
                gateway.write("c", "c", Delete())
                gateway.write("c", "new", put(1))
            return getattr(store, name)

    busy: Store = Busy()  # type: ignore[assignment]
    assert findings(busy, "c") == []
    assert findings(store, "c") == []


def test_a_second_implementation_checks_every_patch_and_its_result(
    store: MemoryStore,
) -> None:
    recorded = [
        change.patch
        for commit in store._commits["c"].values()
        for change in commit.changes
        if change.patch is not None
    ]
    seen = []

    def jsonpatch(content: Json | Absent, patch: Json) -> Json | Absent:
        seen.append(patch)
        return applied_by_jsonpatch(content, patch)

    assert findings(store, "c", jsonpatch) == []
    assert recorded
    assert all(patch in seen for patch in recorded)

    def other(content: Json | Absent, patch: Json) -> Json | Absent:  # noqa: ARG001
        return "other"

    def refusing(content: Json | Absent, patch: Json) -> Json | Absent:  # noqa: ARG001
        raise ValueError("no such thing")

    assert any("gets another result" in each for each in findings(store, "c", other))
    found = findings(store, "c", refusing)
    assert any("refuses the patch: no such thing" in each for each in found)


def test_jsonpatch_is_used_only_for_what_rfc_6902_allows() -> None:
    document = {"a": [1]}
    assert applied_by_jsonpatch(document, [{"op": "remove", "path": ""}]) is ABSENT
    added = [{"op": "add", "path": "", "value": document}, {"op": "add", "path": "/b", "value": 2}]
    assert applied_by_jsonpatch(ABSENT, added) == {"a": [1], "b": 2}
    assert document == {"a": [1]}
    with pytest.raises(ValueError, match="remove"):
        applied_by_jsonpatch(document, [{"op": "remove", "path": "/b"}])


@pytest.mark.mongod
class TestTheCommand:
    @pytest.fixture
    def real(self, mongodb_uri: str, database_name: str) -> Iterator[MongoStore]:
        opened = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
        yield opened
        opened.close()

    def run(self, uri: str, database: str, *arguments: str) -> tuple[int, str]:
        flags = (f"--mongodb-uri={uri}", f"--database={database}")
        result = CliRunner().invoke(main, ["verify", *arguments, *flags])
        return result.exit_code, result.output

    def test_an_interrupted_verification_says_how_to_continue(
        self, real: MongoStore, mongodb_uri: str, database_name: str, monkeypatch: Any
    ) -> None:
        last = "--it's b"
        for catalog in ("--a", last, "z"):
            write_history(gateway_on(real), real, catalog)
        verify = Verification.verify

        def interrupted(self: Verification, catalog: str, *given: Any) -> Any:
            if catalog == "z":
                raise KeyboardInterrupt
            return verify(self, catalog, *given)

        with monkeypatch.context() as patched:
            patched.setattr(Verification, "verify", interrupted)
            code, clean = self.run(mongodb_uri, database_name, "--all")
            assert code == 130
            with MongoClient[dict[str, Any]](mongodb_uri) as client:
                client[database_name].documents.delete_one({"catalog": "--a", "key": "a"})
            code, found = self.run(mongodb_uri, database_name, "--all")
            assert code == 130
        told = clean[clean.index("verified up to") :].splitlines()[0]
        assert told.startswith(f"verified up to catalog {last!r}, findings: 0;")
        assert "exit code" not in told
        flag = told.rpartition(" the same command with ")[2]
        assert "findings: 1;" in found
        assert f" {flag}; its exit code won't count these findings\n" in found
        (after,) = shlex.split(flag)
        code, output = self.run(mongodb_uri, database_name, "--all", after)
        assert (code, output.partition(",")[0]) == (0, "catalogs: 1")
        code, output = self.run(mongodb_uri, database_name, "c", "--after", "a")
        assert (code, "--after needs --all" in output) == (2, True)

    def test_the_exit_code_shows_clean_findings_or_wrong_usage(
        self, real: MongoStore, mongodb_uri: str, database_name: str
    ) -> None:
        gateway = gateway_on(real)
        write_history(gateway, real)
        write_history(gateway, real, "d")
        compaction_of(real).compact("d", 9, nothing)
        code, output = self.run(mongodb_uri, database_name, "c")
        assert (code, output) == (0, "catalogs: 1, documents: 4, commits: 12, clean\n")
        assert self.run(mongodb_uri, database_name, "--all")[0] == 0
        code, output = self.run(mongodb_uri, database_name, "--independent", "--all")
        assert code == 0
        assert re.search(r"patches applied twice: [1-9]\d*, clean", output), output
        with MongoClient[dict[str, Any]](mongodb_uri) as client:
            documents = client[database_name]["documents"]
            gone = documents.delete_one({"_id": document_id("d", "a"), "catalog": "d"})
            assert gone.deleted_count == 1
        code, output = self.run(mongodb_uri, database_name, "--all")
        assert code == 1
        assert "catalog 'd', document 'a': changed at 12, but there is no document" in output
        assert output.endswith("findings: 1\n")
        assert self.run(mongodb_uri, database_name, "none")[0] == 2
        assert self.run(mongodb_uri, database_name)[0] == 2
        assert self.run(mongodb_uri, database_name, "c", "--all")[0] == 2

    def test_progress_is_shown_on_a_terminal_and_the_report_goes_to_stdout(
        self, real: MongoStore, mongodb_uri: str, database_name: str
    ) -> None:
        write_history(gateway_on(real), real)
        flags = (f"--mongodb-uri={mongodb_uri}", f"--database={database_name}")
        terminal, theirs = pty.openpty()
        try:
            done = subprocess.run(
                (sys.executable, "-m", "gateway.cli", "verify", "c", *flags),
                stdout=subprocess.PIPE,
                stderr=theirs,
                env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
                check=True,
            )
            shown = os.read(terminal, 65536).decode()
        finally:
            os.close(theirs)
            os.close(terminal)
        assert done.stdout == b"catalogs: 1, documents: 4, commits: 12, clean\n"
        assert "commits and documents of c: 16" in shown

    def test_an_unreachable_database_is_reported_in_one_line(self) -> None:
        uri = "mongodb://127.0.0.1:9/?replicaSet=none"
        result = CliRunner().invoke(
            main, ["verify", "c", f"--mongodb-uri={uri}", "--store-timeout-ms=200"]
        )
        assert result.exit_code == 6, "1 is for what it finds"
        assert "can't be reached" in result.output


# What somebody may do to a database by hand, and what is said of it.
_BY_HAND: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None, str]] = {
    "a head that is missing": ("catalogs", {"_id": "c"}, None, "it has commits or documents"),
    "a head without a time": (
        *("catalogs", {"_id": "c"}, {"$unset": {"time_us": 1}}),
        "the head can't be read: Object missing required field `time_us`",
    ),
    "a head without its place": (
        *("catalogs", {"_id": "c"}, {"$unset": {"head": 1}}),
        "the head can't be read",
    ),
    "a revision that is text": (
        *("catalogs", {"_id": "c"}, {"$set": {"head.revision": "2"}}),
        "the head can't be read: Expected `int`, got `str` - at `$.head.revision`",
    ),
    "a revision with a fraction": (
        *("catalogs", {"_id": "c"}, {"$set": {"head.revision": 2.0}}),
        "the head can't be read: Expected `int`, got `float` - at `$.head.revision`",
    ),
    "a tail that is null": (
        *("catalogs", {"_id": "c"}, {"$set": {"tail": None}}),
        "the head can't be read: its tail is null",
    ),
    "a floor above the head": (
        *("catalogs", {"_id": "c"}, {"$set": {"floor": 500}}),
        "the head is at 12, below its floor 500",
    ),
    "changes that are cut off": (
        *("commits", {"revision": 2}, {"$set": {"changes": '[{"key":"la'}}),
        "commit 2 can't be read: Input data was truncated",
    ),
    "changes of another shape": (
        *("commits", {"revision": 2}, {"$set": {"changes": '{"a":1}'}}),
        "commit 2 can't be read",
    ),
    "changes that are missing": (
        *("commits", {"revision": 2}, {"$unset": {"changes": 1}}),
        "commit 2 can't be read: it has no 'changes'",
    ),
    "changes of another key": (
        *("commits", {"keys": "a", "revision": 12}, {"$set": {"changes": "[]"}}),
        "commit 12 lists the document's key, but has no change of it",
    ),
    "a commit without an id": (
        *("commits", {"revision": 2}, {"$unset": {"id": 1}}),
        "commit 2 can't be read: Object missing required field `id`",
    ),
    "a commit's time that is text": (
        *("commits", {"revision": 2}, {"$set": {"time_us": "noon"}}),
        "commit 2 can't be read: Expected `int`, got `str` - at `$.time_us`",
    ),
    "a document without a state": (
        *("documents", {"key": "a"}, {"$unset": {"state": 1}}),
        "document 'a' can't be read: it has no 'state'",
    ),
    "a document that is text": (
        *("documents", {"key": "a"}, {"$set": {"state": "x"}}),
        "document 'a' can't be read",
    ),
    "a document's revision that is text": (
        *("documents", {"key": "a"}, {"$set": {"state.revision": "3"}}),
        "document 'a' can't be read: its revision is '3'",
    ),
    "a document under the name of another one": (
        *("documents", {"key": "d"}, {"$set": {"key": "a"}}),
        "document 'd' can't be read: its _id isn't that of its key 'a'",
    ),
    "a digest of another content": (
        *("documents", {"key": "a"}, {"$set": {"state.digest": "0" * 64}}),
        "document 'a': its digest isn't that of its content",
    ),
    "digests of what nobody owns": (
        *("documents", {"key": "a"}, {"$set": {"state.parts": '{"ann":"0"}'}}),
        "document 'a': the digests of what managers own aren't those of its content",
    ),
    "digests of what managers own that are cut off": (
        *("documents", {"key": "a"}, {"$set": {"state.parts": '{"ann'}}),
        "document 'a': its digests can't be read",
    ),
    "a content that JSON has no word for": (
        *("documents", {"key": "a"}, {"$set": {"state.content": {"n": ObjectId()}}}),
        "document 'a': the content at 12 isn't what the log gives",
    ),
}


def test_a_commit_above_the_head_is_found_even_if_it_changes_nothing(store: MemoryStore) -> None:
    """The collections were restored from two moments. The next commit would collide with this
    one."""
    store.write_commits([commit(13, changes=())])
    above = "the log has commit 13, but the head is at 12"
    where = "repair it, or restore the three collections from the same moment"
    assert findings(store, "c") == [f"None: {above}; {where}"]


@pytest.mark.mongod
@pytest.mark.parametrize("how", _BY_HAND)
def test_a_foreign_record_is_named_and_hides_no_other_catalog(
    mongodb_uri: str, database_name: str, how: str, tmp_path: Path
) -> None:
    """By every command that reads it, in a line, and never by an endless wait."""
    collection, which, update, said = _BY_HAND[how]
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        for catalog in ("c", "d"):
            write_history(gateway_on(store), store, catalog)
    where = [f"--mongodb-uri={mongodb_uri}", f"--database={database_name}"]
    assert CliRunner().invoke(main, ["verify", "--all", *where]).exit_code == 0
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        records, named = client[database_name][collection], {**which}
        if collection != "catalogs":
            named["catalog"] = "c"
        if update is None:
            records.delete_one(named)
        else:
            assert records.update_one(named, update).modified_count == 1
        client[database_name]["documents"].update_one(
            {"catalog": "d", "key": "a"}, {"$set": {"state.content": "another"}}
        )
    for command in (["verify", "--all"], ["repair", "--all"], ["verify", "c"]):
        result = CliRunner().invoke(main, [*command, *where])
        assert isinstance(result.exception, SystemExit | None), result.output
        assert (result.exit_code, said in result.output) == (1, True), result.output
        if "--all" in command:
            assert "catalog 'd', document 'a': the content at 12" in result.output
    result = CliRunner().invoke(main, ["backup", "c", str(tmp_path / "file"), *where])
    assert isinstance(result.exception, SystemExit | None), result.output
