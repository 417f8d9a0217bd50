"""What every store of subscriptions must do."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.store.contract import PROGRESS, SubscriptionRecord, SubscriptionStore
from tests.store.retention_suite import race

SOON_S = 0.05
LONG_S = 60.0


def made(name: str = "s", **fields: Any) -> SubscriptionRecord:
    record = SubscriptionRecord(
        catalog="c",
        name=name,
        to="https://receiver.example/in",
        prefix="tables/",
        format="cloudevents",
        secrets=(("new", 0), ("old", 5)),
        by="ann",
        created_us=7,
        number=1,
        position="41",
        error={"code": "unreachable", "detail": "$x", "time_us": 3},
    )
    return replace(record, **fields)


class SubscriptionsContract:
    """Subclasses give the fixture ``subscriptions``."""

    def test_a_subscription_is_read_back_as_it_was_made(
        self, subscriptions: SubscriptionStore
    ) -> None:
        assert subscriptions.subscription("c", "s") is None
        assert subscriptions.create_subscription(made())
        assert not subscriptions.create_subscription(made(to="https://other.example"))
        assert subscriptions.subscription("c", "s") == made()
        assert subscriptions.subscription("cs", "") is None
        for name in ("ü", "a"):
            subscriptions.create_subscription(made(name))
        subscriptions.create_subscription(made(catalog="c2"))
        assert [each.name for each in subscriptions.subscriptions_of("c")] == ["a", "s", "ü"]
        assert not subscriptions.drop_subscription("c", "s", 9)
        assert subscriptions.drop_subscription("c", "s", 1)
        assert not subscriptions.drop_subscription("c", "s", 1)
        assert subscriptions.drop_subscription("c", "ü", 1)
        assert subscriptions.subscription("c", "ü") is None
        assert subscriptions.subscription("c", "s") is None

    def test_a_change_is_lost_if_another_was_first(self, subscriptions: SubscriptionStore) -> None:
        subscriptions.create_subscription(made())
        second = made(number=2, paused=True, position="9")
        assert subscriptions.change_subscription(second, 1, ())
        assert subscriptions.subscription("c", "s") == replace(second, position="41")
        assert not subscriptions.change_subscription(made(number=2), 1, PROGRESS)
        third = made(number=3, position="1", error=None)
        assert subscriptions.change_subscription(third, 2, PROGRESS)
        assert subscriptions.subscription("c", "s") == third
        fourth = replace(third, number=4, position="0", failures=7)
        assert subscriptions.change_subscription(fourth, 3, ("failures",))
        assert subscriptions.subscription("c", "s") == replace(fourth, position="1")
        assert not subscriptions.change_subscription(made("none"), 1, PROGRESS)

    def test_a_change_may_require_that_no_list_is_under_way(
        self, subscriptions: SubscriptionStore
    ) -> None:
        for name, position in (("s", "41"), ("t", ""), ("u", "41/"), ("v", "41/7"), ("w", "4/\n1")):
            subscriptions.create_subscription(made(name, position=position))
            changed = made(name, position=position, number=2, prefix="a/")
            done = subscriptions.change_subscription(changed, 1, (), at_revision=True)
            assert done == (name == "s")
            found = subscriptions.subscription("c", name)
            assert found == (changed if done else made(name, position=position))

    def test_only_one_worker_at_a_time_holds_a_claim(
        self, subscriptions: SubscriptionStore
    ) -> None:
        subscriptions.create_subscription(made())
        assert subscriptions.claimable("ann", 9) == ([], [("c", "s")])
        winners: list[str] = []

        def claim(who: str) -> bool:
            won = subscriptions.claim_subscription("c", "s", who, LONG_S) is not None
            winners.extend([who] if won else [])
            return won

        assert sorted(race(*(partial(claim, who) for who in "abcd"))) == [False] * 3 + [True]
        (winner,) = winners
        assert subscriptions.claimable(winner, 9) == ([made()], [])
        assert subscriptions.claimable("e", 9) == ([], [])
        subscriptions.end_claim("c", "s", "e")
        assert subscriptions.claim_subscription("c", "s", "e", LONG_S) is None
        subscriptions.end_claim("c", "s", winner)
        assert subscriptions.claim_subscription("c", "s", "e", LONG_S) == made()

    def test_a_claim_expires_unless_it_is_renewed(self, subscriptions: SubscriptionStore) -> None:
        for name in ("s", "t"):
            subscriptions.create_subscription(made(name))
        assert subscriptions.claim_subscription("c", "s", "ann", SOON_S)
        assert subscriptions.claim_subscription("c", "t", "ann", LONG_S)
        while not subscriptions.claimable("bob", 9)[1]:
            time.sleep(0.01)
        subscriptions.renew_claims("ann", LONG_S)
        assert subscriptions.claimable("bob", 9)[1] == [("c", "s")], "what has ended stays so"
        assert not subscriptions.save_progress(made(), "ann")
        assert subscriptions.claim_subscription("c", "s", "bob", LONG_S)
        assert subscriptions.save_progress(made("t"), "ann")

    def test_only_the_holder_of_the_claim_writes_progress(
        self, subscriptions: SubscriptionStore
    ) -> None:
        subscriptions.create_subscription(made())
        assert not subscriptions.save_progress(made(position="50"), "ann")
        assert subscriptions.claim_subscription("c", "s", "ann", LONG_S)
        moved = made(position="50", error=None, failures=2, delivered=3, to="https://not.told")
        assert not subscriptions.save_progress(moved, "bob")
        assert subscriptions.save_progress(moved, "ann")
        assert subscriptions.subscription("c", "s") == replace(moved, to=made().to)
        changed = replace(moved, to=made().to, number=2)
        assert subscriptions.change_subscription(changed, 1, ())
        assert not subscriptions.save_progress(replace(moved, position="51"), "ann")
        assert subscriptions.subscription("c", "s") == changed

    def test_the_claim_of_a_dropped_subscription_is_void(
        self, subscriptions: SubscriptionStore
    ) -> None:
        subscriptions.create_subscription(made())
        assert subscriptions.claim_subscription("c", "s", "ann", LONG_S)
        subscriptions.drop_subscription("c", "s", 1)
        assert not subscriptions.save_progress(made(), "ann")
        assert subscriptions.claimable("ann", 9) == ([], [])
        subscriptions.create_subscription(made())
        assert subscriptions.claim_subscription("c", "s", "bob", LONG_S) == made()
