"""Memory: one account of bytes for each request, and one for the whole process.

A request takes memory from its account before it uses it: for what is being read, what is built
from that, and the answer that waits to be sent. A request that asks for more than its part is
refused. If the process has no room, the request waits, in the order of arrival. But a principal may
hold only as much as it leaves to others (``access.principal.Shares``); beyond that, its requests
are overtaken. After some seconds, a waiting request is refused, and may be sent again.

A waiting request may hold memory already, and if all requests waited for each other, the process
would stand still. So the request that has been building for longest never waits: it alone may take
the process beyond its bound, by at most its own part. The exception is when unsent answers fill the
bound; then their clients have to take them, or are cut off.

The memory that JSON will take is computed before it is parsed: from the brackets, commas and colons
of its text (``text_weight``). A record of the database has none of these, so its memory is bounded
by its length, and, once it is decoded, by its content (``parsed_bytes``). All three are bounds, not
estimates: of nested arrays, two bytes of text take 88 of memory. The store takes memory before it
parses anything, from the account of the request that is worked on. An answer of the database counts
with the largest possible size, REPLY_BYTES, since its size is known only when it is there.
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
from gateway.cpu import yield_if_over
from gateway.errors import AboveLimit, MemoryFull
from gateway.limits import MIB, MemoryLimits
from gateway.runtime import Event, Runtime

# The size of a batch of the database's answer: the database sends at most 16 MB at once.
REPLY_BYTES: Final = 16 * MIB
# The size of one document in an answer: few stored ones are larger, and those are read one by one.
DOCUMENT_BYTES: Final = 4 * MIB
# The most bytes of memory that a byte of JSON, or of BSON, takes once it is parsed: {"ab":null,…}
# just after its object has grown. Most take 5 to 10.
PARSED: Final = 45
_PARSED_RECORD: Final = 35
# Answers up to this size aren't counted, because every request has that much anyway.
_SMALL_BYTES: Final = 64 * 1024
# JSON texts up to this size aren't counted, because they take no more than that once parsed.
UNWEIGHED_BYTES: Final = 4096
# After this much was parsed or encoded, which takes about 10 ms, others may go on.
_TURN_BYTES: Final = 512 * 1024
# From this size on, a parsed text is a large tree: it has at least some thousand objects.
_TREE_BYTES: Final = 32 * 1024
# How often ``when_short`` is called while a request waits.
_LOOK_S: Final = 1.0
# How often a pause checks whether the others are done.
_PAUSE_LOOK_S: Final = 0.01
# How long a request waits whose answer has begun: it can only be broken off, so it waits longer.
_BEGUN_PATIENCE_S: Final = 60.0

_Given = TypeVar("_Given")
_Parsed = TypeVar("_Parsed")

_encode: Final = msgspec.json.Encoder().encode
_OBJECT_BYTES: Final = 184
_ARRAY_BYTES: Final = 88
_ITEM_BYTES: Final = 64
_NAME_BYTES: Final = 64


class Trees:
    """Parses large trees, and, with ``are_left_alone``, hides them from the garbage collector: they
    have no cycles, and reference counts free them. Otherwise the collector would take half of the
    time to parse one, within one call, and as much again later.

    With each tree, all objects that exist at that moment are hidden (``gc.freeze``), until all
    objects are looked at again (``server.garbage``). ``parsed`` counts the trees.
    """

    def __init__(self) -> None:
        self.are_left_alone = False
        self.parsed = 0

    def parse(self, parse: Callable[[_Given], _Parsed], given: _Given, size: int) -> _Parsed:
        """The result of ``parse(given)``, where ``given`` has ``size`` bytes."""
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
    """A bound on the memory of JSON values, in bytes. This costs as much as encoding them, so
    others may go on before each."""
    return sum(map(_parsed_bytes, values))


def _parsed_bytes(value: object) -> int:
    yield_if_over()
    return text_weight(_encode(value))


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def text_weight(text: bytes) -> int:
    """The most bytes of memory that a JSON text takes once it is parsed; marks within its strings
    count, too. Takes some microseconds for 64 KiB."""
    marks = (
        _OBJECT_BYTES * text.count(b"{")
        + _ARRAY_BYTES * text.count(b"[")
        + _ITEM_BYTES * text.count(b",")
        + _NAME_BYTES * text.count(b":")
    )
    # One character outside the basic plane makes each character of its text take four bytes.
    return marks + len(text) * (1 if text.isascii() else 4)


@dataclass(frozen=True, slots=True)
class MemoryReadings:
    """What requests hold of a process's memory. ``waited`` and ``refused`` count requests since the
    process began."""

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
        """``drop_kept``: drops what is only kept to save work, such as caches."""
        self.drop_kept = drop_kept
        self.limits = limits
        self._runtime = runtime
        self._lock = runtime.lock()
        self._held = Shares(limits.bytes_max)
        self._unsent = 0
        # The accounts that hold memory for an answer that isn't ready yet, longest first.
        self._building: dict[Account, None] = {}
        self._waiting: list[_Waiter] = []
        self._waited = 0
        self._refused = 0
        self._pauses = False
        # Called while a request waits: makes room if there are unsent answers.
        self.when_short: Callable[[], None] = lambda: None

    def account(self) -> Account:
        """An account for a request; it must be closed."""
        return Account(self)

    def readings(self) -> MemoryReadings:
        return MemoryReadings(
            self._held.held, self._unsent, len(self._waiting), self._waited, self._refused
        )

    @property
    def building_bytes(self) -> int:
        """The bytes that are held, without answers that wait to be sent."""
        return self._held.held - self._unsent

    def pause(self, bytes_max: int, patience_s: float = 2.0) -> bool:
        """Make requests wait that hold nothing yet, until the others hold at most ``bytes_max``;
        whether that happened in time. The waiting ones go on only when the caller waits or
        yields."""
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
        """Let others go on."""
        self._runtime.sleep(0)

    def take(self, account: Account, size: int) -> None:
        """See ``Account.take``."""
        if not size:
            return  # no request waits for nothing
        with self._lock:
            self.require_within_part(account, size)
            if (not self._waiting and self._fits(account, size)) or self._goes_first(account):
                self._hold(account, size)
                return
            waiter = _Waiter(account, size, self._runtime.event())
            self._waiting.append(waiter)
            self._waited += 1
            self._let_pass()  # it passes at once if no other request is building
        self._wait(waiter)

    def own_account(self) -> OwnAccount:
        """An account for a thread of the process itself; close it after each piece of work."""
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
        """Count the account, with all that it holds, in the share of ``holder`` from now on."""
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
            f"there was no room for {waiter.size} more bytes in the {self.limits.bytes_max} that"
            " this worker has for requests (memory_bytes_max)"
        )

    def require_within_part(self, account: Account, size: int) -> None:
        """See ``Account.require``."""
        maximum, actual = self.limits.request_bytes_max, account.held + size
        if actual > maximum:
            raise AboveLimit(
                f"the request would take about {actual} bytes of memory; the limit is {maximum}",
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
        """Whether the account needn't wait, whatever the others hold."""
        if self._unsent > self._held.maximum or (self._pauses and not account.held):
            return False
        first = next(iter(self._building), None)
        if first is None and self._waiting:
            first = self._waiting[0].account
        return first is account

    def _let_pass(self) -> None:
        """Let the waiting requests pass that find room now."""
        is_full = False
        for waiter in tuple(self._waiting):
            fits = not is_full and self._fits(waiter.account, waiter.size)
            if fits or self._goes_first(waiter.account):
                self._waiting.remove(waiter)
                self._hold(waiter.account, waiter.size)
                waiter.passes.set()
            elif self._held.held + waiter.size > self._held.maximum:
                is_full = True  # a request isn't overtaken by later ones that need less

    def _hold(self, account: Account, size: int) -> None:
        if account.is_sent:  # the answer is being sent, and more of it is made
            account.is_sent = False
            self._unsent -= account.held
        self._held.take(account.holder, size)
        account.held += size
        if account.held:  # an account that holds nothing would never be removed again
            self._building[account] = None

    def _let_go(self, account: Account, size: int) -> None:
        self._held.give_back(account.holder, size)
        account.held -= size
        if account.is_sent:
            self._unsent -= size
        elif not account.held:
            self._building.pop(account, None)


