"""The client's transactions, history, feed, pins, uploads, bulk and follower, on a real gateway."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from patching.client import (
    Catalog,
    Conflict,
    Gateway,
    NotFound,
    PinLost,
    PreconditionFailed,
    Retry,
    Transport,
    Upload,
)
from patching.client.transport import segment
from tests.service import RunningGateway


def test_a_transaction_does_all_or_the_other_branch(catalog: Catalog) -> None:
    catalog.put("info", {"name": "old"})
    catalog.put("names/old", 1)
    info = catalog.get("info")
    rename = catalog.transaction()
    rename.compare("info", etag=info).compare("names/new", absent=True)
    rename.compare("names/old", equals=1)
    rename.compare("info", test=[{"op": "defined", "path": "/name"}]).compare_revision(2)
    rename.then.patch("info", [{"op": "replace", "path": "/name", "value": "new"}])
    rename.then.move("names/old", "names/new").attributes("info", {"by": "me"}).get("info")
    rename.then.put("extra", {}, attributes={"a": 1}).merge("extra", {"b": 1})
    done = rename.run(message="rename")
    assert (done.succeeded, done.changed, done.revision, done.replayed) == (True, True, 3, False)
    got = done.results[3]
    assert (got.action, got.key, got.value, got.attributes) == (
        "get",
        "info",
        {"name": "new"},
        {"by": "me"},
    )
    assert catalog.commit(3).message == "rename"
    assert catalog.put("info", {}, if_match=got).changed

    with pytest.raises(PreconditionFailed) as raised:
        rename.run()
    assert [each["index"] for each in raised.value.problem["failed_compares"]] == [0, 1, 2, 3, 4]
    rename.otherwise.get("info")
    other = rename.run()
    assert (other.succeeded, other.changed, other.results[0].value) == (False, False, {})


def test_a_transaction_of_nothing_conditions_and_dry_runs(catalog: Catalog) -> None:
    catalog.put("a", 1)
    several = catalog.several(["a", "b"])
    put = catalog.transaction()
    put.then.put("b", 2).delete("a").touch()
    dry = put.run(dry_run=True, if_match=several)
    assert (dry.dry_run, dry.changed, len(dry.changes)) == (True, True, 2)
    assert catalog.read().revision == 1
    done = put.run(if_match=several, idempotency_key="one")
    assert (done.changed, done.etag) == (True, f"b={catalog.get('b').etag}")
    assert put.run(if_match=several, idempotency_key="one").replayed
    with pytest.raises(PreconditionFailed):
        put.run(if_match=several)
    nothing = catalog.transaction().compare("zz", equals=1)
    nothing.then.touch()
    nothing.otherwise.nothing()
    assert (nothing.run().succeeded, nothing.run().changed) == (False, False)
    with pytest.raises(ValueError, match="one of"):
        nothing.compare("k")
    with pytest.raises(ValueError, match="token"):
        nothing.compare("k", etag=catalog.delete("b"))


def test_history_is_told_commit_by_commit(catalog: Catalog) -> None:
    assert list(catalog.commits()) == []
    for number in range(5):
        catalog.put(f"k{number % 2}", number)
    assert [each.revision for each in catalog.commits(page_size=2)] == [1, 2, 3, 4, 5]
    assert [each.revision for each in catalog.commits(after=1, key="k0")] == [3, 5]
    commit = catalog.commit(5)
    assert (commit.changes[0].key, commit.changes[0].action) == ("k0", "put")
    with pytest.raises(NotFound, match="revision_not_found"):
        catalog.commit(6)


def test_a_feed_tells_what_comes_and_resumes(catalog: Catalog) -> None:
    catalog.put("a/1", 1)
    catalog.put("b", 1)
    with catalog.changes(0, follow=False) as feed:
        assert [each.revision for each in feed] == [1, 2]
        assert feed.position == 2
    with catalog.changes(0, follow=False, prefix="a/") as filtered:
        assert [each.revision for each in filtered] == [1]
        assert filtered.position == 2
    with catalog.changes(0, follow=False, keys=["b", "c"]) as chosen:
        assert [each.revision for each in chosen] == [2]
    writer = threading.Thread(target=lambda: [catalog.put("b", n) for n in range(2, 7)])
    seen = []
    with catalog.changes(feed.position) as live:
        writer.start()
        for commit in live:
            seen.append(commit.revision)
            if len(seen) == 5:
                break
    writer.join()
    assert seen == [3, 4, 5, 6, 7]
    assert live.position == 7
    assert list(live) == []


def test_a_pin_holds_while_it_is_entered(catalog: Catalog, eventually: Callable[..., Any]) -> None:
    for number in range(3):
        catalog.put("k", number)
    with catalog.pin(2, seconds=2, owner="tests") as pin:
        (held,) = catalog.pins()
        assert (held.id, held.revision, held.owner) == (pin.id, 2, "tests")
        eventually(lambda: catalog.pins()[0].expires > held.expires)
        with pytest.raises(Conflict, match="pin_holds"):
            catalog.compact(3)
        pin.check()
    assert catalog.pins() == []
    assert catalog.compact(3).floor == 3
    with pytest.raises(RuntimeError):
        _ = catalog.pin(3).revision


def test_a_pin_that_is_lost_says_so(
    service: RunningGateway, catalog: Catalog, eventually: Callable[..., Any]
) -> None:
    catalog.put("k", 1)
    with catalog.pin(seconds=1) as pin:
        with Transport(service.url) as transport:
            transport.request("DELETE", f"/v1/catalogs/{segment(catalog.name)}/pins/{pin.id}")

        def is_lost() -> bool:
            try:
                pin.check()
            except PinLost as error:
                return error.revision == 1
            return False

        eventually(is_lost)


def sources(folder: Path, raw: bytes) -> list[Any]:
    path = folder / "large.json"
    path.write_bytes(raw)
    return [raw, path, io.BytesIO(raw), [raw[:3], b"", raw[3:]], iter([raw])]


def test_an_upload_replaces_from_whatever_has_bytes(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"items": [{"n": number} for number in range(500)]}
    raw = json.dumps(value).encode()
    staged: list[int] = []
    put_part = Upload.put_part

    def put_part_and_tell(upload: Upload, number: int, part: bytes) -> None:
        staged.append(len(part))
        put_part(upload, number, part)

    monkeypatch.setattr(Upload, "put_part", put_part_and_tell)
    for number, source in enumerate(sources(tmp_path, raw)):
        key = f"k{number}"
        written = catalog.uploads.replace(key, source, if_absent=True, part_bytes=2000, message="m")
        assert (written.created, written.etag) == (True, catalog.get(key).etag)
        assert catalog.get(key).value == value
        assert staged == [2000] * (len(raw) // 2000) + [len(raw) % 2000]
        staged.clear()
    assert catalog.commit(1).message == "m"
    with pytest.raises(PreconditionFailed):
        catalog.uploads.replace("k0", b"1", if_absent=True)


def test_an_upload_says_what_becomes_of_attributes(catalog: Catalog) -> None:
    catalog.put("k", 1)
    catalog.attributes.put("k", {"a": 1})
    wanted: list[tuple[Any, dict[str, int]]]
    wanted = [("keep", {"a": 1}), ({"b": 2}, {"b": 2}), ("clear", {})]
    for number, (attributes, after) in enumerate(wanted):
        catalog.uploads.replace("k", str(number).encode(), attributes=attributes)
        assert (catalog.get("k").value, catalog.attributes.get("k").value) == (number, after)
    with pytest.raises(ValueError, match="attributes"):
        catalog.uploads.open("k", attributes="none")  # type: ignore[arg-type]


def test_an_upload_that_lost_is_a_conflict_and_is_dropped(catalog: Catalog) -> None:
    seen = catalog.get(catalog.put("k", 1).key)
    with catalog.uploads.open("k", if_match=seen) as upload:
        upload.put_part(2, b"2]")
        upload.put_part(1, b"[1")
        upload.put_part(1, b"[1,")
        assert upload.read().parts == (1, 2)
        catalog.uploads.resume(upload.id).put_part(3, b"rest")
        assert upload.commit([1, 2], dry_run=True).changed
        catalog.put("k", 3)
        with pytest.raises(Conflict, match="upload_conflict"):
            upload.commit([1, 2])
    with pytest.raises(NotFound, match="upload_not_found"):
        upload.read()
    assert catalog.get("k").value == 3

    with catalog.uploads.open("k") as other:
        other.put_part(1, b"4")
        first = other.commit()
        assert other.commit().etag == first.etag
        assert other.read().committed == first.revision


def test_bulk_lines_are_mappings_with_keys_of_their_own(
    connected: Gateway, catalog: Catalog
) -> None:
    line = {"catalog": catalog.name, "key": "k", "op": "put"}
    lines = [{**line, "value": n, "message": "m"} for n in range(3)]
    lines.append({**line, "value": 9, "if_match": "1-00000000"})
    lines.append({**line, "value": 9, "dry_run": True})
    answers = list(connected.bulk(lines))
    assert [each.changed for each in answers] == [True, True, True, False, True]
    assert [each.line.subject for each in answers] == lines
    assert isinstance(answers[3].error, PreconditionFailed)
    assert len({each.idempotency_key for each in catalog.commits()}) == 3
    assert catalog.get("k").value == 2


def test_a_follower_has_the_gateways_connections(connected: Gateway, catalog: Catalog) -> None:
    catalog.put("k", 1)
    with connected.follower(catalog.name, poll_s=1) as follower:
        written = catalog.put("k", 2)
        follower.wait_for(written.catalog_revision, 30)
        assert dict(follower.current().documents) == {"k": 2}


def test_writes_survive_the_death_of_a_worker(
    mongodb_uri: str, database_name: str, eventually: Callable[..., Any]
) -> None:
    """None is lost, none is done twice, whatever the connection was doing."""
    with (
        RunningGateway(mongodb_uri, database_name, workers=1) as running,
        Gateway(running.url, timeout_s=60, retry=Retry(sends_max=10**6)) as gateway,
    ):
        catalog = gateway.catalog("c")
        catalog.put("k", [])
        done = threading.Event()

        def append() -> None:
            try:
                for number in range(60):
                    catalog.patch("k", [{"op": "add", "path": "/-", "value": number}])
            finally:
                done.set()

        writer = threading.Thread(target=append)
        writer.start()
        eventually(lambda: catalog.read().revision > 20 or done.is_set(), 60)
        for pid in running.worker_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        writer.join()
        assert catalog.get("k").value == list(range(60))
        assert catalog.read().revision == 61
