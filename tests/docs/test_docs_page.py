"""`/docs` shows all of openapi.yaml, without scripts and outside assets, and to everybody."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from flask import Flask

from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.http.conftest import problem
from tests.memory_store import MemoryStore
from tests.openapi.checks import problem_statuses
from tests.openapi.document import PATH, examples, load, operations, parameters, parts

DOCUMENT = load()
_ROOT = Path(__file__).parents[2]
STYLE, SEARCH = (
    (_ROOT / "gateway/docs_page" / name).read_bytes() for name in ("style.css", "search.js")
)
_VOID = {"meta", "link", "br", "hr", "img"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)

    def text(self) -> str:
        shown = [each if isinstance(each, str) else each.text() for each in self.children]
        return re.sub(r"\s+", " ", "".join(shown)).strip()

    def all(self, *tags: str) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                if not tags or child.tag in tags:
                    yield child
                yield from child.all(*tags)


class _Tree(HTMLParser):
    """Refuses what isn't nested as it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.root = self._at = Element("", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs}, self._at)
        self._at.children.append(made)
        if tag not in _VOID:
            self._at = made

    def handle_endtag(self, tag: str) -> None:
        assert self._at.tag == tag, (tag, self._at)
        assert self._at.parent is not None
        self._at = self._at.parent

    def handle_data(self, data: str) -> None:
        self._at.children.append(data)


@pytest.fixture(scope="module")
def app() -> Flask:
    return create_app(GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits()))


@pytest.fixture(scope="module")
def page(app: Flask) -> Element:
    answer = app.test_client().get("/docs")
    assert (answer.status_code, answer.mimetype) == (200, "text/html")
    tree = _Tree()
    tree.feed(answer.text)
    tree.close()
    assert tree._at is tree.root
    return tree.root


def by_id(page: Element) -> dict[str, Element]:
    return {each.attributes["id"]: each for each in page.all() if "id" in each.attributes}


def test_every_operation_is_shown_with_all_its_parts(page: Element) -> None:
    anchors = by_id(page)
    for operation in operations(DOCUMENT):
        content = operation.content
        shown = anchors[content["operationId"]]
        text = shown.text()
        assert f"{operation.method.upper()} {operation.path}" in text
        rows = [[cell.text() for cell in row.all("th", "td")] for row in shown.all("tr")]
        said = {(row[0].removesuffix(" required"), row[1]) for row in rows[1:]}
        expected = {(each["name"], each["in"]) for each in parameters(DOCUMENT, operation)}
        assert said == expected, content["operationId"]
        statuses = [each.text().split()[0] for each in shown.all("dt")]
        assert statuses == list(content["responses"])


def test_the_curl_example_of_every_operation_is_accepted(page: Element, app: Flask) -> None:
    """Each is carried out, but for the network: what it names needn't be there."""
    anchors = by_id(page)
    client = app.test_client()
    for operation in operations(DOCUMENT):
        name = operation.content["operationId"]
        (shown,) = (
            each for each in anchors[name].all("pre") if each.attributes.get("class") == "curl"
        )
        code = "".join(str(each) for each in next(shown.all("code")).children)
        words = shlex.split(code.replace("\\\n", ""))
        assert words.pop(0) == "curl"
        asked = argparse.ArgumentParser()
        asked.add_argument("-X", default="GET")
        asked.add_argument("--head", action="store_true")
        asked.add_argument("-H", action="append", default=[])
        asked.add_argument("--data-binary")
        asked.add_argument("url")
        given = asked.parse_args(words)
        method = "HEAD" if given.head else given.X
        assert method == operation.method.upper(), name
        headers = dict(each.split(": ", 1) for each in given.H)
        assert (headers.pop("Authorization", None) is None) == (
            operation.content.get("security") == []
        )
        path = given.url.removeprefix("$GATEWAY")
        if name == "changes":
            continue  # it waits for what comes
        answer = client.open(path, method=method, headers=headers, data=given.data_binary)
        code = (answer.get_json(silent=True) or {}).get("code", "")
        assert answer.status_code not in (400, 405, 413, 415, 422, 500), (name, answer.data)
        assert code != "route_not_found", name


def test_every_schema_is_shown_with_its_members(page: Element) -> None:
    anchors = by_id(page)
    for name, schema in DOCUMENT["components"]["schemas"].items():
        shown = anchors[f"schema-{name}"]
        members = [row.text().removesuffix(" required") for row in shown.all("th")][3:]
        assert [each for each in members if each] == list(schema.get("properties", {})), name


def test_every_problem_code_is_shown_with_its_status(page: Element) -> None:
    anchors = by_id(page)
    known = DOCUMENT["components"]["schemas"]["ProblemCode"]["x-known-values"]
    statuses = problem_statuses()
    for code in known:
        cells = [each.text() for each in anchors[f"code-{code}"].all("th", "td")]
        assert cells[:2] == [code, str(statuses[code])]
        assert cells[2]


def test_every_header_of_answers_and_every_example_is_shown(page: Element) -> None:
    anchors = by_id(page)
    for name in DOCUMENT["components"]["headers"]:
        assert name in anchors[f"header-{name}"].text()
    shown = sum(1 for _ in page.all("details"))
    bodies = [part for part in parts(DOCUMENT["paths"]) if "schema" in part and "in" not in part]
    assert shown >= sum(len(examples(each)) for each in bodies) > 50


