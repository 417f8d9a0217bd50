"""A commit names its principal; whoever is admin of the catalog may name another author."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.access.service import Caller, Service
from tests.http.conftest import problem

PATH = "/v1/catalogs/c"
JSON_PATCH = "application/json-patch+json"


def _transaction(caller: Caller, **headers: str) -> TestResponse:
    action = {"action": "put", "key": "k", "value": headers.pop("value", 1)}
    return caller.send("POST", f"{PATH}/transactions", {"then": [action]}, **headers)


def _upload(caller: Caller, **headers: str) -> TestResponse:
    place = caller.send("POST", f"{PATH}/uploads", {"key": "up"}).headers["Location"]
    caller.send("PUT", f"{place}/parts/1", b"1", Content_Type="application/octet-stream")
    return caller.send("POST", f"{place}/commit", **headers)


# Every way to write that has headers of its own.
WRITES: dict[str, Callable[..., TestResponse]] = {
    "put": lambda c, **h: c.send("PUT", f"{PATH}/documents/k", 1, **h),
    "patch": lambda c, **h: c.send(
        "PATCH",
        f"{PATH}/documents/old",
        [{"op": "add", "path": "/b", "value": 1}],
        Content_Type=JSON_PATCH,
        **h,
    ),
    "delete": lambda c, **h: c.send("DELETE", f"{PATH}/documents/old", **h),
    "attributes": lambda c, **h: c.send("PUT", f"{PATH}/attributes/old", {"b": 1}, **h),
    "settings": lambda c, **h: c.send("PUT", PATH, {}, **h),
    "touch": lambda c, **h: c.send("POST", f"{PATH}/touch", **h),
    "transaction": _transaction,
    "upload": _upload,
    "delete catalog": lambda c, **h: c.send("DELETE", PATH, **h),
}


@pytest.fixture
def service() -> Service:
    made = Service()
    made.caller("root", "admin:*").send("PUT", f"{PATH}/documents/old", {"a": 1})
    return made


def authors(service: Service) -> list[str]:
    root = service.caller("root", "admin:*")
    return [c["author"] for c in root.send("GET", f"{PATH}/commits").get_json()["commits"]]


@pytest.mark.parametrize("way", WRITES)
def test_an_admin_may_name_another(way: str, service: Service) -> None:
    admin = service.caller("job", "admin:c")
    answer = WRITES[way](admin, Commit_Author="%C3%A9ve%20x")
    assert answer.status_code < 300, answer.text
    assert authors(service) == ["root", "éve x"]


@pytest.mark.parametrize(
    "way", [way for way in WRITES if way not in ("settings", "delete catalog")]
)
def test_only_an_admin_may_name_another_author(way: str, service: Service) -> None:
    writer = service.caller("ann", "write:c", "admin:other")
    content = problem(WRITES[way](writer, Commit_Author="eve"), 403, "forbidden")
    assert (content["role"], content["catalog"]) == ("admin", "c")
    assert "author" in content["detail"]
    assert authors(service) == ["root"]
    assert WRITES[way](writer, Commit_Author="ann").status_code < 300
    assert authors(service) == ["root", "ann"]


@pytest.mark.parametrize("text", ["", "%", "%FF", "%00", "a%0Ab", "%20a", "x" * 256, "%E2%80%AE"])
def test_an_invalid_author_is_refused(text: str, service: Service) -> None:
    admin = service.caller("job", "admin:c")
    content = problem(WRITES["put"](admin, Commit_Author=text), 400, "invalid_header")
    assert content["header"] == "Commit-Author"


def test_a_transaction_can_name_an_author_in_its_body(service: Service) -> None:
    body: dict[str, Any] = {"then": [{"action": "touch"}], "author": "eve"}
    admin, writer = service.caller("job", "admin:c"), service.caller("ann", "write:c")
    path = f"{PATH}/transactions"
    problem(writer.send("POST", path, body), 403, "forbidden")
    assert admin.send("POST", path, body).status_code == 200
    problem(admin.send("POST", path, body, Commit_Author="bob"), 400, "invalid_header")
    assert admin.send("POST", path, body, Commit_Author="eve").status_code == 200
    assert authors(service) == ["root", "eve", "eve"]


def test_each_bulk_line_can_name_its_own_author(service: Service) -> None:
    lines = [
        {"catalog": catalog, "op": "put", "key": "k", "value": author, "author": author}
        for catalog, author in (("c", "eve"), ("c", "ann"), ("d", "eve"), ("d", "ann"))
    ]
    answers = service.caller("ann", "admin:c", "write:d").bulk(*lines)
    assert [each["status"] for each in answers] == [201, 200, 403, 201]
    assert authors(service) == ["root", "eve", "ann"]
    (answer,) = service.caller("ann", "admin:c").bulk({**lines[0], "author": " x"})
    assert (answer["status"], answer["problem"]["pointer"]) == (400, "/author")
