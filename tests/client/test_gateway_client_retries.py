"""What is sent again, how often and after which pause, and what is said in the end."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any, Unpack, cast

import pytest

import patching.client
from patching.client import (
    BulkTerms,
    Busy,
    Catalog,
    Conflict,
    Follower,
    NotAuthorized,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Problem,
    Retry,
    RetryDetails,
    Unreachable,
)
from patching.client._blocking import CallSender
from patching.client.errors import BadRequest, Unavailable
from patching.client.terms import WriteTerms
from patching.client.transport import HttpAnswer, Transport
from tests.client.fake_documents import (
    AWAY,
    BUSY,
    UNKNOWN,
    FakeDocuments,
    lose,
    refuse,
    with_retry,
    writes,
)
from tests.patience import WAIT_S


@pytest.mark.parametrize("mishap", [BUSY, AWAY, lose])
def test_a_retryable_request_is_sent_again(
    fake: FakeDocuments, faked: Catalog, mishap: Any
) -> None:
    fake.unsent.extend([mishap, mishap])
    assert faked.put("k", 2).revision == 2
    assert len(writes(fake)) == 3
    fake.unsent.extend([mishap, mishap])
    assert faked.get("k").value == 2
    assert fake.head == 2


@pytest.mark.parametrize("mishap", [lose, UNKNOWN])
def test_an_answer_to_a_resent_write_is_marked_as_replayed(
    fake: FakeDocuments, faked: Catalog, mishap: Any
) -> None:
    fake.lost.extend([mishap, mishap])
    written = faked.patch("k", [{"op": "add", "path": "/m", "value": 1}])
    assert (written.revision, written.replayed) == (2, True)
    assert fake.head == 2
    assert len({headers["Idempotency-Key"] for headers in writes(fake)}) == 1


def test_a_resent_write_has_the_same_conditions(fake: FakeDocuments, faked: Catalog) -> None:
    """A precondition that got lost on the second try would overwrite what others did."""
    fake.unsent.extend([AWAY, lose])
    fake.lost.append(lose)
    faked.put("k", 2, if_match="1", message="m")
    sent = writes(fake)
    assert len(sent) == 4
    for headers in sent:
        same = ("If-Match", "Commit-Message", "Idempotency-Key", "Content-Type")
        assert {name: headers[name] for name in same} == {name: sent[0][name] for name in same}
    assert sent[0]["If-Match"] == '"1"'


def test_a_write_without_a_key_is_sent_again_only_where_it_was_not_applied(
    fake: FakeDocuments,
) -> None:
    catalog = with_retry(fake, make_keys=False)
    fake.unsent.extend([BUSY, AWAY])
    assert catalog.put("k", 2).revision == 2
    fake.lost.append(lose)
    with pytest.raises(Unreachable) as raised:
        catalog.put("k", 3)
    assert (raised.value.applied, raised.value.sends) == ("unknown", 1)
    fake.lost.append(UNKNOWN)
    with pytest.raises(OutcomeUnknown) as unknown:
        catalog.put("k", 4)
    assert (unknown.value.applied, unknown.value.sends) == ("unknown", 1)
    assert not any("Idempotency-Key" in headers for headers in writes(fake))
    fake.unsent.extend([lose] * 20)
    with pytest.raises(Unreachable) as tried:
        catalog.put("k", 5, dry_run=True)
    assert tried.value.applied == "no"
    assert tried.value.sends > 2


def test_an_unknown_outcome_is_looked_up_if_nothing_may_be_sent_again(
    fake: FakeDocuments,
) -> None:
    catalog = with_retry(fake, retries_max=0)
    fake.lost.append(UNKNOWN)
    written = catalog.put("k", 2, idempotency_key="mine")
    assert (written.revision, written.replayed, fake.head) == (2, True, 2)
    assert [method for method, _ in fake.sent] == ["PUT", "GET outcomes", "PUT"]


def test_an_unknown_outcome_without_a_record_stays_unknown(fake: FakeDocuments) -> None:
    """There may be no commit yet because the write is still under way."""
    catalog = with_retry(fake, retries_max=1)
    fake.unsent.extend([UNKNOWN, AWAY])
    with pytest.raises(Unavailable) as raised:
        catalog.put("k", 2)
    assert (raised.value.applied, raised.value.sends) == ("unknown", 2)
    assert [method for method, _ in fake.sent] == ["PUT", "PUT", "GET outcomes"]
    assert fake.head == 1


@pytest.mark.parametrize(
    ("refusal", "applied"),
    [
        (refuse(403, "forbidden"), "unknown"),
        (refuse(404, "document_not_found"), "no"),
        (refuse(409, "test_failed"), "no"),
        (refuse(412, "precondition_failed"), "no"),
        (refuse(400, "invalid_patch"), "no"),
    ],
)
def test_a_refusal_recorded_under_the_key_holds_for_a_lost_request_too(
    fake: FakeDocuments, faked: Catalog, refusal: Any, applied: str
) -> None:
    """The lost one may be under way still."""
    fake.unsent.extend([lose, refusal])
    with pytest.raises(Problem) as raised:
        faked.put("k", 2)
    assert (raised.value.applied, raised.value.sends) == (applied, 2)


def test_after_a_lost_request_the_refusal_of_a_catalog_deletion_leaves_the_outcome_unknown(
    fake: FakeDocuments, faked: Catalog
) -> None:
    fake.unsent.extend([lose, refuse(412, "precondition_failed")])
    with pytest.raises(Problem) as raised:
        faked.delete_catalog()
    assert (raised.value.applied, raised.value.sends) == ("unknown", 2)


@pytest.mark.parametrize(
    ("mishap", "kind"),
    [
        (refuse(400, "invalid_patch"), BadRequest),
        (refuse(409, "test_failed"), Conflict),
        (refuse(412, "precondition_failed"), PreconditionFailed),
        (refuse(401, "unauthenticated", retryable=True), NotAuthorized),
        (refuse(403, "forbidden", retryable=True), NotAuthorized),
        (refuse(500, "internal_error", applied="unknown"), Problem),
    ],
)
def test_a_final_refusal_is_not_retried(
    fake: FakeDocuments, faked: Catalog, mishap: Any, kind: type[Problem]
) -> None:
    fake.unsent.append(mishap)
    with pytest.raises(kind) as raised:
        faked.put("k", 2)
    assert raised.value.sends == len(fake.sent) == 1
    assert fake.pauses == []


def test_pauses_grow_are_random_and_respect_retry_after() -> None:
    luck = iter([1.0, 0.0, 0.5, 1.0, 1.0])
    retry = Retry(first_s=1, longest_s=4, luck=lambda: next(luck))
    busy = Busy(429, {"retryable": True}, retry_after_s=3)
    assert [retry.pause_s(n) for n in (1, 2, 3)] == [1.0, 0.0, 2.0]
    assert retry.pause_s(100) == 4.0
    assert retry.pause_s(1, busy) == 4.0


def test_at_the_deadline_the_last_error_is_raised(fake: FakeDocuments) -> None:
    catalog = with_retry(fake, first_s=1, longest_s=1, retries_max=999)
    fake.unsent.extend([BUSY] * 100)
    with pytest.raises(Busy) as raised:
        catalog.put("k", 2, timeout_s=10)
    assert fake.pauses == [3.0] * 3
    assert (raised.value.sends, raised.value.applied) == (4, "no")


def test_the_gateway_gets_the_deadline(fake: FakeDocuments) -> None:
    catalog = with_retry(fake, first_s=2, longest_s=2)
    fake.unsent.extend([AWAY, AWAY])
    catalog.put("k", 2, timeout_s=10)
    assert [headers["Prefer"] for headers in writes(fake)] == ["wait=1", "wait=2", "wait=4"]
    catalog.put("k", 3, timeout_s=10, wait_s=4)
    assert writes(fake)[-1]["Prefer"] == "wait=4"
    catalog = with_retry(fake, first_s=2, longest_s=2, answer_s=None)
    fake.unsent.extend([AWAY, AWAY])
    catalog.put("k", 4, timeout_s=10)
    told = [headers["Prefer"] for headers in writes(fake)[-3:]]
    assert told == ["wait=9", "wait=7", "wait=5"]  # it answers before it is given up


class Silent:
    """A transport whose answers never come; each costs all the time that it may on the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timeouts: list[float] = []

    def request(self, method: str, path: str, *, read_timeout_s: float, **_: Any) -> HttpAnswer:
        self.now += read_timeout_s
        self.timeouts.append(read_timeout_s)
        raise Unreachable(f"{method} {path}: timed out", applied="unknown")

    def calls(self, **options: Any) -> CallSender:
        retry = Retry(first_s=0, luck=lambda: 0.0, clock=lambda: self.now, **options)
        return CallSender(cast(Transport, self), retry, 30.0)


