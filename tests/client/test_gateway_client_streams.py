"""Exports and feeds that break off."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from patching.client import Catalog, NotFound, Problem, Unreachable
from patching.client.errors import Unavailable
from tests.client.fake_documents import AWAY, BUSY, FakeDocuments, fine, lose, refuse
from tests.client.fake_gateway import Refused
from tests.patience import WAIT_S


def test_an_export_that_breaks_off_raises(fake: FakeDocuments, faked: Catalog) -> None:
    fake.unsent.append(AWAY)
    with faked.export() as export:
        assert dict(export) == {"k": {"n": 1}}

    whole = b'{"resource_version":1,"metadata":{"a":1,\n"b":{"c":2},\n"d":3}}'
    for end in (len(whole) - 1, len(whole) - 8, 40):
        fake.before = _broken_off(whole[:end], str(len(whole)))
        with faked.export() as export, pytest.raises(Unreachable) as raised:
            list(export)
        assert raised.value.applied == "no"


def _broken_off(body: bytes, length: str) -> Any:
    """Sent as the answer, with a length that promises more."""

    class Broken(Refused):
        def __init__(self) -> None:
            super().__init__(200, "")
            self.problem = body  # type: ignore[assignment]
            self.headers = {"Content-Length": length, "Connection": "close"}

    def raise_it(*_: Any) -> None:
        raise Broken

    return raise_it


def test_an_export_refused_for_the_moment_is_retried_after_a_pause(
    fake: FakeDocuments, faked: Catalog
) -> None:
    fake.unsent.extend([BUSY, lose])
    with faked.export() as export:
        assert dict(export) == {"k": {"n": 1}}
    assert len(fake.pauses) == 2
    assert all(fake.pauses)


def test_a_feed_begins_with_the_state_and_resumes_inside_it(
    fake: FakeDocuments, faked: Catalog
) -> None:
    fake.page_documents = 1
    fake.commit({None: {"require_precondition": False}, "b": 1, "c": 2})
    with faked.changes(initial=True, poll_s=1) as feed:
        copy = {}
        for document in feed.documents:
            copy[document.key] = document.value
            fake.unsent.append(AWAY)
            fake.put(b=5)
        assert copy == {"k": {"n": 1}, "b": 1, "c": 2}
        assert (feed.settings, feed.position) == ({"require_precondition": False}, 2)
        assert feed.time is not None
        assert [next(feed).revision for _ in range(3)] == [3, 4, 5]


def test_the_documents_of_a_feed_from_the_state_must_be_read_first(faked: Catalog) -> None:
    with faked.changes(initial=True) as feed, pytest.raises(ValueError, match="documents first"):
        next(feed)
    for wrong in ({}, {"after": 1, "initial": True}, {"initial": True, "commit_id": "id-1"}):
        with pytest.raises(ValueError, match="'after'"):
            faked.changes(**wrong)


def test_a_feed_resumed_by_a_commit_continues_in_no_other_history(
    fake: FakeDocuments, faked: Catalog
) -> None:
    with faked.changes(initial=True) as feed:
        assert feed.commit_id is None
        list(feed.documents)
        place = {"after": feed.position, "commit_id": feed.commit_id}
    fake.commit({"k": 2})
    fake.commit({"k": 3})
    with faked.changes(**place, follow=False) as feed:
        assert [(feed.position, feed.commit_id) for _ in feed] == [(2, "id-2"), (3, "id-3")]
        place = {"after": feed.position, "commit_id": feed.commit_id}
    fake.set_back(1)
    for number in range(3):
        fake.commit({"k": number})
    with faked.changes(**place) as feed, pytest.raises(NotFound):
        next(feed)


def test_a_feed_resumes_at_its_position_after_failures(fake: FakeDocuments, faked: Catalog) -> None:
    fake.put(k=2)
    seen = []
    with faked.changes(0, poll_s=1) as feed:
        for commit in feed:
            seen.append(commit.revision)
            if len(seen) == 2:
                fake.unsent.extend([AWAY, lose, fine])
                fake.put(k=3)
                fake.put(k=4)
            if len(seen) == 4:
                break
    assert seen == [1, 2, 3, 4]
    assert feed.position == 4


def test_a_feed_ends_after_a_permanent_failure_or_a_long_outage(
    fake: FakeDocuments, faked: Catalog
) -> None:
    fake.unsent.append(refuse(410, "revision_compacted"))
    with pytest.raises(Problem, match="revision_compacted"):
        next(faked.changes(0))
    fake.unsent.extend([AWAY] * 100)
    with pytest.raises(Unavailable):
        next(faked.changes(0, outage_s=0))


def test_closing_a_feed_ends_a_waiting_loop(
    fake: FakeDocuments, faked: Catalog, eventually: Any
) -> None:
    feed = faked.changes(1)
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.extend(each.revision for each in feed))
    reader.start()
    eventually(lambda: any(each.startswith("GET changes") for each in fake.requests))
    feed.close()
    reader.join(WAIT_S)
    assert not reader.is_alive()
    assert seen == []
