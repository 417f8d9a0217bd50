"""Owners as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.cpu import interruptible
from gateway.model import Skipped
from patching import Owner, Owners, OwnersChange, join_pointer


def owner_shapes(owners: Iterable[Owner]) -> list[dict[str, Any]]:
    return [{"manager": each.manager, "since": each.since, "plain": each.plain} for each in owners]


@interruptible
def owners_shape(owners: Owners | None) -> list[dict[str, Any]]:
    """By pointer, ascending, the owners of each leaf that has any."""
    leaves = owners.leaves() if owners else ()
    shown = [{"pointer": join_pointer(tokens), "owners": owner_shapes(by)} for tokens, by in leaves]
    return sorted(shown, key=lambda each: str(each["pointer"]))


def owners_change_shape(change: OwnersChange) -> list[dict[str, Any]]:
    """By manager what it gained and lost."""
    return [
        {"manager": manager, "plain": plain, "gained": gained, "lost": lost}
        for manager, plain, gained, lost in change.pointers()
    ]


@interruptible
def skipped_shape(skipped: Sequence[Skipped]) -> list[dict[str, Any]]:
    return [{"pointer": each.pointer, "owners": owner_shapes(each.owners)} for each in skipped]