class Account:
    """The memory that one request holds. For one thread at a time."""

    __slots__ = ("_memory", "_since_turn", "has_begun", "held", "holder", "is_sent")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._since_turn = 0
        self.held = 0
        self.holder: str | None = None
        self.is_sent = False
        self.has_begun = False

    def take(self, size: int) -> None:
        """Take ``size`` bytes, perhaps after waiting.

        Raises AboveLimit beyond the request's part, and MemoryFull if there is no room for too
        long.
        """
        self._memory.take(self, size)

    def has_room(self, size: int) -> bool:
        """Whether ``size`` bytes could be taken without waiting."""
        return self._memory.has_room(self, size)

    def give_back(self, size: int) -> None:
        self._memory.give_back(self, size)

    @contextmanager
    def holding(self, size: int = 0) -> Iterator[None]:
        """Hold ``size`` bytes in this context. Whatever else is taken meanwhile is also given back
        at its end."""
        before = self.held
        self.take(size)
        try:
            yield
        finally:
            if self.held > before:
                self.give_back(self.held - before)

    def require(self, size: int) -> None:
        """Raise AboveLimit if ``size`` more bytes are beyond the request's part."""
        self._memory.require_within_part(self, size)

    def take_text(self, text: bytes) -> None:
        """Take the memory for a JSON text that is about to be parsed, and kept."""
        if len(text) > UNWEIGHED_BYTES:
            self.passed(len(text))
            self.take(text_weight(text))

    def take_parsed(self, text: str) -> None:
        """The same for a stored text; but never more than three quarters of a request's part, so
        that each can be read."""
        if len(text) > UNWEIGHED_BYTES:
            self.passed(len(text))
            most = self._memory.limits.request_bytes_max * 3 // 4
            self.take(min(text_weight(text.encode()), most))

    def take_record(self, size: int) -> None:
        """Take the memory for a record of ``size`` bytes that is about to be decoded: the most that
        it may take, if the request's part has room for that. Call ``settle`` afterwards."""
        self.passed(size)
        self.take(min(_PARSED_RECORD * size, self._room()))

    def take_chain(self, texts: Sequence[str | bytes]) -> None:
        """Take the memory for a value that is about to be made from these texts, one after the
        other. Call ``settle`` afterwards."""
        size = sum(map(len, texts))
        if size > UNWEIGHED_BYTES:
            self.passed(size)
            self.take(min(sum(text_weight(_as_bytes(each)) for each in texts), self._room()))

    def settle(self, held: int, *values: object) -> None:
        """Replace what was taken since the account held ``held`` by the memory of ``values``, which
        were made with it."""
        more = held + parsed_bytes(*values) - self.held
        if more > 0:
            self.take(more)
        else:
            self.give_back(-more)

    def _room(self) -> int:
        """The most that an estimate may take: it leaves a quarter of the part to known sizes."""
        return max(0, self._memory.limits.request_bytes_max * 3 // 4 - self.held)

    def passed(self, size: int) -> None:
        """Note that ``size`` bytes were processed; now and then, this lets others go on."""
        self._since_turn += size
        if self._since_turn >= _TURN_BYTES:
            self._since_turn = 0
            self._memory.turn()

    def keep(self, size: int) -> None:
        """Give everything back except ``size`` bytes for the answer, which is ready to be sent."""
        self.has_begun = True
        if self.held or size > _SMALL_BYTES:
            self._memory.keep(self, size if size > _SMALL_BYTES else 0)

    def claim(self, holder: str | None) -> None:
        """Set the principal in whose share the account counts: see ``Principal.holder``."""
        if self.held:
            self._memory.claim(self, holder)
        else:
            self.holder = holder

    def close(self) -> None:
        if self.held:
            self._memory.give_back(self, self.held)


class OwnAccount(Account):
    """The account of work that requests wait for, such as a round of commits. It counts, but never
    waits, because those requests hold memory meanwhile."""

    __slots__ = ()

    def take(self, size: int) -> None:
        """Take ``size`` bytes at once. Raises AboveLimit beyond the part of a request, and
        MemoryFull if that takes the process beyond its bound by more than such a part."""
        self._memory.take_at_once(self, size)

    def passed(self, size: int) -> None: ...


class _Unaccounted(Account):
    """The account of the process's own work, which has bounds of its own; it counts nothing."""

    __slots__ = ()

    def __init__(self) -> None:  # without a ``Memory``
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
    """The account of the request that this thread works on."""
    return _current.get()


def work_for(account: Account | None) -> Account:
    """Have this thread work on the request of ``account`` from now on (None: on none); return the
    account before."""
    before = _current.get()
    _current.set(_UNACCOUNTED if account is None else account)
    return before
