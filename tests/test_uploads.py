"""What an upload remembers: the document as it was, however its condition put it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from gateway.access import Principal
from gateway.access.principal import ANONYMOUS
from gateway.decide.conditions import ANY_TAG, NO_CONDITIONS, CatalogTag, Composite, Preconditions
from gateway.decide.edits import Delete, EditAttributes, Put
from gateway.decide.request import Applied, Unchanged
from gateway.errors import (
    AboveLimit,
    ConditionFailed,
    ConditionRequired,
    StoreUnavailable,
    TooManyUploads,
    UploadCommitted,
    UploadConflict,
    UploadIncomplete,
    UploadNotFound,
)
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.model import SETTINGS_KEY, Attributes, DocumentRecord
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable, UploadPart, UploadRecord, WriteRejected
from gateway.uploads import OpenUpload
from tests.memory_store import MemoryStore, MemoryUploads
from tests.retention.history_checks import wait_until_written
from tests.without_http import SetClock, applied, content_of, document, put

ME = Principal("me", ())
BOB, EVE, JOE = (Principal(name, ()) for name in ("bob", "eve", "joe"))


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def staged(store: MemoryStore) -> MemoryUploads:
    return store.uploads()


@pytest.fixture
def gateway(clock: SetClock, store: MemoryStore) -> GatewayService:
    limits = ServiceLimits(upload_bytes_max=20, upload_expiry_s=60)
    return GatewayService(store, clock, limits)


def opened(
    gateway: GatewayService,
    conditions: Preconditions = NO_CONDITIONS,
    attributes: Attributes | None = None,
    content: bytes = b"2",
) -> OpenUpload:
    """An upload with one part."""
    upload = gateway.uploads.open("c", "k", ME, conditions, attributes).upload
    gateway.uploads.put_part(gateway.uploads.find("c", upload.id, ME), 1, content)
    return gateway.uploads.find("c", upload.id, ME)


def write(gateway: GatewayService, value: int) -> str:
    after = applied(gateway.write("c", "k", put(value)).outcome).document
    assert after is not None
    return after.token


def now(gateway: GatewayService) -> DocumentRecord | None:
    return gateway.read("c", "k").document


def commit(gateway: GatewayService, upload: OpenUpload, value: int = 2) -> object:
    return gateway.uploads.commit(upload, value, 1, sent_bytes=1).outcome


def earlier(gateway: GatewayService, upload: OpenUpload) -> Applied:
    found = gateway.uploads.find("c", upload.upload.id, ME)
    assert found.done is not None
    return applied(found.done.outcome)


def matching(*tags: str) -> Preconditions:
    return Preconditions(if_match=frozenset(tags))


ANY = Preconditions(if_match=ANY_TAG)
ABSENT = Preconditions(if_none_match=ANY_TAG)


def _again(gateway: GatewayService) -> None:
    gateway.write("c", "k", Delete())
    write(gateway, 1)


MEANWHILE: dict[str, Callable[[GatewayService], object]] = {
    "changed": lambda g: write(g, 5),
    "deleted": lambda g: g.write("c", "k", Delete()),
    "deleted and made again": _again,
    "attributes changed": lambda g: g.write("c", "k", EditAttributes(put({"a": 1}))),
}
OPENED_UNDER: dict[str, Callable[[str], Preconditions]] = {
    "a token": matching,
    "*": lambda _: ANY,
    "a list": lambda token: matching("0-x", token),
    "another's token": lambda _: Preconditions(if_match=frozenset({Composite((("other", None),))})),
    "none of these tokens": lambda _: Preconditions(if_none_match=frozenset({"0-x"})),
    "the catalog's revision": lambda token: Preconditions(
        if_match=frozenset({CatalogTag(int(token.partition("-")[0], 16))})
    ),
}


@pytest.mark.parametrize("condition", OPENED_UNDER)
@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_an_upload_opened_under_a_condition_never_replaces_another_state(
    gateway: GatewayService, condition: str, meanwhile: str
) -> None:
    upload = opened(gateway, OPENED_UNDER[condition](write(gateway, 1)))
    MEANWHILE[meanwhile](gateway)
    before = now(gateway)
    with pytest.raises(UploadConflict) as caught:
        commit(gateway, upload)
    assert now(gateway) == before
    if before is not None and before.exists:
        assert caught.value.conflict.current == (before.token, before.revision)
    assert gateway.uploads.find("c", upload.upload.id, ME).parts == upload.parts


@pytest.mark.parametrize("condition", OPENED_UNDER)
def test_an_upload_whose_condition_is_still_true_replaces(
    gateway: GatewayService, condition: str
) -> None:
    upload = opened(gateway, OPENED_UNDER[condition](write(gateway, 1)))
    applied(commit(gateway, upload))


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_an_upload_opened_without_a_condition_replaces_any_state(
    gateway: GatewayService, meanwhile: str
) -> None:
    write(gateway, 1)
    upload = opened(gateway)
    MEANWHILE[meanwhile](gateway)
    applied(commit(gateway, upload))


def test_create_only_conflicts_if_somebody_else_created_the_document(
    gateway: GatewayService,
) -> None:
    upload = opened(gateway, ABSENT)
    write(gateway, 1)
    with pytest.raises(UploadConflict):
        commit(gateway, upload)
    gateway.write("c", "k", Delete())
    applied(commit(gateway, upload))


@pytest.mark.parametrize("conditions", [matching("0-x"), ABSENT])
def test_a_false_condition_opens_no_upload(
    gateway: GatewayService, conditions: Preconditions
) -> None:
    write(gateway, 1)
    with pytest.raises(ConditionFailed) as caught:
        opened(gateway, conditions)
    assert not isinstance(caught.value, UploadConflict)


def test_a_conflict_names_every_document_that_has_changed(gateway: GatewayService) -> None:
    token = write(gateway, 1)
    other = Composite((("other", None), ("k", token)))
    upload = opened(gateway, Preconditions(if_match=frozenset({other})))
    gateway.write("c", "other", put(1))
    with pytest.raises(UploadConflict) as caught:
        commit(gateway, upload)
    assert [each.key for each in caught.value.conflict.stale] == ["other"]


def test_pinned_conditions_are_about_that_document_only() -> None:
    then = document({}, revision=5)
    other = Composite((("other", "3-a"),))
    tags = frozenset({"0-x", then.token, other, CatalogTag(7)})
    assert Preconditions(if_match=tags).pinned("k", then).if_match == {
        then.token,
        Composite((("other", "3-a"), ("k", then.token))),
        CatalogTag(7),
    }
    none_match = frozenset({other})
    kept = Preconditions(if_none_match=none_match).pinned("k", None)
    assert kept == Preconditions(if_none_match=none_match | ANY_TAG)


def test_the_pinned_conditions_survive_the_process(gateway: GatewayService) -> None:
    token = write(gateway, 1)
    revision = int(token.partition("-")[0], 16)
    tags = frozenset({token, Composite((("a", None), ("b", "3-x"))), CatalogTag(revision)})
    asked = Preconditions(if_match=tags, if_none_match=frozenset({"9-x"}))
    upload = gateway.uploads.open("c", "k", ME, asked, {"a": 1})
    found = gateway.uploads.find("c", upload.upload.id, ME)
    assert (found.conditions, found.attributes) == (upload.conditions, {"a": 1})


@pytest.mark.parametrize(("asked", "left"), [(None, {"a": 1}), ({}, None), ({"b": 2}, {"b": 2})])
def test_attributes_are_kept_cleared_or_replaced(
    gateway: GatewayService, asked: Attributes | None, left: Attributes | None
) -> None:
    gateway.write("c", "k", Put(1, 1, {"a": 1}))
    commit(gateway, opened(gateway, ANY, asked))
    after = now(gateway)
    assert after is not None
    assert (after.content, after.attributes) == (2, left)


def test_attributes_that_are_too_large_open_nothing(gateway: GatewayService) -> None:
    with pytest.raises(AboveLimit, match="attributes"):
        opened(gateway, attributes={"a": "x" * 70_000})


def test_a_repeated_commit_returns_the_first_result(
    gateway: GatewayService,
) -> None:
    upload = opened(gateway)
    first = applied(commit(gateway, upload))
    write(gateway, 7)
    again = earlier(gateway, upload)
    assert (again.commit, again.replayed) == (first.commit, True)
    # One that passed the look above, and met the first.
    assert applied(commit(gateway, upload, 3)).replayed
    assert content_of(gateway) == 7


def test_a_committed_upload_has_no_parts_and_accepts_none(gateway: GatewayService) -> None:
    upload = opened(gateway)
    outcome = applied(commit(gateway, upload))
    found = gateway.uploads.find("c", upload.upload.id, ME)
    assert (found.parts, found.committed) == ((), outcome.commit.revision)
    with pytest.raises(UploadCommitted):
        gateway.uploads.put_part(found, 1, b"1")


def test_a_dry_run_keeps_the_parts(gateway: GatewayService) -> None:
    write(gateway, 2)
    upload = opened(gateway)
    tried = gateway.uploads.commit(upload, 3, 1, sent_bytes=1, dry_run=True).outcome
    assert isinstance(tried, Unchanged)
    assert tried.would_change
    assert gateway.uploads.find("c", upload.upload.id, ME).parts == upload.parts


def test_a_commit_that_changes_nothing_is_decided_once(gateway: GatewayService) -> None:
    write(gateway, 2)
    upload = opened(gateway)
    assert isinstance(commit(gateway, upload), Unchanged)
    tried = gateway.uploads.commit(upload, 3, 1, sent_bytes=1, dry_run=True).outcome
    assert isinstance(tried, Unchanged)
    assert (tried.would_change, tried.replayed) == (False, True)


def test_a_commit_refused_by_the_catalog_keeps_the_parts(gateway: GatewayService) -> None:
    upload = opened(gateway)
    gateway.write("c", SETTINGS_KEY, put({"require_precondition": True}))
    with pytest.raises(ConditionRequired):
        commit(gateway, upload)
    assert gateway.uploads.find("c", upload.upload.id, ME).parts == upload.parts
    with pytest.raises(ConditionRequired):
        gateway.uploads.open("c", "k", ME, NO_CONDITIONS, None)
    assert opened(gateway, ABSENT).parts


def test_parts_are_put_together_by_number(gateway: GatewayService) -> None:
    upload = opened(gateway, content=b"bb")
    for number, content in ((10, b"d"), (2, b"c"), (1, b"a")):
        upload = gateway.uploads.find("c", upload.upload.id, ME)
        gateway.uploads.put_part(upload, number, content)
    upload = gateway.uploads.find("c", upload.upload.id, ME)
    assert gateway.uploads.content(upload, None) == b"acd"
    assert gateway.uploads.content(upload, [10, 1]) == b"ad"
    with pytest.raises(UploadIncomplete, match="part 3"):
        gateway.uploads.content(upload, [1, 3])


def test_an_upload_without_parts_is_incomplete(gateway: GatewayService) -> None:
    with pytest.raises(UploadIncomplete, match="no parts"):
        gateway.uploads.content(gateway.uploads.open("c", "k", ME, NO_CONDITIONS, None), None)


def test_parts_are_bounded_together(gateway: GatewayService) -> None:
    upload = opened(gateway, content=b"x" * 15)
    with pytest.raises(AboveLimit) as caught:
        gateway.uploads.put_part(upload, 2, b"x" * 6)
    assert (caught.value.limit, caught.value.actual) == ("upload_bytes_max", 21)
    gateway.uploads.put_part(upload, 1, b"x" * 20)  # replaced, not added
    with pytest.raises(AboveLimit):
        gateway.uploads.put_part(upload, 2, b"x")  # as one that raced with it
    assert gateway.uploads.content(gateway.uploads.find("c", upload.upload.id, ME), None)


@pytest.fixture
def bounded(clock: SetClock, store: MemoryStore) -> GatewayService:
    """Four uploads of 40 bytes in all."""
    limits = ServiceLimits(
        upload_bytes_max=40, upload_expiry_s=60, uploads_max=4, uploads_bytes_max=40
    )
    return GatewayService(store, clock, limits)


def begin(gateway: GatewayService, by: Principal, catalog: str = "c") -> OpenUpload:
    return gateway.uploads.open(catalog, "k", by, NO_CONDITIONS, None)


def test_open_uploads_are_bounded_and_leave_room_to_others(
    bounded: GatewayService, clock: SetClock
) -> None:
    mine = [begin(bounded, ME, f"c{number}") for number in range(2)]
    with pytest.raises(TooManyUploads, match=r"principal 'me' .* \(uploads_max\)"):
        begin(bounded, ME, "another")
    begin(bounded, BOB)
    with pytest.raises(TooManyUploads, match="principal 'bob'"):
        begin(bounded, BOB)
    begin(bounded, EVE)
    with pytest.raises(TooManyUploads, match="limited to 4 in all"):
        begin(bounded, JOE)
    bounded.uploads.drop("c0", mine[0].upload.id, ME)
    begin(bounded, JOE)
    clock.passed_s += 61
    begin(bounded, ME)


def test_a_committed_upload_frees_its_room(bounded: GatewayService) -> None:
    for number in range(6):
        upload = begin(bounded, ME)
        bounded.uploads.put_part(upload, 1, b"x" * 20)
        applied(bounded.uploads.commit(upload, number, 1, sent_bytes=20).outcome)
    begin(bounded, ME)


def test_parts_of_all_uploads_are_bounded_and_leave_room_to_others(bounded: GatewayService) -> None:
    first, second = begin(bounded, ME), begin(bounded, ME)
    bounded.uploads.put_part(first, 1, b"x" * 15)
    with pytest.raises(TooManyUploads, match=r"principal 'me' .* \(uploads_bytes_max\)"):
        bounded.uploads.put_part(second, 1, b"x" * 11)
    bounded.uploads.put_part(second, 1, b"x" * 10)
    # What is there may be put again, and bob's goes beside it.
    bounded.uploads.put_part(bounded.uploads.find("c", first.upload.id, ME), 1, b"y" * 15)
    bobs = begin(bounded, BOB)
    bounded.uploads.put_part(bobs, 1, b"x" * 10)
    with pytest.raises(TooManyUploads):
        bounded.uploads.put_part(bobs, 2, b"x")
    bounded.uploads.drop("c", first.upload.id, ME)
    bounded.uploads.put_part(bobs, 2, b"x")


def test_without_access_control_uploads_have_no_shares(
    bounded: GatewayService,
) -> None:
    for _ in range(4):
        upload = begin(bounded, ANONYMOUS)
        bounded.uploads.put_part(upload, 1, b"x" * 10)
    with pytest.raises(TooManyUploads):
        begin(bounded, ANONYMOUS)
    with pytest.raises(TooManyUploads):
        bounded.uploads.put_part(upload, 2, b"x")


def test_a_part_of_an_upload_that_was_dropped_is_not_kept(bounded: GatewayService) -> None:
    upload = begin(bounded, ME)
    bounded.uploads.drop("c", upload.upload.id, ME)
    with pytest.raises(UploadNotFound):
        bounded.uploads.put_part(upload, 1, b"x")


def test_an_upload_expires(gateway: GatewayService, clock: SetClock) -> None:
    upload = opened(gateway)
    clock.passed_s = 59
    gateway.uploads.find("c", upload.upload.id, ME)
    clock.passed_s = 60
    with pytest.raises(UploadNotFound):
        gateway.uploads.find("c", upload.upload.id, ME)


def test_an_upload_is_visible_only_to_the_principal_that_opened_it(gateway: GatewayService) -> None:
    upload = opened(gateway)
    for catalog, principal in (("c", Principal("other", ())), ("other", ME)):
        gateway.uploads.drop(catalog, upload.upload.id, principal)
        with pytest.raises(UploadNotFound):
            gateway.uploads.find(catalog, upload.upload.id, principal)
    gateway.uploads.find("c", upload.upload.id, ME)
    gateway.uploads.drop("c", upload.upload.id, ME)
    gateway.uploads.drop("c", upload.upload.id, ME)
    with pytest.raises(UploadNotFound):
        gateway.uploads.find("c", upload.upload.id, ME)


def test_a_committed_upload_is_remembered_until_it_expires(
    clock: SetClock, store: MemoryStore
) -> None:
    """Even if other replies are kept for a shorter time, and the note in the upload was lost."""
    limits = ServiceLimits(upload_expiry_s=60, retention=RetentionLimits(idempotency_s=1))
    gateway = GatewayService(store, clock, limits)
    upload = opened(gateway)
    applied(commit(gateway, upload))
    write(gateway, 5)
    clock.passed_s += 30
    write(gateway, 6)
    gateway.retention.compact("c", 3)
    assert earlier(gateway, upload).commit.revision == 1


@pytest.mark.parametrize("value", [2, 3])  # 2 is there already
@pytest.mark.parametrize("step", ["end_upload", "drop_parts"])
def test_leftovers_of_a_committed_upload_of_a_dead_worker_are_cleaned_up(
    bounded: GatewayService,
    staged: MemoryUploads,
    monkeypatch: pytest.MonkeyPatch,
    value: int,
    step: str,
) -> None:
    """It then takes no more parts, which nobody would commit, and no room."""
    revision = int(write(bounded, 2).partition("-")[0], 16) + (value != 2)
    upload = begin(bounded, ME)
    bounded.uploads.put_part(upload, 1, b"x" * 20)
    upload = bounded.uploads.find("c", upload.upload.id, ME)

    def die(_: UploadRecord) -> None:
        raise StoreUnreachable("killed")

    with monkeypatch.context() as killed:
        killed.setattr(staged, step, die)
        commit(bounded, upload, value)
    assert staged.parts(upload.upload)
    found = bounded.uploads.find("c", upload.upload.id, ME)
    assert (found.committed, found.parts) == (revision, ())
    with pytest.raises(UploadCommitted):
        bounded.uploads.put_part(found, 1, b"1")
    assert not staged.parts(upload.upload)
    bounded.uploads.put_part(begin(bounded, ME), 1, b"x" * 20)


@pytest.mark.parametrize("left", [{1}, {2}, set()])
def test_a_commit_during_a_drop_does_not_commit_an_incomplete_upload(
    gateway: GatewayService, staged: MemoryUploads, monkeypatch: pytest.MonkeyPatch, left: set[int]
) -> None:
    """A client that gives up drops it, while its commit may still be under way."""
    upload = opened(gateway, content=b"1").upload
    gateway.uploads.put_part(gateway.uploads.find("c", upload.id, ME), 2, b"2")
    listed = staged.parts

    def amid_the_drop(of: UploadRecord) -> Sequence[UploadPart]:
        staged._uploads.pop((of.catalog, of.id), None)
        for number in {1, 2} - left:
            staged._parts[of.catalog, of.id].pop(number, None)
        return listed(of)

    monkeypatch.setattr(staged, "parts", amid_the_drop)
    with pytest.raises(UploadNotFound):
        gateway.uploads.content(gateway.uploads.find("c", upload.id, ME), None)


def test_a_commit_during_another_commit_does_not_commit_an_incomplete_upload(
    gateway: GatewayService, staged: MemoryUploads
) -> None:
    upload = opened(gateway)
    found = gateway.uploads.find("c", upload.upload.id, ME)
    committed = gateway.uploads.commit(upload, 2, 1, sent_bytes=1)
    assert applied(committed.outcome)
    assert not staged.parts(upload.upload)
    with pytest.raises(UploadCommitted):
        gateway.uploads.content(found, None)
    assert earlier(gateway, upload).replayed


def test_a_commit_that_changed_nothing_is_remembered_until_the_upload_expires(
    clock: SetClock, store: MemoryStore, staged: MemoryUploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its end couldn't be noted, and keys are remembered for less."""
    limits = ServiceLimits(upload_expiry_s=3600, retention=RetentionLimits(idempotency_s=60))
    gateway = GatewayService(store, clock, limits)
    write(gateway, 2)
    upload = opened(gateway)

    def lose(_: UploadRecord) -> None:
        raise StoreUnreachable("killed")

    with monkeypatch.context() as killed:
        killed.setattr(staged, "end_upload", lose)
        assert isinstance(commit(gateway, upload), Unchanged)
    for number in (4, 5):  # the verdict is written out, and out of the head
        write(gateway, number)
        wait_until_written(gateway)
    clock.passed_s = 600
    store.expire_verdicts(clock.now_us())
    later = GatewayService(store, clock, limits)
    assert isinstance(commit(later, later.uploads.find("c", upload.upload.id, ME)), Unchanged)
    assert content_of(later) == 5


