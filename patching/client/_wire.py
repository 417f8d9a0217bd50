"""How a request is addressed, and what an answer means, whatever library carries them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict
from urllib.parse import quote, urlencode

import msgspec
import urllib3

from patching.client._steps import Query
from patching.client.errors import (
    RequestError,
    TokenUnavailable,
    UnexpectedAnswer,
    Unreachable,
    problem_of,
)

_PROBLEM: Final = "application/problem+json"
_READING: Final = ("GET", "HEAD", "OPTIONS")
_BODY_SHOWN_MAX: Final = 200
_VISIBLE: Final = re.compile(r"[!-~]+").fullmatch
# Statuses of proxies that limit rates, or while the gateway behind them restarts.
_PASSING: Final = (429, 502, 503, 504)
READ_TIMEOUT_S: Final = 60.0
_LEAST_S: Final = 0.05
# The most that a Retry-After, which a proxy may have sent, delays feeds and followers.
_PAUSE_S_MAX: Final = 3600.0


class ConnectionTerms(TypedDict, total=False):
    """The keywords of whatever connects to a gateway.

    ``token`` is sent as a bearer token; a callable is called before each request, so that it can be
    renewed. ``headers`` are sent with each request. ``pool_size``: how many connections are kept
    for the next requests. ``connect_timeout_s``: how many seconds it may take to connect.
    ``ca_file`` has the certificates to trust instead of the system's; ``certificate_file`` and
    ``key_file`` are the client's own, for a gateway that asks for them.
    """

    token: str | Callable[[], str] | None
    headers: Mapping[str, str] | None
    pool_size: int
    connect_timeout_s: float
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConnectionSettings:
    """`ConnectionTerms` as one value, with their defaults. No repr shows the token."""

    token: str | Callable[[], str] | None = None
    headers: Mapping[str, str] | None = None
    pool_size: int = 10
    connect_timeout_s: float = 5.0
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A 2xx or 304 answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body decoded; integers of any size are kept. UnexpectedAnswer if it isn't JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # the request was carried out: only its result can't be read
            raise UnexpectedAnswer(
                f"the body of a {self.status} answer isn't JSON: {error}",
                status=self.status,
                applied="unknown",
            ) from error


class Outgoing:
    """What is sent to the gateways at ``url``, of which one is in use. See `Transport`."""

    def __init__(self, url: str, connection: ConnectionSettings) -> None:
        self._bases = [_checked(each.strip()) for each in url.split(",")]
        self._at = 0  # which of them is in use
        self._token = connection.token
        # Without Accept-Encoding, a proxy may choose any encoding.
        plain = {"Accept": "application/json", "Accept-Encoding": "identity"}
        self._headers = _with(plain, connection.headers or {})

    @property
    def hosts(self) -> int:
        return len(self._bases)

    @property
    def place(self) -> int:
        """Which gateway is in use."""
        return self._at

    def url(self, place: int, path: str, query: Query) -> str:
        asked = f"?{urlencode(query, quote_via=quote, safe='')}" if query else ""
        return f"{self._bases[place]}{path}{asked}"

    def failed(self, place: int) -> None:
        """The gateway at ``place`` broke a request off: use the next one."""
        self._at = (place + 1) % len(self._bases)

    def headers(self, more: Mapping[str, str]) -> dict[str, str]:
        """A request's headers; ``more`` win over all others. Raises ValueError for a token that is
        none, TokenUnavailable if the function that returns it fails."""
        headers = self._headers
        if isinstance(self._token, str):
            headers = _with(headers, {"Authorization": bearer(self._token)})
        elif self._token is not None:
            try:
                headers = _with(headers, {"Authorization": bearer(self._token())})
            except Exception as error:
                raise TokenUnavailable(error) from error
        return _with(headers, more)


def _with(headers: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Both; ``more`` win, however their names are spelled."""
    named = {name.lower() for name in more}
    kept = {name: value for name, value in headers.items() if name.lower() not in named}
    return kept | dict(more)


def bearer(token: str) -> str:
    """The value of ``Authorization``. Raises ValueError, which doesn't show the token."""
    text = token.strip()
    if not _VISIBLE(text):  # checked here: the library's own error would show it
        raise ValueError("the token is empty, or has characters that aren't allowed in a header")
    return f"Bearer {text}"


def seconds_left(deadline: float | None, now: float) -> float | None:
    """Seconds from ``now`` to ``deadline``. No request gets less than a moment."""
    return None if deadline is None else max(deadline - now, _LEAST_S)


def is_success(status: int) -> bool:
    """Whether it answers what was asked; otherwise `refusal` makes the exception."""
    return 200 <= status < 300 or status == 304


def refusal(method: str, answer: HttpAnswer) -> RequestError:
    """The exception for an answer that isn't a success."""
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type == _PROBLEM:
        try:
            problem = answer.json()
        except UnexpectedAnswer:
            problem = None
        if isinstance(problem, dict):
            return problem_of(answer.status, problem, _retry_after_s(answer))
    shown = answer.body[:_BODY_SHOWN_MAX].decode(errors="replace")
    return UnexpectedAnswer(
        f"answered with {answer.status}, but not with a problem: {shown!r}",
        status=answer.status,
        applied="no" if method in _READING else "unknown",
        retryable=answer.status in _PASSING,
        retry_after_s=_retry_after_s(answer),
    )


def unreachable(
    method: str, url: str, why: str, *, unsent: bool, is_closed: bool = False
) -> Unreachable:
    """The exception for a request without an answer. ``unsent``: it never left. ``is_closed``: the
    client was closed, which is then the reason, and no other request will be answered either."""
    applied = "no" if unsent or method in _READING else "unknown"
    why = "the client was closed" if is_closed else why
    return Unreachable(f"{method} {url}: {why}", applied=applied, retryable=not is_closed)


def segment(name: str) -> str:
    """``name`` as one segment of a path, so that nothing rewrites it on the way."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if name in (".", "..") else encoded


def _checked(url: str) -> str:
    """A gateway's URL without a slash at its end. Raises ValueError."""
    try:
        parsed = urllib3.util.parse_url(url)
    except ValueError:
        raise ValueError("this is not a URL") from None  # which the error would quote
    if parsed.auth is not None:
        raise ValueError("the URL of a gateway can't contain credentials: give a token instead")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"this is not an http or https URL with a host: {url!r}")
    if parsed.query is not None or parsed.fragment is not None:
        raise ValueError("the URL of a gateway can't have a query or a fragment")
    return url.rstrip("/")


def _retry_after_s(answer: HttpAnswer) -> float | None:
    """The gateway sends seconds; a date, which a proxy might send, is not read."""
    value = answer.headers.get("Retry-After", "")
    return min(float(value), _PAUSE_S_MAX) if value.isascii() and value.isdigit() else None
