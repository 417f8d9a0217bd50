"""The examples in the documentation do what the pages say they do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from gateway.access import Role
from gateway.access.principal import principal
from patching.client import Gateway
from tests.docs.examples import check, examples, matches, run
from tests.docs.pages import DOCS, ROOT, Page, pages
from tests.patience import RUN_S
from tests.service import RunningGateway
from tests.systems.rows import ROWS, SYSTEMS
from tests.without_http import wait_until

_SYSTEMS = ("datahub", "hasura", "ozone", "greptimedb", "ignite")
_TASKS = ("agents", "be-told", "cache", "gitops", "mongodb", "owners")
# Most pages have none, and reading them takes longer than most tests.
WITH_EXAMPLES = [
    page
    for page in pages()
    if re.search(r"^ *```\w.* run\b", page.text, re.MULTILINE)
    if any("run" in each.marks for each in page.blocks())
]


@pytest.fixture(scope="module")
def mongodb_database(mongodb_uri: str) -> Iterator[str]:
    from pymongo import MongoClient

    name = f"test_{uuid.uuid4().hex}"
    yield name
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        client.drop_database(name)


@pytest.fixture(scope="module")
def gateway(mongodb_uri: str, mongodb_database: str) -> Iterator[RunningGateway]:
    with RunningGateway(mongodb_uri, mongodb_database) as running:
        yield running


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=[page.name for page in WITH_EXAMPLES])
def test_the_examples_of_a_page_produce_the_printed_output(
    page: Page, gateway: RunningGateway, tmp_path: Path
) -> None:
    """What one begins with can be done again, with the same outputs."""
    if shutil.which("curl") is None:
        pytest.skip("the examples are told with curl, which isn't installed")
    for _ in range(2 if page.name in ("README.md", "docs/tutorial.md") else 1):
        printed = run(page, gateway.url, tmp_path)
        for example, said in zip(examples(page), printed, strict=True):
            check(page, example, said)


def test_a_query_of_your_own_finds_the_documents_of_one_catalog_by_an_index(
    gateway: RunningGateway,
    mongodb_uri: str,
    mongodb_database: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from pymongo import MongoClient

    with Gateway(gateway.url) as client:
        for name in ("tables", "tables/others", "tables2"):
            catalog = client.catalog(name)
            for key in ("a", "b", "gone"):
                catalog.put(key, {"tier": 2 if key == "b" else 1})
            catalog.delete("gone")
            catalog.settings.put({"require_precondition": True})
    application = Request(
        f"{gateway.url}/v1/catalogs/tables/applications/job", b'{"version": 1}', method="PUT"
    )
    application.add_header("Content-Type", "application/json")
    with urlopen(application, timeout=RUN_S) as begun:
        assert begun.status == 200
    operations = Page(DOCS / "operations.md")
    (block,) = (each for each in operations.blocks() if "query" in each.marks)
    code = block.content.replace('"metadata"', repr(mongodb_database))

    def has_its_own() -> bool:
        """The documents collection also has records of the settings and of the applications."""
        with MongoClient[dict[str, Any]](mongodb_uri) as client:
            own = {"catalog": "tables", "key": {"$in": ["", "\0applications"]}}
            return client[mongodb_database].documents.count_documents(own) == 2

    def is_found() -> bool:
        named: dict[str, Any] = {"uri": mongodb_uri}
        exec(code, named)
        found = named["documents"].find(named["tables"])
        plan = found.explain()["queryPlanner"]["winningPlan"]
        keys = [each["key"] for each in found]
        named["documents"].database.client.close()
        assert plan["inputStage"]["indexName"] == "_id_"
        return (keys, capsys.readouterr().out) == (["a", "b"], "a {'tier': 1} None\n")

    wait_until(has_its_own)
    wait_until(is_found)


@pytest.mark.parametrize(
    ("exported", "told"),
    [
        ({"_id": "k", "at": {"$date": {"$numberLong": "-1"}}}, "1969-12-31T23:59:59.999000Z"),
        ({"_id": "k", "at": {"$date": "2024-01-01T00:00:00Z"}}, "2024-01-01T00:00:00Z"),
        ({"_id": {"$oid": "6b"}, "at": {"$numberLong": "5"}, "version": 3}, 5),
        ({"_id": "k", "at": {}}, {}),
        ({"_id": "k", "at": {"$numberDouble": "NaN"}}, None),
        ({"_id": "k", "at": {"x": [{"$binary": {"base64": "", "subType": "00"}}]}}, None),
        ({"_id": "k", "at": {"$date": {"$numberLong": str(10**15)}}}, None),
        ({"_id": 7, "at": 1}, None),
    ],
)
def test_values_that_json_does_not_have_are_converted_or_refused_by_the_guide_from_mongodb(
    tmp_path: Path, exported: dict[str, Any], told: Any
) -> None:
    page = Page(DOCS / "how-to" / "mongodb.md")
    script = page.text.partition("cat > convert.py <<'END'\n")[2].partition("\nEND\n")[0]
    (tmp_path / "convert.py").write_text(script)
    done = subprocess.run(
        (sys.executable, "convert.py"), cwd=tmp_path, input=json.dumps(exported), text=True,
        capture_output=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == (told is not None), done.stderr
    if told is not None:
        key = "k" if exported["_id"] == "k" else "6b"
        assert json.loads(done.stdout) == {"key": key, "value": {"at": told}}


def test_readme_tutorial_and_every_how_to_have_examples() -> None:
    names = {page.name for page in WITH_EXAMPLES}
    assert {
        "README.md",
        "docs/tutorial.md",
        *(f"docs/how-to/{each}.md" for each in (*_SYSTEMS, *_TASKS)),
    } <= names


def test_examples_of_different_pages_use_different_catalogs() -> None:
    """They share a gateway, and are run in any order."""
    used: dict[str, str] = {}
    for page in WITH_EXAMPLES:
        text = "".join(each.block.content for each in examples(page))
        for catalog in set(_catalogs(text)):
            assert used.setdefault(catalog, page.name) == page.name, catalog


def _catalogs(text: str) -> Iterator[str]:
    for part in text.split("/v1/catalogs/")[1:]:
        yield part.split("/")[0].split('"')[0].split()[0].rstrip("'")
    for part in text.split('.catalog("')[1:]:
        yield part.split('"')[0]


def test_the_readme_and_the_tutorial_use_different_catalogs() -> None:
    """Its outputs name revisions, and the README leads from the one to the other."""
    readme = Page(ROOT / "README.md").text
    tried = set(_catalogs(readme.partition("## Try it")[2].partition("\n## ")[0]))
    assert tried
    assert not tried & set(_catalogs(Page(DOCS / "tutorial.md").text))


def test_the_first_grant_allows_the_first_request() -> None:
    """The example in access.md can't run here, because it names another gateway."""
    block = Page(DOCS / "access.md").blocks()[0].content
    grants = re.findall(r"--grant '([^']+)'", block)
    (catalog,) = _catalogs(block)
    assert "-X PUT" in block
    assert principal("shop-service", grants).may(Role.WRITE, catalog)


