"""Which addresses a subscription may deliver to: checks its URL, and the addresses that its name
resolves to.

A name can resolve to one address when it is checked and to another one when it is connected to. So
it is resolved once: the checked address is the one that is connected to, and TLS requires a
certificate for the name from it.

Deliveries go over https to addresses of the public internet; and, over http, too, to this machine,
if the URL itself says ``localhost`` or a loopback address. Private, link-local (with the cloud's
metadata) and other special addresses are refused, unless a setting allows their network.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
# A function like ``socket.getaddrinfo``.
Resolve = Callable[..., Sequence[tuple[Any, ...]]]

URL_CHARACTERS_MAX: Final = 2048
# How many addresses of a name are tried.
_TRIED_MAX: Final = 3
# These look public, but serve the metadata of the clouds of Azure and Oracle.
_SPECIAL: Final = (ip_network("168.63.129.16/32"), ip_network("192.0.0.0/24"))
# The part of IPv6 from which public addresses are given out. Others are a network's own, or stand
# for something else.
_GIVEN_OUT: Final = ip_network("2000::/3")
_NAT64: Final = ip_network("64:ff9b::/96")


class AddressRefused(Exception):
    """This address may not be delivered to; ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A subscription's URL, in parts. ``path`` includes the query."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def names_loopback(self) -> bool:
        literal = _literal(self.host)
        return self.host.lower() == "localhost" or (literal is not None and literal.is_loopback)

    @property
    def authority(self) -> str:
        """The value of the header ``Host``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def target_of(url: str) -> Target:
    """The parts of a URL. Raises AddressRefused if it can't be delivered to, whatever its name
    resolves to."""
    if len(url) > URL_CHARACTERS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise AddressRefused(
            f"it must be a URL of at most {URL_CHARACTERS_MAX} printable ASCII characters"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressRefused("it isn't a URL") from error
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise AddressRefused("it must be a URL that begins with https://")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("it must not contain a user or a password")
    if "#" in url or "\\" in url:
        raise AddressRefused("it must not contain a fragment or a backslash")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    found = Target(secure, parts.hostname, (443 if secure else 80) if port is None else port, path)
    if not secure and not found.names_loopback:
        raise AddressRefused(
            "http is allowed only to this machine (localhost, 127.0.0.1): use https"
        )
    return found


def require_allowed_literal(target: Target, networks: Sequence[Network]) -> None:
    """Raise AddressRefused if the URL itself contains an address, and that isn't allowed."""
    literal = _literal(target.host)
    if literal is not None:
        require_allowed(literal, target, networks)


def require_allowed(address: Address, target: Target, networks: Sequence[Network]) -> None:
    """Raise AddressRefused unless ``target`` may be delivered to at ``address``."""
    plain = _plain(address)
    if plain.is_loopback:
        if target.names_loopback:
            return
        raise AddressRefused(f"{target.host!r} resolves to this machine ({address})")
    if target.names_loopback or not target.secure:
        raise AddressRefused(f"{target.host!r} resolves to {address}, which isn't this machine")
    if any(plain in network or address in network for network in networks):
        return
    is_special = plain.is_multicast or any(plain in network for network in _SPECIAL)
    is_public = plain.is_global and (plain.version == 4 or plain in _GIVEN_OUT)
    if not is_public or is_special:
        raise AddressRefused(
            f"{target.host!r} is {address}, which isn't a public internet address; the setting"
            " subscription_networks can allow it"
        )


def connect(
    target: Target,
    networks: Sequence[Network],
    timeout_s: float,
    resolve: Resolve,
) -> socket.socket:
    """A connection to one of the addresses of ``target``, all of which are checked first.

    Raises AddressRefused if one of them isn't allowed, and OSError.
    """
    found = resolve(target.host, target.port, type=socket.SOCK_STREAM)
    for *_, sockaddr in found:
        require_allowed(_address(sockaddr[0]), target, networks)
    failure: OSError = OSError(f"{target.host!r} has no address")
    for family, kind, protocol, _, sockaddr in found[:_TRIED_MAX]:
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(timeout_s)
            made.connect(sockaddr)
            return made
        except OSError as error:
            made.close()
            failure = error
    raise failure


def _address(text: str) -> Address:
    return ip_address(text.partition("%")[0])


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, if it does; otherwise ``address``."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
