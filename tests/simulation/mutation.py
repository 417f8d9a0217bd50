"""What a rule of the protocol is that can be broken on purpose: see ``mutations``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .plan import Plan, as_chosen

Patch = tuple[object, str, Any]


@dataclass(frozen=True)
class Mutation:
    """``kinds``: what the checker must call it, one of them at least (see ``checker``).

    ``adjust`` makes histories of a kind that shows it sooner.
    """

    rule: str
    kinds: frozenset[str]
    patches: tuple[Patch, ...]
    adjust: Callable[[Plan], Plan] = as_chosen


def mutation(
    rule: str, kinds: str, *patches: Patch, adjust: Callable[[Plan], Plan] = as_chosen
) -> Mutation:
    return Mutation(rule, frozenset(kinds.split()), patches, adjust)