def test_a_part_sent_after_the_commit_is_refused(gateway: GatewayService) -> None:
    upload = opened(gateway)
    commit(gateway, upload)
    with pytest.raises(UploadCommitted):
        gateway.uploads.put_part(upload, 2, b"3")


def test_a_refusal_by_the_database_is_not_reported_as_unreachable(
    gateway: GatewayService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise WriteRejected("a validator refuses it", nothing_done=True)

    monkeypatch.setattr(gateway.uploads._store, "create_upload", refuse)
    with pytest.raises(StoreUnavailable) as caught:
        gateway.uploads.open("c", "k", ME, NO_CONDITIONS, None)
    said = "the database refuses this write, and nothing was applied: a validator refuses it"
    assert (caught.value.detail, caught.value.applied) == (said, "no")
    assert caught.value.__cause__ is None  # which would be logged as what keeps it out of reach
    assert "the database refuses a write: a validator refuses it" in caplog.text


def test_an_upload_dropped_while_its_end_is_recorded_stays_dropped(
    gateway: GatewayService, staged: MemoryUploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = opened(gateway)

    def die(_: UploadRecord) -> None:
        raise StoreUnreachable("killed")

    with monkeypatch.context() as killed:
        killed.setattr(staged, "drop_parts", die)
        commit(gateway, upload)
    listed = staged.parts

    def amid_a_drop(of: UploadRecord) -> Sequence[UploadPart]:
        found = listed(of)
        staged.drop_upload(of)
        return found

    monkeypatch.setattr(staged, "parts", amid_a_drop)
    gateway.uploads.find("c", upload.upload.id, ME)
    assert staged.upload("c", upload.upload.id) is None
