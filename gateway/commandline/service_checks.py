"""What `gateway doctor` looks at over HTTP: the service, the token, the clock."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote, urlsplit

from patching.client import (
    Answer,
    Catalog,
    ClientError,
    NotAuthorized,
    Problem,
    RequestError,
    Transport,
)

from .command import Session
from .findings import Finding, fail, ok, warn
from .refusals import explained

# The header counts whole seconds. More than that is worth a word, more than this breaks tokens.
_CLOCK_WARN_S: Final = 2.0
_CLOCK_FAIL_S: Final = 60.0
_TIMEOUT_S: Final = 10.0
_LOOPBACK: Final = ("127.", "localhost", "::1")
_VERSION: Final = re.compile(rb"(?m)^  version: ([^\s]+)$")


def check_service(session: Session, catalog: str | None) -> Iterator[Finding]:
    with Transport(session.url, token=session.token, ca_file=session.ca_file) as transport:
        yield from _url(session)
        begun = time.time()
        try:
            alive = transport.request("GET", "/livez", read_timeout_s=_TIMEOUT_S)
        except RequestError as error:
            yield fail("livez", explained(error), "is it running, and is --url its address?")
            return
        yield ok("livez", f"answered in {(time.time() - begun) * 1000:.0f} ms")
        yield check_clock(alive, (begun + time.time()) / 2)
        yield _ready(transport)
        yield _contract(transport)
        yield from _access(session, transport, catalog)


def _url(session: Session) -> Iterator[Finding]:
    parts = urlsplit(session.url)
    host = parts.hostname or ""
    if parts.scheme == "http" and session.token is not None and not host.startswith(_LOOPBACK):
        yield warn("url", f"{session.url}: the token is sent in clear", "use https")
    else:
        yield ok("url", session.url)


def check_clock(answer: Answer, now_s: float) -> Finding:
    text = answer.headers.get("Date")
    try:
        there_s = parsedate_to_datetime(text or "").timestamp()
    except ValueError:
        return warn(
            "clock", "the answer has no Date that can be read", "compare the clocks by hand"
        )
    # The header cuts the fraction off: on average, half a second.
    difference_s = there_s + 0.5 - now_s
    said = f"the server's is {abs(difference_s):.0f} s {'ahead' if difference_s > 0 else 'behind'}"
    if abs(difference_s) > _CLOCK_FAIL_S:
        return fail("clock", said, "set both by NTP: tokens and dates in conditions fail so")
    if abs(difference_s) > _CLOCK_WARN_S:
        return warn("clock", said, "set both by NTP")
    return ok("clock", "the same here and there, to the second")


def _ready(transport: Transport) -> Finding:
    try:
        transport.request("GET", "/readyz", read_timeout_s=_TIMEOUT_S)
    except RequestError as error:
        return fail("readyz", explained(error), "it doesn't reach its MongoDB: see its log")
    return ok("readyz", "its database answers")


def _contract(transport: Transport) -> Finding:
    try:
        body = transport.request("GET", "/openapi.yaml", read_timeout_s=_TIMEOUT_S).body
    except RequestError as error:
        return warn("contract", explained(error), "is this a metadata gateway?")
    found = _VERSION.search(body)
    version = found[1].decode(errors="replace") if found else "unknown"
    if not version.startswith("1."):
        return warn("contract", f"version {version}, this client speaks 1", "update this client")
    return ok("contract", f"version {version}")


def _access(session: Session, transport: Transport, catalog: str | None) -> Iterator[Finding]:
    given = "a token" if session.token is not None else "no token"
    try:
        listed = transport.request(
            "GET", "/v1/catalogs", query=[("limit", 100)], read_timeout_s=_TIMEOUT_S
        ).json()["catalogs"]
    except NotAuthorized as error:
        help = "give a valid one by GATEWAY_TOKEN or GATEWAY_TOKEN_FILE"
        yield fail("token", f"{given}: {explained(error)}", help)
        return
    except ClientError as error:
        yield fail("token", f"{given}: {explained(error)}", "see its log")
        return
    shown = ", ".join(each["catalog"] for each in listed[:5]) or "none so far"
    more = ", …" if len(listed) > 5 else ""
    yield ok("token", f"{given} is accepted; catalogs that it may read: {shown}{more}")
    if catalog is not None:
        yield _may(session.gateway.catalog(catalog), transport)


def _may(catalog: Catalog, transport: Transport) -> Finding:
    """What is allowed, found out by asking for it, without changing anything."""
    path = f"/v1/catalogs/{quote(catalog.name, safe='')}"
    roles = []
    try:
        for role, method, rest in (
            ("read", "GET", "/documents?limit=1"),
            ("write", "POST", "/touch?dry_run=true"),
            # Refused in any case: nothing is compacted by this.
            ("admin", "POST", "/compactions?revision"),
        ):
            if _allows(transport, method, path + rest):
                roles.append(role)
    except RequestError as error:
        return fail("access", explained(error), "see its log")
    if not roles:
        help = "ask for a grant on it, as `gateway token create --grant read:…` gives"
        return fail("access", f"nothing on {catalog.name!r}", help)
    return ok("access", f"{', '.join(roles)} on {catalog.name!r}")


def _allows(transport: Transport, method: str, path: str) -> bool:
    try:
        transport.request(method, path, read_timeout_s=_TIMEOUT_S)
    except NotAuthorized:
        return False
    except Problem as error:
        if error.status >= 500 or error.status == 429:
            raise
        return True  # let in, and refused for another reason
    return True
