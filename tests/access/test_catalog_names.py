"""However a path writes a catalog's name, the one that is checked is the one that is used."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.access import Role
from gateway.access.principal import principal
from gateway.http.wire.headers import percent_decoded
from gateway.store.mongodb import connect
from tests.access.service import Caller, Service, catalog_path, document_path
from tests.http.conftest import problem
from tests.patience import WAIT_MS
from tests.service import own_database

COMPOSED = unicodedata.normalize("NFC", "café")
DECOMPOSED = unicodedata.normalize("NFD", "café")
# Of whoever may do everything in `mine/…`, and nothing elsewhere.
GRANTS = (
    "admin:mine/*",
    f"admin:{COMPOSED}",
    "admin:a.b",
    "admin:x y",
    "admin:100%",
    "admin:*.pub",
)
SECRET = {"secret": "of another"}
# Catalogs that lie near those, each with a document.
OTHERS = (
    "mine",
    "Mine/x",
    "MINE/X",
    "mine\\x",
    "mine%2fx",
    "mine%2Fx",
    " mine/x",
    "other",
    "other/mine/x",
    "./mine/x",
    "../mine/x",
    DECOMPOSED,
    "CAFÉ",
    "axb",
    "a.b.",
    "x+y",
    "x%20y",
    "100",
    "xpub",
    "x.pub/",
    "x.PUB",
    "mine／x",  # a full-width slash
    "ｍine/x",
    "$ne",
    "*",
    ".",
    "..",
)


@pytest.fixture(scope="module")
def service(mongodb_uri: str) -> Iterator[Service]:
    """On the real database: it is its names that are tried."""
    with own_database(mongodb_uri) as database:
        store = connect(mongodb_uri, database, timeout_ms=WAIT_MS)
        made = Service(store, store.tokens())
        root = made.caller("root", "admin:*")
        for catalog in OTHERS:
            assert root.send("PUT", document_path(catalog), SECRET).status_code == 201
        yield made
        store.close()


@pytest.fixture(scope="module")
def caller(service: Service) -> Caller:
    return service.caller("me", *GRANTS)


@pytest.mark.parametrize("catalog", OTHERS)
def test_a_similar_name_is_a_different_catalog(catalog: str, caller: Caller) -> None:
    for method, path, body in (
        ("GET", document_path(catalog), None),
        ("PUT", document_path(catalog), 1),
        ("GET", f"{catalog_path(catalog)}/export", None),
        ("DELETE", catalog_path(catalog), None),
    ):
        answer = caller.send(method, path, body)
        content = problem(answer, 403, "forbidden")
        assert content["catalog"] == catalog
        assert "secret" not in answer.text
    (line,) = caller.bulk({"catalog": catalog, "op": "put", "key": "k", "value": 1})
    assert line["problem"]["code"] == "forbidden"


@pytest.mark.parametrize(
    "catalog", ["mine/x", "mine/", "mine/../x", COMPOSED, "a.b", "100%", ".pub"]
)
def test_a_name_that_matches_a_grant_can_be_used(catalog: str, caller: Caller) -> None:
    assert caller.send("PUT", document_path(catalog, "new"), 1).status_code in (200, 201)
    assert caller.send("GET", catalog_path(catalog)).get_json()["catalog"] == catalog


# Of what a proxy or a careless server takes for something else.
TRICKS = [
    *("/v1/catalogs/mine/x/documents/k", "/v1/catalogs/mine%2Fx/../other/documents/k"),
    "/v1/catalogs/mine%2Fx/%2E%2E/other/documents/k",
    "/v1/catalogs/mine%2Fx%2F..%2F..%2Fother/documents/k",
    *("/v1/catalogs/mine%2Fx/..%2Fother/documents/k", "/v1/catalogs/mine%252Fx/documents/k"),
    *("/v1/catalogs/mine%2fx%00/documents/k", "/v1/catalogs/mine%2Fx%3B/documents/k"),
    *("/v1/catalogs/mine%2Fx;/documents/k", "/v1/catalogs/other?catalog=mine%2Fx"),
    "/v1/catalogs/other/documents/k?catalog=mine%2Fx",
    *("/v1/catalogs/other%23mine%2F/documents/k", "/v1/catalogs/other#mine%2Fx/documents/k"),
    *("/v1/catalogs//mine%2Fx/documents/k", "//v1/catalogs/other/documents/k"),
    *("/v1//catalogs/mine%2Fx/documents/k", "/v1/catalogs/%6Fther/documents/k"),
    *("/v1/catalogs/%C0%AFmine/documents/k", "/v1/catalogs/mine%c0%afx/documents/k"),
    *("/v1/catalogs/mine%2/documents/k", "/v1/catalogs/mine%u002Fx/documents/k"),
    "http://mine%2Fx/v1/catalogs/other/documents/k",
    *("http://host@other/v1/catalogs/other/documents/k", "/V1/catalogs/mine%2Fx/documents/k"),
    "/v1/catalogs/./mine%2Fx/documents/k",
    "/v1/catalogs/mine%2Fx/documents/../../other/documents/k",
]


@pytest.mark.parametrize("path", TRICKS)
def test_no_spelling_of_a_path_reaches_another_catalog(path: str, caller: Caller) -> None:
    """It may name what is one's own, or nothing; it never reads or changes what is another's."""
    for method, body in (("GET", None), ("PUT", 1), ("DELETE", None)):
        answer = caller.send(method, path, body)
        assert "secret" not in answer.text
        assert answer.status_code < 500
        if answer.status_code < 300 and method == "PUT":
            written = answer.get_json()["catalog"]
            assert written.startswith("mine/"), written


def test_the_other_catalogs_are_unchanged_after_all_attempts(service: Service) -> None:
    root = service.caller("root", "admin:*")
    for catalog in OTHERS:
        assert root.send("GET", document_path(catalog)).get_json() == SECRET
        assert root.send("GET", catalog_path(catalog)).get_json()["revision"] == 1


PIECES = [*"mine/x%fE.\\ é", "%2F", "%2f", "%25", "%2E", ".."]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(segment=st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_the_name_that_is_checked_is_the_name_the_route_gets(segment: str, caller: Caller) -> None:
    """The catalog in a refusal, and the one in an answer, are the segment, decoded once."""
    encoded = segment.replace("é", "%C3%A9").replace(" ", "%20").replace("/", "%2F")
    answer = caller.send("PUT", f"/v1/catalogs/{encoded}/documents/fuzz", 1)
    if answer.status_code in (400, 401, 404):
        return
    name = percent_decoded(encoded)
    assert answer.get_json()["catalog"] == name
    assert (answer.status_code < 300) == principal("me", GRANTS).may(Role.WRITE, name)


class TestInjection:
    """A name is plain text everywhere: it is never an operator or a path of the database."""

    VALUES = ({"$ne": None}, {"$gt": ""}, ["a"], 7, True, None, {"$regex": ".*"})

    @pytest.mark.parametrize("value", VALUES, ids=repr)
    def test_an_object_is_not_a_name(self, value: Any, service: Service) -> None:
        root = service.caller("root", "admin:*")
        lines = (
            {"catalog": value, "op": "delete", "key": "k"},
            {"catalog": "other", "op": "delete", "key": value},
            {"catalog": "other", "op": "delete", "key": "k", "if_match": value},
            {"catalog": "other", "op": "touch", "idempotency_key": value},
            {"catalog": "other", "op": "touch", "author": value},
        )
        for line, answer in zip(lines, root.bulk(*lines), strict=True):
            if isinstance(value, list | None) and "if_match" in line:
                continue  # none, or a list of tokens
            assert answer["status"] == 400, line
        for body in (
            {"compare": [{"key": value, "absent": True}]},
            {"compare": [{"key": "k", "etag": value}]},
            {"then": [{"action": "delete", "key": value}]},
            {"then": [{"action": "move", "from": "k", "to": value}]},
            {"author": value},
        ):
            answer = root.send("POST", "/v1/catalogs/other/transactions", body)
            assert answer.status_code == 400, body
        for path, body in (
            ("/v1/catalogs/other/uploads", {"key": value}),
            ("/v1/catalogs/other/pins", {"seconds": 1, "note": value}),
        ):
            assert root.send("POST", path, body).status_code == 400, body
        assert root.send("GET", document_path("other")).get_json() == SECRET

    @pytest.mark.parametrize("name", ["$ne", "$where", "a.b.c", "$", ".", "__proto__", '{"$ne":1}'])
    def test_names_that_look_like_operators_are_ordinary_names(
        self, name: str, service: Service
    ) -> None:
        root = service.caller(f"root {name}", "admin:*")
        catalog = f"injected {name}"
        made = root.send("PUT", document_path(catalog, name), {name: 1}, Idempotency_Key="k")
        assert made.status_code == 201
        root.send("PUT", f"{catalog_path(catalog)}/attributes/{name}", {name: 1})
        assert root.send("GET", document_path(catalog, name)).get_json() == {name: 1}
        (commit, _) = root.send("GET", f"{catalog_path(catalog)}/commits").get_json()["commits"]
        assert (commit["author"], commit["changes"][0]["key"]) == (f"root {name}", name)
        outcome = root.send("GET", f"{catalog_path(catalog)}/outcomes/k")
        assert outcome.get_json()["commit_id"] == made.headers["Commit-Id"]
        for other in ("$ne", "*", f"{name}x"):
            if other != name:
                problem(root.send("GET", document_path(catalog, other)), 404, "document_not_found")
        upload = root.send("POST", f"{catalog_path(catalog)}/uploads", {"key": name})
        assert root.send("GET", upload.headers["Location"]).get_json()["key"] == name

    def test_ids_that_look_like_operators_match_nothing(self, service: Service) -> None:
        root = service.caller("root", "admin:*")
        for name in ("$ne", "{%22$ne%22:null}", "..", "%00", "*"):
            for kind in ("pins", "uploads"):
                answer = root.send("GET", f"/v1/catalogs/other/{kind}/{name}")
                assert answer.status_code == 404, (kind, name)

    def test_parameters_are_not_operators(self, service: Service) -> None:
        root = service.caller("root", "admin:*")
        for query in ("prefix[$ne]=x", "after[$gt]=", "key[]=k", "prefix=$ne", "after=%7B%7D"):
            answer = root.send("GET", f"/v1/catalogs/other/documents?{query}")
            assert answer.status_code == (400 if "[" in query else 200)
