"""What is sent again, how often and after which pause, and what is said in the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from patching.client import (
    BadRequest,
    Busy,
    Catalog,
    Conflict,
    Gateway,
    NotAuthorized,
    OutcomeUnknown,
    PreconditionFailed,
    Problem,
    RequestError,
    Retry,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    UpdateFailed,
)
from tests.client.fake_documents import FakeDocuments, fine, lose, refuse
from tests.client.fake_gateway import Refused, Reply

BUSY = refuse(429, "queue_full", retryable=True, retry_after_s=2)
AWAY = refuse(503, "store_unavailable", retryable=True)
UNKNOWN = refuse(504, "outcome_unknown", applied="unknown")


@pytest.fixture
def fake() -> Iterator[FakeDocuments]:
    with FakeDocuments() as running:
        running.put(k={"n": 1})
        yield running


def retry(fake: FakeDocuments, **options: Any) -> Retry:
    """Pauses take no time, and each is the longest that it can be."""
    return Retry(**{"luck": lambda: 1.0, "clock": fake.clock, "sleep": fake.sleep, **options})


@pytest.fixture
def catalog(fake: FakeDocuments) -> Iterator[Catalog]:
    with Gateway(fake.url, retry=retry(fake)) as gateway:
        yield gateway.catalog("c")


def with_retry(fake: FakeDocuments, **options: Any) -> Catalog:
    return Gateway(fake.url, retry=retry(fake, **options)).catalog("c")


def writes(fake: FakeDocuments) -> list[dict[str, str]]:
    """The headers of each."""
    return [headers for method, headers in fake.sent if not method.startswith("GET")]


@pytest.mark.parametrize("mishap", [BUSY, AWAY, lose])
def test_what_is_retryable_is_sent_again(
    fake: FakeDocuments, catalog: Catalog, mishap: Any
) -> None:
    fake.unsent.extend([mishap, mishap])
    assert catalog.put("k", 2).revision == 2
    assert len(writes(fake)) == 3
    fake.unsent.extend([mishap, mishap])
    assert catalog.get("k").value == 2
    assert fake.head == 2


@pytest.mark.parametrize("mishap", [lose, UNKNOWN])
def test_a_lost_answer_is_told_when_it_is_asked_for_again(
    fake: FakeDocuments, catalog: Catalog, mishap: Any
) -> None:
    fake.lost.extend([mishap, mishap])
    written = catalog.patch("k", [{"op": "add", "path": "/m", "value": 1}])
    assert (written.revision, written.replayed) == (2, True)
    assert fake.head == 2
    assert len({headers["Idempotency-Key"] for headers in writes(fake)}) == 1


def test_what_is_sent_again_has_the_same_conditions(fake: FakeDocuments, catalog: Catalog) -> None:
    """A precondition that got lost on the second try would overwrite what others did."""
    fake.unsent.extend([AWAY, lose])
    fake.lost.append(lose)
    catalog.put("k", 2, if_match="1", message="m")
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


def test_an_unknown_outcome_is_asked_for_where_nothing_may_be_sent_again(
    fake: FakeDocuments,
) -> None:
    catalog = with_retry(fake, sends_max=1)
    fake.lost.append(UNKNOWN)
    written = catalog.put("k", 2, idempotency_key="mine")
    assert (written.revision, written.replayed, fake.head) == (2, True, 2)
    assert [method for method, _ in fake.sent] == ["PUT", "GET outcomes", "PUT"]


def test_an_unknown_outcome_that_nobody_knows_stays_unknown(fake: FakeDocuments) -> None:
    """That there is no commit yet doesn't say that there will be none."""
    catalog = with_retry(fake, sends_max=2)
    fake.unsent.extend([UNKNOWN, AWAY])
    with pytest.raises(Unavailable) as raised:
        catalog.put("k", 2)
    assert (raised.value.applied, raised.value.sends) == ("unknown", 2)
    assert [method for method, _ in fake.sent] == ["PUT", "PUT", "GET outcomes"]
    assert fake.head == 1


