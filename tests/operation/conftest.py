"""A service over all of whose workers the tests of one module look, and what it has counted."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.patience import WAIT_S
from tests.service import RunningGateway, own_database

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def service(mongodb_uri: str) -> Iterator[RunningGateway]:
    # A client that left is noticed with the next bookmark.
    settings = {"access_log": True, "log_format": "json", "watch_bookmark_s": 1}
    with (
        own_database(mongodb_uri) as name,
        RunningGateway(mongodb_uri, name, workers=2, **settings) as it,
    ):
        yield it


def samples(exposition: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }


def scraped(url: str) -> Samples:
    with urllib.request.urlopen(f"{url}/metrics", timeout=WAIT_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return samples(answer.read().decode())


def value(found: Samples, name: str, **labels: str) -> float:
    """The sum of the samples with this name and at least these labels."""
    wanted = labels.items()
    return sum(v for (n, has), v in found.items() if n == name and wanted <= set(has))
