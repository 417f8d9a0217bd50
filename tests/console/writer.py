"""Somebody else, who writes through the API alone."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import urllib3

from tests.patience import RUN_S, WAIT_S

PATCH = "application/json-patch+json"
APPLY = "application/vnd.metadata.apply+json"


class Writer:
    """Writes documents of one catalog; every write must succeed."""

    def __init__(self, url: str, catalog: str, token: str | None = None) -> None:
        self.url, self.catalog = url, catalog
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._pool = urllib3.PoolManager(retries=False, timeout=WAIT_S)

    def put(self, key: str, value: Any, message: str = "", author: str = "") -> str:
        """The document's new token."""
        return self._write("PUT", key, value, "application/json", message, author)

    def patch(self, key: str, *operations: dict[str, Any], message: str = "") -> str:
        return self._write("PATCH", key, operations, PATCH, message)

    def replace(self, key: str, pointer: str, value: Any, message: str = "") -> str:
        return self.patch(key, {"op": "replace", "path": pointer, "value": value}, message=message)

    def apply(self, key: str, wanted: Any, manager: str) -> None:
        """What ``manager`` wants of the document."""
        path = f"documents/{quote(key, safe='')}?manager={quote(manager)}"
        self._request("PATCH", path, json.dumps(wanted), {"Content-Type": APPLY})

    def put_together(self, documents: dict[str, Any]) -> None:
        """In one commit."""
        then = [{"action": "put", "key": key, "value": value} for key, value in documents.items()]
        headers = {"Content-Type": "application/json"}
        self._request("POST", "transactions", json.dumps({"then": then}), headers)

    def subscribe(self, name: str, to: str) -> None:
        """To all commits that there were."""
        body = json.dumps({"to": to, "from": 0})
        self._request("PUT", f"subscriptions/{name}", body, {"Content-Type": "application/json"})

    def owners(self, key: str) -> dict[str, list[str]]:
        """By pointer who owns it; people with an asterisk."""
        path = self._path(f"owners/{quote(key, safe='')}")
        answer = json.loads(self._pool.request("GET", path, headers=self._headers).data)
        return {
            leaf["pointer"]: [each["manager"] + "*" * each["plain"] for each in leaf["owners"]]
            for leaf in answer["owners"]
        }

    def delete(self, key: str, message: str = "") -> None:
        self._write("DELETE", key, None, "application/json", message)

    def set_attributes(self, key: str, attributes: dict[str, Any]) -> None:
        path = f"attributes/{quote(key, safe='')}"
        self._request("PUT", path, json.dumps(attributes), {"Content-Type": "application/json"})

    def set_schema(self, schema: dict[str, Any]) -> None:
        """Of every document."""
        self.set_settings({"schemas": {"*": schema}})

    def set_settings(self, settings: dict[str, Any]) -> None:
        answer = self._pool.request(
            "PUT",
            f"{self.url}/v1/catalogs/{quote(self.catalog, safe='')}",
            body=json.dumps(settings),
            headers={"Content-Type": "application/json", **self._headers},
        )
        assert answer.status < 300, answer.data

    def bulk(self, documents: dict[str, Any]) -> None:
        lines = [
            json.dumps({"catalog": self.catalog, "key": key, "op": "put", "value": value})
            for key, value in documents.items()
        ]
        headers = {"Content-Type": "application/x-ndjson", **self._headers}
        answer = self._pool.request(
            "POST", f"{self.url}/v1/bulk", body="\n".join(lines), headers=headers, timeout=RUN_S
        )
        assert answer.status == 200, answer.data[:1000]
        answers = [json.loads(line) for line in answer.data.splitlines()]
        assert all(each["status"] < 300 for each in answers), answers[:3]

    def read(self, key: str) -> Any:
        """The document, None where there is none."""
        answer = self._pool.request(
            "GET", self._path(f"documents/{quote(key, safe='')}"), headers=self._headers
        )
        return None if answer.status == 404 else json.loads(answer.data)

    def commits(self) -> list[dict[str, Any]]:
        answer = self._pool.request("GET", self._path("commits?limit=1000"), headers=self._headers)
        found: list[dict[str, Any]] = json.loads(answer.data)["commits"]
        return found

    def _write(
        self, method: str, key: str, value: Any, media_type: str, message: str, author: str = ""
    ) -> str:
        headers = {"Content-Type": media_type, "Commit-Message": quote(message)}
        if author:
            headers["Commit-Author"] = quote(author)
        body = None if method == "DELETE" else json.dumps(value)
        return self._request(method, f"documents/{quote(key, safe='')}", body, headers)

    def _request(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> str:
        headers = {**headers, **self._headers}
        answer = self._pool.request(method, self._path(path), body=body, headers=headers)
        assert answer.status < 300, answer.data
        return answer.headers.get("ETag", "")

    def _path(self, path: str) -> str:
        return f"{self.url}/v1/catalogs/{quote(self.catalog, safe='')}/{path}"
