"""Managers in Spark: each owns what it sends, and touches nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from patching.client import Catalog, Gateway
from tests.service import RunningGateway


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
    """The same again changes nothing; what others own is left or refused, and told."""
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
    apply({"a": {"tier": 1}}, manager="nightly")
    assert documents(there) == {
        "a": {"tier": 1, "note": "mine", "size": 4},
        "b": {"tier": 2, "size": 5},
    }
    apply({"b": {"tier": 7, "size": 5}}, manager="sizes", conflict="force")
    assert owned(there, "a") == {"/size": ["sizes"], "/tier": ["nightly"]}
    assert owned(there, "b") == {"/size": ["sizes"], "/tier": ["sizes"]}
