"""How long tails are left to the workers that made them."""

from __future__ import annotations

from gateway.limits import ServiceLimits
from gateway.state.write_out import Patience
from tests.without_http import SetClock


def test_growing_tails_do_not_postpone_the_write_out_for_ever() -> None:
    clock = SetClock()
    patience = Patience(clock, ServiceLimits(write_out_grace_ms=1_000_000))
    waited = 0
    while not (patience.is_over("c", 5, 1) or patience.is_over("c", 7, 1)):
        clock.passed_s += 300
        waited += 1
    assert waited == 4


def test_commits_made_in_the_meantime_have_their_own_grace_period() -> None:
    clock = SetClock()
    patience = Patience(clock, ServiceLimits(write_out_grace_ms=1_000_000))
    assert not patience.is_over("c", 5, 1)
    clock.passed_s += 900
    assert not patience.is_over("c", 7, 1)
    clock.passed_s += 200
    assert not patience.is_over("c", 7, 1)
    clock.passed_s += 900
    assert patience.is_over("c", 7, 1)
