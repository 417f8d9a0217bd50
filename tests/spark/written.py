"""A catalog as a test writes it, beside Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport
from patching.spark.options import LOAD, Options


class Written:
    """Every method that writes returns when it is done."""

    def __init__(self, url: str, catalog: str, transport: Transport) -> None:
        self.url = url
        self.catalog = catalog
        self.path = f"/v1/catalogs/{quote(catalog, safe='')}"
        self.transport = transport
        self.routes = CatalogRoutes(transport, catalog)

    def put(self, key: str, value: Any, **headers: str) -> int:
        """The revision that made."""
        answer = self.transport.request(
            "PUT",
            f"{self.path}/documents/{quote(key, safe='')}",
            body=json.dumps(value).encode(),
            headers={"Content-Type": "application/json", **headers},
        )
        return int(answer.headers["Catalog-Revision"])

    def put_all(self, documents: Mapping[str, Any]) -> int:
        """In one transaction; the revision that made."""
        then = [{"action": "put", "key": k, "value": v} for k, v in documents.items()]
        return self.routes.transact([], then).revision

    def put_each(self, documents: Iterable[tuple[str, Any]]) -> int:
        """One commit for each; the last one's revision."""
        lines = [
            json.dumps({"catalog": self.catalog, "key": key, "op": "put", "value": value})
            for key, value in documents
        ]
        answer = self.transport.request(
            "POST",
            "/v1/bulk",
            body="\n".join(lines).encode(),
            headers={"Content-Type": "application/x-ndjson"},
        )
        results = [json.loads(line) for line in answer.body.splitlines() if line]
        assert len(results) == len(lines)
        assert all(each["status"] < 300 for each in results), results
        return max(int(each["catalog_revision"]) for each in results)

    def touch(self) -> None:
        self.transport.request("POST", f"{self.path}/touch")

    def compact(self, revision: int) -> None:
        """Raises Conflict where it is pinned."""
        self.transport.request("POST", f"{self.path}/compactions", json={"revision": revision})

    def pins(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.transport.request("GET", f"{self.path}/pins").json()[
            "pins"
        ]
        return found

    def head(self) -> int:
        return self.routes.read().revision

    def changes(self) -> int:
        """How many changes of documents there were so far; a job's begin and end are none."""
        return sum(len(each.changes) for each in self.routes.commits(0).commits)

    def frame(self, spark: Any, **options: Any) -> Any:
        """``spark.read`` of it."""
        return self._loaded(spark.read, options)

    def stream(self, spark: Any, **options: Any) -> Any:
        """``spark.readStream`` of it."""
        return self._loaded(spark.readStream, {"type": "commits", **options})

    def load_options(self, **options: Any) -> Options:
        """What a frame is loaded with: for tests of what fails there, which need no Spark."""
        from patching.spark.source import at_one_revision

        given = {name: str(value) for name, value in options.items()}
        named = {"url": self.url, "catalog": self.catalog, **given}
        return at_one_revision(Options.parse(named, LOAD))

    def _loaded(self, reader: Any, options: Mapping[str, Any]) -> Any:
        reader = reader.format("metadata").option("url", self.url).option("catalog", self.catalog)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()
