"""`/v1/bulk`: independent writes, one per line, each answered by one line, in order.

Three threads work on a request, so that none of them has to wait for another's step::

    reader                 committer                    sender (the server's own thread)
    lines of the body -->  windows of lines, committed  --> answers, as the client takes them
           (a queue of one window)       (a spool, on disk if it is large)

A client may send everything before it reads anything: its lines are read all the same. One that
sends a line and waits for the answer gets it: a window holds the lines that are there when the
committer is free, and needn't be full. While one is under way, the next one is read and queued, if
it is there as a whole and there is room for two; then it is decided as soon as the first is done. A
request takes the memory of three windows, a line and a piece of the spool.

A client that neither takes answers nor sends lines is cut off. After many lines in a row that never
became a write, no more are read, and the last answer says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import chain
from tempfile import TemporaryFile
from typing import IO, Any, Final, NamedTuple

from werkzeug.exceptions import HTTPException
from werkzeug.wsgi import get_input_stream

from gateway import cpu, memory
from gateway.access.principal import Shares
from gateway.decide.edits import operations_in
from gateway.decide.request import Fence, Request, is_for_now
from gateway.errors import Forbidden, GatewayError, MemoryFull
from gateway.http.context import Context, HeaderList, Need
from gateway.http.door.audit import BulkAudit, LineOutcome, outcome_of_line, refused_line
from gateway.http.door.rate_limits import BODY_BYTES, OPERATIONS
from gateway.http.routes import Routes, route
from gateway.http.wire import headers as media_types
from gateway.http.wire.body import refuse_encoded
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import refuse_conditions
from gateway.http.wire.headers import preferences
from gateway.http.wire.query import DRY_RUN_PARAMETERS, parameters
from gateway.http.wire.responses import Answer, Stream, StreamAnswer
from gateway.http.write.begins import (
    BEGIN,
    BeginNeeded,
    BeginRefused,
    begun_fence,
    step_request,
)
from gateway.http.write.bulk_lines import (
    BodyLine,
    LineSplitter,
    LineTerms,
    line_request,
    problem_line,
    written_line,
)
from gateway.http.write.explain import Represented
from gateway.limits import MIB, RequestLimits
from gateway.logs import for_this_request
from gateway.service import GatewayService

_log = logging.getLogger(__name__)

# A line of more bytes takes room from the budget below, which all requests share.
_SMALL_LINE_BYTES: Final = MIB // 4
_LARGE_LINES_BYTES: Final = 128 * MIB
_READ_BYTES: Final = 64 * 1024
# A writable socket takes this much without waiting.
_SEND_BYTES: Final = 4 * 1024
# How long bytes after the line that ended the request are dropped, and the pause after each piece.
# To close the connection at once would lose answers that are on their way.
_LINGER_S: Final = 5.0
_BETWEEN_PIECES_S: Final = 0.01
# Outcomes of begins that a request remembers.
_BEGINS_MAX: Final = 1_000
# Memory of parsed lines: the most for a window of several; how much isn't counted; and the most for
# a window of one line (a line with too many values is refused).
_PARSED_BYTES_MAX: Final = 24 * MIB
_UNCOUNTED_BYTES: Final = MIB
_PARSED_LINE_BYTES_MAX: Final = 128 * MIB
# A batch of one catalog holds this many requests by default, so more at a time gain nothing.
_WINDOW_LINES_MAX: Final = 512
_WINDOW_LINES_MIN: Final = 64
_WINDOW_BYTES_MAX: Final = 4 * MIB
_WINDOW_BYTES_MIN: Final = MIB // 16
# Bounds for the windows of all requests together; but each may have the minimum above.
_WINDOWS_LINES: Final = 4096
_WINDOWS_BYTES: Final = 64 * MIB
# A file of answers is on disk once it has more bytes.
_MEMORY_BYTES_MAX: Final = MIB
# A spool begins a new file after this many bytes: room is given back file by file.
_FILE_BYTES: Final = 4 * MIB
# Headers about a single write, which belong in its line, and the members there.
_HEADERS_OF_LINES: Final = {
    "HTTP_IDEMPOTENCY_KEY": ("Idempotency-Key", "idempotency_key"),
    "HTTP_COMMIT_MESSAGE": ("Commit-Message", "message"),
}


class BulkRoutes(Routes):
    def __init__(self, gateway: GatewayService, limits: RequestLimits) -> None:
        super().__init__(gateway, limits)
        self._shared = _Shared(
            Windows(), Budget(limits.bulk_answers_bytes_max), Budget(_LARGE_LINES_BYTES)
        )

    @route("POST", "/v1/bulk", "bulk", Need.TOKEN)  # each line is checked separately
    def bulk(self, context: Context) -> Answer:
        """Commit the lines as they come. All that can refuse the request as a whole comes first."""
        environ = context.environ
        refuse_conditions(environ)
        for name, (header, member) in _HEADERS_OF_LINES.items():
            if name in environ:
                detail = f"{header}: each line has its own, as {member!r}"
                raise RequestRefused("invalid_header", detail, header=header)
        params = parameters(environ, DRY_RUN_PARAMETERS)
        prefer = preferences(environ)
        media_types.require_lines(environ)
        refuse_encoded(environ)
        headers: HeaderList = [("Content-Type", media_types.LINES[0])]
        if prefer.wait_s is not None:
            headers.append(("Preference-Applied", f"wait={prefer.wait_s}"))
        terms = LineTerms(context.by, self._limits, params["dry_run"], prefer)
        run = _Run(self._gateway, terms, context, self._shared)
        return StreamAnswer(Stream(run.answers(), run.close), headers)


class _Shared(NamedTuple):
    """What a process's bulk requests share: window sizes, room for answers and for long lines."""

    windows: Windows
    answers: Budget
    large_lines: Budget


