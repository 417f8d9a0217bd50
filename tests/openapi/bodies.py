"""Generated bodies made into ones that fit, where a schema says less than the service demands.

A transaction's action has other members by what it does, and a client generator is given one type
for all of them; here the members that don't fit are taken out, and what lacks is put in.
"""

from __future__ import annotations

from typing import Any

from schemathesis import Case

from gateway.http.wire.headers import is_author
from gateway.http.write.ask import VERBS
from tests.openapi.choices import DOCUMENTS, chance, one_of
from tests.openapi.document import Object

_KEYS = (*DOCUMENTS, "absent")
_TOKENS: tuple[Any, ...] = ("*", "7-5b1f0c7e", "@3", "plain=absent", ["1-0", "2-0"])
_PATCHES: tuple[Any, ...] = (
    [{"op": "add", "path": "", "value": {"tables": 1}}],
    [{"op": "increment", "path": "/tables", "create_parents": True}],
    [{"op": "add_to_set", "path": "/fields", "value": {"name": "id"}}],
    [{"op": "remove", "path": "/owner", "if_exists": True}],
    [{"op": "max", "path": "/tables", "value": 3, "create_parents": True}],
    [{"op": "append_text", "path": "/name", "value": "!", "once": True, "max_length": 50}],
    [
        {"op": "set", "path": "/owner", "value": "a"},
        {"op": "stamp", "path": "/at", "value": "time"},
    ],
    [{"op": "not", "apply": [{"op": "undefined", "path": "/name"}]}],
    [],
)
_TESTS: tuple[Any, ...] = (
    [{"op": "defined", "path": ""}],
    [{"op": "type", "path": "/name", "value": "string"}, {"op": "test", "path": "", "value": 1}],
)

_RANGE_COMPARES: tuple[Object, ...] = (
    {"absent": True},
    {"unchanged_since": 1},
    {"unchanged_since": 1_000_000},
    {"count": {"less": 3}},
    {"count": {"equal": 0}},
    {"count": {"greater": 1}},
)


def fit(case: Case[Any], operation: str) -> None:
    """Make the body of a valid request of ``operation`` one that the service takes."""
    change = _FITTING.get(operation)
    if change is not None and isinstance(case.body, dict):
        change(case.body)


def _transaction(body: Object) -> None:
    for name in ("then", "else"):
        if name in body:
            body[name] = [_action(each) for each in body[name]]
    if "compare" in body:
        body["compare"] = [_compare(each) for each in body["compare"]]
    if "author" in body and not is_author(body["author"]):
        body["author"] = "größe"


def _action(given: Object) -> Object:
    name = given["action"]
    known = (*VERBS[name].place, *VERBS[name].members)
    action: Object = {"action": name}
    if "if" in given:
        action["if"] = [_compare(each) for each in given["if"]][:3]
    if name == "replace":
        return {**action, "prefix": "no/such/", "documents": {"no/such/1": given.get("value")}}
    if name == "delete" and "prefix" in given:
        return {**action, "prefix": one_of(("no/such/", "absent"), given)}
    for member in ("key", "from", "to"):
        if member in known:
            action[member] = one_of(_KEYS, (member, given))
    if name == "patch" or (name == "attributes" and "patch" in given):
        action["patch"] = one_of(_PATCHES, given)
    elif name == "attributes":
        action["value"] = {"note": given.get("value")}
    elif "value" in known:
        action["value"] = given.get("value")
    if "pointers" in known:
        action["pointers"] = [one_of(("/name", ""), given)]
    if "attributes" in known and "attributes" in given:
        action["attributes"] = _attributes(given["attributes"])
    return action


def _compare(given: Object) -> Object:
    if "resource_version" in given:
        return {"resource_version": int(given["resource_version"])}
    if "prefix" in given:
        return {"prefix": one_of(("", "a", "no/such/"), given), **one_of(_RANGE_COMPARES, given)}
    compare: Object = {"key": one_of(_KEYS, given)}
    if "test" in given:
        return {**compare, "test": one_of(_TESTS, given)}
    if "equals" in given:
        return {**compare, "equals": given["equals"]}
    return {**compare, **one_of(({"absent": True}, {"etag": "7-5b1f0c7e"}), given)}


def _attributes(given: Object) -> Object:
    mode = given["mode"]
    return {"mode": mode, "value": given.get("value", {})} if mode == "replace" else {"mode": mode}


def _upload(body: Object) -> None:
    body["key"] = one_of(_KEYS, body)
    for each in body.get("if_unchanged_under", ()):
        each["revision"] = int(each["revision"])
    if "attributes" in body:
        body["attributes"] = _attributes(body["attributes"])
    for name in ("if_match", "if_none_match"):
        if name in body:
            body[name] = one_of(_TOKENS, (name, body))
    if "if_match" in body and "if_none_match" in body:
        del body[one_of(("if_match", "if_none_match"), body)]


def _upload_commit(body: Object) -> None:
    if "parts" in body:
        body["parts"] = one_of(([1], [1, 2]), body)


def _revert(body: Object) -> None:
    """OpenAPI can't say that a member goes with another, or isn't below it."""
    if "revisions" in body:
        body["revisions"] = [1 + chance(each, of=16) for each in body["revisions"]]
        body.pop("from", None)
    if "to" in body:
        body["to"] = chance(body["to"], of=16)
    if "from" in body:
        body["from"] = body["to"] + chance(body["from"], of=4)
    if "key" in body:
        body["key"] = one_of(_KEYS, body)
        body.pop("prefix", None)
    if "author" in body and not is_author(body["author"]):
        body["author"] = "größe"


def _whole_numbers(body: Object) -> None:
    """1.0 is an integer to a schema."""
    for name, value in body.items():
        if isinstance(value, float) and value.is_integer():
            body[name] = int(value)


def _revision(body: Object) -> None:
    _whole_numbers(body)
    if "revision" in body:
        body["revision"] = 1 + chance(body, of=40)


def _application(body: Object) -> None:
    """Some of few versions, so that they meet; names are printable."""
    if "principals" in body or "version" not in body:
        body["principals"] = ["anonymous", "spark-b"]
    if "version" in body:
        body["version"] = chance(body, of=4)
    else:
        body.pop("finished", None)
    if not {"version", "run"} <= body.keys() or body.get("finished"):
        body.pop("ended", None)


_FITTING = {
    "put_subscription": _whole_numbers,
    "replay_subscription": _whole_numbers,
    "create_token": _whole_numbers,
    "put_application": _application,
    "run_transaction": _transaction,
    "revert": _revert,
    "open_upload": _upload,
    "commit_upload": _upload_commit,
    "create_pin": _revision,
    "renew_pin": _revision,
    "compact_catalog": _revision,
}