@pytest.mark.parametrize(
    ("refusal", "if_match", "applied"),
    [
        (refuse(409, "test_failed"), None, "unknown"),
        (refuse(412, "precondition_failed"), "*", "unknown"),
        (refuse(412, "precondition_failed"), "a=1;b=absent", "unknown"),
        (refuse(412, "precondition_failed"), "1", "no"),
        (refuse(412, "precondition_failed"), "a=1;b=2", "no"),
        (refuse(400, "invalid_patch"), None, "no"),
    ],
)
def test_a_refusal_says_unknown_where_a_lost_request_may_fare_better(
    fake: FakeDocuments, catalog: Catalog, refusal: Any, if_match: str | None, applied: str
) -> None:
    """The lost one may be under way still: only what stays false binds it, too."""
    fake.unsent.extend([lose, refusal])
    with pytest.raises(Problem) as raised:
        catalog.put("k", 2, if_match=if_match)
    assert (raised.value.applied, raised.value.sends) == (applied, 2)


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
def test_what_is_refused_for_good_is_sent_once(
    fake: FakeDocuments, catalog: Catalog, mishap: Any, kind: type[Problem]
) -> None:
    fake.unsent.append(mishap)
    with pytest.raises(kind) as raised:
        catalog.put("k", 2)
    assert raised.value.sends == len(fake.sent) == 1
    assert fake.pauses == []


def test_pauses_grow_are_drawn_from_all_of_their_length_and_honour_retry_after() -> None:
    luck = iter([1.0, 0.0, 0.5, 1.0, 1.0])
    retry = Retry(first_s=1, longest_s=4, luck=lambda: next(luck))
    busy = Busy(429, {"retryable": True}, retry_after_s=3)
    assert [retry.pause_s(n) for n in (1, 2, 3)] == [1.0, 0.0, 2.0]
    assert retry.pause_s(100) == 4.0
    assert retry.pause_s(1, busy) == 4.0


def test_the_deadline_ends_it_with_the_last_error(fake: FakeDocuments) -> None:
    catalog = with_retry(fake, first_s=1, longest_s=1, sends_max=1000)
    fake.unsent.extend([BUSY] * 100)
    with pytest.raises(Busy) as raised:
        catalog.put("k", 2, timeout_s=10)
    assert fake.pauses == [3.0] * 3
    assert (raised.value.sends, raised.value.applied) == (4, "no")


def test_the_gateway_is_told_the_deadline(fake: FakeDocuments) -> None:
    catalog = with_retry(fake, first_s=2, longest_s=2)
    fake.unsent.extend([AWAY, AWAY])
    catalog.put("k", 2, timeout_s=10)
    assert [headers["Prefer"] for headers in writes(fake)] == ["wait=10", "wait=8", "wait=6"]
    catalog.put("k", 3, timeout_s=10, wait_s=4)
    assert writes(fake)[-1]["Prefer"] == "wait=4"


def test_an_answer_that_does_not_come_ends_at_the_deadline(fake: FakeDocuments) -> None:
    release = threading.Event()
    with Gateway(fake.url, timeout_s=0.2) as gateway:
        fake.unsent.append(lambda: release.wait(30))
        with pytest.raises(Unreachable):
            gateway.catalog("c").get("k")
    release.set()


def test_an_update_is_done_again_on_what_others_left(fake: FakeDocuments, catalog: Catalog) -> None:
    seen: list[Any] = []

    def raise_n(value: Any) -> Any:
        seen.append(dict(value))
        if len(seen) < 3:
            fake.put(k={"n": value["n"] + 10})
        value["n"] += 1
        return value

    updated = catalog.update("k", raise_n)
    assert seen == [{"n": 1}, {"n": 11}, {"n": 21}]
    assert (updated.value, updated.tries, updated.changed) == ({"n": 22}, 3, True)
    assert fake.documents()["k"] == {"n": 22}
    assert len(fake.pauses) == 2


def test_an_update_ends_after_so_many_tries_or_at_its_deadline(
    fake: FakeDocuments, catalog: Catalog
) -> None:
    def race(value: Any) -> Any:
        fake.put(k={"n": value["n"] + 1})
        return {}

    with pytest.raises(UpdateFailed) as raised:
        catalog.update("k", race, tries_max=3)
    assert raised.value.tries == 3
    assert isinstance(raised.value.__cause__, PreconditionFailed)
    with pytest.raises(UpdateFailed):
        catalog.update("k", race, tries_max=10**9, timeout_s=5)
    assert fake.now <= 6
    assert fake.documents()["k"]["n"] > 4


