"""What simulated clients ask for as managers, and what they take back.

Each client may act as any of a few managers, so that a manager also races with itself.
"""

from __future__ import annotations

import random
from typing import Any

from .asks import SETTINGS, Action, Conflict, Name, Spot, Undone, Wanted
from .workload_lists import items, marks

_MANAGERS = ("ann", "nightly", "sync")
_CONFLICTS: tuple[Conflict, ...] = ("refuse", "refuse", "skip", "force")
_PLACES = ("/n", "/box", "/box/a", "/tag", "")
_PLACES_OF_LISTS = ("/items", "/items/a", "/items/a/n", "/items/b", "/marks")


class Managing:
    """The wishes of one client about owners; it remembers what it sent for a document."""

    def __init__(self, rng: random.Random, *, lists: bool = False) -> None:
        self._rng = rng
        self._lists = lists
        self._places = (*_PLACES, *(_PLACES_OF_LISTS if lists else ()))
        self._sent: dict[tuple[str, str], Wanted] = {}

    def action(self, catalog: str, key: Name, label: str) -> Action:
        """An apply, often of what was sent before, letting go, or giving back."""
        rng = self._rng
        before = self._sent.get((catalog, key))
        if rng.random() < 0.08:
            place = tuple(rng.choice(self._places).split("/")[1:])
            return Action("give-back", key, (place,))
        if rng.random() < 0.15:
            manager = before.manager if before and rng.random() < 0.6 else rng.choice(_MANAGERS)
            return Action("let-go", key, (manager, rng.random() < 0.5))
        if before is not None and rng.random() < 0.3:
            return Action("apply", key, before)
        manager = rng.choice(_MANAGERS)
        content = self._content(label)
        if before is not None and rng.random() < 0.4:
            manager = before.manager
            content = {name: value for name, value in before.content.items() if rng.random() < 0.6}
        force = (rng.choice(self._places),) if rng.random() < 0.1 else ()
        wanted = Wanted(manager, content, rng.choice(_CONFLICTS), force)
        self._sent[catalog, key] = wanted
        return Action("apply", key, wanted)

    def _content(self, label: str) -> dict[str, Any]:
        rng = self._rng
        members = {name: rng.randrange(2) for name in ("a", "b") if rng.random() < 0.5}
        whole: dict[str, Any] = {
            "n": rng.randrange(4),
            "tag": rng.choice(("x", "y", label)),
            "box": rng.choice((members, members, members, {}, 7)),
            "log": rng.choice(([], [label])),
        }
        if self._lists:
            whole |= {"items": items(rng, label), "marks": marks(rng)}
        return {name: value for name, value in whole.items() if rng.random() < 0.45}

    def revert(self, head: int, key: Name) -> Action:
        """Of the last revisions, as far as the client knows of them, or back to one; now and then
        with places that are forced."""
        rng = self._rng
        prefix = Name(key[: rng.choice((0, 1, 2))])
        conflict = rng.choice(_CONFLICTS)
        forced = self._spots(key)
        last = [max(1, head - back) for back in range(5)]
        if rng.random() < 0.5:
            revisions = tuple(rng.sample(last, rng.choice((1, 1, 2, 3))))
            undone = Undone(revisions, prefix=prefix, conflict=conflict, forced=forced)
        else:
            to = rng.choice(last)
            since = None if rng.random() < 0.7 else max(to, head)
            undone = Undone(to=to, since=since, prefix=prefix, conflict=conflict, forced=forced)
        return Action("revert", SETTINGS, undone)

    def _spots(self, key: Name) -> tuple[Spot, ...]:
        rng = self._rng
        if rng.random() < 0.5:
            return ()
        pointers = rng.sample((*self._places, "/log", "/u0", "/u1"), rng.choice((1, 1, 2, 4)))
        contents = tuple(Spot(key, pointer) for pointer in pointers)
        attributes = Spot(key, rng.choice(("/owner", "")), of_attributes=True)
        return (*contents, attributes) if rng.random() < 0.2 else contents
