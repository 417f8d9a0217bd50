"""Parsers of options' texts. Their ValueError says what is allowed and what was given."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final
from urllib.parse import unquote

import msgspec

from patching.client._wire import bearer
from patching.client.transport import Transport

_MANAGER_MAX: Final = 255  # characters, as the gateway's names
_TEXT_MAX: Final = 1000  # characters, as a commit's message
# Two characters at least: one letter is a drive.
_scheme: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):").match


def text(value: str) -> str:
    if not value:
        raise ValueError("it is empty")
    return value


def token(value: str) -> str:
    bearer(value)
    return value


def names(value: str) -> tuple[str, ...]:
    """Names, separated by commas."""
    return tuple(text(name.strip()) for name in value.split(","))


def some_of(*choices: str) -> Callable[[str], tuple[str, ...]]:
    """A parser of names separated by commas, each once; returned in the order of ``choices``."""

    def parse(value: str) -> tuple[str, ...]:
        given = names(value.lower())
        if not set(given) <= set(choices) or len(set(given)) < len(given):
            raise ValueError(
                f"it must be one or more of {', '.join(choices)}, each once, not {value!r}"
            )
        return tuple(each for each in choices if each in given)

    return parse


def keys(value: str) -> tuple[str, ...]:
    """A JSON array of keys, because a key may contain any character."""
    try:
        found = msgspec.json.decode(value, type=tuple[str, ...])
    except msgspec.MsgspecError:
        found = ()
    if not found or not all(found) or len(set(found)) < len(found):
        raise ValueError(f"it must be a JSON array of keys, each once, not {value[:200]!r}")
    return found


def folder(value: str) -> str:
    """A path, or a URL of this machine's files as a path: Python, not Spark, writes there."""
    scheme = _scheme(text(value))
    if scheme is None:
        return value
    if scheme[1].lower() != "file":
        raise ValueError(
            f"{value!r} can't be used: it must be a folder that the machine sees as its own, such"
            " as a mount (/dbfs/…, /Volumes/…, an NFS share)"
        )
    return "/" + unquote(value[len(scheme[0]) :]).lstrip("/")


def time(value: str) -> str:
    """A time in any form of ISO 8601 with an offset, as the gateway takes it."""
    try:
        given = datetime.fromisoformat(value.upper())  # RFC 3339 has t and z, too
        known = given.utcoffset() is not None
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"it must be a time such as 2026-11-21T10:00:00Z, not {value!r}")
    return given.isoformat().replace("+00:00", "Z")


def message(value: str) -> str:
    if len(value) > _TEXT_MAX:
        raise ValueError(f"it has {len(value)} characters; the limit is {_TEXT_MAX}")
    return text(value)


def manager(value: str) -> str:
    if not value.isprintable() or value != value.strip() or len(value) > _MANAGER_MAX:
        raise ValueError(
            f"it must be 1 to {_MANAGER_MAX} printable characters, without a space at either end"
        )
    return text(value)


def url(value: str) -> str:
    Transport(value).close()  # raises ValueError unless it is a gateway's URL
    return value


def number(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """A parser of whole numbers from ``minimum`` to ``maximum`` (None: any)."""
    range_ = f"from {minimum}" + ("" if maximum is None else f" to {maximum}")

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = minimum - 1
        if number < minimum or (maximum is not None and number > maximum):
            raise ValueError(f"it must be a whole number {range_}, not {value!r}")
        return number

    return parse


def seconds(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < 1e9:
        raise ValueError(f"it must be a number of seconds above 0, not {value!r}")
    return number


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser of one of ``choices``, in upper or lower case."""

    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}, not {value!r}")
        return value.lower()

    return parse


def flag(value: str) -> bool:
    return one_of("true", "false")(value) == "true"
