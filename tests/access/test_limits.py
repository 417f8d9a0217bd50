"""Token buckets, under a clock that the test sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.token_buckets import Excess, PrincipalLimits, Rate


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def limits(clock: Clock, *rates: Rate, principals_max: int = 100) -> PrincipalLimits:
    return PrincipalLimits(rates or (Rate("a", 2.0, 5),), clock, principals_max)


def test_the_quota_of_one_window_can_be_spent_at_once(clock: Clock) -> None:
    bucket = limits(clock)
    assert [bucket.take("p", {"a": 1}) for _ in range(10)] == [None] * 10
    assert bucket.take("p", {"a": 1}) == Excess(("a",), pytest.approx(0.5))
    clock.now += 0.5
    assert bucket.take("p", {"a": 1}) is None
    assert bucket.take("p", {"a": 1}) is not None


def test_unspent_quota_is_limited_to_one_window(clock: Clock) -> None:
    bucket = limits(clock)
    clock.now += 1_000_000
    assert bucket.take("p", {"a": 10}) is None
    assert bucket.take("p", {"a": 1}) is not None


def test_a_request_above_the_quota_waits_for_a_full_bucket_and_leaves_a_debt(
    clock: Clock,
) -> None:
    bucket = limits(clock)
    assert bucket.take("p", {"a": 30}) is None
    assert bucket.take("p", {"a": 1}) == Excess(("a",), pytest.approx(10.5))
    clock.now += 10
    assert bucket.take("p", {"a": 30}) == Excess(("a",), pytest.approx(5.0))
    clock.now += 5
    assert bucket.take("p", {"a": 30}) is None


def test_principals_have_separate_buckets(clock: Clock) -> None:
    bucket = limits(clock)
    bucket.take("p", {"a": 10})
    assert bucket.take("q", {"a": 10}) is None


def test_if_one_rate_is_exceeded_nothing_is_spent_of_the_others(clock: Clock) -> None:
    bucket = limits(clock, Rate("a", 1, 10), Rate("b", 1, 1))
    bucket.take("p", {"b": 1})
    assert bucket.take("p", {"a": 4, "b": 1}) == Excess(("b",), pytest.approx(1.0))
    assert [level.available for level in bucket.levels("p")] == [10, 0]


def test_an_undefined_rate_limits_nothing(clock: Clock) -> None:
    bucket = limits(clock)
    assert bucket.take("p", {"b": 10**9}) is None
    bucket.spend("p", "b", 10**9)
    assert bucket.debt_s("p", "b") == 0.0


def test_forced_spending_becomes_a_debt(clock: Clock) -> None:
    bucket = limits(clock)
    bucket.spend("p", "a", 14)
    assert bucket.debt_s("p", "a") == pytest.approx(2.0, abs=1e-3)
    clock.now += bucket.debt_s("p", "a")
    assert bucket.debt_s("p", "a") == 0.0


def test_the_remaining_quota_is_refilled_in_the_stated_time(clock: Clock) -> None:
    """Whoever spends r in t seconds doesn't go faster than the rate."""
    bucket = limits(clock)
    for _ in range(10):
        (level,) = bucket.levels("p")
        assert level.available / level.within_s <= level.rate.per_s
        bucket.take("p", {"a": 1})
    (level,) = bucket.levels("p")
    assert (level.available, level.within_s) == (0, 1)


def test_the_principal_idle_longest_is_forgotten(clock: Clock) -> None:
    bucket = limits(clock, principals_max=2)
    for name in ("p", "q", "p", "r"):
        bucket.take(name, {"a": 5})
    assert bucket.take("p", {"a": 1}) is not None
    assert bucket.take("q", {"a": 10}) is None


@given(
    per_s=st.floats(0.1, 1000),
    window_s=st.integers(1, 60),
    asked=st.lists(st.tuples(st.floats(0, 30), st.integers(0, 500)), max_size=60),
)
def test_no_more_than_one_window_above_the_rate_is_ever_allowed(
    per_s: float, window_s: int, asked: list[tuple[float, int]]
) -> None:
    clock = Clock()
    rate = Rate("a", per_s, window_s)
    bucket = limits(clock, rate)
    taken = largest = 0
    began = clock.now
    for pause_s, amount in asked:
        clock.now += pause_s
        excess = bucket.take("p", {"a": amount})
        if excess is None:
            taken += amount
            largest = max(largest, amount)
        else:
            # Told how long to wait, it is let through then.
            assert amount
            clock.now += excess.wait_s + 1e-6
            assert bucket.take("p", {"a": amount}) is None
            taken += amount
            largest = max(largest, amount)
    allowed = rate.quota + per_s * (clock.now - began)
    assert taken <= allowed + max(0, largest - rate.quota) + 0.01