def test_no_text_says_to_install_the_unpublished_package() -> None:
    """The package is not published: its name would bring whatever somebody puts there."""
    for page in (*pages(), Page(ROOT / "README.md")):
        assert not re.search(r"pip install\s+['\"]?metadata-gateway", page.text), page.name
    for path in (*(ROOT / "gateway").rglob("*.py"), *(ROOT / "patching").rglob("*.py")):
        assert "install 'metadata-gateway" not in path.read_text(), path


@pytest.mark.parametrize(
    ("expected", "found", "whether"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "…": "…"}, {"a": 1, "b": 2}, True),
        ({"a": 1, "…": "…"}, {"b": 2}, False),
        ({"a": "…"}, {"a": [1]}, True),
        ({"a": "x…z"}, {"a": "xyz"}, True),
        ({"a": "x…z"}, {"a": "xy"}, False),
        ([1, "…"], [1], False),
        (True, 1, False),
    ],
)
def test_outputs_are_compared_with_placeholders(expected: Any, found: Any, whether: bool) -> None:
    assert matches(expected, found) is whether


@pytest.mark.parametrize("system", _SYSTEMS)
def test_a_how_to_names_every_row_of_its_system(system: str) -> None:
    text = Page(DOCS / "how-to" / f"{system}.md").text
    named = {
        row.lower()
        for rows in re.findall(r"\[((?:[A-Z]\d+(?:, )?)+)\]", text)
        for row in rows.split(", ")
    }
    (letter,) = (each for each, title in SYSTEMS.items() if title.lower().startswith(system))
    assert named == {row for row in ROWS if row.startswith(letter)}
