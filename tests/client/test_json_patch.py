"""A `jsonpatch.JsonPatch` is taken wherever a patch is, and made of whatever gives one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from jsonpatch import JsonPatch

import patching
import patching.footprints
from patching.client import Catalog, Gateway
from tests.service import RunningGateway

BEFORE: dict[str, Any] = {"n": 1, "tags": ["x"]}
AFTER = {"n": 2, "tags": ["x", "y"]}
PATCH = JsonPatch.from_diff(BEFORE, AFTER)


def test_a_jsonpatch_object_is_accepted_and_patches_can_be_converted_to_one() -> None:
    assert patching.apply(BEFORE, PATCH) == AFTER
    assert patching.footprints.footprint(PATCH) == patching.footprints.footprint(PATCH.patch)
    assert patching.parse(PATCH).to_json() == PATCH.patch
    assert JsonPatch(patching.diff(BEFORE, AFTER)).apply(BEFORE) == AFTER
    assert JsonPatch(patching.parse(PATCH).to_json()) == PATCH


def test_only_a_list_of_operations_is_accepted_as_a_patch() -> None:
    for other in ({"patch": []}, tuple(PATCH), "[]"):
        try:
            patching.parse(other)
        except patching.InvalidPatch:
            continue
        raise AssertionError(other)


def test_the_client_does_not_import_jsonpatch() -> None:
    script = "import patching.client, sys; print('jsonpatch' in sys.modules)"
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_for_a_single_operation_the_error_shows_a_list(catalog: Catalog) -> None:
    one: Any = {"op": "add", "path": "/n", "value": 1}
    with pytest.raises(TypeError, match=r"a list of operations, such as \[\{'op': 'add'"):
        catalog.patch("a", one)
    with pytest.raises(TypeError, match="a list of operations"):
        catalog.transaction().then.patch("a", one)


def test_every_write_of_the_client_accepts_a_jsonpatch_object(
    catalog: Catalog, service: RunningGateway
) -> None:
    for key in "abcd":
        catalog.put(key, BEFORE)
    catalog.patch("a", PATCH)
    transaction = catalog.transaction().compare("a", test=JsonPatch([{**TEST, "value": 2}]))
    transaction.then.patch("b", PATCH)
    assert transaction.run().succeeded
    with Gateway(service.url) as gateway:
        line = {"catalog": catalog.name, "op": "patch", "key": "c", "patch": PATCH}
        assert all(answer.changed for answer in gateway.bulk([line]))
    assert catalog.update("d", lambda _: PATCH).changed
    assert [catalog.get(key).value for key in "abcd"] == [AFTER] * 4
    told = [change.patch for commit in catalog.commits(key="a") for change in commit.changes]
    assert JsonPatch(told[-1]).apply(BEFORE) == AFTER


TEST = {"op": "test", "path": "/n"}