class _Window:
    """Lines that are committed together, beginning with index ``first``. ``answers`` has one for
    each line, b"" until the request in ``requests`` (by position) is decided. ``audit_lines`` is
    for the audit log; ``offsets`` and ``memory_bytes`` say what room the lines hold."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.answers: list[bytes] = []
        self.requests: dict[int, Request] = {}
        self.audit_lines: list[LineOutcome] = []
        self.offsets: list[int] = []
        self.memory_bytes = 0
        self.is_put = False  # whether its requests were queued, or are just being

    def has(self, catalog: str) -> bool:
        return any(each.catalog == catalog for each in self.requests.values())


class _Run:
    """One bulk request, from its first line to its last answer."""

    def __init__(
        self, gateway: GatewayService, terms: LineTerms, context: Context, shared: _Shared
    ) -> None:
        self._gateway = gateway
        self._terms = terms
        self._name = context.observed.request_id
        self._body = get_input_stream(context.environ)
        self._connection = context.environ.get("gunicorn.socket")
        if self._connection is not None:
            self._connection.let_kernel_drop_after(0)  # a client may send for long before it reads
        self._recheck = context.require_still_let_in
        self._spending = context.spending
        self._audit = BulkAudit(context.observed)
        self._lines = LineQueue(shared.windows)
        holder = context.holder
        self._spool = Spool(shared.answers, holder)
        self._large = LargeLines(shared.large_lines, holder, terms.limits.bulk_line_bytes_max)
        self._reader = threading.Thread(target=for_this_request(self._read), name="bulk")
        self._reader.daemon = True
        self._broken: Exception | None = None
        self._failed = False
        self._moved_at = time.monotonic()  # when lines last came, or answers last went
        self._refused = 0  # how many lines were refused or blank in a row, up to the last one
        self._series = gateway.series(context.by.name)
        self._under_way: deque[_Window] = deque()
        self._account = gateway.memory.account()
        self._account.claim(holder)
        self._parsed_bytes = 0  # the part of the account that windows hold
        # Fences of the versions that the request began: only their lines' answers say the fence.
        self._begun: set[Fence | None] = set()
        self._ended_early = False
        self._body_over = False
        self._windows: Windows | None = shared.windows
        self._windows.count(1)  # last: `close` counts it back

    def answers(self) -> Iterator[bytes]:
        """The answers, in pieces. Raises TimeoutError if the client stalls, and RuntimeError if a
        defect keeps the rest of the lines from being answered."""
        self._reader.start()
        commit = for_this_request(self._commit)
        threading.Thread(target=commit, name="bulk", daemon=True).start()
        while answers := self._spool.read(_SEND_BYTES):
            if self._connection is not None:
                self._await_writable(self._connection)
            yield answers
        if self._failed:
            # This cuts the connection, so that nobody takes the last answer for the end.
            raise RuntimeError(f"bulk request {self._name} was broken off")
        if self._ended_early:
            self._leave_the_rest()

    def close(self) -> None:
        """The client is gone, or has all answers: no further lines are committed."""
        if self._windows is not None:
            self._windows.count(-1)
            self._windows = None
        self._lines.close()
        self._spool.close()
        self._large.close()
        if self._connection is not None:
            self._connection.let_kernel_drop_after(self._terms.limits.send_stall_s)

    def _await_writable(self, connection: Any) -> None:
        """Wait until the client has taken enough answers for more to be sent without waiting.

        Sending itself mustn't wait, because the socket has a timeout while the body is read. Raises
        TimeoutError if for ``send_stall_s`` no answer was taken and no line came.
        """
        stall_s = self._terms.limits.send_stall_s
        left_s = float(stall_s)
        self._moved_at = max(self._moved_at, time.monotonic())
        while not connection.await_writable(left_s):
            left_s = self._moved_at + stall_s - time.monotonic()
            if left_s <= 0:
                what = f"the client of bulk request {self._name} took no answer for {stall_s} s"
                raise TimeoutError(what)

    def _leave_the_rest(self) -> None:
        """Wait for the reader; if the body isn't over then, stop receiving on the connection."""
        if self._connection is None:
            return
        self._reader.join(_LINGER_S)
        if not self._body_over:
            self._connection.stop_receiving()
            self._reader.join()

    def _read(self) -> None:
        """The reader: runs until the body is over, or nobody takes its lines."""
        limits = self._terms.limits
        splitter = LineSplitter(limits.bulk_line_bytes_max, limits.bulk_refused_lines_max)
        pieces = _pieces(self._body)
        try:
            for piece in pieces:
                lines = splitter.feed(piece)
                if lines:
                    self._moved_at = time.monotonic()
                else:
                    time.sleep(0)  # a fast client never makes the reader wait: let others go on
                if not self._lines.put(lines):
                    self._discard(pieces)
                    return
                self._series.stirred.set()
                if splitter.begun_bytes > _SMALL_LINE_BYTES:
                    self._large.hold(splitter.offset)
                # The following bytes are read as fast as the principal may send.
                self._pace(BODY_BYTES, len(piece))
            self._body_over = True
            self._lines.put(splitter.finish())
        except HTTPException as error:
            self._broken = error
        except Exception:  # noqa: BLE001 - the sender tells the client
            _log.exception("the reader of bulk request %s failed", self._name)
            self._failed = True
        finally:
            self._lines.end()
            self._series.stirred.set()

    def _discard(self, pieces: Iterator[bytes]) -> None:
        """Read and drop what a request that was ended still sends, so that its answers arrive."""
        until = time.monotonic() + _LINGER_S
        while self._ended_early and time.monotonic() < until:
            if not next(pieces, b""):
                self._body_over = True
                return
            time.sleep(_BETWEEN_PIECES_S)

    def _commit(self) -> None:
        """The committer: runs until there are no more lines, or nobody takes the answers."""
        index = 0
        memory.work_for(self._account)
        try:
            for lines, memory_bytes in self._windows_taken():
                index = self._read_window(index, lines, memory_bytes)
                if self._ended_early:
                    break
            self._finish_all()
            if self._ended_early:
                self._spool.write(self._end_line(index))
            elif self._broken is not None:
                # It isn't known whether another line was on its way, nor what it asked for.
                self._spool.write(problem_line(index, self._broken, self._name))
        except Exception:  # noqa: BLE001 - the sender tells the client
            _log.exception("bulk request %s failed", self._name)
            self._failed = True
        finally:
            self._lines.close()
            self._series.close()
            self._account.close()
            self._audit.log_end(index, self._ended_early)
            self._spool.end()

    def _windows_taken(self) -> Iterator[tuple[list[BodyLine], int]]:
        """The windows, each with the memory that it takes once parsed, which is reserved. A window
        that would take much is cut into smaller ones, or into single lines."""
        while lines := self._next_lines():
            for some, memory_bytes in _light(lines):
                if not self._has_memory(memory_bytes):
                    return
                self._pace(OPERATIONS, len(some))
                yield some, memory_bytes

    def _next_lines(self) -> list[BodyLine]:
        """The lines that have arrived, or else the next ones. Finishes windows meanwhile."""
        while self._under_way:
            ahead = self._lines.has_next if self._may_be_ahead(0) else None
            if not self._series.is_answered(ahead):
                break
            self._finish()
        return self._lines.take()

    def _may_be_ahead(self, memory_bytes: int) -> bool:
        """Whether a window may be read while another one is under way: it mustn't wait for anything
        that the other holds, nor delay its answers."""
        account = self._account
        return (
            len(self._under_way) == 1
            and self._spending is None
            and self._spool.has_room()
            and account.held + memory_bytes <= 2 * _PARSED_BYTES_MAX
            and account.has_room(memory_bytes)
        )

    def _has_memory(self, size: int) -> bool:
        """Reserve ``size`` bytes for parsed lines, waiting as long as necessary: no line is refused
        for lack of memory. False if nobody takes the answers any more."""
        while self._under_way and not self._may_be_ahead(size):
            self._finish()
        while size > _UNCOUNTED_BYTES and not self._lines.is_closed():
            with suppress(MemoryFull):
                self._account.take(size)
                self._parsed_bytes += size
                break
        return not self._lines.is_closed()

    def _read_window(self, index: int, lines: list[BodyLine], memory_bytes: int) -> int:
        """Read ``lines``, the first of which has ``index``, and queue their requests. Returns the
        index after them, or that of the first line that isn't read any more."""
        window = _Window(index)
        refusal = self._refusal()
        request_cpu_s = self._gateway.limits.request_cpu_ms / 1000
        for line in lines:
            self._refused += line.blank_before
            if self._refused >= self._terms.limits.bulk_refused_lines_max:
                self._ended_early = True
                break
            cpu.begin(request_cpu_s)
            answer = b""
            try:
                if refusal is not None:
                    raise refusal
                request = line_request(self._gateway, line, self._terms)
                if isinstance(request, BeginNeeded):
                    window = self._settled(request, window)
                    self._begin(request)
                    request = line_request(self._gateway, line, self._terms)
                    assert isinstance(request, Request)
                self._refused = 0
                window.requests[len(window.answers)] = request
            except BeginRefused as refused_begin:
                error = refused_begin.error
                answer = problem_line(index, error, self._name, pointer=BEGIN)
            except Exception as error:  # a defect is logged, as its line's problem
                if window.is_put:  # its requests may be committed, so they mustn't be put again
                    raise
                self._refused += 1
                self._audit.refused += 1
                if isinstance(error, Forbidden):
                    window.audit_lines.append(refused_line(error))
                answer = problem_line(index, error, self._name, offset=line.offset)
            window.answers.append(answer)
            window.offsets.append(line.offset)
            index += 1
        window.memory_bytes = memory_bytes if memory_bytes > _UNCOUNTED_BYTES else 0
        self._put(window)
        return index

    def _put(self, window: _Window) -> None:
        requests = list(window.requests.values())
        if self._spending is not None:
            # Each line has paid for one operation. A patch of many makes the next lines wait.
            edits = (edit.edit for request in requests for edit in request.edits)
            self._spending.spend(OPERATIONS, sum(operations_in(edit) - 1 for edit in edits))
        cpu.conclude()  # the answers say what was done, so they mustn't be broken off
        window.is_put = True
        if not self._series.put(requests):
            self._finish_all()
            self._series.put(requests)
        self._under_way.append(window)

    def _finish_all(self) -> None:
        while self._under_way:
            self._finish()

    def _finish(self) -> None:
        """Answer the first window under way, and release the room that it holds."""
        done = self._series.take()
        window = self._under_way.popleft()
        terms = self._terms
        shown = Represented(self._gateway, terms.by) if terms.prefer.refusal_shows else None
        for (place, request), written in zip(window.requests.items(), done, strict=True):
            window.answers[place] = written_line(
                window.first + place,
                request,
                written,
                self._name,
                shown,
                with_fence=request.fence in self._begun,
            )
        decided = map(outcome_of_line, window.requests.values(), done)
        self._audit.log_lines(chain(window.audit_lines, decided))
        self._large.let_go(window.offsets)
        self._parsed_bytes -= window.memory_bytes
        self._account.give_back(self._account.held - self._parsed_bytes)
        # If another window is under way, a client that takes no answers mustn't delay it.
        self._spool.write(b"".join(window.answers), waits=not self._under_way)

    def _settled(self, needed: BeginNeeded, window: _Window) -> _Window:
        """The window for the line that needs a begin: this one, or a new one if the lines before it
        have to be committed first."""
        is_full = len(self._terms.begun) >= _BEGINS_MAX
        if is_full or any(each.has(needed.step.catalog) for each in (window, *self._under_way)):
            self._put(window)
            self._finish_all()
            window = _Window(window.first + len(window.answers))
        if is_full:
            self._terms.begun.clear()
            self._begun.clear()
        return window

    def _begin(self, needed: BeginNeeded) -> None:
        """Take the step that a line needs, for all lines with the same begin."""
        request = step_request(self._gateway, self._terms.by, needed.step)
        cpu.conclude()
        written = self._gateway.commit(request)
        self._audit.log_lines([outcome_of_line(request, written)])
        if self._spending is not None:
            self._spending.spend(OPERATIONS, 1)
        if is_for_now(written.outcome):
            # Later lines of any document there may be meant to come after this version's lines.
            self._series.hold_back(request.catalog)
        found = begun_fence(needed.step, written)
        self._terms.begun[needed.place] = found
        if isinstance(found, Fence):
            self._begun.add(found)
        cpu.begin(self._gateway.limits.request_cpu_ms / 1000)

    def _end_line(self, index: int) -> bytes:
        """The last answer, instead of one to the line at ``index``, which isn't read."""
        maximum = self._terms.limits.bulk_refused_lines_max
        detail = (
            f"{maximum} lines in a row were refused or blank (bulk_refused_lines_max);"
            " this line and those after it aren't read"
        )
        return problem_line(index, RequestRefused("too_many_refused", detail), self._name)

    def _pace(self, name: str, amount: int) -> None:
        """If the principal has a rate, wait until it allows ``amount``; no line is refused."""
        if self._spending is not None:
            self._spending.pace(name, amount, self._lines.is_closed)

    def _refusal(self) -> Exception | None:
        """Why the principal would no longer be let in, as when its token has expired; else None."""
        try:
            self._recheck()
        except GatewayError as error:
            return error
        return None


