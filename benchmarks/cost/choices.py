"""The choices that a program is built from: drawn once, told again, and changed in a place."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_GENE_MAX = 2**32 - 1


class Choices:
    """Hands out ``genes`` in their order, and draws new ones behind their end.

    So the same genes give the same program, and a changed gene one that is much like it.
    """

    def __init__(self, genes: Sequence[int] = (), luck: random.Random | None = None) -> None:
        self._given = list(genes)
        self._luck = luck or random.Random(0)
        self.taken: list[int] = []

    def _next(self) -> int:
        place = len(self.taken)
        gene = self._given[place] if place < len(self._given) else self._luck.randint(0, _GENE_MAX)
        self.taken.append(gene)
        return gene

    def share(self) -> float:
        """From 0 to 1."""
        return self._next() / _GENE_MAX

    def chance(self, probability: float) -> bool:
        return self.share() < probability

    def number(self, low: int, high: int) -> int:
        """From ``low`` (at least 1) to ``high``; each order of magnitude is as likely."""
        drawn: float = low * (high / low) ** self.share()
        return min(high, max(low, round(drawn)))

    def pick(self, options: Sequence[T]) -> T:
        return options[min(int(self.share() * len(options)), len(options) - 1)]


def mutated(genes: Sequence[int], luck: random.Random) -> list[int]:
    """A few genes otherwise: drawn anew, or moved a little up (costs grow with sizes) or down."""
    changed = list(genes)
    for _ in range(luck.choice((1, 1, 2, 3, 5))):
        if not changed:
            break
        place = luck.randrange(len(changed))
        if luck.random() < 0.5:
            changed[place] = luck.randint(0, _GENE_MAX)
        else:
            step = round(luck.triangular(-0.15, 0.3, 0.08) * _GENE_MAX)
            changed[place] = min(_GENE_MAX, max(0, changed[place] + step))
    return changed
