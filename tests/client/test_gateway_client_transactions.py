"""The client's transactions, on a real gateway."""

from __future__ import annotations

import pytest

from patching.client import Catalog, PreconditionFailed


def test_a_transaction_runs_all_actions_or_the_else_branch(catalog: Catalog) -> None:
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


def test_empty_and_conditional_transactions_and_dry_runs(catalog: Catalog) -> None:
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


def test_a_transaction_compares_ranges(catalog: Catalog) -> None:
    read = catalog.put("names/a", 1)
    assert read.revision is not None
    add = catalog.transaction()
    add.compare_range("names/", unchanged_since=read.revision).compare_range("other/", absent=True)
    add.compare_range("names/", count={"less": 2}).compare("names/a", unchanged_since=read.revision)
    add.then.put("names/b", 2)
    assert add.run().changed
    with pytest.raises(PreconditionFailed) as raised:
        add.run()
    failed = raised.value.problem["failed_compares"]
    assert [(each["index"], each.get("prefix")) for each in failed] == [
        (0, "names/"),
        (2, "names/"),
    ]
    with pytest.raises(ValueError, match="one of unchanged_since"):
        catalog.transaction().compare_range("names/")
    with pytest.raises(ValueError, match="one of etag"):
        catalog.transaction().compare("a", unchanged_since=1, absent=True)


def test_every_write_can_have_range_conditions(catalog: Catalog) -> None:
    seen = catalog.put('a"b\\ü%/1', 1).catalog_revision
    ranges = {'a"b\\ü%/': seen, "none": 0}
    assert catalog.put("k", 1, if_unchanged_under=ranges).changed
    catalog.uploads.replace("k", b"2", if_unchanged_under=ranges)
    catalog.put('a"b\\ü%/2', 1)
    for write in (
        lambda: catalog.merge("k", {"n": 1}, if_unchanged_under=ranges),
        lambda: catalog.touch(if_unchanged_under=ranges),
        lambda: catalog.uploads.replace("k", b"3", if_unchanged_under=ranges),
        lambda: catalog.transaction().run(if_unchanged_under=ranges),
    ):
        with pytest.raises(PreconditionFailed) as raised:
            write()
        assert raised.value.problem["prefix"] == 'a"b\\ü%/'
    with pytest.raises(ValueError, match="at least one range"):
        catalog.put("k", 1, if_unchanged_under={})
