"""What both command lines are made of: the group of their commands, and the line by which they say
how far they are. Needs click, unlike all else here."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

_Decorated = TypeVar("_Decorated")
_Decorator = Callable[[Any], Any]


def together(*options: _Decorator) -> Callable[[_Decorated], _Decorated]:
    """All of these options, which help lists in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class OneLineGroup(click.Group):
    """Prints what went wrong without click's usage text, so that a log holds one line of it.

    Exit codes: 2 for usage, that of the exception for failures, 130 where it was interrupted.
    """

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except click.exceptions.NoArgsIsHelpError as help_asked:
            click.echo(help_asked.format_message(), err=True)
            sys.exit(2)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else self.name
            click.echo(f"{command}: {error.format_message()} (try --help)", err=True)
            sys.exit(2)
        except click.ClickException as error:
            click.echo(f"{self.name}: {error.format_message()}", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(130)
        sys.exit(code if isinstance(code, int) else 0)


_CLEAR: Final = "\r\x1b[K"


class StatusLine:
    """One line of stderr, written over when its text changes. Where not ``shown``: nothing."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._there = False

    def show(self, text: str) -> None:
        if self._shown:
            # A line that is wider goes on in the next, which isn't written over.
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(_CLEAR + text[:width])
            sys.stderr.flush()
            self._there = True

    def clear(self) -> None:
        """Take the line away until the next ``show``, so that others can be written."""
        if self._there:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._there = False

    def leave(self) -> None:
        """What is shown stays, and others are written below."""
        if self._there:
            sys.stderr.write("\n")
            self._there = False