def _light(lines: list[BodyLine]) -> Iterator[tuple[list[BodyLine], int]]:
    """``lines`` in order, as many at a time as take little memory once parsed; and that memory."""
    size = memory.text_weight(b"".join([line.text or b"" for line in lines]))
    if size <= _PARSED_BYTES_MAX:
        yield lines, size
        return
    some: list[BodyLine] = []
    size = 0
    for line in lines:
        more = 0 if line.text is None else memory.text_weight(line.text)
        if some and size + more > _PARSED_BYTES_MAX:
            yield some, size
            some, size = [], 0
        some.append(line)
        size += more
    yield some, min(size, _PARSED_LINE_BYTES_MAX)


def _pieces(body: Any) -> Iterator[bytes]:
    """The pieces of ``body`` as they arrive, until it ends."""
    read: Callable[[int], bytes] = getattr(body, "read1", body.read)
    while piece := read(_READ_BYTES):
        yield piece


class Windows:
    """The size of a window, which is smaller if there are more requests. So each of many requests
    gets its first answers early, and memory is bounded."""

    def __init__(self) -> None:
        self._requests = 0
        self._lock = threading.Lock()
        self.lines_max = _WINDOW_LINES_MAX
        self.bytes_max = _WINDOW_BYTES_MAX
        self.are_few = True  # each request may have two

    def count(self, more: int) -> None:
        """Count ``more`` requests (negative: fewer), and set the sizes."""
        with self._lock:
            self._requests += more
            among = max(1, self._requests)
            lines, size = _WINDOWS_LINES // among, _WINDOWS_BYTES // among
            self.lines_max = min(max(lines, _WINDOW_LINES_MIN), _WINDOW_LINES_MAX)
            self.bytes_max = min(max(size, _WINDOW_BYTES_MIN), _WINDOW_BYTES_MAX)
            self.are_few = 2 * among * self.lines_max <= _WINDOWS_LINES


