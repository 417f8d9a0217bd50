"""Reads that come at the same time share one look at the heads.

A read must start from a head read after it came. Of many readers, those who come while a look is
under way gather for the next one: no timer, no delay when idle, and a busy process asks the
database once for dozens of readers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gateway.commits.observe import Standing
from gateway.commits.runtime import Runtime
from gateway.store.contract import Unreachable


class _Group:
    def __init__(self, runtime: Runtime) -> None:
        self.catalogs: set[str] = set()
        self.turn = runtime.event()
        self.done = runtime.event()
        self.standings: Mapping[str, Standing] = {}
        self.error: Exception | None = None


class SharedReads:
    """``observe`` is called for whole groups of catalogs, at most ``parallel`` at a time."""

    def __init__(
        self,
        observe: Callable[[Collection[str]], Mapping[str, Standing]],
        runtime: Runtime,
        parallel: int = 2,
    ) -> None:
        self._observe = observe
        self._runtime = runtime
        self._lock = runtime.lock()
        self._free = parallel
        self._gathering: _Group | None = None

    def standing(self, catalog: str) -> Standing:
        """The catalog's standing at a moment within this call. Raises what ``observe`` raises."""
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
            group.catalogs.add(catalog)
        if leads:
            self._lead(group)
        else:
            group.done.wait()
        if group.error is None:
            return group.standings[catalog]
        if isinstance(group.error, Unreachable) or len(group.catalogs) == 1:
            raise group.error
        # What can't be read may be another one's.
        return self._observe([catalog])[catalog]

    def _lead(self, group: _Group) -> None:
        group.turn.wait()
        try:
            group.standings = self._observe(group.catalogs)
        except Exception as error:  # noqa: BLE001 - handed to every reader of the group
            group.error = error
        finally:
            with self._lock:
                following, self._gathering = self._gathering, None
                if following is None:
                    self._free += 1
                else:
                    following.turn.set()
            group.done.set()
