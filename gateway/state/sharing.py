"""Looks at the store that come at the same time share one call.

A read must start from what the store holds after it came. Of many readers, those who come while a
look is under way gather for the next one: no timer, no delay when idle, and a busy process asks the
database once for dozens of readers.

One catalog's trouble is no other's: where a look at many fails, each is looked at alone, and what
was in trouble stays alone for a while. Nor is one record's: who shared a look that failed, though
the database was there, looks once more for itself. Nor does anybody wait for a look that is under
way for long already because of a catalog that it asks for, too.

*Suspects* are catalogs whose calls of the store failed, or took long. They are called for alone.

A call for many catalogs fails, or takes long, as a whole: one shard of several is away, or somebody
edited one head by hand. Who shares such a call can't tell whose trouble it was, so all of them are
suspected. A suspect shares no call with others, and no thread that they wait for, until a call for
it alone has worked. So one catalog's trouble costs its neighbours one call, once; and the catalog
itself, whose calls alone fail, too, while others work, stays a suspect.

A worked example. The heads of a, b and c are read in one call, which fails: the shard of c is away.
Each is read alone then: a and b at once, and they share calls again; c fails, and shares none for
the next seconds, nor as long as it goes on failing.

Where the whole database is away, that is everybody's trouble. It shows by several calls alone that
fail in a row: those suspected share calls again. So it costs a few calls more, not one a catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

from gateway import cpu, memory
from gateway.errors import untraced
from gateway.runtime import Runtime
from gateway.store.contract import StoreUnreachable, Unsent

_log = logging.getLogger(__name__)

# A call that takes so long is as bad for who shares it as one that fails.
_SLOW_S: Final = 1.0
# A suspect that failed alone, while others worked, stays one for so long at least.
_HELD_S: Final = 5.0
# For so long a call that worked shows that the database is there.
_PROOF_S: Final = 2.0
# Calls alone that fail in a row: the trouble is everybody's.
_IN_A_ROW: Final = 8
_CATALOGS_MAX: Final = 10_000


class Suspects(dict[str, float]):
    """By suspect, the time from which on a successful call for it alone clears it.

    Thread-safe; no method waits, and all are quick while there are none.
    """

    def __init__(self, runtime: Runtime, what: str) -> None:
        """``what`` is called for, for the log."""
        super().__init__()
        self._runtime = runtime
        self._what = what
        self._lock = runtime.lock()
        self._bad_in_a_row = 0
        self._worked_at: float | None = None

    def failed(self, catalogs: Collection[str]) -> None:
        """One call for these failed."""
        with self._lock:
            now = self._runtime.monotonic()
            if len(catalogs) > 1:
                self._suspect(catalogs, now)
            else:
                self._failed_alone(catalogs, now)

    def worked(self, catalogs: Collection[str], began: float) -> None:
        """One call for these, begun at that monotonic time, worked."""
        now = self._runtime.monotonic()
        if now - began >= _SLOW_S:
            self.failed(catalogs)
            return
        self._worked_at = now
        self._bad_in_a_row = 0
        if self:
            with self._lock:
                for catalog in catalogs:
                    if self.get(catalog, now) <= now:
                        self.pop(catalog, None)

    def _suspect(self, catalogs: Collection[str], now: float) -> None:
        if len(self) + len(catalogs) > _CATALOGS_MAX:
            self.clear()
        for catalog in catalogs:
            self.setdefault(catalog, now)

    def _failed_alone(self, catalogs: Collection[str], now: float) -> None:
        self._bad_in_a_row += 1
        if self._bad_in_a_row >= _IN_A_ROW:
            for catalog in [catalog for catalog, until in self.items() if until <= now]:
                del self[catalog]
            return
        others_work = self._worked_at is not None and now - self._worked_at < _PROOF_S
        if not others_work:
            self._suspect(catalogs, now)
            return
        for catalog in catalogs:
            if self.get(catalog, 0.0) <= now:
                about = {"catalog": catalog}
                text = "%s of %r fails or takes long while others work: it is done apart"
                _log.warning(text, self._what, catalog, extra=about)
            self[catalog] = now + _HELD_S


_Name = TypeVar("_Name", bound=Hashable)
_Found = TypeVar("_Found")

_LONG_S: Final = 0.25


class _Group(Generic[_Name, _Found]):
    """Names that are looked at together."""

    def __init__(self, names: Collection[_Name]) -> None:
        self.names = set(names)
        self.began = 0.0
        self.found: Mapping[_Name, _Found] = {}
        self.error: Exception | None = None

    def may_be_anothers(self, names: Collection[_Name]) -> bool:
        """Whether it failed where the database was there, and more than these was asked of it."""
        failed = self.error is not None and not isinstance(self.error, StoreUnreachable)
        return failed and not self.names.issubset(names)

    def found_of(self, names: Collection[_Name]) -> dict[_Name, _Found]:
        if self.error is not None:
            raise self.error
        return {name: self.found[name] for name in names if name in self.found}


class _Joinable(_Group[_Name, _Found]):
    """A group that others may join until it is its ``turn``; they wait until it is ``done``."""

    def __init__(self, names: Collection[_Name], runtime: Runtime) -> None:
        super().__init__(names)
        self.turn = runtime.event()
        self.done = runtime.event()


class _Gathering(Generic[_Name, _Found]):
    """``look_at`` is called for the names of whole groups, at most ``parallel`` at a time."""

    def __init__(
        self,
        look_at: Callable[[Collection[_Name]], Mapping[_Name, _Found]],
        runtime: Runtime,
        parallel: int,
        looked: Callable[[_Group[_Name, _Found]], None],
    ) -> None:
        """``looked`` is called with each group that was looked at."""
        self._look_at = look_at
        self._runtime = runtime
        self._looked = looked
        self._lock = runtime.lock()
        self._free = parallel
        self._gathering: _Joinable[_Name, _Found] | None = None
        self._under_way: list[_Group[_Name, _Found]] = []

    def joined(self, names: Collection[_Name]) -> _Group[_Name, _Found]:
        """A group with these names that was looked at within this call."""
        with self._lock:
            others = self._gathering
            if others is not None:
                others.names.update(names)
            elif self._free:
                self._free -= 1
                alone = self._begun(_Group(names))
            else:
                own = self._gathering = _Joinable(names, self._runtime)
                alone = None
        if others is not None:
            others.done.wait()
            return others
        if alone is not None:
            self._look(alone)
            return alone
        own.turn.wait()
        with self._lock:
            self._begun(own)
        try:
            self._look(own)
        finally:
            own.done.set()
        return own

    def is_long_at(self, names: Collection[_Name]) -> bool:
        """Whether one of these is being looked at, and has been for long."""
        if not self._under_way:
            return False
        with self._lock:
            since = self._runtime.monotonic() - _LONG_S
            return any(
                group.began < since and not group.names.isdisjoint(names)
                for group in self._under_way
            )

    def _begun(self, group: _Group[_Name, _Found]) -> _Group[_Name, _Found]:
        group.began = self._runtime.monotonic()
        self._under_way.append(group)
        return group

    def _look(self, group: _Group[_Name, _Found]) -> None:
        own, held = cpu.work_for(None), memory.work_for(None)  # it is for all of them
        try:
            group.found = self._look_at(group.names)
        except Exception as error:  # noqa: BLE001 - handed to everybody of the group
            group.error = untraced(error)
        finally:
            cpu.work_for(own)
            memory.work_for(held)
            with self._lock:
                self._under_way.remove(group)
                following, self._gathering = self._gathering, None
                if following is None:
                    self._free += 1
                else:
                    following.turn.set()
            self._looked(group)


class SharedLooks(Generic[_Name, _Found]):
    """``look_at`` is called for the names of several callers, at most ``parallel`` such calls at a
    time, and for those of suspects catalog by catalog."""

    def __init__(
        self,
        look_at: Callable[[Collection[_Name]], Mapping[_Name, _Found]],
        runtime: Runtime,
        parallel: int = 1,
        catalog_of: Callable[[_Name], str] = str,
    ) -> None:
        self._look_at = look_at
        self._runtime = runtime
        self._catalog_of = catalog_of
        self._suspects = Suspects(runtime, "reading")
        self._together = self._gathering(parallel)
        self._apart: dict[str, _Gathering[_Name, _Found]] = {}

    def look(self, names: Collection[_Name]) -> dict[_Name, _Found]:
        """What there is under ``names`` at a moment within this call. Raises what looking does."""
        if not self._is_apart(names):
            group = self._together.joined(names)
            if not self._is_worth_another_look(group, names):
                return group.found_of(names)
        by_catalog: dict[str, list[_Name]] = {}
        for name in names:
            by_catalog.setdefault(self._catalog_of(name), []).append(name)
        found: dict[_Name, _Found] = {}
        for catalog, its in by_catalog.items():
            found |= self._look_apart(catalog, its)
        return found

    def _look_apart(self, catalog: str, names: Collection[_Name]) -> dict[_Name, _Found]:
        gathering = self._apart.get(catalog)
        if gathering is None:
            gathering = self._apart.setdefault(catalog, self._gathering(1))
        group = gathering.joined(names)
        if catalog not in self._suspects:
            self._apart.pop(catalog, None)
        if group.may_be_anothers(names):
            group = self._gathering(1).joined(names)
        return group.found_of(names)

    def _is_worth_another_look(
        self, group: _Group[_Name, _Found], names: Collection[_Name]
    ) -> bool:
        """Whether it failed, and may not fail without what others asked of it."""
        if group.error is None or isinstance(group.error, Unsent):
            return False
        return len(self._catalogs(group)) > 1 or group.may_be_anothers(names)

    def _is_apart(self, names: Collection[_Name]) -> bool:
        if self._suspects and any(self._catalog_of(name) in self._suspects for name in names):
            return True
        return self._together.is_long_at(names)

    def _gathering(self, parallel: int) -> _Gathering[_Name, _Found]:
        return _Gathering(self._look_at, self._runtime, parallel, self._looked)

    def _looked(self, group: _Group[_Name, Any]) -> None:
        if group.error is None:
            self._suspects.worked(self._catalogs(group), group.began)
        elif not isinstance(group.error, Unsent):
            self._suspects.failed(self._catalogs(group))

    def _catalogs(self, group: _Group[_Name, Any]) -> set[str]:
        return {self._catalog_of(name) for name in group.names}