class LineQueue:
    """A queue of lines between two threads. ``put`` waits while it is full."""

    def __init__(self, windows: Windows) -> None:
        """It is full with as many lines, or bytes, as a window of ``windows`` holds."""
        self._windows = windows
        self._lines: deque[BodyLine] = deque()
        self._bytes = 0
        self._ended = False
        self._closed = False
        self._changed = threading.Condition()

    def put(self, lines: Sequence[BodyLine]) -> bool:
        """Queue ``lines``. False if nobody will take them any more."""
        with self._changed:
            while self._is_full() and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._lines.extend(lines)
            self._bytes += sum(_held_bytes(line) for line in lines)
            self._changed.notify_all()
            return True

    def end(self) -> None:
        """Say that no more lines will come."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self) -> list[BodyLine]:
        """The lines that wait, at most a window; waits for the first one. [] at the end."""
        with self._changed:
            while not self._lines and not self._ended and not self._closed:
                self._changed.wait()
            taken: list[BodyLine] = []
            size = 0
            lines_max, bytes_max = self._windows.lines_max, self._windows.bytes_max
            while self._lines and len(taken) < lines_max and size < bytes_max:
                taken.append(self._lines.popleft())
                size += _held_bytes(taken[-1])
            self._bytes -= size
            self._changed.notify_all()
            return taken

    def has_next(self) -> bool:
        """Whether a whole window is there, and may be taken while another one is under way."""
        is_whole = self._is_full() or (self._ended and bool(self._lines))
        return is_whole and self._windows.are_few

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Say that nobody will take lines any more; drop those that wait."""
        with self._changed:
            self._closed = True
            self._lines.clear()
            self._changed.notify_all()

    def _is_full(self) -> bool:
        windows = self._windows
        return len(self._lines) >= windows.lines_max or self._bytes >= windows.bytes_max


