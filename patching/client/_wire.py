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
# Statuses of proxies while the gateway behind them restarts.
_PASSING: Final = (502, 503, 504)
READ_TIMEOUT_S: Final = 60.0
_LEAST_S: Final = 0.05
# What a proxy might ask for: feeds and followers try again within this.
_PAUSE_S_MAX: Final = 3600.0


class ConnectionTerms(TypedDict, total=False):
    """The keywords of whatever connects to a gateway.

    ``token`` goes out as a bearer token; a callable is asked for each request, so that it can be
    renewed. ``headers`` go out with each request.
    ``pool_size``: how many connections are kept for the next requests.
    ``connect_timeout_s``: for how long a connection may take to be there.
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
            # the request was done: only what came of it can't be read
            raise UnexpectedAnswer(
                f"the body of a {self.status} answer is no JSON: {error}",
                status=self.status,
                applied="unknown",
            ) from error


class Outgoing:
    """What goes out to the gateways at ``url``, of which one is in use. See `Transport`."""

    def __init__(self, url: str, connection: ConnectionSettings) -> None:
        self._bases = [_checked(each.strip()) for each in url.split(",")]
        self._at = 0  # which of them is in use
        self._token = connection.token
        # Where nothing is said of encodings, a proxy may choose any.
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
        """The gateway there broke a request off: the next one is in use."""
        self._at = (place + 1) % len(self._bases)

    def headers(self, more: Mapping[str, str]) -> dict[str, str]:
        """Of a request; ``more`` win over all others. ValueError for a token that is none, and
        TokenUnavailable where the function that is to return it doesn't."""
        headers = self._headers
        if isinstance(self._token, str):
            headers = _with(headers, {"Authorization": _bearer(self._token)})
        elif self._token is not None:
            try:
                headers = _with(headers, {"Authorization": _bearer(self._token())})
            except Exception as error:
                raise TokenUnavailable(error) from error
        return _with(headers, more)


def _with(headers: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """``more`` win, however their names are spelled."""
    named = {name.lower() for name in more}
    kept = {name: value for name, value in headers.items() if name.lower() not in named}
    return kept | dict(more)


def _bearer(token: str) -> str:
    text = token.strip()
    if not _VISIBLE(text):  # checked here: the library's own error would show it
        raise ValueError("the token is empty, or has characters that no header can have")
    return f"Bearer {text}"


def seconds_left(deadline: float | None, now: float) -> float | None:
    """From ``now`` to ``deadline``. No request is given less than a moment."""
    return None if deadline is None else max(deadline - now, _LEAST_S)


def is_success(status: int) -> bool:
    """Whether it is the answer to what was asked for; else it is `refusal`."""
    return 200 <= status < 300 or status == 304


def refusal(method: str, answer: HttpAnswer) -> RequestError:
    """The exception for an answer that is no success."""
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
        f"{answer.status} without a problem: {shown!r}",
        status=answer.status,
        applied="no" if method in _READING else "unknown",
        retryable=answer.status in _PASSING,
    )


def unreachable(
    method: str, url: str, why: str, *, unsent: bool, is_closed: bool = False
) -> Unreachable:
    """The exception for a request that has no answer. ``unsent``: it never left. ``is_closed``: by
    a client that was closed, so that no other one will have an answer either. That is then why."""
    applied = "no" if unsent or method in _READING else "unknown"
    why = "the client was closed" if is_closed else why
    return Unreachable(f"{method} {url}: {why}", applied=applied, retryable=not is_closed)


def segment(name: str) -> str:
    """``name`` as one segment of a path, so that nobody rewrites it on the way."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if name in (".", "..") else encoded


def _checked(url: str) -> str:
    """A gateway's URL without a slash at its end. Raises ValueError."""
    try:
        parsed = urllib3.util.parse_url(url)
    except ValueError:
        raise ValueError("this is no URL") from None  # which the error would quote
    if parsed.auth is not None:
        raise ValueError("the URL of a gateway holds no credentials: give a token")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"this is no http or https URL with a host: {url!r}")
    if parsed.query is not None or parsed.fragment is not None:
        raise ValueError("the URL of a gateway has no query and no fragment")
    return url.rstrip("/")


def _retry_after_s(answer: HttpAnswer) -> float | None:
    """The gateway sends seconds; a date, which a proxy might send, is not read."""
    value = answer.headers.get("Retry-After", "")
    return min(float(value), _PAUSE_S_MAX) if value.isascii() and value.isdigit() else None
