"""The routes that write, as one test sees them all: what each says of a write, in one form."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any, ClassVar

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

HEADERS = (
    *("ETag", "Last-Modified", "Location", "Catalog-Revision", "Commit-Id", "Attempts"),
    *("Idempotency-Replayed", "Preference-Applied", "Retry-After"),
)
STALE = "1-00000000000000000000000000000000"


@dataclass(frozen=True)
class WriteAnswer:
    """The answer to a write, in whatever form; ``headers`` are those of ``HEADERS`` it has."""

    status: int
    headers: dict[str, str]
    content: dict[str, Any]

    @property
    def code(self) -> str | None:
        return self.content.get("code")


class Route:
    """A way to write the document ``k`` of a catalog of its own, or what is written there."""

    # Outcomes that its form can't have, or has no header for.
    silent: ClassVar[frozenset[str]] = frozenset()
    can: ClassVar[frozenset[str]] = frozenset(("set", "patch", "delete"))
    creates = 201
    deletes = 204
    minimal = 204

    def __init__(self, client: FlaskClient) -> None:
        self.client = client
        self.catalog = f"dialect-{uuid.uuid4().hex}"
        self.path = f"/v1/catalogs/{self.catalog}"

    def put(self, value: Any, query: str = "", **headers: str) -> WriteAnswer:
        raise NotImplementedError

    def patch(self, *operations: Any, query: str = "", **headers: str) -> WriteAnswer:
        raise NotImplementedError

    def delete(self, query: str = "", **headers: str) -> WriteAnswer:
        raise NotImplementedError

    def begin(self) -> None:
        """What has to be there before the first write."""

    def now(self) -> TestResponse:
        """What is read of what it writes."""
        return self.client.get(f"{self.path}/documents/k")

    def tag(self, token: str) -> str:
        """What an If-Match on this route says of the token of ``k``."""
        return f'"{token}"'

    def token(self) -> str:
        return self.now().headers["ETag"].strip('"')

    def others_change_it(self, value: Any) -> None:
        """Somebody else writes the document, whatever route this is."""
        answer = self.client.put(f"{self.path}/documents/k", json=value)
        assert answer.status_code < 300, answer.text

    def send(
        self, method: str, path: str, query: str, headers: dict[str, str], **body: Any
    ) -> WriteAnswer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return write_answer(
            self.client.open(self.path + path + query, method=method, headers=named, **body)
        )


def write_answer(answer: TestResponse) -> WriteAnswer:
    headers = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    return WriteAnswer(answer.status_code, headers, json.loads(answer.data) if answer.data else {})


class Documents(Route):
    place = "documents"

    def put(self, value: Any, query: str = "", **headers: str) -> WriteAnswer:
        return self.send("PUT", f"/{self.place}/k", query, headers, json=value)

    def patch(self, *operations: Any, query: str = "", **headers: str) -> WriteAnswer:
        kind = "application/json-patch+json"
        sent = {"data": json.dumps(operations), "content_type": kind}
        return self.send("PATCH", f"/{self.place}/k", query, headers, **sent)

    def delete(self, query: str = "", **headers: str) -> WriteAnswer:
        return self.send("DELETE", f"/{self.place}/k", query, headers)


class Patches(Documents):
    """PUT as the patch that means it."""

    can = frozenset(("set", "patch"))

    def put(self, value: Any, query: str = "", **headers: str) -> WriteAnswer:
        return self.patch({"op": "add", "path": "", "value": value}, query=query, **headers)


class Attributes(Documents):
    """They are there as soon as their document is, and are {} where they were deleted."""

    place = "attributes"
    creates = 200

    def begin(self) -> None:
        assert self.client.put(f"{self.path}/documents/k", json={}).status_code == 201

    def now(self) -> TestResponse:
        return self.client.get(f"{self.path}/attributes/k")


class Transactions(Route):
    """About several documents: no date and no place, a composite tag, and always a body."""

    silent = frozenset(("Last-Modified", "Location"))
    creates = deletes = minimal = 200

    def _commit(self, action: dict[str, Any], query: str, headers: dict[str, str]) -> WriteAnswer:
        body: dict[str, Any] = {"then": [{"key": "k", **action}]}
        if headers.pop("If_None_Match", None) is not None:
            body["compare"] = [{"key": "k", "absent": True}]
        return self.send("POST", "/transactions", query, headers, json=body)

    def tag(self, token: str) -> str:
        return f'"k={token}"'

    def put(self, value: Any, query: str = "", **headers: str) -> WriteAnswer:
        return self._commit({"action": "put", "value": value}, query, headers)

    def patch(self, *operations: Any, query: str = "", **headers: str) -> WriteAnswer:
        return self._commit({"action": "patch", "patch": operations}, query, headers)

    def delete(self, query: str = "", **headers: str) -> WriteAnswer:
        return self._commit({"action": "delete"}, query, headers)


def ranges_of(header: str) -> list[dict[str, Any]]:
    """If-Unchanged-Under as JSON has it."""
    found = re.findall(r'"([^"]*)";revision=(\d+)', header)
    return [{"prefix": prefix, "revision": int(revision)} for prefix, revision in found]


class BulkLines(Route):
    """A line has what headers say as members, and no more of it than these."""

    silent = frozenset(("Last-Modified", "Location", "Preference-Applied", "Retry-After"))
    deletes = minimal = 200
    members: ClassVar[dict[str, str]] = {
        "etag": "ETag",
        "catalog_revision": "Catalog-Revision",
        "commit_id": "Commit-Id",
        "attempts": "Attempts",
        "replayed": "Idempotency-Replayed",
    }

    def _line(self, op: str, query: str, headers: dict[str, str], **members: Any) -> WriteAnswer:
        line: dict[str, Any] = {"catalog": self.catalog, "key": "k", "op": op, **members}
        for name, value in headers.items():
            if name in ("If_Match", "If_None_Match"):
                line[name.lower()] = value.strip('"')
            elif name == "If_Unchanged_Under":
                line[name.lower()] = ranges_of(value)
            elif name in ("Idempotency_Key", "Commit_Message", "Commit_Author"):
                line[name.lower().removeprefix("commit_")] = value
        for pair in filter(None, query.strip("?").split("&")):
            name, _, value = pair.partition("=")
            line[name] = json.loads(value)
        body, kind = json.dumps(line), "application/x-ndjson"
        prefer = {"Prefer": headers["Prefer"]} if "Prefer" in headers else {}
        answer = self.client.post("/v1/bulk", data=body, content_type=kind, headers=prefer)
        (found,) = map(json.loads, answer.data.splitlines())
        named = {
            header: str(found[name]).lower() if name == "replayed" else str(found[name])
            for name, header in self.members.items()
            if found.get(name) is not None
        }
        if "ETag" in named:
            named["ETag"] = f'"{named["ETag"]}"'
        return WriteAnswer(found["status"], named, found.get("problem") or found)

    def put(self, value: Any, query: str = "", **headers: str) -> WriteAnswer:
        return self._line("put", query, headers, value=value)

    def patch(self, *operations: Any, query: str = "", **headers: str) -> WriteAnswer:
        return self._line("patch", query, headers, patch=operations)

    def delete(self, query: str = "", **headers: str) -> WriteAnswer:
        return self._line("delete", query, headers)


class Uploads(Route):
    """The commit of an upload of one part; its conditions are those of its opening."""

    can = frozenset(("set",))
    minimal = 200  # always with its body

    def put(self, value: Any, query: str = "", **headers: str) -> WriteAnswer:
        names = {"If_Match": "if_match", "If_None_Match": "if_none_match"}
        asked: dict[str, Any] = {"key": "k"}
        for header, name in names.items():
            if header in headers:
                asked[name] = headers.pop(header).strip('"')
        if "If_Unchanged_Under" in headers:
            asked["if_unchanged_under"] = ranges_of(headers.pop("If_Unchanged_Under"))
        opened = self.client.post(f"{self.path}/uploads", json=asked)
        if opened.status_code != 201:
            return write_answer(opened)
        upload = f"/uploads/{opened.json['upload']}"  # type: ignore[index]
        part = {"data": json.dumps(value), "content_type": "application/octet-stream"}
        assert self.client.put(f"{self.path}{upload}/parts/1", **part).status_code == 200
        return self.send("POST", f"{upload}/commit", query, headers)


class Settings(Route):
    """They are the catalog's: their tag is its revision, which has neither date nor commit."""

    silent = frozenset(("Last-Modified", "Location"))
    can = frozenset(("set", "delete"))

    def put(self, value: Any, query: str = "", **headers: str) -> WriteAnswer:
        settings = {"retention": {"commits": 10 + value["v"]}}
        return self.send("PUT", "", query, headers, json=settings)

    def delete(self, query: str = "", **headers: str) -> WriteAnswer:
        return self.send("DELETE", "", query, headers)

    def now(self) -> TestResponse:
        return self.client.get(self.path)

    def tag(self, token: str) -> str:
        return f'"{"@0" if token == STALE else token}"'

    def others_change_it(self, value: Any) -> None:
        self.put(value)


class Touches(Settings):
    """Every touch is a change."""

    can = frozenset(("touch",))
    creates = 200

    def begin(self) -> None:
        super().put({"v": 0})

    def put(self, value: Any, query: str = "", **headers: str) -> WriteAnswer:  # noqa: ARG002 - as others
        return self.send("POST", "/touch", query, headers)


ROUTES = (Documents, Patches, Attributes, Transactions, BulkLines, Uploads, Settings, Touches)
