"""A token is recognised by its secret alone. The gateway remembers what it read for three
seconds."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gateway import cpu
from gateway.access import Grant, Principal, Role
from gateway.errors import StoreUnavailable, Unauthenticated
from gateway.http.door import authorization
from gateway.http.door.authorization import BearerTokens
from gateway.model import IssuedToken, StoredToken
from gateway.store.contract import StoreUnreachable
from gateway.tokens import issued as tokens
from gateway.tokens.issued import REMEMBERED_S, Tokens
from tests.memory_store import MemoryTokens
from tests.patience import WAIT_S

GRANTS = (Grant(Role.WRITE, "shop/*"),)
HOUR_S = 3600


class CountedStore(MemoryTokens):
    """Counts looks, and can be out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: Counter[str] = Counter()
        self.queries = 0
        self.reachable = True

    def token(self, token_id: str) -> StoredToken | None:
        self.looks[token_id] += 1
        if not self.reachable:
            raise StoreUnreachable("x")
        return super().token(token_id)

    def tokens_of(self, ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        self.queries += 1
        self.looks.update(ids)
        if not self.reachable:
            raise StoreUnreachable("x")
        return super().tokens_of(ids)


class World:
    """Tokens over a store, at a time that is set."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.store = CountedStore()
        self.tokens = self.process()

    def process(self) -> Tokens:
        return Tokens(
            self.store,
            now_us=lambda: int(self.now_s * 1e6),
            monotonic=lambda: self.now_s,
            sleep=self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def issue(self, lifetime_s: int | None = None) -> IssuedToken:
        return self.tokens.issue("ann", GRANTS, lifetime_s)

    def refused(self, text: str) -> str:
        with pytest.raises(Unauthenticated) as refused:
            self.tokens.principal(text)
        assert refused.value.presented
        return refused.value.detail


@pytest.fixture
def world() -> World:
    return World()


def test_a_token_identifies_the_principal_it_was_issued_to(world: World) -> None:
    issued = world.issue()
    assert world.tokens.is_one(issued.text)
    assert world.tokens.principal(issued.text) == Principal("ann", GRANTS)
    assert world.process().principal(issued.text) == Principal("ann", GRANTS)
    assert world.issue().text != issued.text


def test_the_secret_is_kept_nowhere(world: World) -> None:
    issued = world.issue()
    secret = issued.text.rsplit("_", 1)[1]
    stored = world.store.tokens()[0]
    assert stored.secret_sha256 == hashlib.sha256(bytes.fromhex(secret)).hexdigest()
    world.tokens.principal(issued.text)
    for shown in (stored, issued, vars(world.tokens), world.tokens.all()):
        assert secret not in repr(shown)


def test_every_other_secret_is_refused_without_a_hint_at_the_wrong_part(world: World) -> None:
    issued = world.issue()
    other = world.issue()
    prefix, token_id, secret = issued.text.split("_")
    wrong = [
        f"{prefix}_{token_id}_{other.text.rsplit('_', 1)[1]}",
        f"{prefix}_{other.stored.id}_{secret}",
        f"{prefix}_{'0' * 16}_{secret}",
        f"{prefix}_{token_id}_{secret[:-1]}",
        f"{prefix}_{token_id}_{secret}0",
        f"{prefix}_{token_id}_{secret[:-1]}{'0' if secret[-1] != '0' else '1'}",
        f"{prefix}_{token_id}_{secret.upper()}",
        f"{prefix}_{token_id.upper()}_{secret}",
        f"{prefix}_{token_id}_{issued.stored.secret_sha256}",
        f"{prefix}_{token_id}_",
        f"{prefix}_$ne_{secret}",
        f"{prefix}_{token_id}",
        f"{prefix}_",
        f"{issued.text}\n",
    ]
    assert {world.refused(text) for text in wrong} == {"this gateway did not issue the token"}
    assert world.tokens.principal(issued.text).name == "ann"


def test_secrets_are_compared_in_constant_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by nothing else: where that says no, equal secrets are refused."""
    compared = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return False

    issued = world.issue()
    monkeypatch.setattr(hmac, "compare_digest", compare)
    world.refused(issued.text)
    digest = issued.stored.secret_sha256
    assert compared == [(digest, digest)]


def test_an_expired_token_is_refused_even_while_it_is_cached(world: World) -> None:
    issued = world.issue(lifetime_s=HOUR_S)
    world.now_s += HOUR_S - 0.5
    assert world.tokens.principal(issued.text).name == "ann"
    world.now_s += 0.5
    assert world.refused(issued.text) == "the token expired"


def test_a_revocation_applies_once_the_cached_token_expires(world: World) -> None:
    issued = world.issue()
    elsewhere = world.process()
    assert world.tokens.principal(issued.text).name == "ann"
    revoked = elsewhere.revoke(issued.stored.id)
    assert revoked is not None
    assert revoked.revoked_us == int(world.now_s * 1e6)
    world.now_s += REMEMBERED_S
    assert world.refused(issued.text) == "the token was revoked"
    assert elsewhere.revoke("0" * 16) is None


def test_many_requests_cause_one_lookup_every_few_seconds(world: World) -> None:
    issued = world.issue()
    for _ in range(100):  # ten seconds
        for _ in range(50):
            world.tokens.principal(issued.text)
        world.now_s += 0.1
    assert world.store.looks[issued.stored.id] <= 7


def test_cache_time_and_recheck_interval_together_stay_below_five_seconds() -> None:
    """For a long answer: the cached token may be that old when it is checked again."""
    assert REMEMBERED_S + authorization.RECHECK_S < 5


def test_wrong_tokens_are_cached_too(world: World) -> None:
    text = f"gwt_{'ab' * 8}_{'0' * 64}"
    for _ in range(50):
        world.refused(text)
    assert world.store.looks.total() == 1


def test_a_short_database_outage_goes_unnoticed(world: World) -> None:
    issued = world.issue()
    world.tokens.principal(issued.text)
    world.store.reachable = False
    world.now_s += REMEMBERED_S - 0.1
    for _ in range(3):
        assert world.tokens.principal(issued.text).name == "ann"
    world.now_s += 0.1
    with pytest.raises(StoreUnavailable):
        world.tokens.principal(issued.text)
    world.store.reachable = True
    assert world.tokens.principal(issued.text).name == "ann"


def test_malformed_token_records_give_no_rights(world: World) -> None:
    issued = world.issue()
    for changed in ({"grants": ("own:*",)}, {"name": ""}, {"name": "anonymous"}):
        world.store._tokens[issued.stored.id] = replace(issued.stored, **changed)  # type: ignore[arg-type]
        world.tokens = world.process()
        assert world.refused(issued.text) == "this gateway did not issue the token"


class TestHeader:
    def test_the_scheme_is_bearer_in_any_case(self, world: World) -> None:
        authenticate = BearerTokens(world.tokens)
        issued = world.issue()
        for scheme in ("Bearer", "bearer", "BEARER  "):
            assert authenticate(f"{scheme} {issued.text}").name == "ann"

    @pytest.mark.parametrize(
        ("header", "presented"),
        [
            (None, False),
            ("", False),
            ("Bearer", False),
            ("Bearer ", False),
            ("Basic YW5uOnNlY3JldA==", False),
            ("Bearer a b", False),
            ("Bearer a,Bearer b", False),
            ("Bearer é", False),
            ("Bearer gwt_x", True),
            ("Bearer something", True),
        ],
    )
    def test_anything_else_is_refused(
        self, header: str | None, presented: bool, world: World
    ) -> None:
        with pytest.raises(Unauthenticated) as refused:
            BearerTokens(world.tokens)(header)
        assert refused.value.presented is presented


def made_up(number: int) -> str:
    return f"gwt_{number:016x}_{'0' * 64}"


def test_unknown_ids_are_looked_up_at_most_ten_times_a_second(world: World) -> None:
    began_s = world.now_s
    for number in range(50):
        world.refused(made_up(number))
    assert world.now_s - began_s >= 4.9 - 1e-6
    assert world.store.queries == 50


def test_concurrent_unknown_ids_are_looked_up_in_one_query(
    world: World, eventually: Callable[..., object]
) -> None:
    """And so is the new token among them, which works."""
    issued = world.issue()
    others = [made_up(number) for number in range(20)]
    begun, go_on = threading.Event(), threading.Event()
    ask = world.store.tokens_of

    def slow(ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        begun.set()
        assert go_on.wait(WAIT_S)
        return ask(ids)

    world.store.tokens_of = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(22) as pool:
        first = pool.submit(world.refused, made_up(99))
        assert begun.wait(WAIT_S)
        rest = [pool.submit(world.refused, each) for each in others]
        known = pool.submit(world.tokens.principal, issued.text)
        eventually(lambda: len(world.tokens._unknown._next.ids) == 21)
        go_on.set()
        assert known.result(WAIT_S).name == "ann"
        assert [each.result(WAIT_S) for each in (first, *rest)]
    assert world.store.queries == 2


def test_unknown_ids_displace_no_cached_token(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_REMEMBERED_MAX", 5)
    monkeypatch.setattr(tokens, "_BETWEEN_QUERIES_S", 0.0)
    issued = world.issue()
    world.tokens.principal(issued.text)
    for number in range(20):
        world.refused(made_up(number))
    world.tokens.principal(issued.text)
    assert world.store.looks[issued.stored.id] == 1


def test_a_failed_lookup_fails_every_request_that_waits_for_it(world: World) -> None:
    issued = world.issue()
    world.store.reachable = False
    with pytest.raises(StoreUnavailable):
        world.tokens.principal(issued.text)
    world.store.reachable = True
    assert world.tokens.principal(issued.text).name == "ann"


def test_a_shared_lookup_is_charged_to_no_request(world: World) -> None:
    """The request that does the look-up may have no processor time left. That doesn't refuse the
    others."""
    issued = world.issue()
    ask = world.store.tokens_of

    def counted(ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        cpu.require_some_left()
        return ask(ids)

    world.store.tokens_of = counted  # type: ignore[method-assign]
    own = cpu.own_account()
    cpu.begin(-1)
    try:
        assert world.tokens.principal(issued.text).name == "ann"
        assert cpu.own_account() is not own
    finally:
        cpu.work_for(own)
