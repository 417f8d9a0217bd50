"""The output of commands: data, and nothing else, to standard output; messages to stderr; their
progress to terminals only; files whole, or not at all."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
import msgspec

from patching.command_line import StatusLine, drop_output, printable

_INDENT: Final = 2
# Controls, line ends of Unicode, and marks that change the direction of text.
_ACTED_ON: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
Advance = Callable[[int], None]
_SHOWN_EVERY_S: Final = 0.1


class ReaderGone(Exception):
    """The reader of standard output has closed it, as ``head`` does."""


class Unwritable(click.ClickException):
    """Standard output takes nothing: its disk is full, or it is closed."""


class Output:
    """``pretty``: for people. ``quiet``: no messages but errors, and no answers of writes."""

    def __init__(self, *, pretty: bool, quiet: bool) -> None:
        self.pretty = pretty
        self.quiet = quiet

    @property
    def shows_progress(self) -> bool:
        """On a terminal alone: a log would fill with it."""
        return not self.quiet and sys.stderr.isatty()

    def value(self, value: Any) -> None:
        """Write one JSON value, which is all that the command writes."""
        text = msgspec.json.encode(value)
        if self.pretty:
            self.text(msgspec.json.format(text, indent=_INDENT).decode().split("\n"))
        else:
            self._line(text)

    def answer(self, value: Any) -> None:
        """Print the answer to a write."""
        if self.quiet:
            return
        try:
            self.value(value)
        except Unwritable as error:
            raise Unwritable(f"the write is done, but {error.message}") from error

    def record(self, value: Any, shown: str) -> None:
        """Write one of many values: a line of JSON, or ``shown`` for people."""
        if self.pretty:
            self.text([printable(shown)])
        else:
            self._line(msgspec.json.encode(value))

    def json_line(self, value: Any) -> None:
        """Write a line of JSON, for people too."""
        text = msgspec.json.encode(value)
        if self.pretty:
            self.text([text.decode()])
        else:
            self._line(text)

    def text(self, lines: Iterable[str], styled: Callable[[str], str] = str) -> None:
        """Write lines, escaping what a terminal would act on; ``styled`` may add to each."""
        for line in lines:
            self._line(styled(_safe(line)).encode(errors="replace"))

    def _line(self, content: bytes) -> None:
        self.raw(content + b"\n")

    def raw(self, content: bytes) -> None:
        """Write bytes. Raises ReaderGone if nobody reads them, or Unwritable."""
        try:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            drop_output()
            raise ReaderGone from None
        except OSError as error:
            drop_output()
            raise Unwritable(f"can't write to standard output: {error.strerror}") from error

    @contextmanager
    def ended_from_outside(self, end: Callable[[], None]) -> Iterator[None]:
        """Call ``end``, in a thread, when standard output is closed at its other end, or at SIGINT.

        Without anything to write, the first goes unnoticed; and Python forgets an interrupt that
        comes while it deletes a file object. KeyboardInterrupt is raised at the end, at the latest.
        """
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        before = signal.set_wakeup_fd(wake)
        interrupted = threading.Event()
        poller = select.poll()
        poller.register(woken, select.POLLIN)
        with suppress(OSError, ValueError):  # it isn't a file of the system
            poller.register(sys.stdout.fileno(), 0)  # errors and hanging up are always reported

        def wait() -> None:
            if woken not in dict(poller.poll()):
                end()
            elif os.read(woken, 1):
                interrupted.set()
                end()
            os.close(woken)

        threading.Thread(target=wait, name="reader", daemon=True).start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            os.close(wake)
        if interrupted.is_set():
            raise KeyboardInterrupt

    def message(self, text: str) -> None:
        """One line on stderr."""
        if not self.quiet:
            error_line(text)


def error_line(text: str) -> None:
    click.echo(f"gateway: {printable(text)}", err=True)


def _safe(line: str) -> str:
    """The line, escaped as in JSON, so that JSON in it means the same. (An encoder of JSON escapes
    only what is below a space.)"""
    return _ACTED_ON.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


class Progress:
    """``of``: how many in all, if that is known. Call it with how many more are done."""

    def __init__(self, line: StatusLine, what: str, of: int | None) -> None:
        self._line = line
        self._what = what
        self._of = "" if of is None else f" of {of:,}"
        self._done = 0
        self._shown_at = float("-inf")

    def __call__(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._shown_at > _SHOWN_EVERY_S:
            self.show()

    def show(self) -> None:
        self._shown_at = time.monotonic()
        self._line.show(f"{self._what}: {self._done:,}{self._of}")

    def clear(self) -> None:
        """Call this before another line is printed."""
        self._line.clear()


@contextmanager
def progress(output: Output, what: str, total: int | None) -> Iterator[Progress]:
    line = StatusLine(shown=output.shows_progress)
    shown = Progress(line, printable(what), total)
    try:
        yield shown
    finally:
        shown.show()
        line.leave()


Write = Callable[[bytes], object]


@contextmanager
def whole_file(path: Path, *, is_new: bool = False) -> Iterator[BinaryIO]:
    """A temporary file, which is renamed to ``path`` at the end of the block.

    ``is_new``: it replaces no file; UsageError if there is one by then. Otherwise, it replaces what
    a link leads to; a device or a pipe is written directly.
    """
    if not is_new and path.exists() and not path.is_file():
        with _written(path), path.open("wb") as file:
            yield file
        return
    if not is_new:
        path = path.resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise click.ClickException(
            f"can't write to the folder of {str(path)!r}: {error.strerror}"
        ) from error
    try:
        with _written(path):
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
            (_take_free_name if is_new else os.replace)(name, path)
            _keep_names(path.parent)
    except FileExistsError as error:
        raise click.UsageError(f"the file {str(path)!r} already exists") from error
    finally:
        with suppress(FileNotFoundError):  # it has taken its place
            os.unlink(name)


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise click.ClickException(f"can't write {str(path)!r}: {error.strerror}") from error


def _take_free_name(name: str, path: Path) -> None:
    """Rename the file, unless ``path`` exists: FileExistsError."""
    try:
        os.link(name, path)
    except FileExistsError:
        raise
    except OSError as error:  # a file system without links
        if path.exists():
            raise FileExistsError(str(path)) from error
        os.replace(name, path)


def _keep_names(folder: Path) -> None:
    """Let the names in a folder survive a power loss, if its file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    """The umask, which gives the temporary file, made for its owner only, an ordinary mode."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
