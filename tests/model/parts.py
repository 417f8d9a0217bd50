"""What the steps of workers share: the world that they are in, the rules, and how they are told."""

from __future__ import annotations

from typing import Any

from .store import Has
from .values import KEYS, UNREAD, Commit, Move, State, Worker, put_in
from .worlds import World

Step = tuple[str, State]
UNREAD_ALL = (UNREAD,) * len(KEYS)


class Parts:
    """Of one world, where the protocol ``has`` some rules and not others."""

    def __init__(self, world: World, has: Has) -> None:
        self._world = world
        self._has = has
        self._may = world.happens.__contains__


def with_worker(state: State, number: int, worker: Worker) -> State:
    return state._replace(workers=put_in(state.workers, number, worker))


def is_refused(act: str, document: Any) -> bool:
    exists = bool(document and document.made)
    return exists if act == "create" else not exists if act in ("patch", "delete") else False


def name_of_worker(number: int) -> str:
    return chr(ord("A") + number)


def as_text(document: Any) -> str:
    if not document:
        return "which isn't there"
    return f"{document.revision} made by {list(document.made) or 'a deletion'}"


def move_text(move: Move) -> str:
    if move.verdicts:
        return f"at {move.base} by verdict {move.judged + 1}"
    return f"{move.base} -> {move.commits[-1].revision}"


def revisions_text(commits: tuple[Commit, ...]) -> str:
    return ", ".join(str(commit.revision) for commit in commits) or "its verdicts"
