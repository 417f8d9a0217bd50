"""`gateway backup` and `restore`: a catalog with its history, owners and settings, in a file."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner, Result
from pymongo import MongoClient

from gateway.cli.doctor import diagnosed
from gateway.cli.main import main
from gateway.errors import StoreUnavailable
from gateway.retention.verification import Verification
from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb.backup_copies import MongoCopies
from gateway.store.mongodb.connection import Connection
from gateway.store.mongodb.diagnosis import BackupAges, diagnose
from patching.client import BulkTerms, Catalog, ClientError, Gateway, Retry
from patching.client.errors import Unavailable
from tests.service import RunningGateway, own_database, verify

pytestmark = pytest.mark.mongod


@pytest.fixture(scope="module")
def source(mongodb_uri: str) -> Iterator[tuple[str, str, RunningGateway]]:
    with own_database(mongodb_uri) as database, RunningGateway(mongodb_uri, database) as running:
        yield mongodb_uri, database, running


@pytest.fixture
def target(mongodb_uri: str) -> Iterator[str]:
    """A database that has nothing in it."""
    with own_database(mongodb_uri) as database:
        yield database


def command(uri: str, database: str, *arguments: str | Path) -> Result:
    where = {"GATEWAY_MONGODB_URI": uri, "GATEWAY_DATABASE": database}
    return CliRunner().invoke(main, [str(each) for each in arguments], env=where)


def filled(gateway: Gateway, name: str) -> Catalog:
    """With lists, owners, attributes, a deletion, a document made again, a settings' change."""
    catalog = gateway.catalog(name)
    catalog.settings.put({"arrays": [{"keys": "*", "pointer": "/columns", "item_key": ["name"]}]})
    catalog.put("a", {"columns": [{"name": "id"}]}, idempotency_key="once")
    catalog.attributes.put("a", {"team": "x"})
    catalog.apply("a", {"columns": [{"name": "id", "type": "int"}]}, manager="nightly")
    catalog.put("b", 1)
    catalog.delete("b")
    catalog.put("b", {"again": True})
    catalog.put("gone", 1)
    catalog.delete("gone")
    patch = {"catalog": name, "key": "a", "op": "patch"}
    patches = [  # past the next whole value
        {**patch, "patch": [{"op": "add", "path": "/n", "value": number}]} for number in range(70)
    ]
    assert all(each.error is None for each in gateway.bulk(patches))
    return catalog


def visible_state(gateway: Gateway, name: str, revision: int) -> Any:
    """All that a client can see of it up to a revision."""
    catalog = gateway.catalog(name)
    with catalog.export(revision=revision) as export:
        documents = dict(export)
    read = [catalog.get("a", revision=each) for each in (revision, revision - 3)]
    past = [(each.value, each.etag, each.create_revision) for each in read]
    floor = catalog.read().floor
    commits = [each for each in catalog.commits(after=floor) if each.revision <= revision]
    owners = list(catalog.owners("a", revision=revision))
    return documents, past, floor, commits, owners, catalog.attributes.get("a").value


