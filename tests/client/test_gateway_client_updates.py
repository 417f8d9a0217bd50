"""Read-modify-write through the client: on a real gateway, and where others are faster."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from patching import ABSENT
from patching.client import Catalog, NotFound, PreconditionFailed, UpdateFailed
from patching.client.errors import Invalid
from tests.client.fake_documents import FakeDocuments, lose
from tests.patience import WAIT_S


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

            catalog.update("k", change, retries_max=999, timeout_s=WAIT_S)

    threads = [threading.Thread(target=count, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    value: Any = catalog.get("k").value
    assert value["n"] == len(value["by"]) == 20


def test_an_update_can_create_delete_stop_or_change_nothing(catalog: Catalog) -> None:
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


def test_an_update_sends_only_the_difference(catalog: Catalog) -> None:
    catalog.put("k", {"large": ["x" * 50] * 20, "n": 1})
    updated = catalog.update("k", lambda now: {**now, "n": 2})
    assert catalog.commit(updated.written.catalog_revision).changes[0].patch == [  # type: ignore[union-attr]
        {"op": "replace", "path": "/n", "value": 2}
    ]
    many = {f"m{n}": n for n in range(1500)}
    assert catalog.update("k", lambda _: many).changed
    assert catalog.update("k", lambda now: dict.fromkeys(now, -1), rebase=True).changed


def test_an_update_by_key_does_not_conflict_with_changes_of_other_items(catalog: Catalog) -> None:
    declared = {"arrays": [{"keys": "*", "pointer": "/fields", "item_key": ["path"]}]}
    catalog.put("k", {"fields": [{"path": "a", "n": 1}, {"path": "b", "n": 1}]})
    catalog.settings.put(declared)
    lists = catalog.settings.lists().lists_of("k")
    tries = []

    def change(now: Any) -> Any:
        if not tries:  # somebody is faster, and moves what this one is about to change
            new = {"op": "add", "path": "/fields/0", "value": {"path": "new"}}
            catalog.patch("k", [new])
        tries.append(1)
        now["fields"][1]["n"] = 2
        now["fields"].append({"path": "mine"})
        return now

    updated = catalog.update("k", change, rebase=True, lists=lists)
    assert (updated.changed, len(tries)) == (True, 1)
    fields = catalog.get("k").value["fields"]
    assert [each["path"] for each in fields] == ["new", "a", "b", "mine"]
    assert fields[2] == {"path": "b", "n": 2}
    again = catalog.update("k", lambda now: {"fields": now["fields"][::-1]}, lists=lists)
    assert not again.changed  # their order is no difference


def test_lists_can_be_declared_without_checking_documents(catalog: Catalog) -> None:
    declared = {"arrays": [{"keys": "*", "pointer": "/tags", "set": True}]}
    catalog.put("k", {"tags": [1, 1]})
    with pytest.raises(Invalid) as caught:
        catalog.settings.put(declared)
    assert [each["key"] for each in caught.value.problem["documents"]] == ["k"]
    assert catalog.settings.put(declared, check_documents=False).changed


def test_an_update_that_loses_a_race_runs_again_on_the_new_state(
    fake: FakeDocuments, faked: Catalog
) -> None:
    seen: list[Any] = []

    def raise_n(value: Any) -> Any:
        seen.append(dict(value))
        if len(seen) < 3:
            fake.put(k={"n": value["n"] + 10})
        value["n"] += 1
        return value

    updated = faked.update("k", raise_n)
    assert seen == [{"n": 1}, {"n": 11}, {"n": 21}]
    assert (updated.value, updated.tries, updated.changed) == ({"n": 22}, 3, True)
    assert fake.documents()["k"] == {"n": 22}
    # After the first refusal it went on with what that showed, after the second it read anew.
    assert len(fake.pauses) == 1
    assert [method for method, _ in fake.sent] == ["GET", "PATCH", "PATCH", "GET", "PATCH"]


def test_an_update_ends_after_the_maximum_number_of_tries_or_at_its_deadline(
    fake: FakeDocuments, faked: Catalog
) -> None:
    def race(value: Any) -> Any:
        fake.put(k={"n": value["n"] + 1})
        return {}

    with pytest.raises(UpdateFailed) as raised:
        faked.update("k", race, retries_max=2)
    assert raised.value.tries == 3
    assert isinstance(raised.value.__cause__, PreconditionFailed)
    begun = fake.now
    # What is left of the time bounds the socket, too: each request has a hundred seconds at least.
    fake.unsent.extend([lambda: fake.sleep(100)] * 10)
    with pytest.raises(UpdateFailed):
        faked.update("k", race, retries_max=10**9, timeout_s=500)
    assert 500 <= fake.now - begun < 600
    assert len(fake.unsent) == 5


def test_an_update_whose_answer_was_lost_is_applied_once(
    fake: FakeDocuments, faked: Catalog
) -> None:
    fake.lost.append(lose)
    updated = faked.update("k", lambda value: {"n": value["n"] + 1})
    assert (updated.value, fake.documents()["k"], updated.tries) == ({"n": 2}, {"n": 2}, 1)


@pytest.mark.parametrize("of", ["content", "attributes"])
def test_an_update_retries_with_the_document_from_the_refusal(catalog: Catalog, of: str) -> None:
    catalog.put("k", {"n": 0})
    part = catalog if of == "content" else catalog.attributes
    part.put("k", {"n": 0})
    seen: list[Any] = []

    def raise_n(value: Any) -> Any:
        seen.append(dict(value))
        if len(seen) == 1:
            part.put("k", {"n": 10})
        return {"n": value["n"] + 1}

    reads: list[str] = []
    get = part._calls.get
    with pytest.MonkeyPatch.context() as patched:
        counted: Any = lambda *asked, **more: reads.append("") or get(*asked, **more)  # noqa: E731
        patched.setattr(part._calls, "get", counted)
        updated = part.update("k", raise_n)
    assert (seen, len(reads)) == ([{"n": 0}, {"n": 10}], 1)
    assert (updated.value, updated.tries, part.get("k").value) == ({"n": 11}, 2, {"n": 11})


def test_a_refusal_shows_the_document_if_asked(catalog: Catalog) -> None:
    catalog.put("k", {"n": 1})
    catalog.attributes.put("k", {"team": "a"})
    for asked, value, attributes in ((True, {"n": 1}, {"team": "a"}), (False, ABSENT, {})):
        with pytest.raises(PreconditionFailed) as refused:
            catalog.put("k", 1, if_absent=True, show_refused=asked)
        assert refused.value.current_value == value
        assert refused.value.current_attributes == attributes
