"""JSON as it is given on a command line: itself, ``@FILE``, or ``-`` for the standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from patching import join_pointer, repeated_member

if TYPE_CHECKING:
    Kind = click.ParamType[Any]
else:  # generic for those who check types, and since click 8.5 alone
    Kind = click.ParamType

_SHOWN_MAX: Final = 40


class JsonType(Kind):
    """A JSON value. What it decodes to keeps integers of any size, and never is a string that was
    no JSON: `orders` is refused, `'"orders"'` is a text."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        source, text = read_source(value, self, param, ctx)
        return self.decode(text, source, param, ctx)

    def decode(
        self, text: bytes, source: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        try:
            value = msgspec.json.decode(text)
            twice = repeated_member(text, msgspec.json.encode(value))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            hint = "; a text needs its quotes: '\"…\"'" if text[:1].isalpha() else ""
            self.fail(f"{source} is no JSON: {error}{hint}", param, ctx)
        if twice is not None:
            self.fail(f"{source} has the member '{join_pointer(twice)}' twice", param, ctx)
        return value


def read_source(
    value: str, kind: Kind, param: click.Parameter | None, ctx: click.Context | None
) -> tuple[str, bytes]:
    """What ``value`` stands for, with the name of where it came from."""
    if value == "-":
        return "the standard input", sys.stdin.buffer.read()
    if value.startswith("@"):
        path = value[1:]
        try:
            return path, Path(path).read_bytes()
        except OSError as error:
            kind.fail(f"can't read {path!r}: {error.strerror}", param, ctx)
    shown = value if len(value) <= _SHOWN_MAX else value[:_SHOWN_MAX] + "…"
    # Arguments that aren't UTF-8 come with lone surrogates: msgspec says what is wrong with them.
    return repr(shown), value.encode(errors="surrogateescape")


class TestType(Kind):
    """``POINTER=JSON``, as a test operation. ``=`` ends the pointer where JSON begins behind it."""

    name = "pointer=json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        pointer, equals, text = value.partition("=")
        if not equals or (pointer and not pointer.startswith("/")):
            self.fail("POINTER=JSON is needed, such as /name='\"orders\"'", param, ctx)
        return {"op": "test", "path": pointer, "value": JSON.convert(text, param, ctx)}


JSON: Final = JsonType()
TEST: Final = TestType()
