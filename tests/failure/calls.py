"""Calls over HTTP, written down: what was asked for, in the terms of the simulation, what was
answered, and when.

Times are those of this process's monotonic clock, so they agree for all clients.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote

from tests.patience import WAIT_S
from tests.simulation.asks import Action, Ask, Compare, Name

Kind = Literal[
    "applied",  # in the log at ``revision``, under ``commit_id``
    "unchanged",  # there was nothing to do at ``revision``
    "refused",  # for good, with ``code``
    "not-applied",  # certainly, for now
    "unknown",
    "read",  # ``documents`` are told as of ``revision``
    "absent",  # there is no such document
    "above",  # ``revision`` is the newest one, and below what was asked for
    "commits",  # ``commits`` are told, and that ``revision`` is the newest one
    "failed",  # a read, for now
    "unexpected",  # nothing that may be answered
]


@dataclass(frozen=True)
class Outcome:
    """``documents``: by key, the version token and the content, None where there is none; of a
    transaction, what it was to tell.

    ``current``: by key, the tokens that a refusal tells, None where there is no document. ``next``:
    the key behind which the next page begins.
    """

    kind: Kind
    revision: int = 0
    code: str = ""
    commit_id: str | None = None
    token: str | None = None
    replayed: bool = False
    current: Mapping[Name, str | None] = field(default_factory=dict)
    documents: Mapping[Name, tuple[str, Any] | None] = field(default_factory=dict)
    next: str | None = None
    commits: tuple[Any, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Call:
    """``invoked`` and ``returned`` in seconds. All tries of one write have the same label."""

    client: str
    gateway: str
    ask: Ask
    invoked: float
    returned: float
    outcome: Outcome

    @property
    def called(self) -> int:
        """Of importance for reverts alone, which nobody sends here."""
        return 0


_JSON: Final = "application/json"
_PATCH: Final = "application/json-patch+json"
# The model knows one code for all patches that don't fit.
_MISFITS: Final = ("test_failed", "path_missing")


def make(client: str, gateway: str, port: int, ask: Ask) -> Call:
    """One call, from beginning to end; a broken connection is an outcome too."""
    begun = time.monotonic()
    try:
        outcome = _send(port, ask)
    except (OSError, http.client.HTTPException) as error:
        kind: Kind = "unknown" if ask.writes else "failed"
        outcome = Outcome(kind, detail=repr(error))
    return Call(client, gateway, ask, begun, time.monotonic(), outcome)


def _send(port: int, ask: Ask) -> Outcome:
    method, path, body, headers = sent(ask)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        encoded = None if body is None else json.dumps(body)
        connection.request(method, f"/v1/catalogs/{quote(ask.catalog)}{path}", encoded, headers)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    answer = json.loads(content) if content else None
    told = written if ask.writes else read
    return told(ask, response.status, response.headers, answer)


def sent(ask: Ask) -> tuple[str, str, Any, dict[str, str]]:
    """Method, path below the catalog, body, headers."""
    place = f"/documents/{quote(ask.key, safe='')}"
    if not ask.writes:
        return "GET", _place_read(ask, place), None, {}
    headers = {"Commit-Message": ask.label}
    if ask.idempotency_key is not None:
        headers["Idempotency-Key"] = ask.idempotency_key
    if ask.if_match is not None:
        headers["If-Match"] = ", ".join(f'"{token}"' for token in ask.if_match)
    if ask.create_only:
        headers["If-None-Match"] = "*"
    if ask.compare or len(ask.actions) > 1:
        body = {
            "compare": [_compare(each) for each in ask.compare],
            "then": [_action(each) for each in ask.actions],
        }
        return "POST", "/transactions", body, headers | {"Content-Type": _JSON}
    action = ask.actions[0]
    if action.deed == "delete":
        return "DELETE", place, None, headers
    if action.deed == "patch":
        return "PATCH", place, action.value, headers | {"Content-Type": _PATCH}
    return "PUT", place, action.value, headers | {"Content-Type": _JSON}


def _place_read(ask: Ask, place: str) -> str:
    if ask.kind == "read":
        return place
    if ask.kind == "read-at":
        return f"{place}?revision={ask.revision}"
    if ask.kind == "several":
        return "/documents?" + "&".join(f"key={quote(key)}" for key in ask.keys)
    if ask.kind == "page":
        return f"/commits?after={ask.revision}&limit={ask.limit}"
    at = "" if ask.revision is None else f"&revision={ask.revision}"
    return f"/documents?limit={ask.limit}&after={quote(ask.after)}{at}"


def _compare(compare: Compare) -> dict[str, Any]:
    member = {"token": "etag", "equals": "equals"}[compare.what]
    return {"key": compare.key, member: compare.value}


def _action(action: Action) -> dict[str, Any]:
    if action.deed == "get":
        return {"action": "get", "key": action.key}
    return {"action": "patch", "key": action.key, "patch": action.value}


def written(ask: Ask, status: int, headers: Mapping[str, str], answer: Any) -> Outcome:
    replayed = "Idempotency-Replayed" in headers
    if status in (200, 201, 204):
        revision = int(headers["Catalog-Revision"])
        changed = "Commit-Id" in headers if answer is None else answer["changed"]
        if not changed:
            return Outcome("unchanged", revision, replayed=replayed)
        return Outcome(
            "applied",
            revision,
            commit_id=headers["Commit-Id"],
            token=(answer or {}).get("etag"),
            replayed=replayed,
            documents=_got(answer or {}),
        )
    code = answer["code"]
    if answer["applied"] == "unknown" and code == "outcome_unknown":
        return Outcome("unknown")
    if answer["applied"] != "no" or (status >= 500 and not answer["retryable"]):
        return Outcome("unexpected", detail=str(answer))
    if answer["retryable"]:
        return Outcome("not-applied", code=code)
    current = {}
    if "current" in answer:
        current[Name(answer.get("key", ask.key))] = answer["current"]["etag"]
    for each in answer.get("failed_compares", ()):
        current[Name(each["key"])] = each["current"] and each["current"]["etag"]
    code = "patch_does_not_fit" if code in _MISFITS else code
    return Outcome("refused", code=code, replayed=replayed, current=current)


def _got(answer: Mapping[str, Any]) -> dict[Name, tuple[str, Any] | None]:
    """What a transaction tells; a replay may say that it can't."""
    gets = [each for each in answer.get("results", ()) if each["action"] == "get"]
    told = {Name(e["key"]): (e["etag"], e["value"]) for e in gets if "value" in e}
    return {**dict.fromkeys(Name(e["key"]) for e in gets if e["exists"] is False), **told}


def read(ask: Ask, status: int, headers: Mapping[str, str], answer: Any) -> Outcome:
    if status == 200:
        return _outcome_of(ask, int(headers["Catalog-Revision"]), headers, answer)
    if status == 404 and answer["code"] == "document_not_found":
        return Outcome("absent")
    if status == 404 and answer["code"] == "revision_not_found":
        return Outcome("above", answer["head_revision"])
    if status == 503 and answer["retryable"]:
        return Outcome("failed", code=answer["code"])
    return Outcome("unexpected", detail=f"{status} {answer}")


def _outcome_of(ask: Ask, revision: int, headers: Mapping[str, str], answer: Any) -> Outcome:
    if ask.kind in ("read", "read-at"):
        tag = headers["ETag"].strip('"')
        return Outcome("read", revision, documents={ask.key: (tag, answer)})
    if ask.kind == "page":
        return Outcome("commits", revision, commits=tuple(answer["commits"]))
    documents = {
        Name(each["key"]): None if each["etag"] is None else (each["etag"], each["value"])
        for each in answer["documents"]
    }
    more = answer["next"]
    after = None if more is None else more["after"]
    return Outcome("read", answer["revision"], documents=documents, next=after)
