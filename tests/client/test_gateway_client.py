"""The client's documents, attributes, listings, settings and catalogs, on a real gateway."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from patching import ABSENT
from patching.client import (
    Answer,
    Catalog,
    Conflict,
    Document,
    Gateway,
    Gone,
    NotFound,
    NotModified,
    PreconditionFailed,
    PreconditionRequired,
    Retry,
    Tokens,
    Transport,
)
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


def test_conditions_hold_and_their_refusal_says_what_happened(catalog: Catalog) -> None:
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


def test_a_condition_that_says_nothing_is_refused_and_never_left_out(catalog: Catalog) -> None:
    catalog.put("k", 1)
    gone = catalog.delete("k")
    for tokens in (gone, [], ["*", "1-00000000"], "", 'a"b'):
        with pytest.raises(ValueError, match=r"token|condition|alone"):
            catalog.put("k", 2, if_match=tokens)
    with pytest.raises(ValueError, match="contradict"):
        catalog.put("k", 2, if_match="*", if_absent=True)
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


def test_extended_patches_and_merge_patches_are_told_apart(catalog: Catalog) -> None:
    catalog.put("k", {"tags": ["a"], "fields": [{"path": "id", "type": "int"}]})
    catalog.patch("k", [{"op": "add_to_set", "path": "/tags", "value": "a"}])
    catalog.patch("k", [{"op": "add", "path": "/deep/er", "value": 1, "create_parents": True}])
    catalog.patch(
        "k",
        [{"op": "replace", "path": "/fields/id/type", "value": "long"}],
        array_primary_keys={"/fields": ["path"]},
    )
    catalog.merge("k", {"tags": None})
    assert catalog.get("k").value == {
        "fields": [{"path": "id", "type": "long"}],
        "deep": {"er": 1},
    }
    with pytest.raises(Conflict) as raised:
        catalog.patch("k", [{"op": "test", "path": "/deep/er", "value": 2}])
    assert (raised.value.code, raised.value.pointer) == ("test_failed", "/deep/er")


def test_a_read_is_conditional_and_goes_back_in_time(catalog: Catalog) -> None:
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
    with pytest.raises(ValueError, match="moment"):
        catalog.get("k", at=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="together"):
        catalog.get("k", at=between, revision=1)


def test_a_write_is_done_once_under_its_key_and_not_at_all_by_a_dry_run(
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


def test_attributes_lie_beside_and_share_the_token(catalog: Catalog) -> None:
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


def test_updates_that_race_lose_nothing(catalog: Catalog) -> None:
    catalog.put("k", {"n": 0, "by": []})
    barrier = threading.Barrier(4)

    def count(name: int) -> None:
        barrier.wait()
        for _ in range(5):

            def change(now: Any) -> Any:
                now["n"] += 1
                now["by"].append(name)
                return now

            catalog.update("k", change, tries_max=1000, timeout_s=60)

    threads = [threading.Thread(target=count, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    value: Any = catalog.get("k").value
    assert value["n"] == len(value["by"]) == 20


def test_an_update_creates_deletes_stops_and_leaves_alone(catalog: Catalog) -> None:
    with pytest.raises(NotFound):
        catalog.update("k", lambda now: now)
    made = catalog.update("k", lambda now: {"was": now is ABSENT}, create=True)
    assert (made.value, made.changed, made.tries) == ({"was": True}, True, 1)
    same = catalog.update("k", dict)
    assert (same.changed, same.written, same.etag) == (False, None, made.etag)
    with pytest.raises(TypeError, match="None"):
        catalog.update("k", lambda now: now.clear())
    with pytest.raises(ZeroDivisionError):
        catalog.update("k", lambda _: 1 / 0)
    with pytest.raises(TypeError, match="idempotency_key"):
        catalog.update("k", dict, idempotency_key="x")
    assert catalog.get("k").value == {"was": True}
    assert catalog.commit(catalog.read().revision).changes[0].patch
    gone = catalog.update("k", lambda _: ABSENT)
    assert (gone.changed, gone.etag) == (True, None)
    with pytest.raises(NotFound):
        catalog.get("k")


def test_an_update_sends_what_differs_alone(catalog: Catalog) -> None:
    catalog.put("k", {"large": ["x" * 50] * 20, "n": 1})
    updated = catalog.update("k", lambda now: {**now, "n": 2})
    assert catalog.commit(updated.written.catalog_revision).changes[0].patch == [  # type: ignore[union-attr]
        {"op": "replace", "path": "/n", "value": 2}
    ]
    many = {f"m{n}": n for n in range(1500)}
    assert catalog.update("k", lambda _: many).changed
    assert catalog.update("k", lambda now: dict.fromkeys(now, -1), rebase=True).changed


def test_a_listing_is_all_from_one_revision(catalog: Catalog) -> None:
    for number in range(5):
        catalog.put(f"a/{number}", number)
    catalog.put("b", "other")
    catalog.attributes.put("a/0", {"team": "x"})
    listed: list[Document] = []
    for document in catalog.documents(prefix="a/", page_size=2):
        listed.append(document)
        catalog.put(f"a/{10 + len(listed)}", "newer")
        catalog.put("a/4", "newer")
    assert [each.key for each in listed] == [f"a/{number}" for number in range(5)]
    assert [each.value for each in listed] == list(range(5))
    assert {each.catalog_revision for each in listed} == {7}
    first = listed[0]
    assert (first.attributes, first.create_revision, first.revision) == ({"team": "x"}, 1, 7)
    assert catalog.put("a/1", "mine", if_match=listed[1]).changed
    assert [each.value for each in catalog.documents(revision=2)] == [0, 1]


def test_several_documents_share_a_token(catalog: Catalog) -> None:
    catalog.put("a;=", 1)
    catalog.put("b", 2)
    keys = ["a;=", "b", "missing", *(f"{'x' * 900}{number}" for number in range(12))]
    several = catalog.several(keys)
    assert several.revision == 2
    assert set(several.documents) == set(keys)
    assert [getattr(several.documents[key], "value", None) for key in keys[:3]] == [1, 2, None]
    few = catalog.several(["a;=", "b", "missing"])
    assert catalog.put("c", 1, if_match=few).changed
    catalog.put("missing", 1)
    with pytest.raises(PreconditionFailed) as raised:
        catalog.put("c", 2, if_match=few)
    assert [each["key"] for each in raised.value.problem["stale"]] == ["missing"]
    older = catalog.several(["b", "missing"], revision=2).documents["missing"]
    assert older is None


def test_several_that_take_several_requests_are_from_one_revision(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{'x' * 900}{number}" for number in range(12)]
    for key in keys:
        catalog.put(key, "old")
    ask = Transport.request

    def ask_and_change(transport: Transport, method: str, path: str, **more: Any) -> Answer:
        answer = ask(transport, method, path, **more)
        for key in keys:
            ask(transport, "PUT", f"{path}/{key}", json="new")
        asked.append(path)
        return answer

    asked: list[str] = []
    monkeypatch.setattr(Transport, "request", ask_and_change)
    several = catalog.several(keys)
    assert len(asked) > 2
    assert several.revision == 12
    found = [document for document in several.documents.values() if document is not None]
    assert {document.value for document in found} == {"old"}
    assert [document.key for document in found] == keys
    assert several.etag == ";".join(f"{each.key}={each.etag}" for each in found)


def test_an_export_is_streamed_at_one_revision(catalog: Catalog) -> None:
    contents = {f"k{number}": {"n": number, "f": 0.5, "x": "ü" * 50} for number in range(50)}
    lines = [{"action": "put", "key": key, "value": value} for key, value in contents.items()]
    catalog.transact({"then": lines})
    catalog.put("z", 2**63 - 1)
    with catalog.export() as export:
        assert export.revision == 2
        assert dict(export) == {**contents, "z": 2**63 - 1}
    with catalog.export(prefix="k1", revision=1) as export:
        assert sorted(key for key, _ in export) == sorted(key for key in contents if "k1" in key)
    with pytest.raises(NotFound):
        catalog.export(revision=9)


def test_settings_are_a_document_of_their_own(catalog: Catalog) -> None:
    catalog.put("k", 1)
    assert catalog.settings.get().settings is None
    made = catalog.settings.put({"require_precondition": True}, if_absent=True)
    assert (made.revision, made.changed) == (2, True)
    state = catalog.settings.get()
    assert (state.settings, state.etag, state.revision) == (
        {"require_precondition": True},
        made.etag,
        2,
    )
    with pytest.raises(PreconditionRequired):
        catalog.put("k", 2)
    with pytest.raises(PreconditionFailed):
        catalog.settings.put({}, if_match="1-00000000")
    assert catalog.settings.put({}, if_match=state).revision == 3
    assert catalog.read().floor == 0


def test_catalogs_are_listed_touched_and_deleted(connected: Gateway) -> None:
    names = [f"{uuid.uuid4().hex}/{number}" for number in range(3)]
    prefix = names[0][:32]
    names = [f"{prefix}/{number}" for number in range(3)]
    for name in names:
        connected.catalog(name).put("k", 1)
    touched = connected.catalog(names[1]).touch(message="reload")
    assert (touched.revision, touched.changed) == (2, True)
    heads = list(connected.catalogs(prefix=prefix, page_size=2))
    assert [(each.name, each.revision) for each in heads] == list(
        zip(names, (1, 2, 1), strict=True)
    )
    with pytest.raises(PreconditionFailed):
        connected.catalog(names[0]).delete_catalog(resource_version=5)
    deleted = connected.catalog(names[0]).delete_catalog()
    assert (deleted.revision, deleted.changed) == (2, True)
    assert not connected.catalog(names[0]).delete_catalog().changed
    assert [each.name for each in connected.catalogs(prefix=prefix)] == names[1:]
    assert connected.is_ready()


def test_history_that_is_compacted_is_gone(catalog: Catalog) -> None:
    for number in range(4):
        catalog.put("k", number)
    done = catalog.compact(3)
    assert (done.floor, done.head_revision) == (3, 4)
    for ask in (
        lambda: catalog.get("k", revision=1),
        lambda: list(catalog.commits()),
        lambda: next(catalog.changes(0)),
    ):
        with pytest.raises(Gone, match="revision_compacted"):
            ask()
