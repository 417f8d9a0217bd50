"""What is said of a database that is out of reach, in an operator's words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from gateway.store.mongodb.connection import explained


def client(*kinds: str) -> Any:
    servers = {
        (f"m{number}", 27017): SimpleNamespace(server_type_name=kind)
        for number, kind in enumerate(kinds)
    }
    found = SimpleNamespace(server_descriptions=lambda: servers)
    return SimpleNamespace(topology_description=found)


@pytest.mark.parametrize(
    ("kinds", "said", "told"),
    [
        (
            ("Unknown", "Unknown"),
            "Could not reach any servers in [('m0', 27017), ('m1', 27017)]. Replica set is"
            " configured with internal hostnames or IPs?, Timeout: 5.0s, Topology Description: <x>",
            "none of m0:27017, m1:27017 can be reached",
        ),
        (
            ("Unknown",),
            "m0:27017: [Errno 111] Connection refused (configured timeouts: connectTimeoutMS: 2),"
            " Timeout: 5.0s",
            "m0:27017: [Errno 111] Connection refused",
        ),
        (
            ("RSSecondary", "Unknown"),
            "No replica set members match selector",
            "there is no primary among m0:27017, m1:27017: is a majority of the members up?",
        ),
    ],
)
def test_the_driver_is_not_quoted_with_its_guesses(
    kinds: tuple[str, ...], said: str, told: str
) -> None:
    assert explained(client(*kinds), ServerSelectionTimeoutError(said)) == told


def test_a_socket_is_named_without_a_port() -> None:
    servers = {("/d/mongod.sock", 27017): SimpleNamespace(server_type_name="Unknown")}
    found = SimpleNamespace(server_descriptions=lambda: servers)
    away = ServerSelectionTimeoutError("configured with internal hostnames or IPs?")
    told = explained(cast(Any, SimpleNamespace(topology_description=found)), away)
    assert told == "none of /d/mongod.sock can be reached"


def test_what_a_server_refuses_is_told_without_its_whole_answer() -> None:
    """That has cluster times and signatures, of no use to anybody."""
    answer = {"ok": 0.0, "errmsg": "not primary", "code": 10107, "$clusterTime": {}}
    refused = OperationFailure("not primary", 10107, answer)
    assert "$clusterTime" in str(refused)
    assert explained(client(), refused) == "not primary"
