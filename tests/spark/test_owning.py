"""Managers in Spark: each owns what it sends, and touches nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from patching.client import Catalog, Gateway
from patching.spark.desired import DesiredInvalid
from patching.spark.sync import SyncReport, replay, sync, write_plan
from tests.patience import WAIT_S
from tests.service import RunningGateway
from tests.spark.attempts import Asleep
from tests.spark.passing import Passing
from tests.spark.written import Written


@pytest.fixture
def there(gateway: RunningGateway, catalog: str) -> Iterator[Catalog]:
    with Gateway(gateway.url) as reached:
        yield reached.catalog(catalog)


@pytest.fixture
def apply(
    frame: Callable[..., Any], gateway: RunningGateway, catalog: str, tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """`apply(wanted, **options)`: by the sink, a row for each document; its report."""

    def run(wanted: dict[str, Any], **options: Any) -> dict[str, Any]:
        rows = frame([(k, json.dumps(v)) for k, v in wanted.items()], "key string, apply string")
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        given = {"url": gateway.url, "catalog": catalog, "reportPath": str(folder), **options}
        rows.coalesce(1).write.format("metadata").mode("append").options(**given).save()
        (path,) = folder.iterdir()
        report: dict[str, Any] = json.loads(path.read_text())
        return report

    return run


def owned(there: Catalog, key: str) -> dict[str, list[str]]:
    return {
        leaf.pointer: [f"{each.manager}{' (plain)' * each.plain}" for each in leaf.owners]
        for leaf in there.owners(key)
    }


def documents(there: Catalog) -> dict[str, Any]:
    return {each.key: each.value for each in there.documents()}


def tokens(there: Catalog) -> dict[str, Any]:
    return {each.key: each.etag for each in there.documents()}


def test_rows_of_the_sink_are_applied(
    apply: Callable[..., dict[str, Any]], there: Catalog, catalog: str
) -> None:
    """A repetition changes nothing; fields of other owners are skipped or refused, and reported."""
    wanted = {"a": {"tier": 1, "gone": True}, "b": {"tier": 2}}
    job = {"txnAppId": "nightly", "manager": "nightly"}
    assert apply(wanted, **job, txnVersion=1)["applied"] == 2
    there.patch("a", [{"op": "add", "path": "/note", "value": "mine"}])
    before = tokens(there)
    assert apply(wanted, **job, txnVersion=1)["finished_before"] == [catalog]
    again = apply(wanted, **job, txnVersion=2)
    assert (again["applied"], again["unchanged"], tokens(there)) == (0, 2, before)

    assert apply({"a": {"tier": 1}, "b": {"size": 3}}, manager="sizes")["left_to_others"] == 0
    differing = {"a": {"tier": 9, "size": 4}, "b": {"size": 5}}
    refused = apply(differing, manager="sizes", onError="skip")
    assert (refused["applied"], refused["skipped"]) == (1, 1)
    assert "owned_by_others" in refused["examples"][0]
    assert "row 0 (key 'a')" in refused["examples"][0]
    left = apply(differing, manager="sizes", conflict="skip")
    assert (left["applied"], left["unchanged"], left["left_to_others"]) == (1, 1, 1)
    assert left["left"] == ["'/tier' of 'a', owned by 'nightly' since revision 2"]
    apply({"a": {"tier": 1}}, manager="nightly")
    assert documents(there) == {
        "a": {"tier": 1, "note": "mine", "size": 4},
        "b": {"tier": 2, "size": 5},
    }
    apply({"b": {"tier": 7, "size": 5}}, manager="sizes", conflict="force")
    assert owned(there, "a") == {"/size": ["sizes"], "/tier": ["nightly"]}
    assert owned(there, "b") == {"/size": ["sizes"], "/tier": ["sizes"]}


Sync = Callable[..., SyncReport]


@pytest.fixture
def synced(frame: Callable[..., Any], gateway: RunningGateway, catalog: str) -> Sync:
    """`synced(wanted, manager=…)`: the catalog is kept in step by a manager."""

    def run(wanted: dict[str, Any], act: Callable[..., Any] = sync, **more: Any) -> Any:
        rows = frame([(k, json.dumps(v)) for k, v in wanted.items()], "key string, document string")
        return act(rows, catalog, url=gateway.url, **more)

    return run


def test_a_sync_with_a_manager_touches_only_its_own(synced: Sync, there: Catalog) -> None:
    there.put("by hand", {"x": 1})
    wanted = {key: {"tier": 1, "by": {"team": "x"}} for key in "abcd"}
    first = synced(wanted, manager="nightly", delete=True)
    assert (first.created, first.sent, first.in_step) == (4, 4, True)
    head = there.read().revision
    again = synced(wanted, manager="nightly", delete=True)
    assert (again.unchanged, again.sent, there.read().revision) == (4, 0, head)

    there.patch("a", [{"op": "add", "path": "/note", "value": "mine"}])
    there.patch("b", [{"op": "replace", "path": "/tier", "value": 9}])
    sizes = synced({key: {"size": 5} for key in "ace"}, manager="sizes")
    assert (sizes.created, sizes.patched) == (1, 2)

    less = {"a": {"tier": 2}, "b": {"tier": 1, "by": {"team": "x"}}}
    left = synced(less, manager="nightly", conflict="skip", delete=True)
    assert (left.patched, left.let_go, left.deleted, left.left_to_others) == (1, 1, 1, 1)
    assert (left.unchanged, left.created, left.in_step) == (1, 0, True)  # b: /tier isn't its own
    assert [(each.key, each.code) for each in left.examples] == [("b", "owned_by_others")]
    assert "/tier of " in left.examples[0].detail
    kept = {
        "a": {"tier": 2, "note": "mine", "size": 5},
        "b": {"tier": 9, "by": {"team": "x"}},
        "by hand": {"x": 1},
        "c": {"size": 5},
        "e": {"size": 5},
    }
    assert documents(there) == kept

    refused = synced(less, manager="nightly")
    assert (refused.refused, refused.unchanged, refused.in_step) == (1, 1, False)
    assert [(each.key, each.code) for each in refused.examples] == [("b", "owned_by_others")]
    assert documents(there) == kept
    assert synced(less, manager="nightly", conflict="force").patched == 1
    assert documents(there)["b"]["tier"] == 1
    assert owned(there, "b") == {"/by/team": ["nightly"], "/tier": ["nightly"]}


def test_a_source_that_lacks_many_documents_lets_go_of_nothing(
    synced: Sync, there: Catalog
) -> None:
    """However many documents are new, as after a change of all keys."""
    synced({key: {"tier": 1} for key in "abcd"}, manager="nightly")
    there.put("by hand", {"x": 1})
    others = {f"new {key}": {"tier": 1} for key in (*"abcd", "by hand")}
    with pytest.raises(DesiredInvalid, match="it lacks 4 of the 4 documents that are there"):
        synced(others, manager="nightly", delete=True)
    assert len(documents(there)) == 5


def test_only_documents_that_differ_from_the_managers_part_are_sent(
    synced: Sync, there: Catalog, tmp_path: Path
) -> None:
    """Also with lists, whose items come in any order."""
    rules = [{"keys": "*", "pointer": "/tags", "set": True}]
    there.settings.put({"arrays": rules})
    tagged: dict[str, Any] = {"tags": ["x", "y"], "tier": 1}
    wanted = {"a": {"tier": 1.0}, "b": {"tier": 1}, "c": {"tier": 1}, "d": {"tier": 1}}
    wanted |= {"tagged": tagged, "turned": tagged}
    assert synced(wanted, manager="nightly").created == 6

    def planned(wanted: dict[str, Any], **more: Any) -> tuple[int, int, int]:
        path = str(tmp_path / f"plan {len(list(tmp_path.iterdir()))}")
        plan: Any = synced(wanted, write_plan, path=path, manager="nightly", **more)
        return plan.unchanged, plan.apply, plan.let_go

    assert planned(wanted, delete=True) == (6, 0, 0)
    there.apply("a", {"tier": 1, "size": 1}, manager="sizes")  # beside it, and together
    there.patch("b", [{"op": "add", "path": "/note", "value": "mine"}])
    there.apply("c", {"tier": 2}, manager="sizes", conflict="force")
    there.patch("d", [{"op": "replace", "path": "/tier", "value": 3}])
    there.put("by hand", {"tier": 1})
    there.patch("turned", [{"op": "replace", "path": "/tags", "value": ["y", "x"]}])
    wanted["tagged"] = {"tier": 1, "tags": ["y", "x"]}
    assert planned(wanted, delete=True) == (4, 2, 0)
    few = planned({"b": wanted["b"]}, delete=True, max_deletes=1.0)
    assert few == (1, 0, 3)  # of c and d it owns nothing
    report = synced(wanted, manager="nightly", conflict="force")
    assert (report.unchanged, report.patched, report.in_step) == (4, 2, True)
    assert planned(wanted, delete=True) == (6, 0, 0)
    assert [each["tier"] for each in documents(there).values()] == [1] * 7
    assert owned(there, "a") == {"/size": ["sizes"], "/tier": ["nightly", "sizes"]}


def test_a_plan_of_a_manager_is_sent_once(
    synced: Sync, there: Catalog, gateway: RunningGateway, spark: Any, tmp_path: Path
) -> None:
    synced({"a": {"tier": 1}, "b": {"tier": 1}}, manager="nightly")
    path = str(tmp_path / "plan")
    plan: Any = synced({"a": {"tier": 2}}, write_plan, path=path, manager="nightly", delete=True)
    assert (plan.apply, plan.let_go, plan.lines) == (1, 1, 2)
    for after in ({"tier": 2}, {"tier": 3}):
        report = replay(spark, path, url=gateway.url)
        assert (report.patched, report.deleted) == (1, 1)
        assert documents(there) == {"a": after}
        there.apply("a", {"tier": 3}, manager="nightly")


def test_a_later_run_of_the_same_manager_invalidates_a_plan(
    synced: Sync, there: Catalog, gateway: RunningGateway, spark: Any, tmp_path: Path
) -> None:
    """With another run, or another plan: its older part would come back. Of another prefix, or
    manager, it isn't."""
    path = str(tmp_path / "plan")
    synced({"a": {"tier": 1}}, write_plan, path=path, manager="nightly")
    for other in ({"manager": "sizes"}, {"manager": "nightly", "prefix": "a"}):
        synced({"a": {"size": 1}}, **other, conflict="skip")
    synced({"a": {"tier": 2}}, manager="nightly")
    report = replay(spark, path, url=gateway.url)
    assert (report.patched, report.refused, report.in_step) == (0, 1, False)
    assert [left.code for left in report.examples] == ["application_conflict"]
    assert documents(there)["a"]["tier"] == 2
    for name, tier in (("b", 3), ("c", 4)):
        plan = str(tmp_path / name)
        synced({"a": {"tier": tier}}, write_plan, path=plan, manager="nightly")
    assert replay(spark, str(tmp_path / "b"), url=gateway.url).refused == 1
    assert replay(spark, str(tmp_path / "c"), url=gateway.url).patched == 1
    assert documents(there)["a"]["tier"] == 4


