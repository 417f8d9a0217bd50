"""Keys and catalog names are arbitrary text within limits, and mean the same on every route."""

from __future__ import annotations

import uuid

import pytest
from flask.testing import FlaskClient
from werkzeug.test import create_environ

from gateway.http.door.observation import raw_path
from tests.http.conftest import Catalog, problem

KEYS = [
    *("a/b", "/leading", "trailing/", "//", "a//b", "..", "../../etc/passwd", "a/./b", "%2F"),
    *("100%", "a b+c", "a?b=c&d#e", "urn:li:dataset:(urn:li:dataPlatform:hive,db.table,PROD)", "é"),
    *("e\u0301", "😀", "\u202e", "\0", "a\nb\r", "\u00ff\u0100", ";=\"'\\"),
]


@pytest.mark.parametrize("key", KEYS)
def test_every_text_is_a_key(catalog: Catalog, key: str) -> None:
    written = catalog.put({"key": key}, key)
    assert written.status_code == 201, written.data
    assert written.get_json()["key"] == key
    assert catalog.get(key).get_json() == {"key": key}
    followed = catalog.client.get(written.headers["Location"])
    assert (followed.status_code, followed.get_json()) == (200, {"key": key})
    assert catalog.delete(key).status_code == 204


def test_similar_keys_are_different_documents(catalog: Catalog) -> None:
    keys = ["a", "a/", "/a", "a//", "./a", "A", "é", "e\u0301"]
    for number, key in enumerate(keys):
        assert catalog.put(number, key).status_code == 201
    assert [catalog.get(key).get_json() for key in keys] == list(range(len(keys)))


def test_slashes_in_a_key_may_be_encoded(catalog: Catalog) -> None:
    catalog.put(1, "a/b//c/")
    for path in ("a/b//c/", "a%2Fb%2f%2fc%2F", "%61/b//c/"):
        assert catalog.client.get(f"{catalog.path}/documents/{path}").get_json() == 1


def test_an_encoded_slash_in_a_catalog_name_separates_nothing(client: FlaskClient) -> None:
    name = uuid.uuid4().hex
    assert client.put(f"/v1/catalogs/{name}%2Fdocuments/documents/k", json=1).status_code == 201
    answer = client.get(f"/v1/catalogs/{name}%2Fdocuments/documents/k")
    assert answer.status_code == 200
    assert client.get(f"/v1/catalogs/{name}/documents/documents/k").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/catalogs//documents/k", "/v1/catalogs/c/documents/", "/v1/catalogs/%00/documents/k"),
        *("/v1/catalogs/a%00b/documents/k", "/v1/catalogs/c/documents/%ff"),
        *("/v1/catalogs/%c3%28/documents/k", "/v1/catalogs/c/documents/%ed%a0%80"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_an_invalid_name_is_400(client: FlaskClient, method: str, path: str) -> None:
    content_type = "application/json-patch+json" if method == "PATCH" else "application/json"
    answer = client.open(path, method=method, data="[]", content_type=content_type)
    problem(answer, 400, "invalid_name") if method != "HEAD" else None


@pytest.mark.parametrize("encoded", ["%", "%z1", "a%2", "100%", "a#b"])
def test_a_bad_escape_is_400_rather_than_guessed(client: FlaskClient, encoded: str) -> None:
    """The test client would repair the path, so that the raw one is given beside it."""
    target = f"/v1/catalogs/c/documents/{encoded}"
    answer = client.get("/", environ_overrides={"RAW_URI": target})
    problem(answer, 400, "invalid_name")


def test_text_that_was_sent_unencoded_is_understood(catalog: Catalog) -> None:
    catalog.put(1, "é😀")
    for text, status in (("é😀", 200), ("é%F0%9F%98%80", 200), ("é", 404)):
        target = f"{catalog.path}/documents/".encode() + text.encode()
        overrides = {"RAW_URI": target.decode("latin-1")}
        assert catalog.client.get("/", environ_overrides=overrides).status_code == status
    overrides = {"RAW_URI": f"{catalog.path}/documents/\xe9"}
    problem(catalog.client.get("/", environ_overrides=overrides), 400, "invalid_name")


def test_names_over_their_limit_are_414(small_catalog: Catalog) -> None:
    assert small_catalog.put(1, "k" * 20).status_code == 201
    content = problem(small_catalog.put(1, "k" * 21), 414, "name_too_long")
    assert (content["limit"], content["maximum"], content["actual"]) == ("key_bytes_max", 20, 21)
    content = problem(small_catalog.get("é" * 11), 414, "name_too_long")
    assert content["actual"] == 22
    long_name = Catalog(small_catalog.client, "c" * 41)
    content = problem(long_name.get(), 414, "name_too_long")
    assert (content["limit"], content["actual"]) == ("catalog_name_bytes_max", 41)


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"RAW_URI": "/a%2Fb?x=/y"}, "/a%2Fb"),
        ({"REQUEST_URI": "/a%2Fb"}, "/a%2Fb"),
        ({"RAW_URI": "http://host:80/a%2Fb?x"}, "/a%2Fb"),
        ({"RAW_URI": "http://host"}, ""),
        ({"RAW_URI": "http://host?a=/b"}, ""),
        ({"RAW_URI": "*"}, "*"),
        ({"RAW_URI": "/at/a%2Fb", "SCRIPT_NAME": "/at"}, "/a%2Fb"),
        ({"RAW_URI": "/\xc3\xa9%C3%A9/(a)"}, "/%C3%A9%C3%A9/(a)"),
        ({"PATH_INFO": "/a%b/\xc3\xa9"}, "/a%25b/%C3%A9"),
    ],
)
def test_the_raw_path_is_used(environ: dict[str, str], path: str) -> None:
    bare = {k: v for k, v in create_environ().items() if k not in ("RAW_URI", "REQUEST_URI")}
    assert raw_path({**bare, **environ}) == path


@pytest.mark.parametrize("target", ["http://localhost", "http://localhost?"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_an_empty_path_is_the_root(target: str, method: str, client: FlaskClient) -> None:
    empty, root = (
        client.open("/", method=method, environ_overrides={"RAW_URI": each})
        for each in (target, "/")
    )
    assert empty.status_code == root.status_code == (405 if method == "POST" else 307)
    assert empty.headers.get("Location") == root.headers.get("Location")


@pytest.mark.parametrize(
    "path",
    ["//v1/catalogs", "///v1/catalogs", "//v1/catalogs/c/documents/k", "//livez", "//console/"],
)
def test_a_path_with_several_leading_slashes_is_404(path: str, client: FlaskClient) -> None:
    answer = client.get("/", environ_overrides={"RAW_URI": path})
    assert (answer.status_code, answer.json["code"]) == (404, "route_not_found")
