"""A running service that the tests of one module share, over a database of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service import RunningGateway


@pytest.fixture(scope="module")
def service(mongodb_uri: str) -> Iterator[RunningGateway]:
    from pymongo import MongoClient

    name = f"test_{uuid.uuid4().hex}"
    with RunningGateway(mongodb_uri, name, workers=2) as gateway:
        yield gateway
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        client.drop_database(name)
