"""Commands under access control: what a token allows, and the error for what it doesn't."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from tests.commandline.conftest import Commands
from tests.service import RunningGateway


@pytest.fixture(scope="module")
def database(mongodb_uri: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    yield name
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        client.drop_database(name)


def test_a_token_allows_exactly_what_it_grants(mongodb_uri: str, database: str) -> None:
    with RunningGateway(mongodb_uri, database, workers=1, access=True) as guarded:
        run = Commands(guarded.url)
        place = ("--mongodb-uri", mongodb_uri, "--database", database)

        def token(name: str, grant: str) -> dict[str, str]:
            created = run("token", "create", "--name", name, "--grant", grant, *place)
            return {"GATEWAY_TOKEN": created.stdout.strip()}

        reader, writer = token("rea", "read:shop/*"), token("wri", "write:shop/*")
        wrong = {"GATEWAY_TOKEN": "gwt_nobody_has-this"}
        for environment in ({}, wrong):
            error = run("get", "shop/a", "k", environment=environment, code=5).error()
            assert "401 unauthenticated" in error
            assert "GATEWAY_TOKEN_FILE" in error
            checked = run("doctor", "-q", environment=environment, code=1)
            assert "FAIL  token: " in checked.stdout
        run("put", "-q", "shop/a", "k", "1", environment=writer)
        assert run("get", "shop/a", "k", environment=reader).json() == 1
        assert run("log", "shop/a", environment=reader).lines()[0]["author"] == "wri"
        assert run("watch", "shop/a", "--after=0", "--limit=1", environment=reader).lines()
        error = run("put", "shop/a", "k", "2", environment=reader, code=5).error()
        assert "403 forbidden" in error
        assert "write" in error
        run("get", "other", environment=reader, code=5)
        line = json.dumps({"key": "k", "value": 2})
        imported = ("import", "shop/a", "-", "--format=ndjson")
        ran = run(*imported, stdin=line, environment=reader, code=5)
        assert ran.json()["refused"] == 1
        assert "'k': 403 forbidden" in ran.stderr
        assert [each["catalog"] for each in run("get", environment=reader).lines()] == ["shop/a"]
        run("compact", "shop/a", "1", environment=writer, code=5)
        told = run("doctor", "shop/a", environment=reader).stdout
        assert "ok    access: read on 'shop/a'" in told
        told = run("doctor", "shop/a", environment=writer).stdout
        assert "ok    access: read, write on 'shop/a'" in told
        assert "FAIL  access: " in run("doctor", "other", environment=reader, code=1).stdout
