"""The client's documents and attributes, on a real gateway."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from patching.client import Catalog, Conflict, Gateway, NotFound, PreconditionFailed, Retry
from patching.client.errors import NotModified
from patching.client.terms import Tokens
from tests.service import RunningGateway


def test_a_document_is_written_read_and_deleted(catalog: Catalog) -> None:
    for key in ("a", "a/b c;=%", "ü", "..", "x" * 200):
        written = catalog.put(key, {"n": 1, "none": None}, message="mäde, it", author=None)
        assert (written.created, written.changed, written.replayed) == (True, True, False)
        document = catalog.get(key)
        assert (document.key, document.value) == (key, {"n": 1, "none": None})
        assert (document.etag, document.catalog_revision) == (written.etag, written.revision)
        assert document.modified is not None
        assert abs((datetime.now(UTC) - document.modified).total_seconds()) < 3600
        deleted = catalog.delete(key)
        assert (deleted.changed, deleted.etag) == (True, None)
        assert not catalog.delete(key).changed
        with pytest.raises(NotFound):
            catalog.get(key)
    assert catalog.commit(1).message == "mäde, it"


def test_a_false_condition_raises_with_the_changes_since(catalog: Catalog) -> None:
    seen = catalog.get(catalog.put("k", {"n": 1}).key)
    newer = catalog.patch("k", [{"op": "add", "path": "/m", "value": 2}], if_match=seen)
    tokens: list[Tokens] = [seen, seen.etag, f'"{seen.etag}"', [seen, "1-00000000"]]
    for token in tokens:
        with pytest.raises(PreconditionFailed) as raised:
            catalog.put("k", {}, if_match=token)
    error = raised.value
    assert (error.code, error.applied, error.retryable) == ("precondition_failed", "no", False)
    assert (error.current_etag, error.current_revision) == (newer.etag, newer.revision)
    assert error.changes_since is not None
    assert [(each.revision, each.action) for each in error.changes_since] == [(2, "patch")]
    assert error.request_id
    with pytest.raises(PreconditionFailed):
        catalog.put("k", {}, if_absent=True)
    with pytest.raises(PreconditionFailed):
        catalog.delete("k", if_match=seen)
    with pytest.raises(PreconditionFailed):
        catalog.put("k", {}, resource_version=1)
    assert catalog.get("k").value == {"n": 1, "m": 2}


def test_an_empty_or_invalid_condition_is_refused(catalog: Catalog) -> None:
    catalog.put("k", 1)
    gone = catalog.delete("k")
    for tokens in (gone, [], ["*", "1-00000000"], "", 'a"b'):
        with pytest.raises(ValueError, match=r"token|condition|alone"):
            catalog.put("k", 2, if_match=tokens)
    with pytest.raises(ValueError, match="can't be given together"):
        catalog.put("k", 2, if_match="*", if_absent=True)
    with pytest.raises(TypeError, match=r"version token.*not 5"):
        catalog.put("k", 2, if_match=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rebase"):
        catalog.patch("k", [], rebase=True)
    with pytest.raises(TypeError):
        catalog.put("k", 2, if_macth="*")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="JSON"):
        catalog.put("k", [float("nan")])
    with pytest.raises(NotFound):
        catalog.get("k")


def test_a_patch_is_rebased_where_nothing_it_touches_changed(catalog: Catalog) -> None:
    catalog.put("k", {"a": 1, "b": 1})
    seen = catalog.get("k")
    catalog.patch("k", [{"op": "replace", "path": "/a", "value": 2}])
    change = [{"op": "replace", "path": "/b", "value": 2}]
    assert catalog.patch("k", change, if_match=seen, rebase=True).rebased_from == seen.etag
    with pytest.raises(PreconditionFailed) as raised:
        catalog.merge("k", {"a": 3}, if_match=seen, rebase=True)
    assert raised.value.problem["overlap"] == ["/a"]
    assert catalog.get("k").value == {"a": 2, "b": 2}


def test_the_text_of_a_refusal_names_the_place(catalog: Catalog) -> None:
    """An error in a log is often all that there is."""
    catalog.put("k", {"on": True})
    wrong = [{"op": "test", "path": "", "value": {"on": True}}]
    wrong += [{"op": "test", "path": "/on", "value": False}]
    with pytest.raises(Conflict) as refused:
        catalog.patch("k", wrong)
    said = "409 test_failed: expected false, found true; operation 1; pointer '/on'"
    assert str(refused.value) == said
    transaction = catalog.transaction()
    transaction.then.put("l", 1).patch("k", wrong)
    with pytest.raises(Conflict) as refused:
        transaction.run()
    assert str(refused.value).endswith("; operation 1; action 1; pointer '/on'")


def test_extended_patches_and_merge_patches_are_distinguished(catalog: Catalog) -> None:
    catalog.put("k", {"tags": ["a"], "fields": [{"path": "id", "type": "int"}]})
    catalog.patch("k", [{"op": "add_to_set", "path": "/tags", "value": "a"}])
    catalog.patch("k", [{"op": "add", "path": "/deep/er", "value": 1, "create_parents": True}])
    catalog.patch(
        "k",
        [{"op": "replace", "path": "/fields/id/type", "value": "long"}],
        array_primary_keys={"/fields": ["path"]},
    )
    catalog.merge("k", {"tags": None})
    assert catalog.get("k").value == {"fields": [{"path": "id", "type": "long"}], "deep": {"er": 1}}
    with pytest.raises(Conflict) as raised:
        catalog.patch("k", [{"op": "test", "path": "/deep/er", "value": 2}])
    assert (raised.value.code, raised.value.pointer) == ("test_failed", "/deep/er")


def test_a_read_may_be_conditional_or_of_the_past(catalog: Catalog) -> None:
    catalog.put("k", 1)
    seen = catalog.get("k")
    assert catalog.get("k", if_none_match=seen) is seen
    with pytest.raises(NotModified) as raised:
        catalog.get("k", if_none_match=seen.etag)
    assert raised.value.etag == seen.etag
    with pytest.raises(NotModified):
        catalog.get("k", if_none_match="*")
    between = catalog.commit(1).time
    catalog.put("k", 2)
    assert catalog.get("k", if_none_match=seen).value == 2
    assert catalog.get("k", revision=1).value == 1
    assert catalog.get("k", at=between).value == 1
    assert catalog.get("k", at=between.isoformat()).value == 1
    with pytest.raises(NotFound, match="revision_not_found"):
        catalog.get("k", revision=9)
    with pytest.raises(ValueError, match="offset from UTC"):
        catalog.get("k", at=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="not both"):
        catalog.get("k", at=between, revision=1)


def test_a_write_under_a_key_is_done_once_and_a_dry_run_not_at_all(
    service: RunningGateway, catalog: Catalog
) -> None:
    first = catalog.put("k", 1, idempotency_key="mine")
    again = catalog.put("k", 1, idempotency_key="mine")
    assert (again.replayed, again.etag) == (True, first.etag)
    commit = catalog.outcome("mine")
    assert commit is not None
    assert (commit.revision, commit.commit_id) == (first.revision, first.commit_id)
    assert catalog.outcome("other") is None
    dry = catalog.put("k", 2, dry_run=True)
    assert (dry.dry_run, dry.changed, dry.etag) == (True, True, None)
    assert catalog.delete("k", dry_run=True).changed
    assert catalog.get("k").value == 1
    assert not catalog.put("k", 1).changed
    made = catalog.commit(catalog.put("k", 3).catalog_revision)
    assert made.idempotency_key
    with Gateway(service.url, retry=Retry(make_keys=False)) as gateway:
        bare = gateway.catalog(catalog.name).put("k", 4)
    assert catalog.commit(bare.catalog_revision).idempotency_key is None


def test_attributes_share_the_token_of_the_document(catalog: Catalog) -> None:
    seen = catalog.get(catalog.put("k", 1).key)
    assert catalog.attributes.get("k").value == {}
    written = catalog.attributes.put("k", {"team": "a"}, if_match=seen)
    catalog.attributes.patch("k", [{"op": "add", "path": "/n", "value": 1}], if_match=written)
    catalog.attributes.merge("k", {"team": "b"})
    updated = catalog.attributes.update("k", lambda now: {**now, "n": now["n"] + 1})
    assert catalog.attributes.get("k").value == {"team": "b", "n": 2}
    assert (catalog.get("k").value, catalog.get("k").etag) == (1, updated.etag)
    with pytest.raises(PreconditionFailed):
        catalog.put("k", 2, if_match=seen)


def test_documents_are_found_by_a_part_of_their_keys(catalog: Catalog) -> None:
    for key in ("tables/a", "tables/b", "Views/Tab"):
        catalog.put(key, key)
    assert list(catalog.keys(page_size=2)) == ["Views/Tab", "tables/a", "tables/b"]
    assert list(catalog.keys(contains="TAB", prefix="t")) == ["tables/a", "tables/b"]
    found = [each.value for each in catalog.documents(contains="s/t", page_size=1)]
    assert found == ["Views/Tab"]
    assert [each.key for each in catalog.digests(contains="/b")] == ["tables/b"]
