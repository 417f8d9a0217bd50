"""Pins and compactions over HTTP; what is below the floor, and what a pin holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.http.conftest import Catalog, problem
from tests.http.served import serving


@pytest.fixture
def written(catalog: Catalog) -> Catalog:
    """Six revisions of one document."""
    for number in range(6):
        catalog.put({"n": number})
    return catalog


def post(catalog: Catalog, what: str, body: Any, **headers: str) -> TestResponse:
    return catalog.client.post(f"{catalog.path}/{what}", json=body, headers=headers)


def compact(catalog: Catalog, revision: int) -> TestResponse:
    return post(catalog, "compactions", {"revision": revision})


def pin(catalog: Catalog, **body: Any) -> Any:
    answer = post(catalog, "pins", {"seconds": 600, **body})
    assert answer.status_code == 201, answer.data
    return answer.get_json()


class TestCompactions:
    def test_an_unknown_catalog_is_404(self, catalog: Catalog) -> None:
        problem(compact(catalog, 1), 404, "catalog_not_found")
        problem(post(catalog, "pins", {"seconds": 1}), 404, "catalog_not_found")
        problem(catalog.client.get(f"{catalog.path}/pins"), 404, "catalog_not_found")


class TestPins:
    def test_a_pin_shows_its_terms(self, written: Catalog) -> None:
        before = datetime.now(UTC)
        answer = post(written, "pins", {"revision": 2, "seconds": 600, "note": "spark"})
        content = answer.get_json()
        assert (answer.status_code, content["revision"], content["note"]) == (201, 2, "spark")
        seconds = (datetime.fromisoformat(content["expires"]) - before).total_seconds()
        assert 599 < seconds < 660
        location = answer.headers["Location"]
        assert location == f"{written.path}/pins/{content['pin']}"
        assert written.client.get(location).get_json() == content
        assert written.client.get(f"{written.path}/pins").get_json() == {"pins": [content]}

    def test_a_pin_can_be_renewed(self, written: Catalog) -> None:
        held = pin(written, revision=2, seconds=5)
        path = f"{written.path}/pins/{held['pin']}"
        renewed = written.client.put(path, json={"seconds": 5000})
        assert renewed.status_code == 200
        assert renewed.get_json() == {**held, "expires": renewed.get_json()["expires"]}
        assert renewed.get_json()["expires"] > held["expires"]
        assert written.client.get(path).get_json() == renewed.get_json()

    def test_a_pin_longer_than_allowed_is_refused(self, written: Catalog) -> None:
        told = problem(post(written, "pins", {"seconds": 86_401}), 413, "over_limit")
        assert (told["limit"], told["maximum"]) == ("pin_seconds_max", 86_400)
        path = f"{written.path}/pins/{pin(written)['pin']}"
        problem(written.client.put(path, json={"seconds": 86_401}), 413, "over_limit")


@pytest.mark.parametrize(
    ("what", "body", "pointer"),
    [
        ("pins", {}, "/seconds"),
        ("pins", {"seconds": 0}, "/seconds"),
        ("pins", {"seconds": 1.5}, "/seconds"),
        ("pins", {"seconds": True}, "/seconds"),
        ("pins", {"seconds": "1"}, "/seconds"),
        ("pins", {"seconds": 1, "revision": -1}, "/revision"),
        ("pins", {"seconds": 1, "revision": None}, "/revision"),
        ("pins", {"seconds": 1, "note": 1}, "/note"),
        ("pins", {"seconds": 1, "note": "x" * 256}, "/note"),
        ("pins", {"seconds": 1, "owner": "x"}, "/owner"),
        ("pins", [], ""),
        ("compactions", {}, "/revision"),
        ("compactions", {"revision": "4"}, "/revision"),
        ("compactions", {"revision": -1}, "/revision"),
        ("compactions", {"revision": 1, "force": True}, "/force"),
    ],
)
def test_a_bad_body_is_refused_with_its_pointer(
    written: Catalog, what: str, body: Any, pointer: str
) -> None:
    assert problem(post(written, what, body), 400, "invalid_body")["pointer"] == pointer


@pytest.mark.parametrize("what", ["pins", "compactions"])
def test_conditions_and_parameters_are_refused(written: Catalog, what: str) -> None:
    body = {"seconds": 1} if what == "pins" else {"revision": 1}
    problem(post(written, what, body, **{"If-Match": "*"}), 400, "invalid_condition")
    problem(post(written, f"{what}?dry_run=true", body), 400, "invalid_parameter")
    plain = written.client.post(f"{written.path}/{what}", data="{}", content_type="text/plain")
    problem(plain, 415, "unsupported_media_type")
    problem(
        written.client.post(f"{written.path}/{what}", data="{", content_type="application/json"),
        400,
        "malformed_json",
    )


@pytest.mark.mongod
def test_a_served_catalog_is_compacted_in_the_background(
    mongodb_uri: str, database_name: str, eventually: Callable[..., Any]
) -> None:
    rules = {"retention_commits": 3, "compaction_interval_s": 1}
    with serving(mongodb_uri, database_name, **rules) as server:
        json_body = [("Content-Type", "application/json")]
        for number in range(10):
            path = "/v1/catalogs/c/documents/k"
            server.send("PUT", path, f'{{"n": {number}}}'.encode(), json_body)

        def floor() -> int:
            return int(server.send("GET", "/v1/catalogs/c").json()["floor"])

        eventually(lambda: floor() == 7)
        assert server.send("GET", "/v1/catalogs/c/documents/k?revision=7").json() == {"n": 6}
        assert server.send("GET", "/v1/catalogs/c/documents/k?revision=6").status == 410
