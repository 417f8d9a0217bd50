"""One catalog's trouble is no other's: what was asked for many at once is asked in halves where one
of them can't be read, say because somebody edited it by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from gateway.store.contract import Unreachable

_Read = TypeVar("_Read")


def read_apart(
    names: Collection[str],
    read: Callable[[Collection[str]], Mapping[str, _Read]],
    failed: Callable[[str, Exception], None],
) -> dict[str, _Read]:
    """What ``read`` finds of ``names``; ``failed`` is told of each that it fails for.

    Raises Unreachable, which is nobody's own trouble.
    """
    try:
        return dict(read(names))
    except Unreachable:
        raise
    except Exception as error:  # noqa: BLE001
        if len(names) == 1:
            failed(next(iter(names)), error)
            return {}
    return {
        name: found
        for half in halves(list(names))
        for name, found in read_apart(half, read, failed).items()
    }


def halves(names: list[str]) -> tuple[list[str], list[str]]:
    """Neither is empty where there are two names or more."""
    middle = len(names) // 2
    return names[:middle], names[middle:]