@pytest.mark.parametrize("compacted", [False, True])
def test_a_restore_gives_the_catalog_as_of_the_backups_revision(
    source: tuple[str, str, RunningGateway], target: str, tmp_path: Path, compacted: bool
) -> None:
    """Beside writers, and of a history that was compacted."""
    uri, database, running = source
    name = f"shop-{compacted}"
    stop = threading.Event()

    def write(client: Gateway) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            client.catalog(name).put(f"beside/{number % 7}", number)

    with Gateway(running.url) as gateway:
        catalog = filled(gateway, name)
        if compacted:
            catalog.compact(catalog.read().revision - 20)
        writer = threading.Thread(target=write, args=(gateway,))
        writer.start()
        try:
            saved = command(uri, database, "backup", name, tmp_path / "shop.backup")
        finally:
            stop.set()
            writer.join()
        assert saved.exit_code == 0, saved.output
        revision = int(saved.output.split("at revision ")[1].split(":")[0])
        assert not (tmp_path / "shop.backup.part").exists()
        before = visible_state(gateway, name, revision)

    restored = command(uri, target, "restore", tmp_path / "shop.backup")
    assert restored.exit_code == 0, restored.output
    assert "verified: 0 findings" in restored.output
    verify(uri, target)
    with RunningGateway(uri, target, workers=1) as other, Gateway(other.url) as gateway:
        again = gateway.catalog(name)
        assert [each.name for each in gateway.catalogs()] == [name]
        assert again.read().revision == revision
        assert visible_state(gateway, name, revision) == before
        if not compacted:
            told = again.put("a", {"columns": [{"name": "id"}]}, idempotency_key="once")
            assert (told.replayed, told.catalog_revision) == (True, 2)
        with suppress(ClientError):
            again.apply("a", {"columns": [{"name": "id", "type": "text"}]}, manager="other")
        assert again.get("a").value["columns"] == [{"name": "id", "type": "int"}], "nightly's"
        assert again.put("c", 1).catalog_revision == revision + 1, "it goes on"
    verify(uri, target)


def test_the_doctor_sees_a_backup_and_changes_since(
    source: tuple[str, str, RunningGateway], tmp_path: Path
) -> None:
    uri, database, running = source
    with Gateway(running.url) as gateway:
        for name in ("told", "gone"):
            gateway.catalog(name).put("k", 1)
            assert command(uri, database, "backup", name, tmp_path / name).exit_code == 0
        gateway.catalog("gone").delete_catalog()

        def found() -> BackupAges:
            backups = diagnose(uri, database, 10_000).backups
            assert backups is not None
            return backups

        assert "told" not in found().without
        oldest = found().oldest
        assert oldest is None or oldest[0] not in ("told", "gone")
        for catalog in [each.name for each in gateway.catalogs()]:
            path = tmp_path / f"again-{uuid.uuid4().hex}"
            assert command(uri, database, "backup", catalog, path).exit_code == 0
        assert (found().without, found().oldest) == ((), None)
        gateway.catalog("told").put("k", 2)
        oldest = found().oldest
        assert oldest is not None
        assert (oldest[0], datetime.now(UTC) - oldest[1] < timedelta(hours=1)) == ("told", True)


@pytest.mark.parametrize(
    ("collection", "record"),
    [
        ("backups", {"_id": "unsaved"}),
        ("backups", {"_id": "unsaved", "revision": 1, "time_us": 2**62}),
        ("backups", {"_id": "unsaved", "revision": "1", "time_us": "noon"}),
        ("backups", {"_id": 7, "revision": 1, "time_us": 1}),
        ("catalogs", {"_id": 7, "deleted": False, "head": {"revision": 1}}),
        ("catalogs", {"_id": "foreign", "deleted": False, "head": "x"}),
    ],
)
def test_a_foreign_record_counts_neither_as_a_backup_nor_as_a_catalog(
    mongodb_uri: str, database_name: str, collection: str, record: dict[str, Any]
) -> None:
    """`gateway doctor` finds what it finds without it."""
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        database = client[database_name]
        database["catalogs"].insert_many(
            {"_id": name, "deleted": False, "head": {"revision": 2}} for name in ("a", "unsaved")
        )
        database["backups"].insert_one({"_id": "a", "revision": 1, "time_us": 10**15})
        expected = diagnose(mongodb_uri, database_name, 10_000).backups
        database[collection].insert_one(record)
        assert diagnose(mongodb_uri, database_name, 10_000).backups == expected
        assert expected is not None
        assert (expected.catalogs, expected.without) == (2, ("unsaved",))


