"""Updates that others are faster than."""

from __future__ import annotations

from typing import Any

import pytest

from patching.client import Catalog, PreconditionFailed, UpdateFailed
from tests.client.fake_documents import FakeDocuments, lose


def test_an_update_is_done_again_on_what_others_left(fake: FakeDocuments, faked: Catalog) -> None:
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
    assert len(fake.pauses) == 2


def test_an_update_ends_after_so_many_tries_or_at_its_deadline(
    fake: FakeDocuments, faked: Catalog
) -> None:
    def race(value: Any) -> Any:
        fake.put(k={"n": value["n"] + 1})
        return {}

    with pytest.raises(UpdateFailed) as raised:
        faked.update("k", race, tries_max=3)
    assert raised.value.tries == 3
    assert isinstance(raised.value.__cause__, PreconditionFailed)
    with pytest.raises(UpdateFailed):
        faked.update("k", race, tries_max=10**9, timeout_s=5)
    assert fake.now <= 6
    assert fake.documents()["k"]["n"] > 4


def test_an_update_whose_answer_was_lost_is_not_done_twice(
    fake: FakeDocuments, faked: Catalog
) -> None:
    fake.lost.append(lose)
    updated = faked.update("k", lambda value: {"n": value["n"] + 1})
    assert (updated.value, fake.documents()["k"], updated.tries) == ({"n": 2}, {"n": 2}, 1)