def ask(calls: CallSender, path: str, **given: Any) -> HttpAnswer:
    return calls.run(calls.get(path, **given))


def put(calls: CallSender, **terms: Unpack[WriteTerms]) -> HttpAnswer:
    plan = calls.write("PUT", "/v1/catalogs/c", "/documents/k", terms, brief=True)
    return calls.run(plan)


@pytest.mark.parametrize("timeout_s", [0.5, 3.0, 30.0])
@pytest.mark.parametrize("answer_s", [1.0, None])
def test_a_call_takes_no_longer_than_its_timeout(timeout_s: float, answer_s: float | None) -> None:
    """Once, a call took 2 s more for the answer, and another 10 s to ask for the outcome."""
    silent = Silent()
    calls = silent.calls(answer_s=answer_s)
    with pytest.raises(Unreachable) as raised:
        put(calls, timeout_s=timeout_s)
    assert raised.value.applied == "unknown"
    assert silent.now <= timeout_s + 0.1
    with pytest.raises(Unreachable):
        ask(calls, "/v1/catalogs/c/documents/k", timeout_s=timeout_s, brief=True)
    assert silent.now <= 2 * (timeout_s + 0.1)


def test_each_try_gets_only_a_part_of_the_timeout() -> None:
    silent = Silent()
    with pytest.raises(Unreachable):
        ask(silent.calls(), "/v1/catalogs/c/documents/k", timeout_s=10, brief=True)
    assert silent.timeouts == [1.0, 2.0, 4.0, 3.0]
    silent = Silent()
    with pytest.raises(Unreachable):
        ask(silent.calls(retries_max=1), "/v1/catalogs/c/documents/k", timeout_s=10, brief=True)
    assert silent.timeouts == [1.0, 9.0]
    silent = Silent()
    with pytest.raises(Unreachable):  # what may take long, and what may not be sent again
        ask(silent.calls(), "/v1/catalogs/c/commits", timeout_s=10)
    assert silent.timeouts == [10.0]


