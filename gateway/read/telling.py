"""What is told of records, made of one after the other: none is kept as objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gateway import memory
from gateway.model import Commit
from gateway.store.scanned import Undecoded

_Record = TypeVar("_Record")
_Told = TypeVar("_Told")


def told_of(records: Sequence[_Record], tell: Callable[[_Record], _Told]) -> Iterator[_Told]:
    """What ``tell`` makes of each, which the request's account holds meanwhile.

    Raises what ``tell`` does, OverLimit and MemoryFull.
    """
    if not isinstance(records, Undecoded):
        yield from map(tell, records)
        return
    account = memory.account()
    for index in range(len(records)):
        with account.holding():
            told = tell(records[index])
        yield told


# Of so much of their text commits are told at once, for their acls are looked up together.
_CHUNK_BYTES = 512 * 1024
TellCommits = Callable[[Sequence[Commit]], Sequence[_Told]]


def told_of_commits(
    commits: Sequence[Commit], tell: TellCommits[_Told]
) -> Iterator[tuple[int, _Told]]:
    """What ``tell`` makes of each, some at a time, with its revision; else as ``told_of``."""
    account = memory.account()
    start = 0
    while start < len(commits):
        end, size_bytes = start, 0
        while end < len(commits) and (end == start or size_bytes < _CHUNK_BYTES):
            size_bytes += commits.size_of(end) if isinstance(commits, Undecoded) else 0
            end += 1
        with account.holding():
            some = list(commits[start:end])
            told = list(zip((each.revision for each in some), tell(some), strict=True))
            del some
        yield from told
        start = end
