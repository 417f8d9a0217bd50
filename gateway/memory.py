"""Memory: one account of bytes for each request, and one for the whole process.

What is being read, what is built of it, and the answer that waits to be sent are taken from the
request's account before they are there. A request that asks for more than its part is refused. One
that finds no room in the process waits: in the order of arrival, but a principal holds no more than
it leaves to others (``access.principal.Shares``), and who is beyond its share is overtaken.
After some seconds it is refused, and may be sent again.

Whoever waits may hold some already, and a process whose requests all wait for each other would
stand still. So the request that has been building for longest is never kept waiting: alone it may
take the process beyond its bound, by its own part at most. That holds unless unsent answers fill
the bound; then their clients have to take them, or are cut off.

What JSON takes once it is parsed is weighed before it is: by the brackets, commas and colons of
its text (``text_weight``), or of a record of the database, which has none, by its length and, once
it is there, by what it is (``parsed_bytes``). All three are bounds, not estimates: of nested arrays
two bytes of text take 88 of memory. The store asks before it parses anything, wherever it is called
from, on the account of the request that is worked on. An answer from the database itself is taken
at its largest, REPLY_BYTES, for its size is known when it is there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from gateway.access.principal import Shares
from gateway.cpu import let_others
from gateway.errors import AboveLimit, MemoryFull
from gateway.limits import MIB, MemoryLimits
from gateway.runtime import Event, Runtime

# A batch of the database's answer, which sends at most 16 MB at once.
REPLY_BYTES: Final = 16 * MIB
# One document of it: few are stored that are larger, and a store reads each by itself.
DOCUMENT_BYTES: Final = 4 * MIB
# The most that a byte of JSON takes once it is parsed, and a byte of BSON: {"ab":null,…} just after
# its object has grown. Most take 5 to 10.
PARSED: Final = 45
_PARSED_RECORD: Final = 35
# Answers below it aren't counted: so much is behind every request; nor is JSON below the other,
# which takes no more.
_SMALL_BYTES: Final = 64 * 1024
UNWEIGHED_BYTES: Final = 4096
# Others have their turn after so much was parsed or encoded: about 10 ms.
_TURN_BYTES: Final = 512 * 1024
# Some thousand objects at least.
_TREE_BYTES: Final = 32 * 1024
_LOOK_S: Final = 1.0
_PAUSE_LOOK_S: Final = 0.01
# An answer that has begun can only be broken off: it waits longer.
_BEGUN_PATIENCE_S: Final = 60.0

_Given = TypeVar("_Given")
_Parsed = TypeVar("_Parsed")

_encode: Final = msgspec.json.Encoder().encode
_OBJECT_BYTES: Final = 184
_ARRAY_BYTES: Final = 88
_ITEM_BYTES: Final = 64
_NAME_BYTES: Final = 64


class Trees:
    """What happens to large trees that were parsed, while ``are_left_alone``: who looks for cycles
    never looks at them, for they have none, and reference counts free them. Otherwise half of the
    time to parse one would go to that, in the midst of one call, and the same again later.

    With each tree all that is there at the moment is left alone (``gc.freeze``), until somebody
    looks at everything. ``parsed`` counts the trees.
    """

    def __init__(self) -> None:
        self.are_left_alone = False
        self.parsed = 0

    def parse(self, parse: Callable[[_Given], _Parsed], given: _Given, size: int) -> _Parsed:
        """``parse(given)``, of ``size`` bytes."""
        if size < _TREE_BYTES or not self.are_left_alone or not gc.isenabled():
            return parse(given)
        gc.disable()
        try:
            return parse(given)
        finally:
            self.parsed += 1
            gc.freeze()
            gc.enable()


trees: Final = Trees()


def parsed_bytes(*values: object) -> int:
    """About what JSON values take in memory, rather too much; as costly as to encode them, so that
    others may have their turn before each."""
    return sum(map(_parsed_bytes, values))


def _parsed_bytes(value: object) -> int:
    let_others()
    return text_weight(_encode(value))


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def text_weight(text: bytes) -> int:
    """The most that JSON takes once it is parsed: marks within its texts count as if they were
    its own. Some microseconds for 64 KiB."""
    marks = (
        _OBJECT_BYTES * text.count(b"{")
        + _ARRAY_BYTES * text.count(b"[")
        + _ITEM_BYTES * text.count(b",")
        + _NAME_BYTES * text.count(b":")
    )
    # One character beyond the first planes makes all of a text take four bytes each.
    return marks + len(text) * (1 if text.isascii() else 4)


@dataclass(frozen=True, slots=True)
class MemoryReadings:
    """``waited`` and ``refused`` count requests since the process began."""

    held_bytes: int
    unsent_bytes: int
    waiting: int
    waited: int
    refused: int


class Memory:
    """The account of a process. Thread-safe."""

    def __init__(
        self,
        runtime: Runtime,
        limits: MemoryLimits,
        drop_kept: Callable[[], None] = lambda: None,
    ) -> None:
        """``drop_kept``: drop what is only kept to save work."""
        self.drop_kept = drop_kept
        self.limits = limits
        self._runtime = runtime
        self._lock = runtime.lock()
        self._held = Shares(limits.bytes_max)
        self._unsent = 0
        # Those that hold some and are not sent yet, the longest first.
        self._building: dict[Account, None] = {}
        self._waiting: list[_Waiter] = []
        self._waited = 0
        self._refused = 0
        self._pauses = False
        # Called while somebody waits: makes room where answers lie unsent.
        self.when_short: Callable[[], None] = lambda: None

    def account(self) -> Account:
        """That of a request; to be closed."""
        return Account(self)

    def readings(self) -> MemoryReadings:
        return MemoryReadings(
            self._held.held, self._unsent, len(self._waiting), self._waited, self._refused
        )

    @property
    def building_bytes(self) -> int:
        """What is held, without answers that wait to be sent."""
        return self._held.held - self._unsent

    def pause(self, bytes_max: int, patience_s: float = 2.0) -> bool:
        """Let those wait that hold nothing yet, until the others are done but for so much; whether
        it came to that in time. None of them goes on before the caller lets them have a turn."""
        self._pauses = True
        try:
            until = self._runtime.monotonic() + patience_s
            while self.building_bytes > bytes_max and self._runtime.monotonic() < until:
                self._runtime.sleep(_PAUSE_LOOK_S)
            return self.building_bytes <= bytes_max
        finally:
            with self._lock:
                self._pauses = False
                self._let_pass()

    def turn(self) -> None:
        """Let others have their turn."""
        self._runtime.sleep(0)

    def take(self, account: Account, size: int) -> None:
        """See ``Account.take``."""
        if not size:
            return  # nobody waits for nothing
        with self._lock:
            self.require_within_part(account, size)
            if (not self._waiting and self._fits(account, size)) or self._goes_first(account):
                self._hold(account, size)
                return
            waiter = _Waiter(account, size, self._runtime.event())
            self._waiting.append(waiter)
            self._waited += 1
            self._let_pass()  # where all others wait to be sent, it goes first
        self._wait(waiter)

    def own_account(self) -> OwnAccount:
        """That of a thread of the process's own; to be closed after each piece of work."""
        return OwnAccount(self)

    def take_at_once(self, account: Account, size: int) -> None:
        """See ``OwnAccount.take``."""
        with self._lock:
            self.require_within_part(account, size)
            most = self.limits.bytes_max + self.limits.request_bytes_max
            if account.held and self._held.held + size > most:
                self._refused += 1
                raise MemoryFull(f"there is no room for {size} bytes beside {self._held.held}")
            self._hold(account, size)

    def has_room(self, account: Account, size: int) -> bool:
        """See ``Account.has_room``."""
        with self._lock:
            return not self._waiting and self._fits(account, size)

    def give_back(self, account: Account, size: int) -> None:
        with self._lock:
            self._let_go(account, size)
            self._let_pass()

    def keep(self, account: Account, size: int) -> None:
        """See ``Account.keep``."""
        with self._lock:
            self._let_go(account, account.held)
            if size > 0:
                self._held.take(account.holder, size)
                account.held, account.is_sent = size, True
                self._unsent += size
            self._let_pass()

    def claim(self, account: Account, holder: str | None) -> None:
        """The account is ``holder``'s from now on, with all that it holds."""
        with self._lock:
            self._held.give_back(account.holder, account.held)
            account.holder = holder
            self._held.take(holder, account.held)

    def _wait(self, waiter: _Waiter) -> None:
        patience_s = _BEGUN_PATIENCE_S if waiter.account.has_begun else self.limits.patience_s
        until = self._runtime.monotonic() + patience_s
        while not waiter.passes.wait(min(_LOOK_S, max(0.0, until - self._runtime.monotonic()))):
            if self._runtime.monotonic() >= until:
                break
            self.when_short()
        with self._lock:
            if waiter not in self._waiting:
                return
            self._waiting.remove(waiter)
            self._refused += 1
            self._let_pass()
        raise MemoryFull(
            f"there was no room for {waiter.size} bytes within the {self.limits.bytes_max} that"
            " this worker has for requests (memory_bytes_max)"
        )

    def require_within_part(self, account: Account, size: int) -> None:
        """See ``Account.require``."""
        maximum, actual = self.limits.request_bytes_max, account.held + size
        if actual > maximum:
            raise AboveLimit(
                f"it would take about {actual} bytes of memory, {maximum} are allowed",
                limit="request_memory_bytes_max",
                maximum=maximum,
                actual=actual,
            )

    def _fits(self, account: Account, size: int) -> bool:
        if self._pauses and not account.held:
            return False
        if self._held.held + size > self._held.maximum:
            return False
        return account.holder is None or self._held.has_room_for(account.holder, size)

    def _goes_first(self, account: Account) -> bool:
        """Whether the account isn't kept waiting, whatever the others hold."""
        if self._unsent > self._held.maximum or (self._pauses and not account.held):
            return False
        first = next(iter(self._building), None)
        if first is None and self._waiting:
            first = self._waiting[0].account
        return first is account

    def _let_pass(self) -> None:
        """Let those pass who wait and find room now."""
        is_full = False
        for waiter in tuple(self._waiting):
            fits = not is_full and self._fits(waiter.account, waiter.size)
            if fits or self._goes_first(waiter.account):
                self._waiting.remove(waiter)
                self._hold(waiter.account, waiter.size)
                waiter.passes.set()
            elif self._held.held + waiter.size > self._held.maximum:
                is_full = True  # nobody is overtaken by those who need less

    def _hold(self, account: Account, size: int) -> None:
        if account.is_sent:  # an answer that is made while it is sent
            account.is_sent = False
            self._unsent -= account.held
        self._held.take(account.holder, size)
        account.held += size
        if account.held:  # else nothing would ever take it out again
            self._building[account] = None

    def _let_go(self, account: Account, size: int) -> None:
        self._held.give_back(account.holder, size)
        account.held -= size
        if account.is_sent:
            self._unsent -= size
        elif not account.held:
            self._building.pop(account, None)


