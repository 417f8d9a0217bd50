"""The client's listings, exports, settings and catalogs, on a real gateway."""

from __future__ import annotations

import math
import uuid

import pytest

from patching import digest
from patching.client import Catalog, Document, Gateway, Gone, NotFound, PreconditionFailed
from patching.client._steps import Query, Steps
from patching.client.errors import PreconditionRequired
from patching.client.transport import HttpAnswer
from tests.client.fake_documents import Opens
from tests.service import RunningGateway


def test_all_pages_of_a_listing_are_of_one_revision(catalog: Catalog) -> None:
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


@pytest.mark.parametrize("timeout_s", [math.inf, 1e300, 1e10])
def test_calls_may_take_as_long_as_they_like(
    opens: Opens, service: RunningGateway, catalog: Catalog, timeout_s: float
) -> None:
    with opens(service.url, timeout_s=timeout_s) as gateway:
        unhurried = gateway.catalog(catalog.name)
        assert unhurried.put("k", 1).changed
        unhurried.transact({"then": []})
        assert unhurried.touch().changed
        assert len(list(unhurried.commits())) == 2


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


def test_a_read_of_several_documents_in_several_requests_is_of_one_revision(
    service: RunningGateway, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{'x' * 900}{number}" for number in range(12)]
    for key in keys:
        catalog.put(key, "old")
    get = catalog._calls.get

    def get_and_change(path: str, query: Query) -> Steps[HttpAnswer]:
        answer = yield from get(path, query)
        with Gateway(service.url) as others:
            for key in keys:
                others.catalog(catalog.name).put(key, "new")
        asked.append(path)
        return answer

    asked: list[str] = []
    monkeypatch.setattr(catalog._calls, "get", get_and_change)
    several = catalog.several(keys)
    assert len(asked) > 2
    assert several.revision == 12
    found = [document for document in several.documents.values() if document is not None]
    assert {document.value for document in found} == {"old"}
    assert [document.key for document in found] == keys
    assert several.etag == ";".join(f"{each.key}={each.etag}" for each in found)


def test_documents_that_are_too_large_for_one_answer_are_read_in_several(catalog: Catalog) -> None:
    large = {f"k{number}": [number, "x" * 4_000_000] for number in range(5)}
    for key, value in large.items():
        catalog.put(key, value)
    several = catalog.several([*large, "missing"])
    assert {key: each and each.value for key, each in several.documents.items()} == {
        **large,
        "missing": None,
    }
    assert [each.partition("=")[0] for each in several.etag.split(";")] == [*large, "missing"]


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
    with pytest.raises(NotFound), catalog.export(revision=9):
        pass


def test_settings_can_be_read_and_written(catalog: Catalog) -> None:
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


def test_reading_compacted_history_raises_gone(catalog: Catalog) -> None:
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


def test_digests_show_which_documents_differ(catalog: Catalog) -> None:
    mine = {f"a/{number}": {"n": number} for number in range(5)}
    for key, value in mine.items():
        catalog.put(key, value)
    catalog.put("b", 1)
    changed = catalog.put("a/3", {"n": 3.5})
    found = list(catalog.digests(prefix="a/", page_size=2))
    assert [each.key for each in found] == list(mine)
    assert [each.key for each in found if each.digest != digest(mine[each.key])] == ["a/3"]
    assert (found[3].etag, found[3].catalog_revision) == (changed.etag, 7)
    assert [each.digest for each in catalog.digests(revision=1)] == [digest(mine["a/0"])]
