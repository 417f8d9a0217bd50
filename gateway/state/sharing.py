"""Looks at the store that come at the same time share one call.

A read must start from what the store holds after it came. Of many readers, those who come while a
look is under way gather for the next one: no timer, no delay when idle, and a busy process asks the
database once for dozens of readers.

One catalog's trouble is no other's: what was asked for many at once is asked in halves where one
of them can't be read, say because somebody edited it by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from gateway.runtime import Runtime
from gateway.store.contract import Unreachable

_Name = TypeVar("_Name")
_Found = TypeVar("_Found")


class _Group(Generic[_Name, _Found]):
    def __init__(self, runtime: Runtime) -> None:
        self.names: set[_Name] = set()
        self.turn = runtime.event()
        self.done = runtime.event()
        self.found: Mapping[_Name, _Found] = {}
        self.error: Exception | None = None


class SharedLooks(Generic[_Name, _Found]):
    """``look_at`` is called for the names of whole groups, at most ``parallel`` at a time."""

    def __init__(
        self,
        look_at: Callable[[Collection[_Name]], Mapping[_Name, _Found]],
        runtime: Runtime,
        parallel: int = 1,
    ) -> None:
        self._look_at = look_at
        self._runtime = runtime
        self._lock = runtime.lock()
        self._free = parallel
        self._gathering: _Group[_Name, _Found] | None = None

    def look(self, names: Collection[_Name]) -> dict[_Name, _Found]:
        """What there is under ``names`` at a moment within this call. Raises what looking does."""
        with self._lock:
            group = self._gathering
            leads = group is None
            if group is None:
                group = _Group(self._runtime)
                if self._free:
                    self._free -= 1
                    group.turn.set()
                else:
                    self._gathering = group
            group.names.update(names)
        if leads:
            self._lead(group)
        else:
            group.done.wait()
        found = group.found
        if group.error is not None:
            if isinstance(group.error, Unreachable) or len(group.names) == len(set(names)):
                raise group.error
            found = self._look_at(names)  # what can't be read may be another one's
        return {name: found[name] for name in names if name in found}

    def _lead(self, group: _Group[_Name, _Found]) -> None:
        group.turn.wait()
        try:
            group.found = self._look_at(group.names)
        except Exception as error:  # noqa: BLE001 - handed to everybody of the group
            group.error = error
        finally:
            with self._lock:
                following, self._gathering = self._gathering, None
                if following is None:
                    self._free += 1
                else:
                    following.turn.set()
            group.done.set()


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