def test_a_late_line_of_an_earlier_run_restores_nothing(
    synced: Sync, there: Catalog, passing: Passing, frame: Callable[..., Any], written: Written
) -> None:
    """Its process sleeps in the middle of a request until the next run of the manager is done."""
    synced({"a": {"tier": 1}}, manager="sizes")
    rows = frame([("a", '{"tier": 1, "old": 1}')], "key string, document string")
    asleep = Asleep(passing, written, 1, of="spark-sync-nightly")
    reports: list[SyncReport] = []

    def earlier() -> None:
        named = {"manager": "nightly", "url": passing.url}
        reports.append(sync(rows, written.catalog, **named, conflict="force"))

    thread = threading.Thread(target=earlier)
    thread.start()
    asleep.await_sleep()
    synced({"a": {"tier": 2, "new": 1}}, manager="nightly", conflict="force")
    (answer,) = asleep.late_answers()
    thread.join(WAIT_S)
    assert answer["problem"]["code"] == "application_conflict"
    assert documents(there) == {"a": {"tier": 2, "new": 1}}
    assert [report.refused for report in reports] == [1]


def test_a_document_that_a_manager_cannot_apply_is_named(synced: Sync, there: Catalog) -> None:
    with pytest.raises(
        DesiredInvalid, match=r"key 'a': a document must be an object to be applied"
    ):
        synced({"a": [1]}, manager="nightly")
    synced({"a": {}}, manager="nightly")
    with pytest.raises(DesiredInvalid, match=r"all documents \(1\) would be"):
        synced({}, manager="nightly", delete=True)
    with pytest.raises(ValueError, match="conflict needs a manager"):
        synced({}, conflict="skip")
    with pytest.raises(ValueError, match="option 'manager': it must be 1 to 255"):
        synced({}, manager=" ")
    with pytest.raises(ValueError, match="option 'manager': it has no effect here"):
        synced({}, options={"manager": "nightly"})
    assert documents(there) == {"a": {}}
