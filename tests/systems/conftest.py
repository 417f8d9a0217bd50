"""A gateway with two workers on the real MongoDB, shared by all rows; each test has a catalog."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from tests.console.conftest import a_browser, executables
from tests.service import RunningGateway, own_database
from tests.systems.service import Catalog, Service

# Fixtures of the console's tests, for the row that a person sees.
__all__ = ["a_browser", "executables"]


@pytest.fixture(scope="session")
def systems_database(mongodb_uri: str) -> Iterator[str]:
    with own_database(mongodb_uri) as name:
        yield name


@pytest.fixture(scope="session")
def gateway(mongodb_uri: str, systems_database: str) -> Iterator[RunningGateway]:
    with RunningGateway(mongodb_uri, systems_database) as running:
        yield running


@pytest.fixture(scope="session")
def service(gateway: RunningGateway) -> Service:
    return Service(gateway.port)


@pytest.fixture
def catalog(service: Service, request: pytest.FixtureRequest) -> Catalog:
    """Named after the test, with characters that a URN and a path may hold."""
    named = re.sub("^test_", "", request.node.name)
    return Catalog(service, f"urn:({named},{uuid.uuid4().hex[:8]})/é")
