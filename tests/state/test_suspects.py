"""Who is suspected after a call that failed, for how long, and when it is everybody's trouble."""

from __future__ import annotations

import pytest

from gateway.state import sharing
from gateway.state.sharing import Suspects
from tests.without_http import SetClock


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def found(clock: SetClock) -> Suspects:
    return Suspects(clock, "a test")


def test_the_catalogs_of_a_failed_call_are_suspects_until_a_call_of_their_own_succeeds(
    found: Suspects, clock: SetClock
) -> None:
    found.note_failure("abc")
    assert all(each in found for each in "abc")
    found.note_success("a", clock.monotonic())
    assert [each for each in "abc" if each in found] == ["b", "c"]


def test_a_catalog_that_fails_alone_stays_a_suspect_for_a_while(
    found: Suspects, clock: SetClock
) -> None:
    found.note_failure("ab")
    found.note_success("a", clock.monotonic())
    found.note_failure("b")
    found.note_success("b", clock.monotonic())
    assert "b" in found
    clock.passed_s += sharing._HELD_S
    found.note_success("b", clock.monotonic())
    assert not found


def test_if_several_single_calls_fail_in_a_row_nobody_is_a_suspect(found: Suspects) -> None:
    names = [f"c{number}" for number in range(100)]
    found.note_failure(names)
    for name in names[: sharing._IN_A_ROW]:
        assert name in found
        found.note_failure([name])
    assert not found


def test_a_slow_call_counts_as_failed(found: Suspects, clock: SetClock) -> None:
    began = clock.monotonic()
    clock.passed_s += 2 * sharing._SLOW_S
    found.note_success("ab", began)
    assert "a" in found
    assert "b" in found


def test_the_number_of_suspects_is_bounded(found: Suspects) -> None:
    for number in range(3):
        found.note_failure([f"{number}-{each}" for each in range(sharing._CATALOGS_MAX // 2)])
    assert len(found) <= sharing._CATALOGS_MAX
