"""Read-modify-write through the client, on a real gateway."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from patching import ABSENT
from patching.client import Catalog, NotFound
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

            catalog.update("k", change, tries_max=1000, timeout_s=WAIT_S)

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