def test_an_update_whose_answer_was_lost_is_not_done_twice(
    fake: FakeDocuments, catalog: Catalog
) -> None:
    fake.lost.append(lose)
    updated = catalog.update("k", lambda value: {"n": value["n"] + 1})
    assert (updated.value, fake.documents()["k"], updated.tries) == ({"n": 2}, {"n": 2}, 1)


def test_redirects_are_not_followed_and_the_token_goes_nowhere_else(
    fake: FakeDocuments, elsewhere: list[dict[str, str]], other_url: str
) -> None:
    location = {"Location": f"{other_url}/v1/catalogs/c/documents/k"}
    fake.answer = lambda *_: Reply(307, {}, location)  # type: ignore[method-assign]
    with Gateway(fake.url, token="gwt_secret", retry=retry(fake)) as gateway:
        catalog = gateway.catalog("c")
        for ask in (lambda: catalog.get("k"), lambda: catalog.put("k", 1)):
            with pytest.raises(UnexpectedAnswer):
                ask()
    assert elsewhere == []


def test_the_token_is_in_no_repr_and_no_error(
    fake: FakeDocuments, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    token = "gwt_abc_verysecret"
    with Gateway(fake.url, token=token, retry=retry(fake, sends_max=2)) as gateway:
        catalog = gateway.catalog("c")
        shown = [repr(gateway), repr(catalog), repr(catalog.put("k", 2))]
        fake.unsent.extend([lose, lose, refuse(401, "unauthenticated")])
        for _ in range(2):
            with pytest.raises(RequestError) as raised:
                catalog.get("k")
            shown += [repr(raised.value), str(raised.value), repr(vars(raised.value))]
    assert fake.sent[0][1]["Authorization"] == f"Bearer {token}"
    with Gateway(fake.url, token=f"{token}\nX: y") as gateway:
        with pytest.raises(ValueError, match="token") as refused:
            gateway.catalog("c").get("k")
        shown.append(str(refused.value))
    with pytest.raises(ValueError, match="credentials") as named:
        Gateway("http://me:verysecret@localhost")
    shown.append(str(named.value))
    assert "verysecret" not in "".join(shown) + caplog.text


def test_an_export_that_breaks_off_says_so(fake: FakeDocuments, catalog: Catalog) -> None:
    fake.unsent.append(AWAY)
    with catalog.export() as export:
        assert dict(export) == {"k": {"n": 1}}

    whole = b'{"resource_version":1,"metadata":{"a":1,\n"b":{"c":2},\n"d":3}}'
    for end in (len(whole) - 1, len(whole) - 8, 40):
        fake.before = _broken_off(whole[:end], str(len(whole)))
        with catalog.export() as export, pytest.raises(Unreachable) as raised:
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


def test_a_feed_goes_on_where_it_was_after_failures(fake: FakeDocuments, catalog: Catalog) -> None:
    fake.put(k=2)
    seen = []
    with catalog.changes(0, poll_s=1) as feed:
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


def test_a_feed_ends_by_what_does_not_pass_and_after_an_outage(
    fake: FakeDocuments, catalog: Catalog
) -> None:
    fake.unsent.append(refuse(410, "revision_compacted"))
    with pytest.raises(Problem, match="revision_compacted"):
        next(catalog.changes(0))
    fake.unsent.extend([AWAY] * 100)
    with pytest.raises(Unavailable):
        next(catalog.changes(0, outage_s=0))


def test_closing_a_feed_ends_the_loop_that_waits(
    fake: FakeDocuments, catalog: Catalog, eventually: Any
) -> None:
    feed = catalog.changes(1)
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.extend(each.revision for each in feed))
    reader.start()
    eventually(lambda: any(each.startswith("GET changes") for each in fake.requests))
    feed.close()
    reader.join(10)
    assert not reader.is_alive()
    assert seen == []


@pytest.fixture
def elsewhere() -> list[dict[str, str]]:
    """The headers of what another server was asked."""
    return []


@pytest.fixture
def other_url(elsewhere: list[dict[str, str]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            elsewhere.append(dict(self.headers))
            self.send_response(200)
            self.end_headers()

        do_PUT = do_GET  # noqa: N815 - the name that http.server calls

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
