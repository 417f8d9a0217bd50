"""Reads of the store that are requested at the same time share one call.

A read must return what the store holds after the read was requested. Readers that come while a call
is under way gather for the next one, up to a bound of names: no timer, no delay when idle, and a
busy process asks the database once for dozens of readers.

One catalog's trouble doesn't affect others: if a call for many catalogs fails, each is read alone,
and those that fail again stay alone for a while. The same goes for records: if a shared call fails
although the database is there, each reader reads once more for itself. And a reader that asks for a
name which an earlier call has been reading for long doesn't wait for that call.

*Suspects* are catalogs whose calls of the store failed, or took long. They share no call.

A call for many catalogs fails, or takes long, as a whole: perhaps one of several shards is away, or
somebody edited one head by hand. Nobody can tell which catalog is at fault, so all that shared the
call become suspects. A suspect shares no call with others, and no thread that they wait for, until
a call for it alone has worked. So one catalog's trouble costs the others one call, once. The
catalog itself stays a suspect while calls for it alone fail, and calls for others work.

A worked example. The heads of a, b and c are read in one call, which fails: the shard of c is away.
Then each is read alone. This works at once for a and b, and they share calls again. It fails for c,
which shares no calls for the next seconds, nor as long as it continues to fail.

If several calls for single catalogs fail in a row, the whole database is away, and the suspects
share calls again. So that costs a few more calls, not one for each catalog.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

from gateway import cpu, memory
from gateway.errors import untraced
from gateway.runtime import Runtime
from gateway.store.contract import StoreUnreachable, Unsent

_log = logging.getLogger(__name__)

# A call that takes this long counts as failed: it is as bad for the catalogs that share it.
_SLOW_S: Final = 1.0
# How long a suspect that failed alone, while others worked, stays one at least.
_HELD_S: Final = 5.0
# How long a call that worked shows that the database is there.
_PROOF_S: Final = 2.0
# After this many calls for single catalogs that failed in a row, the whole database is away.
_IN_A_ROW: Final = 8
_CATALOGS_MAX: Final = 10_000


class Suspects(dict[str, float]):
    """By suspect, the time in monotonic seconds from which a call that works clears it.

    Thread-safe; no method waits, and all are quick while there are none.
    """

    def __init__(self, runtime: Runtime, what: str) -> None:
        """``what`` says in log lines what the calls do: "reading", for example."""
        super().__init__()
        self._runtime = runtime
        self._what = what
        self._lock = runtime.lock()
        self._bad_in_a_row = 0
        self._worked_at: float | None = None

    def note_failure(self, catalogs: Collection[str]) -> None:
        """Note that one call for these catalogs failed."""
        with self._lock:
            now = self._runtime.monotonic()
            if len(catalogs) > 1:
                self._suspect(catalogs, now)
            else:
                self._failed_alone(catalogs, now)

    def note_success(self, catalogs: Collection[str], began: float) -> None:
        """Note that one call for these catalogs worked, which was begun at that monotonic time. A
        slow call counts as failed."""
        now = self._runtime.monotonic()
        if now - began >= _SLOW_S:
            self.note_failure(catalogs)
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
                text = "%s of %r fails or is slow while others work: it shares no call with them"
                _log.warning(text, self._what, catalog, extra=about)
            self[catalog] = now + _HELD_S


_Name = TypeVar("_Name", bound=Hashable)
_Found = TypeVar("_Found")

_LONG_S: Final = 0.25
# The most names of several readers in one call, which nothing interrupts: further readers gather
# for the call after it.
_NAMES_MAX: Final = 2_000


class _Group(Generic[_Name, _Found]):
    """Names that are read in one call."""

    def __init__(self, names: Collection[_Name]) -> None:
        self.names = set(names)
        self.began = 0.0
        self.found: Mapping[_Name, _Found] = {}
        self.error: Exception | None = None

    def may_be_anothers(self, names: Collection[_Name]) -> bool:
        """Whether the call failed although the database was there, and was for more than these
        names."""
        failed = self.error is not None and not isinstance(self.error, StoreUnreachable)
        return failed and not self.names.issubset(names)

    def found_of(self, names: Collection[_Name]) -> dict[_Name, _Found]:
        if self.error is not None:
            raise self.error
        return {name: self.found[name] for name in names if name in self.found}


class _Joinable(_Group[_Name, _Found]):
    """A group that others may join until its ``turn`` comes; they wait until it is ``done``."""

    def __init__(self, names: Collection[_Name], runtime: Runtime) -> None:
        super().__init__(names)
        self.turn = runtime.event()
        self.done = runtime.event()

    def joined(self, names: Collection[_Name]) -> bool:
        """Join the group for these names, unless they are too many for it; whether they aren't."""
        both = self.names.union(names)
        if len(both) <= _NAMES_MAX:
            self.names = both
        return len(both) <= _NAMES_MAX


