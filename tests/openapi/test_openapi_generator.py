"""A Python client that openapi-generator makes from the file runs the scenario."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.openapi import scenario
from tests.openapi.document import PATH, load, operations
from tests.patience import RUN_S
from tests.service import RunningGateway

# Not among the tests that need no MongoDB: the generator needs Java, which comes with all tests.
pytestmark = pytest.mark.usefixtures("service")

PACKAGE = "generated_by_openapi_generator"
# It names a body after its schema.
_BODIES = {"patch_document": "operation", "run_transaction": "transaction"}


class GeneratedClient:
    """The package, in the words of `scenario.Client`."""

    def __init__(self, url: str) -> None:
        self.package: Any = importlib.import_module(PACKAGE)
        self._client = self.package.ApiClient(self.package.Configuration(host=url))

    def call(self, operation: str, tag: str, **arguments: Any) -> scenario.Reply:
        if "body" in arguments:
            arguments[_BODIES.get(operation, "body")] = arguments.pop("body")
        api = getattr(self.package, f"{tag.capitalize()}Api")(self._client)
        try:
            answer = getattr(api, f"{operation}_with_http_info")(**arguments)
        except self.package.ApiException as refused:
            return scenario.Reply(refused.status, refused.headers, refused.data)
        return scenario.Reply(answer.status_code, answer.headers, self.plain(answer.data))

    def model(self, name: str, **members: Any) -> Any:
        made = getattr(self.package, name)(**members)
        # One of the classes that `Operation` can be, in which the client wants it wrapped.
        is_operation = name.endswith("Operation") and name != "ExtendedOperation"
        return self.package.Operation(made) if is_operation else made

    def plain(self, value: Any) -> Any:
        """What a class that stands for one of several holds."""
        return getattr(value, "actual_instance", value)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("openapi_generator")
    command = [
        *(sys.executable, "-c", "import openapi_generator_cli as c; c.cli()", "generate"),
        *("-g", "python", "-i", str(PATH), "-o", str(directory)),
        *("--additional-properties", f"packageName={PACKAGE}"),
        *("--global-property", "models,apis,supportingFiles"),
        *("--global-property", "modelDocs=false,apiDocs=false,modelTests=false,apiTests=false"),
    ]
    java = [os.path.join(os.environ["JAVA_HOME"], "bin")] if "JAVA_HOME" in os.environ else []
    environment = {**os.environ, "PATH": os.pathsep.join([*java, os.environ["PATH"]])}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(directory))
    try:
        yield directory
    finally:
        sys.path.remove(str(directory))
        for name in [each for each in sys.modules if each.split(".")[0] == PACKAGE]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def client(generated: Path, service: RunningGateway) -> GeneratedClient:
    assert (generated / PACKAGE).is_dir()
    return GeneratedClient(service.url)


def test_every_operation_is_made(generated: Path) -> None:
    code = "".join(path.read_text() for path in (generated / PACKAGE / "api").glob("*_api.py"))
    for operation in operations(load()):
        assert f"    def {operation.content['operationId']}(\n" in code


def test_the_scenario(client: GeneratedClient) -> None:
    assert scenario.run(client, "by openapi-generator") == scenario.EXPECTED


def test_a_refusal_is_an_exception_of_its_status_with_a_typed_problem(
    client: GeneratedClient,
) -> None:
    package = client.package
    with pytest.raises(package.exceptions.NotFoundException) as raised:
        package.DocumentsApi(client._client).read_document("nowhere", "nothing")
    assert isinstance(raised.value.data, package.Problem)
    assert raised.value.data.code == "document_not_found"


def test_settings_of_a_catalog_are_typed(client: GeneratedClient) -> None:
    """Schemas by pattern, each of which may be an object or a boolean."""
    package = client.package
    value = {"schemas": {"tables/*": {"type": "object"}, "nothing/*": False}}
    settings = package.CatalogSettings.from_dict(value)
    catalogs = package.CatalogsApi(client._client)
    catalogs.put_catalog("settings by openapi-generator", settings)
    state = catalogs.read_catalog("settings by openapi-generator")
    assert state.settings.to_dict() == value


def test_an_outcome_is_typed(client: GeneratedClient) -> None:
    named = {"catalog": "outcomes by openapi-generator", "key": "k"}
    client.call("put_document", "documents", **named, body=1, idempotency_key="put/1")
    asked = {"catalog": named["catalog"], "idempotency_key": "put/1"}
    outcome = client.call("read_outcome", "history", **asked).parsed
    assert isinstance(outcome, client.package.Outcome)
    assert (outcome.applied, outcome.revision, outcome.changes[0].key) == (True, 1, "k")
