"""What is explored: small worlds, each with requests, workers and the things that may happen there.

All of them together would be too many states. So each world has what belongs together: the steps of
writing out in detail, say, or answers that get lost.
"""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """``act``: put, patch, create (refused where the document is), delete (refused where it isn't)
    or read."""

    act: str
    on: int = 0
    key: str = ""  # idempotency key


class World(NamedTuple):
    """``happens``: which of the following may happen.

    rounds    a decision takes a step for each read, and one for the move (else it is one step)
    parts     writing out takes a step for each look, document and commit (else it is one step)
    one-in-parts  but only one worker's at a time; what others write out meanwhile is one step
    foreign   workers write out what others have made, too
    takeover  a worker writes out the head's tail
    guess     a worker decides on what it remembers, without a look at the head
    lost      answers of moves get lost, and moves arrive late
    crash     workers die
    ends      the janitor ends the tail of a head
    compact   the floor rises, history is swept, tombstones are purged
    restore   the database is put back to a backup, once
    hand      requests are handed over to another worker
    """

    name: str
    about: str
    requests: tuple[Request, ...]
    happens: frozenset[str]
    workers: int = 2


def world(name: str, about: str, requests: str, happens: str) -> World:
    asked = []
    for each in requests.split():
        act, on, *key = each.split(":")
        asked.append(Request(act, "ab".index(on), *key))
    return World(name, about, tuple(asked), frozenset(happens.split()))


# The first requests of a world are its smallest bound; each further one is for a larger bound.
WORLDS = (
    world(
        "write-out",
        "two workers write out one tail, in parts",
        "patch:a patch:a patch:b patch:a",
        "parts takeover crash",
    ),
    world(
        "carry",
        "moves over the tails of others, and who writes what out",
        "patch:a patch:b patch:a patch:b",
        "rounds foreign guess crash ends parts",
    ),
    world(
        "doubt",
        "answers get lost, moves arrive late, requests are handed over",
        "patch:a put:a read:a patch:a",
        "rounds lost guess crash foreign hand ends",
    ),
    world(
        "keys",
        "one idempotency key through two workers, while the document comes and goes",
        "create:a:k create:a:k delete:a put:a",
        "rounds guess crash foreign lost ends",
    ),
    world(
        "compaction",
        "history goes while workers sleep amid writing out",
        "patch:a delete:a patch:b put:a",
        "parts one-in-parts takeover compact crash",
    ),
    world(
        "catch-up",
        "history goes while a worker catches up",
        "patch:a:k put:a read:a read:a",
        "rounds guess compact foreign ends",
    ),
    world(
        "restore",
        "the database is put back under workers that remember more",
        "patch:a patch:a patch:b patch:a read:a",
        "rounds guess restore foreign",
    ),
)


def bounded(world: World, requests: int, workers: int = 2) -> World:
    """The world with its first requests alone, and with so many workers."""
    return world._replace(requests=world.requests[:requests], workers=workers)
