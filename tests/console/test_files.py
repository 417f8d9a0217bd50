"""How the console's files are served: by name alone, typed, under a strict policy, revalidated."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from flask.testing import FlaskClient

import gateway.console
from gateway.http import create_app
from gateway.http.routes.static import PageFolder
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.memory_store import MemoryStore

STATIC = Path(gateway.console.__file__).parent / "static"
FILES = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())
BUNDLE = "codemirror.js"  # made by gateway/console/codemirror
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    app = create_app(GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits()))
    return app.test_client()


@pytest.mark.parametrize("name", ["", *FILES])
def test_every_file_is_served_with_its_type_and_the_policy(client: FlaskClient, name: str) -> None:
    answer = client.get(f"/console/{name}")
    assert answer.status_code == 200
    assert answer.mimetype == TYPES[Path(name or "index.html").suffix]
    assert _without_versions(answer.data) == (STATIC / (name or "index.html")).read_bytes()
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-cache"


def _without_versions(body: bytes) -> bytes:
    return re.sub(rb'="v-[0-9a-f]{32}/', b'="', body)


def test_file_urls_contain_a_version_and_are_cached(client: FlaskClient) -> None:
    page = client.get("/console/").get_data(as_text=True)
    linked = re.findall(r'(?:href|src)="(v-[0-9a-f]{32})/([^"]+)"', page)
    (version,) = {version for version, _ in linked}
    assert {"main.js", "style.css", "icon.svg", "views/editor.js"} <= {name for _, name in linked}
    assert not re.findall(r'(?:href|src)="(?!#|v-)', page)
    for _, name in linked:
        answer = client.get(f"/console/{version}/{name}")
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.data == (STATIC / name).read_bytes()
    other = client.get("/console/v-other/main.js")
    assert other.headers["Cache-Control"] == "no-cache", "another gateway's page, while they differ"
    assert other.data == (STATIC / "main.js").read_bytes()
    for name in (f"{version}/", version, f"{version}/{version}/main.js", "w-/main.js"):
        assert client.get(f"/console/{name}").status_code == 404, name


def test_a_changed_file_changes_the_version(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="main.js"></script>')
    pages = []
    for text in ("one", "one", "two"):
        (tmp_path / "main.js").write_text(text)
        pages.append(PageFolder(tmp_path, ()).answer({}, "index.html").response)
    assert pages[0] == pages[1] != pages[2]


def test_a_file_that_a_browser_has_is_not_sent_again(client: FlaskClient) -> None:
    first = client.get("/console/main.js")
    tag = first.headers["ETag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        again = client.get("/console/main.js", headers={"If-None-Match": known})
        assert (again.status_code, again.data) == (304, b"")
        assert again.headers["ETag"] == tag
        assert again.headers["Content-Security-Policy"] == POLICY
    for stale in ('"other"', "nonsense", ",", '"'):
        assert client.get("/console/main.js", headers={"If-None-Match": stale}).status_code == 200
    assert client.get("/console/style.css").headers["ETag"] != tag


def test_the_path_without_the_slash_redirects(client: FlaskClient) -> None:
    answer = client.get("/console")
    assert answer.status_code == 308
    assert answer.headers["Location"] == "console/"


def test_the_root_redirects_to_the_console(client: FlaskClient) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (307, "console/")
    assert client.get("/?a=1").status_code == 400
    assert client.post("/").status_code == 405


@pytest.mark.parametrize(
    "name",
    [
        "../__init__.py",
        "..%2f__init__.py",
        "views/../main.js",
        "views/..%2Fmain.js",
        "%2e%2e/%2e%2e/http/console.py",
        "/etc/passwd",
        "//etc/passwd",
        "views",
        "views/",
        "main.js/",
        "main.js%00.html",
        "MAIN.JS",
        "..\\__init__.py",
        "main.js;.css",
        "%6dain.js",
    ],
)
def test_any_other_path_is_404(client: FlaskClient, name: str) -> None:
    target = f"/console/{name}"
    answer = client.get("/console/x", environ_overrides={"REQUEST_URI": target, "RAW_URI": target})
    assert answer.status_code == 404
    assert answer.get_json()["code"] == "route_not_found"


def test_only_reads_without_parameters_are_allowed(client: FlaskClient) -> None:
    assert client.head("/console/").status_code == 200
    assert client.post("/console/").status_code == 405
    assert client.get("/console/main.js?x=1").get_json()["code"] == "invalid_parameter"
    assert client.get("/console/?code=x").status_code == 200, "an issuer sends people back so"


def test_the_files_need_nothing_that_the_policy_forbids() -> None:
    """No script or style in markup, nothing from elsewhere, no data that becomes markup."""
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|https?://", page)
    for name in FILES:
        text = (STATIC / name).read_text()
        if name == BUNDLE:
            # Namespaces of XML are no addresses; what it draws, it draws of nodes.
            assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}
            assert not re.search(r"\beval\(|new Function|\bimport\(|insertAdjacentHTML", text)
            continue
        if name.endswith(".js"):
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text), (
                name
            )
            assert not re.search(r"\beval\(|new Function|https?://", text), name
            assert "<script" not in text
            # Without a value, most of them say no.
            assert not re.search(r"toggleAttribute\(.aria-", text), name
        if name.endswith(".css"):
            assert not re.search(r"url\(|@import|https?://", text), name


def test_the_bundle_consists_of_locked_packages_and_names_their_licences() -> None:
    lock = json.loads((STATIC.parent / "codemirror" / "package-lock.json").read_text())
    locked = {
        name.removeprefix("node_modules/"): each["version"]
        for name, each in lock["packages"].items()
        if each.get("license") == "MIT"
    }
    head = (STATIC / BUNDLE).read_text().partition("*/")[0]
    named = dict(re.findall(r"^([@\w/-]+) ([\d.]+): Copyright \(C\)", head, re.MULTILINE))
    assert {"@codemirror/view", "@codemirror/state", "style-mod"} <= set(named)
    assert named.items() <= locked.items()
    assert "Permission is hereby granted, free of charge" in head


def test_every_imported_module_exists() -> None:
    for name in FILES:
        if name.endswith(".js"):
            for imported in re.findall(r'from "([^"]+)"', (STATIC / name).read_text()):
                assert (STATIC / name).parent.joinpath(imported).is_file(), f"{name}: {imported}"


def test_the_page_preloads_all_modules_of_the_start_page() -> None:
    """The browser then fetches them all at once, instead of one after another's import."""
    needed: set[str] = set()

    def need(name: str) -> None:
        needed.add(name)
        for imported in re.findall(r'from "([^"]+)"', (STATIC / name).read_text()):
            found = os.path.normpath(f"{Path(name).parent}/{imported}")
            if found not in needed:
                need(found)

    need("main.js")
    page = (STATIC / "index.html").read_text()
    named = re.findall(r'<link rel="modulepreload" href="([^"]+)">', page)
    assert sorted(needed - {"main.js"}) == sorted(named)
    assert BUNDLE not in named, "it is loaded where JSON is edited"


def test_the_files_are_part_of_the_package() -> None:
    """The patterns for setuptools cover all of them."""
    import tomllib

    project = tomllib.loads((STATIC.parents[2] / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["gateway.console"]
    covered = {path for pattern in patterns for path in STATIC.parent.glob(pattern)}
    assert {STATIC / name for name in FILES} <= covered