class _Gathering(Generic[_Name, _Found]):
    """Calls ``read`` with the names of whole groups, in at most ``parallel`` calls at a time."""

    def __init__(
        self,
        read: Callable[[Collection[_Name]], Mapping[_Name, _Found]],
        runtime: Runtime,
        parallel: int,
        ended: Callable[[_Group[_Name, _Found]], None],
    ) -> None:
        """``ended`` is called with each group that was read."""
        self._read = read
        self._runtime = runtime
        self._ended = ended
        self._lock = runtime.lock()
        self._free = parallel
        self._gathering: deque[_Joinable[_Name, _Found]] = deque()  # in the order of their turns
        self._under_way: list[_Group[_Name, _Found]] = []

    def read(self, names: Collection[_Name]) -> _Group[_Name, _Found]:
        """A group with these names that was read within this call."""
        with self._lock:
            others = self._gathering[-1] if self._gathering else None
            if others is not None and others.joined(names):
                alone = None
            elif self._free:
                self._free -= 1
                alone = self._start(_Group(names))
            else:
                own: _Joinable[_Name, _Found] = _Joinable(names, self._runtime)
                self._gathering.append(own)
                others = alone = None
        if others is not None:
            others.done.wait()
            return others
        if alone is not None:
            self._read_group(alone)
            return alone
        own.turn.wait()
        with self._lock:
            self._start(own)
        try:
            self._read_group(own)
        finally:
            own.done.set()
        return own

    def is_long_at(self, names: Collection[_Name]) -> bool:
        """Whether a call for one of these names has been under way for long."""
        if not self._under_way:
            return False
        with self._lock:
            since = self._runtime.monotonic() - _LONG_S
            return any(
                group.began < since and not group.names.isdisjoint(names)
                for group in self._under_way
            )

    def _start(self, group: _Group[_Name, _Found]) -> _Group[_Name, _Found]:
        group.began = self._runtime.monotonic()
        self._under_way.append(group)
        return group

    def _read_group(self, group: _Group[_Name, _Found]) -> None:
        own, held = cpu.work_for(None), memory.work_for(None)  # not charged to one request
        try:
            group.found = self._read(group.names)
        except Exception as error:  # noqa: BLE001 - raised to all callers of the group
            group.error = untraced(error)
        except BaseException:  # the caller is ended: to the others, what isn't found isn't there
            group.error = StoreUnreachable("a read that others shared was broken off")
            raise
        finally:
            cpu.work_for(own)
            memory.work_for(held)
            with self._lock:
                self._under_way.remove(group)
                if self._gathering:
                    self._gathering.popleft().turn.set()
                else:
                    self._free += 1
            self._ended(group)


class SharedReads(Generic[_Name, _Found]):
    """Calls ``read`` with the names of several callers, in at most ``parallel`` such calls at a
    time; suspects are read catalog by catalog."""

    def __init__(
        self,
        read: Callable[[Collection[_Name]], Mapping[_Name, _Found]],
        runtime: Runtime,
        parallel: int = 1,
        catalog_of: Callable[[_Name], str] = str,
    ) -> None:
        self._read = read
        self._runtime = runtime
        self._catalog_of = catalog_of
        self._suspects = Suspects(runtime, "reading")
        self._together = self._gathering(parallel)
        self._apart: dict[str, _Gathering[_Name, _Found]] = {}

    def read(self, names: Collection[_Name]) -> dict[_Name, _Found]:
        """What is stored under ``names`` at a moment within this call. Raises what ``read``
        raises."""
        if not self._is_apart(names):
            group = self._together.read(names)
            if not self._is_worth_another_read(group, names):
                return group.found_of(names)
        by_catalog: dict[str, list[_Name]] = {}
        for name in names:
            by_catalog.setdefault(self._catalog_of(name), []).append(name)
        found: dict[_Name, _Found] = {}
        for catalog, its in by_catalog.items():
            found |= self._read_apart(catalog, its)
        return found

    def _read_apart(self, catalog: str, names: Collection[_Name]) -> dict[_Name, _Found]:
        gathering = self._apart.get(catalog)
        if gathering is None:
            gathering = self._apart.setdefault(catalog, self._gathering(1))
        group = gathering.read(names)
        if catalog not in self._suspects:
            self._apart.pop(catalog, None)
        if group.may_be_anothers(names):
            group = self._gathering(1).read(names)
        return group.found_of(names)

    def _is_worth_another_read(
        self, group: _Group[_Name, _Found], names: Collection[_Name]
    ) -> bool:
        """Whether the call failed, and may work without the names of others."""
        if group.error is None or isinstance(group.error, Unsent):
            return False
        return len(self._catalogs(group)) > 1 or group.may_be_anothers(names)

    def _is_apart(self, names: Collection[_Name]) -> bool:
        if self._suspects and any(self._catalog_of(name) in self._suspects for name in names):
            return True
        return self._together.is_long_at(names)

    def _gathering(self, parallel: int) -> _Gathering[_Name, _Found]:
        return _Gathering(self._read, self._runtime, parallel, self._ended)

    def _ended(self, group: _Group[_Name, Any]) -> None:
        if group.error is None:
            self._suspects.note_success(self._catalogs(group), group.began)
        elif not isinstance(group.error, Unsent):
            self._suspects.note_failure(self._catalogs(group))

    def _catalogs(self, group: _Group[_Name, Any]) -> set[str]:
        return {self._catalog_of(name) for name in group.names}
