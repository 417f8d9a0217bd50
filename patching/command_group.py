"""The group of commands that both command lines are made of; needs click, unlike all else here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

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