class Slow(Silent):
    """Each answer takes ``took_s``."""

    took_s = 3.0

    def request(self, *asked: Any, read_timeout_s: float, **more: Any) -> HttpAnswer:
        if read_timeout_s < self.took_s:
            return super().request(*asked, read_timeout_s=read_timeout_s, **more)
        self.timeouts.append(read_timeout_s)
        self.now += self.took_s
        return HttpAnswer(200, {}, b"{}")


def test_a_slow_gateway_gets_enough_time_at_the_first_try() -> None:
    """Otherwise, its clients would give up and send everything again, each time."""
    slow = Slow()
    calls = slow.calls()
    for _ in range(2):
        put(calls)
    assert slow.timeouts == [1.5, 2.5, 4.5, 6.5]
    ask(calls, "/v1/catalogs/c/documents/k", brief=True)  # reads may be faster
    assert slow.timeouts[4:] == [1.0, 2.0, 4.0]
    slow.took_s = 0.1
    for _ in range(20):
        put(calls)
    assert slow.timeouts[-1] == 1.5


def test_a_lost_answer_costs_one_try(fake: FakeDocuments) -> None:
    release = threading.Event()
    with fake.opens(fake.url, timeout_s=WAIT_S, retry=Retry(answer_s=0.2)) as gateway:
        catalog = gateway.catalog("c")
        fake.unsent.append(lambda: release.wait(WAIT_S))
        assert catalog.get("k").value is not None
        fake.unsent.append(lambda: release.wait(WAIT_S))
        assert catalog.put("k", 2).changed
    release.set()


