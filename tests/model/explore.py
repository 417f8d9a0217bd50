"""Visits all states that can be reached, nearest first, so that an error comes with a shortest
history."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from .properties import check
from .steps import Steps
from .values import BEFORE, Head, State, Worker, Wrong, truth
from .worlds import World


@dataclass
class Explored:
    """``history`` are the steps to what is ``wrong``; () and "" where nothing is."""

    world: World
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    wrong: str = ""
    history: tuple[str, ...] = field(default=())


def first(world: World) -> State:
    made = (BEFORE,)
    return State(
        head=Head(),
        documents=truth(made),
        log=made,
        kept=(),
        workers=(Worker(),) * world.workers,
        asked=(0,) * len(world.requests),
        made=made,
    )


def explore(world: World, without: Collection[str] = ()) -> Explored:
    """Every state of the world, or those up to the first that is wrong, ``without`` some rules."""
    begun = time.process_time()
    found = Explored(world)
    steps = Steps(world, lambda rule: rule not in without)
    start = first(world)
    came_from: dict[State, State | None] = {start: None}
    level = [start]
    right: set[State] = set()  # what is stored: most steps change but what a worker knows
    while level and not found.wrong:
        following = []
        for state in level:
            try:
                for _, after in steps.of(state):
                    found.transitions += 1
                    after = alike(after)
                    if after not in came_from:
                        came_from[after] = state
                        following.append(after)
                        if (stored := _stored(after)) not in right:
                            check(stored)
                            right.add(stored)
            except Wrong as wrong:
                found.history, found.wrong = _trace(steps, came_from, state, str(wrong))
                break
        found.depth += bool(following)
        level = following
    found.states = len(came_from)
    found.seconds = time.process_time() - begun
    return found


def _stored(state: State) -> State:
    """Of the state, what its properties are about."""
    return state._replace(workers=(), asked=(), strays=())


def alike(state: State) -> State:
    """The same for all states that differ only in which worker is which."""
    workers = state.workers
    for index in range(len(workers) - 1):
        if workers[index] > workers[index + 1]:
            return state._replace(workers=tuple(sorted(workers)))
    return state


def _trace(
    steps: Steps, came_from: dict[State, Any], last: State, wrong: str
) -> tuple[tuple[str, ...], str]:
    """The steps to the last state, and what goes wrong there, each worker under its own name."""
    path = [last]
    while (before := came_from[path[-1]]) is not None:
        path.append(before)
    path.reverse()
    state, told = path[0], []
    for wanted in path[1:]:
        text, state = next(step for step in steps.of(state) if alike(step[1]) == wanted)
        told.append(text)
    try:
        for text, after in steps.of(state):
            try:
                check(_stored(after))
            except Wrong as found:  # the step leaves a state that is wrong
                return (*told, text), str(found)
    except Wrong as found:  # the step itself can't be taken
        return tuple(told), str(found)
    return tuple(told), wrong