def _held_bytes(line: BodyLine) -> int:
    return 0 if line.text is None else len(line.text)


class Budget:
    """The room that all bulk requests of a process have together. Thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self._shares = Shares(bytes_max)
        self._freed = threading.Condition()

    def has_room(self, principal: str | None) -> bool:
        with self._freed:
            return self._shares.has_room_for(principal)

    def take(self, principal: str | None, size: int, may_wait: Callable[[], bool]) -> None:
        """Take room for ``size`` bytes; wait for it only as long as ``may_wait`` says."""
        with self._freed:
            while may_wait() and not self._shares.has_room_for(principal, size):
                self._freed.wait()
            self._shares.take(principal, size)

    def give_back(self, principal: str | None, size: int) -> None:
        with self._freed:
            self._shares.give_back(principal, size)
            self._freed.notify_all()

    def wake(self) -> None:
        """Let waiting threads check whether they may go on waiting."""
        with self._freed:
            self._freed.notify_all()


class LargeLines:
    """The long lines that one request holds, by their offsets. ``budget`` has room for those of a
    few requests."""

    def __init__(self, budget: Budget, principal: str | None, line_bytes_max: int) -> None:
        self._budget = budget
        self._principal = principal
        self._line_bytes = line_bytes_max
        self._held: set[int] = set()
        self._closed = False
        self._lock = threading.Lock()

    def hold(self, offset: int) -> None:
        """Wait until there is room for the line at ``offset``."""
        if offset in self._held:
            return
        self._budget.take(self._principal, self._line_bytes, lambda: not self._closed)
        with self._lock:
            self._held.add(offset)
        if self._closed:
            self.let_go([offset])

    def let_go(self, offsets: Iterable[int]) -> None:
        """Give back the room of those lines at ``offsets`` that are long."""
        with self._lock:
            held = self._held.intersection(offsets)
            self._held -= held
        if held:
            self._budget.give_back(self._principal, self._line_bytes * len(held))

    def close(self) -> None:
        """Give back all room: the request is over."""
        self._closed = True
        self.let_go(list(self._held))
        self._budget.wake()


class Spool:
    """A stream of bytes from one thread to another.

    The writer waits while ``budget`` or the disk has no room, unless this spool is empty: so every
    reader gets on, whatever others leave unread.
    """

    def __init__(self, budget: Budget, principal: str | None = None) -> None:
        self._budget = budget
        self._principal = principal
        self._waiting = 0
        self._files: deque[_File] = deque()
        self._ended = False
        self._closed = False
        self._lacks_disk = False  # once true, it stays so until the spool is empty
        self._changed = threading.Condition()

    def has_room(self) -> bool:
        """Whether ``write`` wouldn't have to wait now."""
        if not self._waiting:
            return True
        return not self._lacks_disk and self._budget.has_room(self._principal)

    def write(self, data: bytes, *, waits: bool = True) -> bool:
        """Write ``data``; False if nobody will read it any more. ``waits``: for room if needed."""
        with self._changed:
            while waits and self._lacks_disk and not self._closed:
                self._changed.wait()
        self._budget.take(self._principal, len(data), lambda: waits and bool(self._waiting))
        with self._changed:
            if self._closed:
                self._budget.give_back(self._principal, len(data))
                return False
            if not self._files or self._files[-1].written >= _FILE_BYTES:
                self._files.append(_File())
            try:
                self._files[-1].append(data)
            except OSError as error:
                _log.warning("answers are kept in memory, as they can't be put on disk: %s", error)
                self._lacks_disk = True
                if not self._files[-1].written:  # an empty file would be read as the end
                    self._drop(self._files.pop())
                self._files.append(_File())
                self._files[-1].append(data, in_memory=True)
            self._waiting += len(data)
            self._changed.notify_all()
            return True

    def end(self) -> None:
        """Say that nothing more will be written."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; waits for the first one. b"" at the end."""
        with self._changed:
            while not self._waiting and not self._ended and not self._closed:
                self._changed.wait()
            if not self._waiting:
                return b""
            first = self._files[0]
            data = first.take(size)
            self._waiting -= len(data)
            if first.taken == first.written:
                self._drop(self._files.popleft())
            if not self._waiting:
                self._lacks_disk = False
                self._changed.notify_all()
            return data

    def close(self) -> None:
        """Say that nothing more will be read; drop what waits."""
        with self._changed:
            self._closed = True
            self._waiting = 0
            while self._files:
                self._drop(self._files.popleft())
            self._changed.notify_all()
        self._budget.wake()

    def _drop(self, file: _File) -> None:
        file.close()
        self._budget.give_back(self._principal, file.written)


class _File:
    """Bytes in memory or, if they are many, on disk."""

    def __init__(self) -> None:
        self._file: IO[bytes] = BytesIO()
        self._is_on_disk = False
        self.written = 0
        self.taken = 0

    def append(self, data: bytes, *, in_memory: bool = False) -> None:
        """Append ``data``; ``in_memory``: whatever its size. Raises OSError if the disk has no
        room; then nothing is appended."""
        size = self.written + len(data)
        if size > _MEMORY_BYTES_MAX and not self._is_on_disk and not in_memory:
            self._move_to_disk()
        self._file.seek(self.written)
        _write_all(self._file, data)
        self.written = size

    def take(self, size: int) -> bytes:
        self._file.seek(self.taken)
        data = self._file.read(min(size, self.written - self.taken))
        self.taken += len(data)
        return data

    def _move_to_disk(self) -> None:
        # Without a buffer: it would report a full disk only at a later write.
        file = TemporaryFile(buffering=0)  # noqa: SIM115 - closed with this
        try:
            self._file.seek(0)
            _write_all(file, self._file.read())
        except OSError:
            file.close()
            raise
        self._file, self._is_on_disk = file, True

    def close(self) -> None:
        self._file.close()


def _write_all(file: IO[bytes], data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