def test_the_error_has_the_idempotency_key(fake: FakeDocuments) -> None:
    catalog = with_retry(fake, retries_max=1)
    fake.unsent.extend([lose, lose])
    with pytest.raises(Unreachable) as raised:
        catalog.put("k", 2)
    assert raised.value.idempotency_key == writes(fake)[-1]["Idempotency-Key"]
    fake.unsent.append(refuse(409, "test_failed"))
    with pytest.raises(Conflict) as refused:
        catalog.put("k", 2, idempotency_key="mine")
    assert refused.value.idempotency_key == "mine"
    with pytest.raises(NotFound) as read:
        catalog.get("absent")
    assert read.value.idempotency_key is None


def test_a_failed_connection_shows_one_traceback(fake: FakeDocuments) -> None:
    catalog = with_retry(fake, retries_max=0)
    fake.unsent.extend([lose])
    with pytest.raises(Unreachable) as raised:
        catalog.get("k")
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.count("Traceback") == 1


def test_a_call_without_an_answer_ends_at_the_deadline(fake: FakeDocuments) -> None:
    release = threading.Event()
    with fake.opens(fake.url, timeout_s=0.2) as gateway:
        fake.unsent.append(lambda: release.wait(WAIT_S))
        with pytest.raises(Unreachable):
            gateway.catalog("c").get("k")
    release.set()


def test_a_hook_sees_each_retry_before_its_pause(fake: FakeDocuments) -> None:
    seen: list[RetryDetails] = []
    catalog = with_retry(fake, first_s=1, longest_s=1, on_retry=seen.append)
    fake.unsent.extend([AWAY, BUSY])
    catalog.put("k", 2)
    assert [(each.failures, each.pause_s) for each in seen] == [(1, 1.0), (2, 3.0)]
    assert [type(each.error) for each in seen] == [Unavailable, Busy]
    assert fake.pauses == [1.0, 3.0]


def test_former_names_of_retries_still_work_with_a_warning(fake: FakeDocuments) -> None:
    with pytest.warns(DeprecationWarning, match="sends_max is deprecated: use retries_max"):
        assert Retry(sends_max=3) == Retry(retries_max=2)
    with pytest.warns(DeprecationWarning, match=r"patching\.client\.Retry"):
        former = patching.client.Backoff
    with pytest.warns(DeprecationWarning, match="backoff is deprecated: use retry"):
        terms = BulkTerms(backoff=former(2, 8))
    assert terms == BulkTerms(retry=Retry(2, 8, retries_max=None))
    with pytest.warns(DeprecationWarning, match="retries_max is deprecated: use retry"):
        assert BulkTerms(retries_max=2) == BulkTerms(retry=Retry(retries_max=2))
    catalog = with_retry(fake)
    with pytest.warns(DeprecationWarning, match="tries_max is deprecated"):
        assert catalog.update("k", lambda _: 2, tries_max=1).tries == 1
    with pytest.warns(DeprecationWarning, match="backoff is deprecated"):
        Follower("http://localhost:9", "c", backoff=Retry(2))


@pytest.mark.parametrize(
    "use",
    [
        lambda: Retry(sends_max=3),
        lambda: BulkTerms(retries_max=3),
        lambda: Follower("http://localhost:9", "c", backoff=Retry()),
        lambda: patching.client.Backoff,
    ],
)
def test_a_warning_of_a_former_name_shows_the_line_that_has_it(use: Callable[[], object]) -> None:
    with pytest.warns(DeprecationWarning, match="deprecated") as warned:
        use()
    assert {each.filename for each in warned} == {__file__}
