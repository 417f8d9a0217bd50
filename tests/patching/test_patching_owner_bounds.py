"""The bounds of owners: what makes too many is refused, and what there is can always be written."""

from __future__ import annotations

import pytest

from patching import LimitExceeded, Limits, parse_lists
from patching.owners import OwnerTree
from patching.ownership import apply_wanted, let_go, require_fit, taken_over

A_SET = parse_lists([{"pointer": "/tags", "set": True}])
TAGS = {"tags": list(range(50))}


def applied_by(managers: int, limits: Limits = Limits()) -> OwnerTree:  # noqa: B008 - frozen
    owners = None
    for n in range(managers):
        done = apply_wanted(
            TAGS if n else {}, owners, TAGS, manager=f"m{n}", revision=n + 1, limits=limits
        )
        owners = done.owners
    assert owners is not None
    return owners


def test_one_manager_too_many_is_refused_and_the_others_can_continue() -> None:
    limits = Limits(managers_max=3)
    owners = applied_by(3, limits)
    with pytest.raises(LimitExceeded) as refused:
        apply_wanted(TAGS, owners, TAGS, manager="late", revision=9, limits=limits)
    assert (refused.value.limit, refused.value.actual) == ("managers_max", 4)
    apply_wanted(TAGS, owners, TAGS | {"more": 1}, manager="m1", revision=9, limits=limits)
    left = let_go(TAGS, owners, "m0").owners
    apply_wanted(TAGS, left, TAGS, manager="late", revision=9, limits=limits)


def test_declaring_a_list_that_multiplies_owners_beyond_the_limit_is_refused() -> None:
    owners = applied_by(5)
    assert owners.total() == 5
    require_fit(owners, TAGS, A_SET, Limits(owners_max=250))
    with pytest.raises(LimitExceeded) as refused:
        require_fit(owners, TAGS, A_SET, Limits(owners_max=249))
    assert (refused.value.limit, refused.value.actual) == ("owners_max", 250)


@pytest.mark.parametrize("limits", [Limits(owners_max=10), Limits(owned_leaves_max=10)])
def test_owners_multiplied_by_a_declared_list_do_not_block_writes(limits: Limits) -> None:
    """A list declared later splits ownership into items: no write is refused because of that."""
    owners = applied_by(5)
    plain = taken_over(
        owners, TAGS, TAGS | {"x": 1}, author="ann", revision=9, lists=A_SET, limits=limits
    )
    assert plain is not None
    done = apply_wanted(TAGS, owners, TAGS, manager="m1", revision=9, lists=A_SET, limits=limits)
    assert done.owners is not None
    assert done.owners.total() == 250


def test_an_apply_takes_as_long_with_many_owners_as_with_few() -> None:
    """What follows from the set of a leaf's owners is found once, not for each leaf."""
    from patching import ownership

    looked_at = 0

    class Counted(tuple):  # type: ignore[type-arg]
        __slots__ = ()

        def __iter__(self):  # type: ignore[no-untyped-def]
            nonlocal looked_at
            looked_at += 1
            return super().__iter__()

    wanted = {f"k{n}": n for n in range(1_000)}
    owners = None
    for n in range(10):
        document = wanted if n else {}
        owners = apply_wanted(document, owners, wanted, manager=f"m{n}", revision=1).owners
    assert owners is not None
    counted = OwnerTree(tuple(Counted(each) for each in owners.by), owners.of)
    work = ownership._Work(counted, ownership.Ownership("m5", 2), "refuse", frozenset())
    tree = work.start(wanted, ownership.NO_LISTS)
    work.want((), wanted, wanted, tree, ownership.NO_LISTS)
    assert 0 < looked_at < 20
