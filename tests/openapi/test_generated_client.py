"""A client that a generator makes from the file works with the running service, types and all."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.openapi.document import PATH, load, operations
from tests.service import RunningGateway

PACKAGE = "generated_gateway_client"
CATALOG = "generated client"
KEY = "tables/orders"


class GeneratedClient:
    """The package, with the client to give to its functions."""

    def __init__(self, package: ModuleType, url: str) -> None:
        self.models: Any = importlib.import_module(f"{package.__name__}.models")
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


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the package lies, and what the generator said."""
    directory = tmp_path_factory.mktemp("client")
    configuration = directory / "generator.yaml"
    configuration.write_text("post_hooks: []\n")  # they format the code, and nobody reads it
    command = [
        *(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"),
        *("--path", str(PATH), "--config", str(configuration)),
        *("--output-path", str(directory / PACKAGE)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
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


def test_the_generator_makes_every_operation_and_leaves_out_no_answer(
    generated: tuple[Path, str],
) -> None:
    directory, said = generated
    made = {path.stem for path in (directory / PACKAGE / "api").glob("*/*.py")} - {"__init__"}
    assert made == {each.content["operationId"] for each in operations(load())}
    warnings = [line for line in said.splitlines() if line.startswith(("WARNING", "ERROR"))]
    # It knows no YAML, and leaves it to the caller to read the one answer that is.
    assert warnings == ["WARNING parsing GET /openapi.yaml within service."], said


def test_a_patch_is_applied_and_its_answer_is_typed(client: GeneratedClient) -> None:
    models = client.models
    put = client.write("put_document", body={"name": "orders", "fields": ["id"]})
    patch = client.write(
        "patch_document",
        body=[
            models.TestOperation(op="test", path="/name", value="orders"),
            models.AddOperation(op="add", path="/fields/-", value="total"),
            models.MoveOperation(op="move", from_="/name", path="/title"),
        ],
        commit_message="add%20the%20total",
    )
    assert patch.status_code == HTTPStatus.OK
    assert isinstance(patch.parsed, models.WriteAnswer)
    assert patch.parsed.changed
    assert patch.parsed.key == KEY
    assert patch.headers["ETag"] == f'"{patch.parsed.etag}"' != put.headers["ETag"]
    assert client.read().parsed == {"title": "orders", "fields": ["id", "total"]}


def test_a_compare_and_set_takes_the_token_that_was_read(client: GeneratedClient) -> None:
    models = client.models
    client.write("put_document", body={"n": 1})
    token = client.read().headers["ETag"]
    second = client.write("put_document", body={"n": 2}, if_match=token)
    assert (second.status_code, second.parsed.changed) == (HTTPStatus.OK, True)

    third = client.write("put_document", body={"n": 3}, if_match=token)
    assert third.status_code == HTTPStatus.PRECONDITION_FAILED
    problem = third.parsed
    assert isinstance(problem, models.Problem)
    assert problem.code is models.ProblemCode.PRECONDITION_FAILED
    assert problem.applied is models.ProblemApplied.NO
    assert problem.retryable is False
    assert isinstance(problem.current, models.CurrentVersion)
    assert (problem.current.etag, problem.current.revision) == (
        second.parsed.etag,
        second.parsed.revision,
    )
    assert [each.action for each in problem.changes_since] == [models.Action.PUT]
    assert client.read().parsed == {"n": 2}


def test_a_failed_test_is_a_typed_problem(client: GeneratedClient) -> None:
    models = client.models
    written = client.write("put_document", body={"name": "orders"})
    refused = client.write(
        "patch_document",
        body=[
            models.ReplaceOperation(op="replace", path="/name", value="customers"),
            models.TestOperation(op="test", path="/name", value="orders"),
        ],
    )
    assert refused.status_code == HTTPStatus.CONFLICT
    problem = refused.parsed
    assert isinstance(problem, models.Problem)
    assert problem.code is models.ProblemCode.TEST_FAILED
    assert (problem.operation, problem.pointer) == (1, "/name")
    assert (problem.expected, problem.actual) == ("orders", "customers")
    assert problem.current.etag == written.parsed.etag
    assert client.read().parsed == {"name": "orders"}


def test_commits_and_outcomes_are_typed(client: GeneratedClient) -> None:
    models = client.models
    written = client.write("put_document", body={"at": "last"}, idempotency_key="put/1")
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
    assert change.action is models.Action.PUT
    assert isinstance(change.patch[0], models.AddOperation)
    assert change.patch[0].value == {"at": "last"}
