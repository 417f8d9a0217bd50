"""The kinds of values that settings have: how each is read from text, shown and described.

A kind parses the text of a flag or an environment variable. It raises ``ValueError`` without a
message for text that is not allowed; the caller adds the setting, the source and `Kind.allowed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MIB = 1024 * 1024
Network = IPv4Network | IPv6Network
_UNITS = {"": 1, "KiB": 1024, "MiB": MIB, "GiB": 1024 * MIB}
_SIZE = re.compile(r"(\d{1,15}) ?(KiB|MiB|GiB)?")
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]@]+):(?P<port>\d{1,5})")
_MONGODB_URI = re.compile(
    r"(?P<scheme>mongodb(?:\+srv)?://)(?:(?P<user>[^@/]*)@)?(?P<hosts>[^@/?\s]+)(?P<rest>[/?][^\s@]*)?"
)
_SECRET_OPTION = re.compile(
    r"(?i)([?&;](?:authMechanismProperties|tlsCertificateKeyFilePassword)=)[^&;]*"
)
_DATABASE_FORBIDDEN = set('/\\. "$*<>:|?\0')


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value. `show(parse(text))` means the same as `text`, without its secrets."""

    allowed: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    metavar: str = "TEXT"


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on. With port 0 the system chooses a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def integer(minimum: int, maximum: int) -> Kind:
    """Only decimal digits: no sign, no underscore, no space."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,15}", text):
            raise ValueError
        return _within(int(text), minimum, maximum)

    return Kind(f"an integer from {minimum} to {maximum}", parse, metavar="N")


def size(minimum: int, maximum: int) -> Kind:
    """A number of bytes, plain or with a binary unit: `8388608` or `8MiB`."""

    def parse(text: str) -> int:
        match = _SIZE.fullmatch(text)
        if match is None or not text.isascii():
            raise ValueError
        return _within(int(match[1]) * _UNITS[match[2] or ""], minimum, maximum)

    allowed = f"bytes from {show_size(minimum)} to {show_size(maximum)}, such as 4194304 or 4MiB"
    return Kind(allowed, parse, show_size, "BYTES")


def choice(*values: str) -> Kind:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in values:
            raise ValueError
        return text

    return Kind(" or ".join(values), parse, metavar="|".join(values))


def switch() -> Kind:
    """On or off; on the command line, a pair of flags."""
    words = {"true": True, "1": True, "yes": True, "on": True}
    words |= {"false": False, "0": False, "no": False, "off": False}

    def parse(text: str) -> bool:
        if text.lower() not in words:
            raise ValueError
        return words[text.lower()]

    return Kind("true or false", parse, lambda value: str(value).lower())


def address() -> Kind:
    """`HOST:PORT`, with brackets around an IPv6 address."""

    def parse(text: str) -> Address:
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise ValueError
        return Address(match["host"].strip("[]"), _within(int(match["port"]), 0, 65535))

    return Kind(
        "HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080 (port 0: any free one)",
        parse,
        metavar="HOST:PORT",
    )


def directory() -> Kind:
    """A path; `~` is the home directory. It need not exist."""

    def parse(text: str) -> Path:
        if not text or "\0" in text:
            raise ValueError
        try:
            return Path(text).expanduser().absolute()
        except RuntimeError as error:  # ~nobody
            raise ValueError from error

    return Kind("a directory", parse, metavar="DIR")


def file() -> Kind:
    """The path of a file, parsed like that of a directory. The file is opened only when it is
    used."""
    return replace(directory(), allowed="a file", metavar="FILE")


def text(allowed: str, characters_max: int = 1000) -> Kind:
    """Printable text without a space at its ends."""

    def parse(given: str) -> str:
        if (
            not 1 <= len(given) <= characters_max
            or not given.isprintable()
            or given != given.strip()
        ):
            raise ValueError
        return given

    return Kind(allowed, parse)


def choices(*values: str) -> Kind:
    """Some of a few words, separated by commas."""

    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(each.strip() for each in text.split(","))
        if not set(chosen) <= set(values) or len(set(chosen)) != len(chosen):
            raise ValueError
        return chosen

    return Kind(f"one or more of {', '.join(values)}, separated by commas", parse, ",".join, "LIST")


def networks() -> Kind:
    """Networks of IPv4 and IPv6, separated by commas."""

    def parse(text: str) -> tuple[Network, ...]:
        return tuple(ip_network(each.strip()) for each in text.split(",") if text)

    def show(value: tuple[Network, ...]) -> str:
        return ",".join(map(str, value))

    return Kind(
        "networks such as 10.0.0.0/8, separated by commas; empty: none", parse, show, "LIST"
    )


def web_url() -> Kind:
    """An https URL without credentials; http only to this machine."""

    def parse(text: str) -> str:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError
        if not text.isprintable() or " " in text or parts.fragment:
            raise ValueError
        if parts.scheme == "http" and not Address(parts.hostname, 0).is_loopback:
            raise ValueError
        return text

    return Kind("https://HOST/PATH, or http on this machine (loopback)", parse, metavar="URL")


def database_name() -> Kind:
    """A database name that MongoDB accepts on every platform."""

    def parse(text: str) -> str:
        if not 1 <= len(text.encode()) <= 63 or _DATABASE_FORBIDDEN & set(text):
            raise ValueError
        return text

    return Kind('1 to 63 bytes without any of /\\. "$*<>:|?', parse, metavar="NAME")


def mongodb_uri() -> Kind:
    """A MongoDB connection string. Only its outline is checked here; the driver checks the rest."""

    def parse(text: str) -> str:
        if _MONGODB_URI.fullmatch(text) is None:
            raise ValueError
        return text

    return Kind(
        "mongodb://HOST[:PORT][,...]/?OPTIONS or mongodb+srv://HOST/", parse, mask_uri, "URI"
    )


def mask_uri(uri: str) -> str:
    """The connection string without user name, password and secret options.

    A string that can't be parsed is hidden completely: it may contain a misplaced password.
    """
    match = _MONGODB_URI.fullmatch(uri)
    if match is None:
        return "***"
    user = "" if match["user"] is None else "***@"
    rest = _SECRET_OPTION.sub(r"\1***", match["rest"] or "")
    return f"{match['scheme']}{user}{match['hosts']}{rest}"


def show_size(value: int) -> str:
    """Bytes in the largest binary unit that divides them: 4 MiB, 1000 bytes."""
    for unit in ("GiB", "MiB", "KiB"):
        if value and value % _UNITS[unit] == 0:
            return f"{value // _UNITS[unit]} {unit}"
    return f"{value} bytes"


def _within(value: int, minimum: int, maximum: int) -> int:
    if not minimum <= value <= maximum:
        raise ValueError
    return value
