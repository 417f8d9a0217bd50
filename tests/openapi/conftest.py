"""A running service that the tests of one module share, over a database of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service import RunningGateway, own_database


@pytest.fixture(scope="module")
def service(mongodb_uri: str) -> Iterator[RunningGateway]:
    with own_database(mongodb_uri) as name, RunningGateway(mongodb_uri, name, workers=2) as gateway:
        yield gateway