def test_a_backup_is_complete_even_if_it_cannot_be_noted_in_the_database(
    source: tuple[str, str, RunningGateway], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, database, running = source
    with Gateway(running.url) as gateway:
        gateway.catalog("untold").put("k", 1)

    def away(*_: object) -> None:
        raise StoreUnreachable("read-only")

    monkeypatch.setattr(MongoCopies, "note_copy", away)
    saved = command(uri, database, "backup", "untold", tmp_path / "untold")
    assert saved.exit_code == 0
    assert "the backup could not be noted for gateway doctor: read-only" in saved.stderr
    assert (tmp_path / "untold").exists()


def backed_up(source: tuple[str, str, RunningGateway], name: str, folder: Path) -> Path:
    """The file that has a new catalog of that name."""
    uri, database, running = source
    with Gateway(running.url) as gateway:
        filled(gateway, name)
    path = folder / f"{name}.backup"
    assert command(uri, database, "backup", name, path).exit_code == 0
    return path


@pytest.mark.parametrize("asked", ["backup", "verify"])
def test_an_election_does_not_interrupt_a_backup_or_restore(
    source: tuple[str, str, RunningGateway],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
) -> None:
    uri, database, _ = source
    path, again = backed_up(source, f"elected-{asked}", tmp_path), tmp_path / "again"
    reading, elections = Connection.reading, 0
    reads = itertools.count(1)

    @contextmanager
    def often_in_vain(self: Connection) -> Iterator[Any]:
        nonlocal elections
        with reading(self) as session:
            yield session
        if next(reads) % 3 == 0:
            elections += 1
            raise StoreUnreachable("the primary changed during a read")

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "reading", often_in_vain)
        paths = (again,) if asked == "backup" else ()
        done = command(uri, database, asked, f"elected-{asked}", *paths)
    assert done.exit_code == 0, done.output
    assert elections
    if asked == "backup":
        assert again.read_bytes() == path.read_bytes()


