"""The list of catalogs has those that may be read, and names no other one on any page."""

from __future__ import annotations

from itertools import chain

import pytest

from gateway.access import Principal, Role
from gateway.access.principal import principal
from gateway.read.listing import Listing, readable_catalogs
from tests.access.service import Caller, Service, catalog_path, document_path

NAMES = sorted([*(f"{team}/{n:02}" for team in "abcd" for n in range(8)), "ab", "b", "b/", "é/x"])
GRANTS: dict[str, tuple[str, ...]] = {
    "all": ("read:*",),
    "none": (),
    "one": ("read:b/03",),
    "no such": ("read:zzz",),
    "a team": ("read:b/*",),
    "teams": ("write:b/*", "read:d/0*", "admin:a/01"),
    "overlapping": ("read:b/*", "read:b/0*", "read:b*"),
    "an ending": ("read:*/03",),
    "a middle": ("read:*/*1", "read:ab"),
}


@pytest.fixture(scope="module")
def service() -> Service:
    made = Service()
    root = made.caller("root", "admin:*")
    for name in [*NAMES, "c/gone"]:
        assert root.send("PUT", document_path(name), 1).status_code == 201
    assert root.send("DELETE", catalog_path("c/gone")).status_code == 204
    return made


def pages(caller: Caller, query: str) -> list[list[str]]:
    found: list[list[str]] = []
    after = ""
    for _ in range(100):
        answer = caller.send("GET", f"/v1/catalogs?{query}&after={after}")
        page = answer.get_json()
        found.append([each["catalog"] for each in page["catalogs"]])
        if page["next"] is None:
            return found
        after = page["next"].replace("/", "%2F").replace("é", "%C3%A9")
    raise AssertionError("it never ends")


@pytest.mark.parametrize("prefix", ["", "b", "b/", "b/0", "d/07", "x"])
@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("grants", GRANTS)
def test_the_list_contains_the_readable_catalogs(
    grants: str, limit: int, prefix: str, service: Service
) -> None:
    caller = service.caller("ann", *GRANTS[grants])
    may = principal("ann", GRANTS[grants])
    expected = [n for n in NAMES if n.startswith(prefix) and may.may(Role.READ, n)]
    found = pages(caller, f"limit={limit}&prefix={prefix}")
    assert list(chain(*found)) == expected
    assert all(len(page) <= limit for page in found)


@pytest.mark.parametrize("grants", [each for each in GRANTS if each != "all"])
def test_no_unreadable_catalog_is_named(grants: str, service: Service) -> None:
    caller = service.caller("ann", *GRANTS[grants])
    may = principal("ann", GRANTS[grants])
    for limit in range(1, 9):
        answer = caller.send("GET", f"/v1/catalogs?limit={limit}").get_json()
        told = [each["catalog"] for each in answer["catalogs"]] + [answer["next"]]
        assert all(may.may(Role.READ, name) for name in told if name is not None)


def test_only_catalogs_with_the_prefix_of_a_grant_are_read(service: Service) -> None:
    looked: list[str] = []

    class Watched(Listing):
        def __init__(self) -> None: ...

        def catalogs(self, *, after: str, prefix: str, limit: int):  # type: ignore[no-untyped-def]
            looked.append(prefix)
            return service.gateway.listing.catalogs(after=after, prefix=prefix, limit=limit)

    def read(by: Principal, prefix: str = "") -> list[str]:
        looked.clear()
        readable_catalogs(Watched(), by, after="", prefix=prefix, limit=100)
        return looked

    assert read(principal("x", ["read:b/*", "read:d/01", "read:b/0*"])) == ["b/", "d/01"]
    assert read(principal("x", ["read:b/*", "read:d/*"]), "b/0") == ["b/0"]
    assert read(principal("x", [])) == []
