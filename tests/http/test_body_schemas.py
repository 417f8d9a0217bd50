"""The schemas of bodies and `openapi.yaml` take and refuse the same members, types and bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import jsonschema_rs
import pytest
from marshmallow import Schema, ValidationError, fields

from gateway.decide.settings import SETTINGS
from gateway.decide.strict import load
from gateway.http.routes.catalogs import COMPACTION_REQUEST, PIN_RENEWAL, PIN_REQUEST
from gateway.http.routes.uploads import UPLOAD_COMMIT, UPLOAD_REQUEST
from gateway.http.write.transactions import TRANSACTION
from tests.http.conftest import Catalog, problem
from tests.openapi import document
from tests.openapi.document import Object, resolve

DOCUMENT: Final = document.load()
SCHEMAS: Final = {
    "CatalogSettings": SETTINGS,
    "PinRequest": PIN_REQUEST,
    "PinRenewal": PIN_RENEWAL,
    "CompactionRequest": COMPACTION_REQUEST,
    "UploadRequest": UPLOAD_REQUEST,
    "UploadCommit": UPLOAD_COMMIT,
    "Transaction": TRANSACTION,
}
LEAST: Final[dict[str, Object]] = {
    "PinRequest": {"seconds": 1},
    "PinRenewal": {"seconds": 1},
    "CompactionRequest": {"revision": 1},
    "UploadRequest": {"key": "k"},
}


class Member(NamedTuple):
    body: str
    way: tuple[str, ...]
    declared: Object

    @property
    def pointer(self) -> str:
        return "".join(f"/{step}" for step in self.way)

    def sent(self, value: Any) -> Object:
        """The least body, with `value` in this place."""
        for step in reversed(self.way):
            value = {step: value}
        return LEAST.get(self.body, {}) | value


class Place(NamedTuple):
    body: str
    way: tuple[str, ...]
    declared: Object
    schema: Schema


def places() -> Iterator[Place]:
    """Every object that a schema describes."""
    waiting = [
        Place(name, (), DOCUMENT["components"]["schemas"][name], schema)
        for name, schema in SCHEMAS.items()
    ]
    for place in waiting:
        yield place
        for name, field in place.schema.fields.items():
            if isinstance(field, fields.Nested):
                part = resolve(DOCUMENT, place.declared["properties"][name])
                waiting.append(Place(place.body, (*place.way, name), part, field.schema))


MEMBERS: Final = [
    Member(place.body, (*place.way, name), resolve(DOCUMENT, declared))
    for place in places()
    for name, declared in place.declared["properties"].items()
]
# Values that a schema takes though they aren't documented, by the parser that refuses them later.
LATER: Final[dict[tuple[str, str], Callable[[Any], bool]]] = {
    # `key_bytes_max`
    ("UploadRequest", "/key"): lambda value: isinstance(value, str),
    # `body_conditions` and `attributes_of`, for bulk lines too
    ("UploadRequest", "/if_match"): lambda _: True,
    ("UploadRequest", "/if_none_match"): lambda _: True,
    ("UploadRequest", "/attributes"): lambda _: True,
    ("UploadRequest", "/if_unchanged_under"): lambda _: True,
    # `pin_seconds_max`
    ("PinRequest", "/seconds"): lambda value: type(value) is int and value > 86_400,
    ("PinRenewal", "/seconds"): lambda value: type(value) is int and value > 86_400,
    # the readers of compares and actions
    ("Transaction", "/compare"): lambda value: isinstance(value, list),
    ("Transaction", "/then"): lambda value: isinstance(value, list),
    ("Transaction", "/else"): lambda value: isinstance(value, list),
    # what compiles schemas and declarations of lists
    ("CatalogSettings", "/schemas"): lambda value: isinstance(value, dict) and len(value) == 1,
    ("CatalogSettings", "/arrays"): lambda value: isinstance(value, list),
}
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, -1, 0, 1, 2**53, 2**63 - 1, -0.5, 1.5),
    *("", "a", "1", "true", "x" * 10_000),
    *([], [1], [0], ["1"], [True], [1.5], [1, 1], [2, 1], [[1]], [10_000], [10_001]),
    *({}, {"0": 1}, {"a": {}}, {"a": 1}, {"mode": "keep"}, {"commits": "1"}),
)


def probes(declared: Object) -> Iterator[Any]:
    """Values of every type, and those on both sides of each bound."""
    yield from VALUES
    for bound in (declared[name] for name in ("minimum", "maximum") if name in declared):
        yield from (bound - 1, bound, bound + 1)
    for size in (declared[name] for name in declared if name[3:] in ("Length", "Items")):
        for length in (size - 1, size, size + 1):
            yield from ("x" * length, list(range(1, length + 1)))
    if most := declared.get("maxProperties"):
        yield from ({str(n): True for n in range(count)} for count in (most, most + 1))


@cache
def documented(body: str) -> Callable[[Any], bool]:
    whole = {"$ref": f"#/components/schemas/{body}", "components": DOCUMENT["components"]}
    return jsonschema_rs.validator_for(whole).is_valid


def pointers(body: str, value: Any) -> list[str]:
    """Those of the places at which `value` is refused."""

    class Refused(Exception):
        def __init__(self, pointer: str, reason: str, errors: list[dict[str, str]]) -> None:
            assert errors[0] == {"pointer": pointer, "message": reason}
            self.pointers = [each["pointer"] for each in errors]

    try:
        load(SCHEMAS[body], value, Refused)
    except Refused as refused:
        return refused.pointers
    return []


def named(given: Member | Place) -> str:
    return "/".join((given.body, *given.way))


@pytest.mark.parametrize("place", list(places()), ids=named)
def test_a_schema_has_exactly_the_documented_members(place: Place) -> None:
    assert place.schema.fields.keys() == place.declared["properties"].keys()
    needed = {name for name, field in place.schema.fields.items() if field.required}
    assert needed == set(place.declared.get("required", ()))
    assert place.declared["additionalProperties"] is False
    assert place.schema.unknown == "raise"


@pytest.mark.parametrize("member", MEMBERS, ids=named)
def test_a_schema_accepts_the_documented_values_and_points_at_all_others(member: Member) -> None:
    is_documented = documented(member.body)
    later = LATER.get((member.body, member.pointer), lambda _: False)
    are_left = False
    for value in probes(member.declared):
        body = member.sent(value)
        refused = pointers(member.body, body)
        assert all(f"{at}/".startswith(f"{member.pointer}/") for at in refused), (value, refused)
        if is_documented(body) == (not refused):
            continue
        assert not refused, f"{value!r} is documented"
        assert later(value), f"{value!r} isn't documented"
        are_left = True
    assert are_left == ((member.body, member.pointer) in LATER)


@pytest.mark.parametrize("member", MEMBERS, ids=named)
def test_a_float_is_not_an_integer_although_json_schema_accepts_it(member: Member) -> None:
    if "integer" in member.declared.get("type", ""):
        assert pointers(member.body, member.sent(2.0)) == [member.pointer]


@pytest.mark.parametrize("body", SCHEMAS)
@pytest.mark.parametrize("value", [None, True, 1, "", [], [{}]], ids=repr)
def test_a_body_that_is_not_an_object_is_refused_as_a_whole(body: str, value: Any) -> None:
    assert pointers(body, value) == [""]


@pytest.mark.parametrize("body", SCHEMAS)
def test_every_wrong_member_is_named(body: str) -> None:
    wrong: Object = {"a/b~c": 1, "_schema": 2, "": 3}
    for member in MEMBERS:
        if member.body == body and len(member.way) == 1:
            refused = (value for value in VALUES if pointers(body, member.sent(value)))
            wrong[member.way[0]] = next(refused, None)  # what none is refused for is given none
    found = {at.split("/")[1] for at in pointers(body, wrong)}
    least = LEAST.get(body, {})
    refused_alone = {name for name in wrong if pointers(body, least | {name: wrong[name]})}
    assert found == {name.replace("~", "~0").replace("/", "~1") for name in refused_alone}
    missing = pointers(body, {})
    assert missing == [f"/{name}" for name in LEAST.get(body, {})]


@pytest.mark.parametrize("body", SCHEMAS)
def test_only_the_first_of_many_unknown_members_are_named(body: str) -> None:
    unknown = {f"x{number:04}": None for number in range(1000)}
    with pytest.raises(ValidationError) as refused:
        SCHEMAS[body].load(LEAST.get(body, {}) | unknown)
    assert refused.value.messages_dict.keys() == {f"x{number:04}" for number in range(20)}


def test_a_refusal_names_the_first_place_and_lists_all(catalog: Catalog) -> None:
    sent = catalog.client.post(f"{catalog.path}/pins", json={"seconds": "1", "a/b": 1, "note": "x"})
    told = problem(sent, 400, "invalid_body")
    assert told["pointer"] == "/a~1b"
    assert [each["pointer"] for each in told["errors"]] == ["/a~1b", "/seconds"]
    assert told["detail"] == f"'/a~1b': {told['errors'][0]['message']}"

    settings = {"require_precondition": 1, "retention": {"commits": 0, "days": 1}}
    told = problem(catalog.client.put(catalog.path, json=settings), 422, "invalid_settings")
    wrong = ["/require_precondition", "/retention/commits", "/retention/days"]
    assert [each["pointer"] for each in told["errors"]] == wrong
    assert told["pointer"] == wrong[0]