class Account:
    """What one request holds; by one thread at a time."""

    __slots__ = ("_memory", "_since_turn", "has_begun", "held", "holder", "is_sent")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._since_turn = 0
        self.held = 0
        self.holder: str | None = None
        self.is_sent = False
        self.has_begun = False

    def take(self, size: int) -> None:
        """Take so many bytes, maybe after a wait.

        Raises AboveLimit beyond the request's part, and MemoryFull where there is no room for long.
        """
        self._memory.take(self, size)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes may be had without a wait."""
        return self._memory.has_room(self, size)

    def give_back(self, size: int) -> None:
        self._memory.give_back(self, size)

    @contextmanager
    def holding(self, size: int = 0) -> Iterator[None]:
        """As long as this lasts; all that is taken meanwhile is given back at its end, too."""
        before = self.held
        self.take(size)
        try:
            yield
        finally:
            if self.held > before:
                self.give_back(self.held - before)

    def require(self, size: int) -> None:
        """Raise AboveLimit where so much more is beyond the request's part."""
        self._memory.require_within_part(self, size)

    def take_text(self, text: bytes) -> None:
        """This JSON is about to be parsed, and stays."""
        if len(text) > UNWEIGHED_BYTES:
            self.passed(len(text))
            self.take(text_weight(text))

    def take_parsed(self, text: str) -> None:
        """Likewise, for what is stored: one alone is never more than there is room for."""
        if len(text) > UNWEIGHED_BYTES:
            self.passed(len(text))
            most = self._memory.limits.request_bytes_max * 3 // 4
            self.take(min(text_weight(text.encode()), most))

    def take_record(self, size: int) -> None:
        """A record of so many bytes is about to be decoded: the most that it may take, as far as
        there is room for what is known. To be settled."""
        self.passed(size)
        self.take(min(_PARSED_RECORD * size, self._room()))

    def take_chain(self, texts: Sequence[str | bytes]) -> None:
        """A value is about to be made of all these texts, one after the other. To be settled."""
        size = sum(map(len, texts))
        if size > UNWEIGHED_BYTES:
            self.passed(size)
            self.take(min(sum(text_weight(_as_bytes(each)) for each in texts), self._room()))

    def settle(self, held: int, *values: object) -> None:
        """All that was taken since so much was held has become ``values``."""
        more = held + parsed_bytes(*values) - self.held
        if more > 0:
            self.take(more)
        else:
            self.give_back(-more)

    def _room(self) -> int:
        """For an estimate, which leaves room to what is known."""
        return max(0, self._memory.limits.request_bytes_max * 3 // 4 - self.held)

    def passed(self, size: int) -> None:
        """So many bytes were gone through: now and then others have their turn."""
        self._since_turn += size
        if self._since_turn >= _TURN_BYTES:
            self._since_turn = 0
            self._memory.turn()

    def keep(self, size: int) -> None:
        """Give all back but an answer of that size, which is there and only has to be sent."""
        self.has_begun = True
        if self.held or size > _SMALL_BYTES:
            self._memory.keep(self, size if size > _SMALL_BYTES else 0)

    def claim(self, holder: str | None) -> None:
        """The principal is known: see ``Principal.holder``."""
        if self.held:
            self._memory.claim(self, holder)
        else:
            self.holder = holder

    def close(self) -> None:
        if self.held:
            self._memory.give_back(self, self.held)


class OwnAccount(Account):
    """That of work which requests wait for, such as a round of commits: it counts, and is never
    kept waiting, for they hold memory meanwhile."""

    __slots__ = ()

    def take(self, size: int) -> None:
        """Raises AboveLimit beyond what a request may take, and MemoryFull, at once, where all that
        is held takes the process as far beyond its bound as that."""
        self._memory.take_at_once(self, size)

    def passed(self, size: int) -> None: ...


class _Unaccounted(Account):
    """That of the process's own work, which has bounds of its own."""

    __slots__ = ()

    def __init__(self) -> None:  # it has no memory to ask
        self.held = 0
        self.holder = None

    def take(self, size: int) -> None: ...

    def give_back(self, size: int) -> None: ...

    def require(self, size: int) -> None: ...

    def take_text(self, text: bytes) -> None: ...

    def take_parsed(self, text: str) -> None: ...

    def take_chain(self, texts: Sequence[str | bytes]) -> None: ...

    def take_record(self, size: int) -> None: ...

    def settle(self, held: int, *values: object) -> None: ...

    def passed(self, size: int) -> None: ...

    def keep(self, size: int) -> None: ...

    def claim(self, holder: str | None) -> None: ...


@dataclass(slots=True, eq=False)
class _Waiter:
    account: Account
    size: int
    passes: Event


_UNACCOUNTED: Final = _Unaccounted()
_current: ContextVar[Account] = ContextVar("gateway.memory", default=_UNACCOUNTED)


def account() -> Account:
    """That of the request which this thread works on."""
    return _current.get()


def work_for(account: Account | None) -> Account:
    """This thread works on the request of ``account`` from now on, None: on none; returns the one
    before."""
    before = _current.get()
    _current.set(_UNACCOUNTED if account is None else account)
    return before
