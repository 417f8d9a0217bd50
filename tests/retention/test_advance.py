"""`gateway advance`: a database that was put back doesn't use revisions of lost commits again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from pymongo import MongoClient

from gateway.store.mongodb.records import commit_id
from patching.client import Gateway, NotFound
from patching.client.errors import Gone
from tests.retention.test_backup import command
from tests.service import RunningGateway, own_database, verify

pytestmark = pytest.mark.mongod

BY = 1_000_000_000


def copied(uri: str, database: str, to: str) -> None:
    """Copies the database like a dump of one moment: heads first, because their tails have what is
    written out meanwhile."""
    with MongoClient[Any](uri) as client:
        names = client[database].list_collection_names()
        for name in sorted(names, key="catalogs".__ne__):
            client[database][name].aggregate([{"$out": {"db": to, "coll": name}}])


@dataclass(frozen=True)
class Restored:
    """A catalog that was put back from revision ``lost`` to ``was``, and has been advanced.

    ``etags`` are the tokens of a document that it still has, and of one that it lost. ``output`` is
    what the command said.
    """

    uri: str
    database: str
    was: int
    lost: int
    etags: tuple[str, str]
    output: str = ""


@pytest.fixture(scope="module")
def dump(mongodb_uri: str) -> Iterator[Restored]:
    with own_database(mongodb_uri) as live, own_database(mongodb_uri) as kept:
        with RunningGateway(mongodb_uri, live) as running, Gateway(running.url) as gateway:
            catalog = gateway.catalog("shop")
            catalog.put("a", {"n": 1})
            catalog.settings.put({"arrays": []})
            catalog.put("gone", 1)
            catalog.delete("gone")
            gateway.catalog("dropped").put("a", 1)
            gateway.catalog("dropped").delete_catalog()
            pins = f"{running.url}/v1/catalogs/shop/pins"
            pin = b'{"seconds": 3600}'
            assert status_of(pins, "POST", pin, Content_Type="application/json") == 201
            document = catalog.patch("a", [{"op": "add", "path": "/m", "value": 1}])
            # At once: the head alone may have the last commit.
            copied(mongodb_uri, live, kept)
            lost = [catalog.put("b", {"n": number}) for number in range(5)][-1]
        was, etags = document.catalog_revision, (document.etag, lost.etag)
        yield Restored(mongodb_uri, kept, was, lost.catalog_revision, etags)


@pytest.fixture
def restored(dump: Restored) -> Iterator[Restored]:
    with own_database(dump.uri) as database:
        copied(dump.uri, dump.database, database)
        advanced = command(dump.uri, database, "advance", "--all")
        assert advanced.exit_code == 0, advanced.output
        yield replace(dump, database=database, output=advanced.output)


@pytest.fixture
def gateway(restored: Restored) -> Iterator[Gateway]:
    """As many commits were made since as were lost, and more."""
    with (
        RunningGateway(restored.uri, restored.database) as running,
        Gateway(running.url) as gateway,
    ):
        for number in range(8):
            gateway.catalog("shop").put("c", number)
        yield gateway


def status_of(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urlopen(Request(url, body, named, method=method)) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_the_command_prints_the_new_revision_of_each_catalog(restored: Restored) -> None:
    assert restored.output.splitlines() == [
        f"catalog 'dropped': from revision 2 to {2 + BY}",
        f"catalog 'shop': from revision {restored.was} to {restored.was + BY}",
    ]


def test_revisions_and_tokens_of_lost_commits_are_refused(
    gateway: Gateway, restored: Restored
) -> None:
    url = f"{gateway.url}/v1/catalogs/shop"
    lost = restored.lost
    assert lost <= restored.was + 8, "new commits would have had its number"
    assert status_of(f"{url}/changes?after={lost}") == 410
    assert status_of(f"{url}/changes", Accept="text/event-stream", Last_Event_ID=str(lost)) == 410
    assert status_of(f"{url}/documents/a?revision={lost}") == 410
    assert status_of(f"{url}/commits/{lost}") == 410
    revert = json.dumps({"to": lost}).encode()
    assert status_of(f"{url}/reverts", "POST", revert, Content_Type="application/json") == 410
    write = {"method": "PUT", "body": b"1", "Content_Type": "application/json"}
    assert status_of(f"{url}/documents/a?resource_version={lost}", **write) == 412
    assert status_of(f"{url}/documents/a", **write, If_Match=f'"@{lost:x}"') == 412
    assert status_of(f"{url}/documents/b", **write, If_Match=f'"{restored.etags[1]}"') == 412


def test_restored_documents_are_unchanged(gateway: Gateway, restored: Restored) -> None:
    catalog = gateway.catalog("shop")
    document = catalog.get("a")
    assert (document.value, document.etag) == ({"n": 1, "m": 1}, restored.etags[0])
    assert [each.key for each in catalog.documents()] == ["a", "c"]
    assert catalog.read().settings == {"arrays": []}
    assert catalog.put("a", 2, if_match=document.etag).catalog_revision == restored.was + BY + 9
    assert [each.name for each in gateway.catalogs()] == ["shop"]
    with pytest.raises(NotFound):
        catalog.get("gone")


def test_the_history_begins_at_the_new_revision(gateway: Gateway, restored: Restored) -> None:
    catalog = gateway.catalog("shop")
    floor = restored.was + BY
    assert catalog.read().floor == floor
    assert catalog.get("a", revision=floor).value == {"n": 1, "m": 1}
    assert catalog.get("a", at=datetime.now(UTC)).value == {"n": 1, "m": 1}
    told = [each.revision for each in catalog.commits(after=floor)]
    assert told == [floor + n for n in range(1, 9)]
    assert list(catalog.pins()) == []


def test_the_log_is_complete_after_an_advance(
    gateway: Gateway, restored: Restored, tmp_path: Path
) -> None:
    """For verification, backups and compaction."""
    catalog = gateway.catalog("shop")
    verify(restored.uri, restored.database)
    catalog.compact(catalog.read().revision - 1)
    file = tmp_path / "shop.backup"
    saved = command(restored.uri, restored.database, "backup", "shop", file)
    assert saved.exit_code == 0, saved.output
    made = command(restored.uri, restored.database, "restore", file, "--as", "again")
    assert made.exit_code == 0, made.output
    assert gateway.catalog("again").get("c").value == 7
    verify(restored.uri, restored.database)


def test_a_catalog_can_be_advanced_while_a_gateway_runs(
    gateway: Gateway, restored: Restored
) -> None:
    catalog = gateway.catalog("shop")
    before = catalog.read().revision
    with catalog.changes(after=before) as feed:
        advanced = command(restored.uri, restored.database, "advance", "shop", "--by", "100")
        assert advanced.exit_code == 0, advanced.output
        assert catalog.put("c", "after").catalog_revision == before + 101
        with pytest.raises(Gone):
            next(feed)
    assert catalog.get("c").value == "after"
    verify(restored.uri, restored.database)


def test_a_catalog_that_cannot_be_advanced_stops_no_other(dump: Restored) -> None:
    with own_database(dump.uri) as database, MongoClient[Any](dump.uri) as client:
        copied(dump.uri, dump.database, database)
        client[database]["catalogs"].update_one({"_id": "dropped"}, {"$set": {"tail": None}})
        advanced = command(dump.uri, database, "advance", "--all")
    assert advanced.exit_code == 1
    assert advanced.output.splitlines() == [
        "catalog 'dropped' was not advanced: the head can't be read: its tail is null",
        f"catalog 'shop': from revision {dump.was} to {dump.was + BY}",
    ]


def test_commits_above_the_head_do_not_become_history(dump: Restored) -> None:
    """The collections are of different moments; verification reports it, before and after."""
    with own_database(dump.uri) as database, MongoClient[Any](dump.uri) as client:
        copied(dump.uri, dump.database, database)
        commits, above = client[database]["commits"], dump.was + 1
        last = commits.find_one({"catalog": "shop", "revision": dump.was - 1})
        assert last is not None
        commits.insert_one({**last, "_id": commit_id("shop", above), "revision": above})
        for _ in range(2):
            found = command(dump.uri, database, "verify", "shop")
            assert f"the log has commit {above}, but the head is at {dump.was}" in found.output
            advanced = command(dump.uri, database, "advance", "shop")
            assert advanced.exit_code == 1
            assert f"the log has commit {above}" in advanced.output


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        ([], 2, "give the name of one catalog, or --all"),
        (["shop", "--all"], 2, "give the name of one catalog, or --all"),
        (["never"], 2, "never"),
        (["shop", "--by", "0"], 2, "--by"),
        (["shop", "--by", str(2**53)], 2, "a revision can be at most"),
    ],
)
def test_invalid_arguments_change_nothing(
    restored: Restored, arguments: list[str], status: int, told: str
) -> None:
    ended = command(restored.uri, restored.database, "advance", *arguments)
    assert (ended.exit_code, told in ended.output) == (status, True), ended.output
    again = command(restored.uri, restored.database, "advance", "shop", "--by", "1")
    assert f"from revision {restored.was + BY} to" in again.output