def test_every_link_leads_somewhere_on_the_page(page: Element) -> None:
    names = Counter(each.attributes["id"] for each in page.all() if "id" in each.attributes)
    assert max(names.values()) == 1, names.most_common(3)
    for link in page.all("a"):
        target = link.attributes["href"]
        assert target == "openapi.yaml" or target.removeprefix("#") in names, target
        assert link.text() or link.attributes.get("aria-label"), target


def test_only_the_style_sheet_is_loaded_and_no_script_is_run(page: Element, app: Flask) -> None:
    assert not list(page.all("style", "img", "iframe", "object", "form"))
    (script,) = page.all("script")
    assert script.attributes == {"src": "docs/search.js", "defer": ""}
    assert not script.text()
    for each in page.all():
        assert not any(name == "style" or name.startswith("on") for name in each.attributes)
    (link,) = page.all("link")
    assert link.attributes == {"rel": "stylesheet", "href": "docs/style.css"}
    assert not re.search(r"url\(|@import", STYLE.decode())
    client = app.test_client()
    for path in ("/docs", "/docs/style.css", "/docs/search.js"):
        policy = client.get(path).headers["Content-Security-Policy"]
        assert policy.startswith(
            "default-src 'none'; style-src 'self'; script-src 'self'; base-uri"
        )
        assert "unsafe" not in policy
    search = client.get("/docs/search.js")
    assert (search.mimetype, search.data) == ("text/javascript", SEARCH)
    assert not re.search(r"innerHTML|fetch|import|eval|https?:", SEARCH.decode())
    style = client.get("/docs/style.css")
    assert (style.mimetype, style.data) == ("text/css", STYLE)


def test_the_page_is_accessible_as_far_as_a_program_can_check(page: Element) -> None:
    (html,) = page.all("html")
    assert html.attributes["lang"] == "en"
    (title,) = page.all("title")
    assert title.text()
    assert [sum(1 for _ in page.all(tag)) for tag in ("main", "nav", "header", "h1")] == [1] * 4
    levels = [int(each.tag[1]) for each in page.all("h1", "h2", "h3", "h4")]
    assert all(two <= one + 1 for one, two in pairwise(levels)), "a level is left out"
    anchors = by_id(page)
    skip = next(page.all("a"))
    assert anchors[skip.attributes["href"][1:]].tag == "main"
    for each in page.all("article", "section"):
        assert anchors[each.attributes["aria-labelledby"]].text()
    for table in page.all("table"):
        assert next(table.all("caption")).text()
        assert all(cell.attributes["scope"] in ("col", "row") for cell in table.all("th"))
        # What is wider than a phone scrolls by itself, for the keyboard, too.
        around = table.parent
        assert around is not None
        assert around.attributes["tabindex"] == "0"
        assert around.attributes["role"] == "region"
        assert around.attributes["aria-label"]
    for each in page.all("pre"):
        assert each.attributes["tabindex"] == "0"
        assert each.attributes["aria-label"]
    viewport = [each for each in page.all("meta") if each.attributes.get("name") == "viewport"]
    assert "user-scalable" not in viewport[0].attributes["content"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme: str) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1 for text, on both grounds."""
    roots = re.findall(r":root \{(.*?)\}", STYLE.decode(), re.DOTALL)
    assert len(roots) == 2
    colours = dict(re.findall(r"--(\w+): (#\w{6});", roots[["light", "dark"].index(scheme)]))
    for text in ("text", "muted", "link", "accent"):
        for ground in ("background", "shade"):
            pair = sorted((_luminance(colours[text]), _luminance(colours[ground])))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (text, ground)


def _luminance(colour: str) -> float:
    """WCAG's relative luminance."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build", _ROOT / "docs/api_page/build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date_with_openapi_yaml() -> None:
    builder = build()
    made = builder.render(PATH.read_text(encoding="utf-8"))
    kept = builder.PAGE.read_text(encoding="utf-8")
    assert kept == made, "openapi.yaml or the template changed: run `make docs-page`"


def test_markup_in_the_openapi_file_is_escaped() -> None:
    text = PATH.read_text().replace(
        "summary: List catalogs", "summary: 'List <script>alert(1)</script> catalogs'"
    )
    page = build().render(text)
    assert page.count("<script") == 1, "that of the search"
    assert "<script>" not in page
    assert "List &lt;script&gt;" in page


def test_a_page_that_a_browser_has_is_not_sent_again(app: Flask) -> None:
    client = app.test_client()
    for path in ("/docs", "/docs/style.css", "/docs/search.js"):
        tag = client.get(path).headers["ETag"]
        again = client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.data) == (304, b"")
        assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_unknown_parameters_and_paths_below_are_refused(app: Flask) -> None:
    client = app.test_client()
    problem(client.get("/docs?theme=dark"), 400, "invalid_parameter")
    problem(client.get("/docs/nothing"), 404, "route_not_found")
    problem(client.post("/docs"), 405, "method_not_allowed")
