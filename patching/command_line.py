"""What both command lines share: the group of their commands, and the line that shows their
progress. Needs click, unlike everything else here."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    Kind = click.ParamType[Any]
else:  # generic only for type checkers, and from click 8.5 on
    Kind = click.ParamType

_Decorated = TypeVar("_Decorated")
_Decorator = Callable[[Any], Any]


def together(*options: _Decorator) -> Callable[[_Decorated], _Decorated]:
    """A decorator that adds all of these options; help lists them in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def printable(text: str) -> str:
    """``text`` in one line, without characters that a terminal acts on."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


class OneLineGroup(click.Group):
    """Prints what went wrong without click's usage text, so that a log has one line of it.

    Exit codes: 2 for usage, 1 for a failed output, 130 if interrupted, 128 and its number for a
    signal, else the exception's.
    """

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        _open_closed_streams()
        try:
            with _unwound_by_signals():
                code = super().main(*args, **kwargs)
        except click.exceptions.NoArgsIsHelpError as help_asked:
            click.echo(help_asked.format_message(), err=True)
            sys.exit(2)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else self.name
            click.echo(f"{command}: {printable(error.format_message())} (try --help)", err=True)
            sys.exit(2)
        except click.ClickException as error:
            click.echo(f"{self.name}: {printable(error.format_message())}", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(130)
        except OSError as error:
            if not _is_of_echo(error):
                raise
            drop_output()
            click.echo(f"{self.name}: can't write to standard output: {error.strerror}", err=True)
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _unwound_by_signals() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP end a command as Ctrl-C does, so it leaves no temporary files and
    no reserved names; a second signal ends it at once. Who ignores them (`nohup`) still does."""

    def unwind(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise SystemExit(128 + number)

    caught = []
    there = (signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
    with suppress(ValueError):  # not in the main thread, which alone may catch signals
        for each in there:
            if signal.getsignal(each) is signal.SIG_DFL:
                signal.signal(each, unwind)
                caught.append(each)
    try:
        yield
    finally:
        for each in caught:
            if signal.getsignal(each) is unwind:
                signal.signal(each, signal.SIG_DFL)


def _open_closed_streams() -> None:
    """Open the standard streams that the process was started without, or the next file would take
    their place. Reading stdin or writing stdout is then an error; stderr goes nowhere."""
    if sys.stdin is None:
        sys.stdin = _opened(os.O_WRONLY, "r")
    if sys.stdout is None:
        sys.stdout = _opened(os.O_RDONLY, "w")
    if sys.stderr is None:
        sys.stderr = _opened(os.O_WRONLY, "w")


def _is_of_echo(error: OSError) -> bool:
    """Whether ``click.echo`` raised it, because it couldn't write."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return frames[-1].f_code is click.echo.__code__


def drop_output() -> None:
    """Discard what standard output has buffered: the interpreter flushes it at exit, and would
    complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _opened(flags: int, mode: str) -> Any:
    """Open the null device as the lowest free descriptor, with flags that don't fit ``mode``."""
    return os.fdopen(os.open(os.devnull, flags), mode, closefd=False)


_CLEAR: Final = "\r\x1b[K"


class StatusLine:
    """One line of stderr, overwritten when its text changes; nothing unless ``shown``."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._there = False

    def show(self, text: str) -> None:
        if self._shown:
            # A wider text would wrap, and only its last line would be overwritten.
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(_CLEAR + text[:width])
            sys.stderr.flush()
            self._there = True

    def clear(self) -> None:
        """Clear the line until the next ``show``, so that other lines can be written."""
        if self._there:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._there = False

    def leave(self) -> None:
        """Keep the line as it is; what follows is written below it."""
        if self._there:
            sys.stderr.write("\n")
            self._there = False
