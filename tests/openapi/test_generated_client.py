"""A client that a generator makes from the file works with the running service, types and all."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.openapi import scenario
from tests.openapi.document import PATH, load, operations
from tests.patience import RUN_S
from tests.service import RunningGateway

PACKAGE = "generated_gateway_client"
CATALOG = "generated client"
KEY = "tables/orders"


class GeneratedClient:
    """The package, with the client to give to its functions."""

    def __init__(self, package: ModuleType, url: str) -> None:
        self.models: Any = importlib.import_module(f"{package.__name__}.models")
        self.types: Any = importlib.import_module(f"{package.__name__}.types")
        client = importlib.import_module(f"{package.__name__}.client")
        self._client = client.Client(base_url=url, raise_on_unexpected_status=True)

    def call(self, operation: str, tag: str, **arguments: Any) -> Any:
        """Status, headers and parsed body of an answer."""
        module = importlib.import_module(f"{PACKAGE}.api.{tag}.{operation}")
        return module.sync_detailed(client=self._client, **arguments)

    def write(self, operation: str, **arguments: Any) -> Any:
        return self.call(operation, "documents", catalog=CATALOG, key=KEY, **arguments)

    def read(self) -> Any:
        return self.call("read_document", "documents", catalog=CATALOG, key=KEY)


class ScenarioClient:
    """The package, in the words of `scenario.Client`."""

    def __init__(self, client: GeneratedClient) -> None:
        self._client = client

    def call(self, operation: str, tag: str, **arguments: Any) -> scenario.Reply:
        answer = self._client.call(operation, tag, **arguments)
        return scenario.Reply(answer.status_code, answer.headers, answer.parsed)

    def model(self, name: str, **members: Any) -> Any:
        if name == "Attributes":
            return self._client.models.Attributes.from_dict(members)
        if name == "ApplyAction":
            members["value"] = self._client.models.Wanted.from_dict(members["value"])
        return getattr(self._client.models, name)(**members)

    def lines(self, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        raw = b"\n".join(json.dumps(line).encode() for line in lines)
        body = self._client.types.File(payload=BytesIO(raw))
        answer = self._client.call("run_bulk", "transactions", body=body).parsed
        return [json.loads(line) for line in answer.payload]

    def plain(self, value: Any) -> Any:
        return value.value if isinstance(value, Enum) else value


def _documented_configuration() -> str:
    page = (PATH.parent / "docs" / "http.md").read_text()
    return page.partition("```yaml generator\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the package lies, and what the generator said."""
    directory = tmp_path_factory.mktemp("client")
    configuration = directory / "generator.yaml"
    # As the documentation says; but the hooks format the code, and nobody reads it.
    configuration.write_text(f"{_documented_configuration()}post_hooks: []\n")
    command = [
        *(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"),
        *("--path", str(PATH), "--config", str(configuration)),
        *("--output-path", str(directory / PACKAGE)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory, done.stdout + done.stderr


@pytest.fixture(scope="module")
def client(generated: tuple[Path, str], service: RunningGateway) -> Iterator[GeneratedClient]:
    directory, _ = generated
    sys.path.insert(0, str(directory))
    try:
        yield GeneratedClient(importlib.import_module(PACKAGE), service.url)
    finally:
        sys.path.remove(str(directory))
        for name in [each for each in sys.modules if each.split(".")[0] == PACKAGE]:
            del sys.modules[name]


def test_the_generator_makes_every_operation_and_omits_no_answer(
    generated: tuple[Path, str],
) -> None:
    directory, said = generated
    made = {path.stem for path in (directory / PACKAGE / "api").glob("*/*.py")} - {"__init__"}
    assert made == {each.content["operationId"] for each in operations(load())}
    warnings = [line for line in said.splitlines() if line.startswith(("WARNING", "ERROR"))]
    # It knows no YAML, and leaves it to the caller to read the one answer that is.
    assert warnings == ["WARNING parsing GET /openapi.yaml within service."], said


def test_every_nested_schema_has_a_name_of_its_own(generated: tuple[Path, str]) -> None:
    """Not one that the generator makes up of where it stands, nor one that says nothing alone."""
    directory, _ = generated
    named = {path.stem for path in (directory / PACKAGE / "models").glob("*.py")} - {"__init__"}
    made_up = re.compile(r"_type_\d|_item(_|$)|_additional_property|_(\w+)_\1$").search
    assert [name for name in named if made_up(name)] == []
    assert named.isdisjoint({"part", "owner", "change"})


def test_the_scenario_runs_with_the_python_client(client: GeneratedClient) -> None:
    run = scenario.run(ScenarioClient(client), "by openapi-python-client")
    assert run == scenario.EXPECTED


def test_codes_and_actions_of_a_later_version_are_accepted(client: GeneratedClient) -> None:
    problem = {
        "type": "urn:metadata-gateway:problem:later",
        "title": "Later",
        "status": 409,
        "detail": "a code that there isn't yet",
        "code": "later",
        "applied": "no",
        "retryable": False,
    }
    assert client.models.Problem.from_dict(problem).code == "later"
    summary = {"key": "k", "action": "later"}
    assert client.models.ChangeSummary.from_dict(summary).action == "later"


def test_commits_and_outcomes_are_typed(client: GeneratedClient) -> None:
    models = client.models
    written = client.write("put_document", body={"at": "last"}, idempotency_key="put/1")
    assert isinstance(written.parsed, models.WriteAnswer)
    outcome = client.call(
        "read_outcome", "history", catalog=CATALOG, idempotency_key="put/1"
    ).parsed
    assert isinstance(outcome, models.Outcome)
    assert outcome.commit_id == written.headers["Commit-Id"]
    page = client.call(
        "list_commits", "history", catalog=CATALOG, after=written.parsed.revision - 1
    ).parsed
    assert page.next_ is None
    change = page.commits[-1].changes[0]
    assert change.action == "put"
    assert isinstance(change.patch[0], models.AddOperation)
    assert change.patch[0].value == {"at": "last"}


def test_a_transaction_is_conditional_on_the_documents_read(client: GeneratedClient) -> None:
    """A composite read, two documents written at once, and the same again, which is too late."""
    models = client.models
    count = models.ExtendedOperation(op="increment", path="/n", create_parents=True)
    client.write("put_document", body={"name": "orders"})
    read = client.call("list_documents", "catalogs", catalog=CATALOG, key=[KEY, "tables/clients"])
    orders, clients = read.parsed.documents
    assert (orders.value, clients.etag) == ({"name": "orders"}, None)
    asked = {
        "catalog": CATALOG,
        "if_match": read.headers["ETag"],
        "body": models.Transaction(
            compare=[models.Compare(key=KEY, etag=orders.etag)],
            then=[
                models.PatchAction(action="patch", key=KEY, patch=[count]),
                models.PutAction(
                    action="put",
                    key="tables/clients",
                    value={"name": "clients"},
                    attributes=models.AttributesChange(mode=models.AttributesMode.CLEAR),
                ),
                models.MoveAction(action="move", from_=KEY, to="tables/sold"),
            ],
        ),
    }
    done = client.call("run_transaction", "transactions", **asked).parsed
    assert isinstance(done, models.TransactionAnswer)
    assert (done.succeeded, done.changed, len(done.results)) == (True, True, 3)
    assert (done.results[2].key, done.results[2].exists) == ("tables/sold", True)
    late = client.call("run_transaction", "transactions", **asked)
    assert late.status_code == HTTPStatus.PRECONDITION_FAILED
    assert isinstance(late.parsed, models.Problem)
    assert late.parsed.applied is models.ProblemApplied.NO
    assert {each.key for each in late.parsed.stale} == {KEY, "tables/clients"}


def test_a_page_and_an_export_are_of_one_revision(client: GeneratedClient) -> None:
    for name in ("a", "b", "c"):
        client.call("put_document", "documents", catalog="pages", key=name, body={"name": name})
    first = client.call("list_documents", "catalogs", catalog="pages", limit=2).parsed
    client.call("put_document", "documents", catalog="pages", key="c", body={"name": "changed"})
    asked = {"after": first.next_.after, "revision": first.next_.revision}
    second = client.call("list_documents", "catalogs", catalog="pages", **asked).parsed
    values = [each.value for each in (*first.documents, *second.documents)]
    assert [each["name"] for each in values] == ["a", "b", "c"]
    export = client.call(
        "export_catalog", "catalogs", catalog="pages", revision=first.revision
    ).parsed
    assert export.resource_version == first.revision == 3
    assert export.metadata["c"] == {"name": "c"}


def test_attributes_settings_and_touches_are_typed(client: GeneratedClient) -> None:
    models = client.models
    client.write("put_document", body={"name": "orders"})
    given = models.Attributes.from_dict({"team": "sales"})
    assert client.write("put_attributes", body=given).parsed.changed
    patched = client.write(
        "patch_attributes", body=[models.AddOperation(op="add", path="/since", value=2026)]
    )
    assert patched.parsed.etag == client.read().headers["ETag"].strip('"')
    attributes = client.write("read_attributes").parsed
    assert attributes.to_dict() == {"team": "sales", "since": 2026}
    schema = {"schemas": {"typed/*": {"type": "object"}}}
    settings = models.CatalogSettings.from_dict(schema)
    client.call("put_catalog", "catalogs", catalog=CATALOG, body=settings)
    refused = client.call("put_document", "documents", catalog=CATALOG, key="typed/a", body=1)
    assert (refused.parsed.code, refused.parsed.errors[0].pointer) == ("schema_violation", "")
    touched = client.call("touch_catalog", "catalogs", catalog=CATALOG).parsed
    state = client.call("read_catalog", "catalogs", catalog=CATALOG).parsed
    assert (touched.changed, state.revision) == (True, touched.revision)
    assert state.settings.to_dict() == schema


def test_changes_are_polled(client: GeneratedClient) -> None:
    written = client.write("put_document", body={"followed": True}).parsed
    asked = {"catalog": CATALOG, "after": written.revision - 1, "key": [KEY], "timeout": 5}
    told = client.call("watch_changes", "history", **asked).parsed
    assert [each.revision for each in told.commits] == [written.revision]
    assert told.commits[0].changes[0].patch[0].value == {"followed": True}
    asked |= {"after": told.revision, "timeout": 0}
    assert client.call("watch_changes", "history", **asked).parsed.commits == []


def test_a_pin_holds_history_until_it_is_deleted(client: GeneratedClient) -> None:
    models = client.models
    for _ in range(3):
        client.call("touch_catalog", "catalogs", catalog="pinned")
    pin = client.call(
        "create_pin", "retention", catalog="pinned", body=models.PinRequest(seconds=60, revision=2)
    ).parsed
    compact = {"catalog": "pinned", "body": models.CompactionRequest(revision=3)}
    held = client.call("compact_catalog", "retention", **compact)
    assert (held.parsed.code, held.parsed.pinned_revision) == ("pin_holds", 2)
    named = {"catalog": "pinned", "pin": pin.pin}
    renewed = client.call("renew_pin", "retention", body=models.PinRenewal(seconds=90), **named)
    assert renewed.parsed.expires > pin.expires
    client.call("delete_pin", "retention", **named)
    assert client.call("compact_catalog", "retention", **compact).parsed.floor == 3
    below = client.call("list_commits", "history", catalog="pinned")
    assert (below.status_code, below.parsed.oldest_revision) == (HTTPStatus.GONE, 3)


def test_a_document_is_uploaded_in_parts(client: GeneratedClient) -> None:
    models = client.models
    opened = client.call(
        "open_upload",
        "uploads",
        catalog=CATALOG,
        body=models.UploadRequest(key="uploaded", if_none_match="*"),
    ).parsed
    named = {"catalog": CATALOG, "upload": opened.upload}
    for number, raw in enumerate((b'{"name": ', b'"uploaded"}'), 1):
        body = client.types.File(payload=BytesIO(raw))
        part = client.call("put_part", "uploads", number=number, body=body, **named).parsed
        assert part.size_bytes == len(raw)
    done = client.call("commit_upload", "uploads", body=models.UploadCommit(parts=[1, 2]), **named)
    assert (done.status_code, done.parsed.changed) == (HTTPStatus.CREATED, True)
    assert client.call("read_upload", "uploads", **named).parsed.committed == done.parsed.revision
    read = client.call("read_document", "documents", catalog=CATALOG, key="uploaded")
    assert read.parsed == {"name": "uploaded"}


def test_bulk_lines_have_models(client: GeneratedClient) -> None:
    models = client.models
    lines = [
        models.BulkLine(
            catalog="lines",
            key="a",
            op=models.BulkOperation.PUT,
            value={"n": 1},
            attributes=models.AttributesChange(mode=models.AttributesMode.CLEAR),
        ),
        models.BulkLine(
            catalog="lines", key="a", op=models.BulkOperation.PUT, if_match="1-0", value=2
        ),
    ]
    raw = b"\n".join(json.dumps(line.to_dict()).encode() for line in lines)
    body = client.types.File(payload=BytesIO(raw))
    answer = client.call("run_bulk", "transactions", body=body).parsed
    results = [models.BulkResult.from_dict(json.loads(line)) for line in answer.payload]
    assert [each.status for each in results] == [201, 412]
    assert results[1].problem.current.etag == results[0].etag
