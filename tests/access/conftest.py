"""The service on MongoDB that the tests of acls share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.access.people import People, people_on


@pytest.fixture(scope="package")
def whole(mongodb_uri: str) -> Iterator[People]:
    with people_on(mongodb_uri) as people:
        yield people