def test_a_restored_catalog_that_could_not_be_verified_is_reported_as_such(
    source: tuple[str, str, RunningGateway],
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another primary was elected meanwhile. The message must say that the restore itself
    succeeded."""
    uri, path = source[0], backed_up(source, "unverified", tmp_path)

    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(Verification, "verify", away)
        restored = command(uri, target, "restore", path)
    assert restored.exit_code == 1
    assert (
        "the catalog was restored, but could not be verified: away; see gateway verify"
        in restored.output
    )
    verify(uri, target)


def test_a_damaged_file_is_refused_before_anything_is_written(
    source: tuple[str, str, RunningGateway], target: str, tmp_path: Path
) -> None:
    uri, path = source[0], backed_up(source, "whole", tmp_path)
    whole = path.read_bytes()
    for content, said in (
        (whole[:-1], "is damaged"),
        (whole[: len(whole) // 2], "is damaged, or a part of it is missing"),
        (whole.replace(b"nightly", b"nightlx"), "is damaged"),
        (b"root:x:0:0:another file", "the file isn't a backup of a catalog"),
        (b"", "the file isn't a backup of a catalog"),
    ):
        path.write_bytes(content)
        refused = command(uri, target, "restore", path)
        assert refused.exit_code == 1, refused.output
        assert said in refused.output
        assert "catalogs: 0" in command(uri, target, "verify", "--all").output
    path.write_bytes(whole)
    assert command(uri, target, "restore", path).exit_code == 0


def test_an_interrupted_restore_can_be_started_again(
    source: tuple[str, str, RunningGateway],
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, path = source[0], backed_up(source, "broken", tmp_path)

    def gone(*_: Any) -> bool:
        raise StoreUnreachable("it is gone")

    with monkeypatch.context() as patched:
        patched.setattr(MongoCopies, "put_head", gone)
        assert command(uri, target, "restore", path).exit_code == 6
    assert "catalogs: 0" in command(uri, target, "verify", "--all").output
    again = command(uri, target, "restore", path)
    assert (again.exit_code, "0 findings" in again.output) == (0, True), again.output


def test_leftovers_of_an_interrupted_restore_do_not_mix_with_later_data(
    source: tuple[str, str, RunningGateway],
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the restore was killed and an older file is restored, or it failed and others write
    under the name. Otherwise, the leftovers would count as later commits."""
    uri, database, running = source
    older, newer = tmp_path / "older", tmp_path / "newer"
    with Gateway(running.url) as gateway:
        catalog = filled(gateway, "mixed")
        revision = catalog.read().revision
        assert command(uri, database, "backup", "mixed", older).exit_code == 0
        for number in range(5):
            catalog.put(f"later-{number}", number)
        assert command(uri, database, "backup", "mixed", newer).exit_code == 0
        expected = visible_state(gateway, "mixed", revision)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with RunningGateway(uri, target, workers=1) as other, Gateway(other.url) as gateway:
        again = gateway.catalog("mixed")
        with monkeypatch.context() as patched:
            patched.setattr(MongoCopies, "put_head", killed)
            assert command(uri, target, "restore", newer).exit_code == 130
        assert again.put("own", 1).catalog_revision == 1
        verify(uri, target)
        assert [each.key for each in again.documents()] == ["own"]
        refused = command(uri, target, "restore", older)
        assert (refused.exit_code, "exists, or was deleted" in refused.output) == (1, True)

    with own_database(uri) as second:
        with monkeypatch.context() as patched:
            patched.setattr(MongoCopies, "put_head", killed)
            patched.setattr(MongoCopies, "drop_restore", killed)
            assert command(uri, second, "restore", newer).exit_code == 130
        with (
            RunningGateway(uri, second, workers=1) as other,
            Gateway(other.url, retry=Retry(retries_max=0)) as gateway,
        ):
            again = gateway.catalog("mixed")
            for ask in (lambda: again.put("k", 1), lambda: again.get("a"), again.read):
                with pytest.raises(Unavailable) as told:
                    ask()
                assert told.value.code == "catalog_being_restored"
                assert "is being restored" in told.value.detail
            assert gateway.catalog("beside").put("k", 1).catalog_revision == 1
            lines = [
                {"catalog": name, "op": "put", "key": "k", "value": 2}
                for name in ("beside", "mixed", "other")
            ]
            answers = gateway.bulk(lines, BulkTerms(retry_timeout_s=0))
            codes = [getattr(each.error, "code", None) for each in answers]
            assert codes == [None, "catalog_being_restored", None]
            assert [each.name for each in gateway.catalogs()] == ["beside", "other"]
            assert "catalogs: 2" in command(uri, second, "verify", "--all").output
            set_lease(uri, second, _RUNS)
            refused = command(uri, second, "restore", older)
            assert (refused.exit_code, "another restore of 'mixed'" in refused.output) == (1, True)
            assert diagnose(uri, second, 10_000).broken_restores == ()
            set_lease(uri, second, _OVER)
            found = diagnose(uri, second, 10_000)
            assert found.broken_restores == ("mixed",)
            (told,) = [each for each in diagnosed(found) if each.check == "restores"]
            assert (told.state, "'mixed'" in told.detail) == ("FAIL", True)
            restored = command(uri, second, "restore", older)
            assert restored.exit_code == 0, restored.output
            assert again.put("own", 1).catalog_revision == revision + 1
            assert visible_state(gateway, "mixed", revision) == expected
        verify(uri, second)


# Of leases, by when they end and how long they were taken for: what they are, whatever the clock
# does meanwhile. A minute that ends in 2100 was taken while the clock of the database was ahead.
_RUNS = {"until": datetime(2100, 1, 1, tzinfo=UTC), "lasts_ms": 10**13}
_OVER = {"until": datetime(2020, 1, 1, tzinfo=UTC), "lasts_ms": 60_000}
_AHEAD = {"until": datetime(2100, 1, 1, tzinfo=UTC), "lasts_ms": 60_000}


def set_lease(uri: str, database: str, lease: dict[str, Any]) -> None:
    """Of the one name that is kept for a restore."""
    client: MongoClient[Any] = MongoClient(uri)
    with client:
        kept = client[database]["catalogs"].update_many(
            {"until": {"$exists": True}}, {"$set": lease}
        )
        assert kept.matched_count == 1


@pytest.mark.parametrize(
    ("stands_still_before", "over"),
    [("put_commits", _OVER), ("put_documents", _OVER), ("put_head", _OVER), ("put_head", _AHEAD)],
    ids=["commits", "documents", "head", "clock-ahead"],
)
def test_a_second_concurrent_restore_is_refused_and_a_stalled_one_writes_nothing_more(
    source: tuple[str, str, RunningGateway],
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stands_still_before: str,
    over: dict[str, Any],
) -> None:
    uri, database, running = source
    older, newer = tmp_path / "older", tmp_path / "newer"
    name = f"both-{uuid.uuid4().hex[:8]}"
    with Gateway(running.url) as gateway:
        catalog = filled(gateway, name)
        revision = catalog.read().revision
        assert command(uri, database, "backup", name, older).exit_code == 0
        for number in range(5):
            catalog.put("a" if number else "later", number)
        assert command(uri, database, "backup", name, newer).exit_code == 0
        expected = visible_state(gateway, name, revision)
    write = getattr(MongoCopies, stands_still_before)

    def meanwhile(self: MongoCopies, *asked: Any) -> Any:
        monkeypatch.setattr(MongoCopies, stands_still_before, write)
        set_lease(uri, target, _RUNS)
        refused = command(uri, target, "restore", older)
        assert (refused.exit_code, "another restore of" in refused.output) == (1, True)
        set_lease(uri, target, over)
        restored = command(uri, target, "restore", older)
        assert restored.exit_code == 0, restored.output
        return write(self, *asked)

    monkeypatch.setattr(MongoCopies, stands_still_before, meanwhile)
    refused = command(uri, target, "restore", newer)
    assert (refused.exit_code, "another restore of" in refused.output) == (1, True), refused.output
    verify(uri, target)
    with RunningGateway(uri, target, workers=1) as other, Gateway(other.url) as gateway:
        assert visible_state(gateway, name, revision) == expected
        assert gateway.catalog(name).read().revision == revision


def test_a_catalog_can_be_restored_under_another_name_beside_the_original(
    source: tuple[str, str, RunningGateway], tmp_path: Path
) -> None:
    uri, database, running = source
    with Gateway(running.url) as gateway:
        catalog = filled(gateway, "name/1")
        revision = catalog.read().revision
        expected = visible_state(gateway, "name/1", revision)
        path = tmp_path / "named"
        assert command(uri, database, "backup", "name/1", path).exit_code == 0
        catalog.put("a", "meanwhile")
        taken = command(uri, database, "restore", path)
        assert (taken.exit_code, "(--as)" in taken.output) == (1, True), taken.output
        for wrong in ("", "x" * 100_000, "\udcff"):
            refused = command(uri, database, "restore", path, "--as", wrong)
            assert (refused.exit_code, "a catalog's name" in refused.output) == (2, True)
        restored = command(uri, database, "restore", path, "--as", "name/2")
        assert (restored.exit_code, "'name/2'" in restored.output) == (0, True), restored.output
        again = gateway.catalog("name/2")
        assert visible_state(gateway, "name/2", revision) == expected
        assert again.settings.get().settings == catalog.settings.get().settings
        told = again.put("c", 1, idempotency_key="once")  # it is another catalog's
        assert (told.replayed, told.catalog_revision) == (False, revision + 1)
        assert catalog.get("a").value == "meanwhile"
    verify(uri, database)


def test_the_help_of_database_commands_lists_only_their_settings() -> None:
    for name in ("backup", "restore", "verify", "repair"):
        shown = CliRunner().invoke(main, [name, "--help"]).output
        assert "--mongodb-uri" in shown
        assert "--database" in shown
        for other in ("--bind", "--workers", "--jwt-issuer", "--access"):
            assert other not in shown, name


def test_no_catalog_and_no_file_is_overwritten(
    source: tuple[str, str, RunningGateway], tmp_path: Path
) -> None:
    uri, database, running = source
    with Gateway(running.url) as gateway:
        filled(gateway, "there")
    path = tmp_path / "there.backup"
    assert command(uri, database, "backup", "there", path).exit_code == 0
    again = command(uri, database, "backup", "there", path)
    assert (again.exit_code, "already exists" in again.output) == (2, True)
    for _ in ("it is there", "it was there"):
        refused = command(uri, database, "restore", path)
        assert (refused.exit_code, "catalog 'there' exists" in refused.output) == (1, True)
        assert "or into another database" in refused.output
        with Gateway(running.url) as gateway:
            gateway.catalog("there").delete_catalog()
    both = command(uri, database, "restore", "there", path)  # as `backup` takes them
    assert (both.exit_code, "give FILE alone" in both.output) == (2, True), both.output
    missing = command(uri, database, "restore", tmp_path / "no.backup")
    assert (missing.exit_code, "doesn't exist" in missing.output) == (2, True)
    none = command(uri, database, "backup", "nowhere", tmp_path / "none")
    assert none.exit_code == 2, none.output
    assert [each.name for each in tmp_path.iterdir()] == ["there.backup"]


def test_every_catalog_is_saved_in_a_file_of_its_own(
    mongodb_uri: str, target: str, tmp_path: Path
) -> None:
    names = ["a", "A b", "a/b", ".", "ä" * 120, "ä" * 119 + "b"]
    with own_database(mongodb_uri) as database:
        with RunningGateway(mongodb_uri, database) as running, Gateway(running.url) as gateway:
            for name in [*names, "holed"]:
                gateway.catalog(name).put("k", name)
            gateway.catalog("holed").put("k", 2)
            gateway.catalog("a").delete_catalog()  # keeps its history
        with MongoClient[Any](mongodb_uri) as client:
            client[database]["commits"].delete_one({"catalog": "holed", "revision": 1})
        folder = tmp_path / "all"
        saved = command(mongodb_uri, database, "backup", "--all", folder)
        assert saved.exit_code == 1, saved.output
        assert "'holed' was not saved: the history of 'holed' isn't whole" in saved.output
        assert "saved: 6, not saved: 1" in saved.output
        again = command(mongodb_uri, database, "backup", "--all", folder)
        assert (again.exit_code, "File exists" in again.output) == (2, True), again.output
    files = sorted(folder.iterdir())
    assert len(files) == 6
    assert {"a.backup", "A b.backup", "a%2Fb.backup"} < {each.name for each in files}
    for file in files:
        assert command(mongodb_uri, target, "restore", file).exit_code == 0
    with RunningGateway(mongodb_uri, target, workers=1) as other, Gateway(other.url) as gateway:
        for name in names[1:]:
            assert gateway.catalog(name).get("k").value == name
        assert gateway.catalog("a").get("k", revision=1).value == "a"


@pytest.mark.parametrize(
    "arguments", [(), ("c",), ("c", "f", "--all", "d"), ("c", "--all", "d")], ids=str
)
def test_a_backup_needs_either_a_catalog_or_all(arguments: tuple[str, ...]) -> None:
    refused = command("mongodb://127.0.0.1:1", "none", "backup", *arguments)
    assert (refused.exit_code, "or --all FOLDER" in refused.output) == (2, True), refused.output


def test_a_backup_of_all_makes_no_folder_without_mongodb(tmp_path: Path) -> None:
    refused = command(
        "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100",
        *("none", "backup", "--all", folder := tmp_path / "saved"),
    )
    assert (refused.exit_code, folder.exists()) == (6, False), refused.output


def test_of_two_concurrent_backups_to_one_file_one_is_complete_and_the_other_refused(
    source: tuple[str, str, RunningGateway],
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, database, running = source
    with Gateway(running.url) as gateway:
        filled(gateway, "twice")
    path = tmp_path / "twice.backup"
    commits = MongoCopies.commits

    def during(self: MongoCopies, *asked: Any) -> Any:
        monkeypatch.setattr(MongoCopies, "commits", commits)
        assert command(uri, database, "backup", "twice", path).exit_code == 0
        return commits(self, *asked)

    monkeypatch.setattr(MongoCopies, "commits", during)
    refused = command(uri, database, "backup", "twice", path)
    assert (refused.exit_code, "already exists" in refused.output) == (2, True), refused.output
    assert [each.name for each in tmp_path.iterdir()] == ["twice.backup"]
    assert command(uri, target, "restore", path).exit_code == 0


def test_a_backup_whose_pin_was_dropped_fails_if_history_was_compacted(
    source: tuple[str, str, RunningGateway], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an admin, or by time, where the process stood still: what it then reads isn't the log."""
    uri, database, running = source
    commits = MongoCopies.commits
    with Gateway(running.url) as gateway:
        catalog = filled(gateway, "dropped")

        def beside(*given: Any) -> Any:
            for pin in catalog.pins():
                url = f"{running.url}/v1/catalogs/dropped/pins/{pin.id}"
                urlopen(Request(url, method="DELETE")).close()
                catalog.compact(catalog.read().revision)
            return commits(*given)

        with monkeypatch.context() as patched:
            patched.setattr(MongoCopies, "commits", beside)
            refused = command(uri, database, "backup", "dropped", tmp_path / "dropped")
        assert (refused.exit_code, list(tmp_path.iterdir())) == (1, [])
        assert (
            "was compacted during the backup" in refused.output or "isn't whole" in refused.output
        )
        again = command(uri, database, "backup", "dropped", tmp_path / "dropped")
        assert again.exit_code == 0, again.output
    assert command(uri, database, "restore", tmp_path / "dropped", "--as", "x").exit_code == 0


@pytest.mark.parametrize("which", [1, 40, -2])
def test_an_incomplete_log_is_not_saved(
    source: tuple[str, str, RunningGateway], tmp_path: Path, which: int
) -> None:
    """It would be noticed when the backup is needed."""
    uri, database, running = source
    name = f"hole-{uuid.uuid4().hex[:8]}"
    with Gateway(running.url) as gateway, MongoClient[dict[str, Any]](uri) as client:
        head = filled(gateway, name).read().revision
        revision = which if which > 0 else head + which
        gone = client[database]["commits"].delete_one({"catalog": name, "revision": revision})
        assert gone.deleted_count == 1
    refused = command(uri, database, "backup", name, tmp_path / "hole")
    assert (refused.exit_code, list(tmp_path.iterdir())) == (1, []), refused.output
    assert f"the log has no commit {revision}; see gateway verify" in refused.output


def test_a_file_from_whose_log_a_document_cannot_be_rebuilt_restores_nothing(
    source: tuple[str, str, RunningGateway], target: str, tmp_path: Path
) -> None:
    """What is missing below the floor isn't looked for when it is saved."""
    uri, database, running = source
    with Gateway(running.url) as gateway, MongoClient[dict[str, Any]](uri) as client:
        catalog = filled(gateway, "below")
        catalog.compact(catalog.read().revision - 20)
        catalog.patch("b", [{"op": "add", "path": "/more", "value": 1}])
        client[database]["commits"].delete_many(
            {"catalog": "below", "keys": "b", "revision": {"$lt": catalog.read().floor}}
        )
    assert command(uri, database, "backup", "below", tmp_path / "below").exit_code == 0
    refused = command(uri, target, "restore", tmp_path / "below")
    assert isinstance(refused.exception, SystemExit)
    assert (
        refused.exit_code,
        "document 'b' can't be rebuilt from the file's log" in refused.output,
    ) == (
        1,
        True,
    )
    assert "catalogs: 0" in command(uri, target, "verify", "--all").output
