"""Generated requests made into ones that reach documents, and kept from what a schema can't say.

The values are chosen by what was generated, not at random: a run repeats itself.
"""

from __future__ import annotations

import json
import zlib
from typing import Any
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

from schemathesis import Case

CATALOG = "conformance"
# The documents that are there at the beginning; the generated writes change and delete them.
DOCUMENTS: dict[str, Any] = {
    "tables/orders": {"name": "orders", "fields": [{"name": "id"}], "owner": None},
    "tables/größe …": [1, 2.5, {"a/b": {"m~n": [True]}}],
    "plain": "text",
    "null": None,
}
# What follows from these is known; text that is no known preference is ignored, and says little.
_PREFERENCES = (
    "return=minimal",
    "return=representation",
    "return=representation, wait=5",
    'respond-async, wait="7"; x=1',
    "",
)
_ENTITY_TAGS = ("If-Match", "If-None-Match")
_PLACES = ("", "/name", "/fields/0", "/fields/-", "/owner", "/1", "/2/a~1b", "/new")
_PAST_AND_FUTURE = ("2000-01-01T00:00:00Z", "2999-12-31T23:59:59.999999+01:00")


def document_path(key: str) -> str:
    return f"/v1/catalogs/{CATALOG}/documents/{quote(key, safe='')}"


def put_documents(url: str) -> None:
    for key, value in DOCUMENTS.items():
        request = Request(
            url + document_path(key),
            json.dumps(value).encode(),
            {"Content-Type": "application/json", "Idempotency-Key": f"made-{len(key)}"},
            method="PUT",
        )
        urlopen(request, timeout=20).close()


def adjust(case: Case[Any]) -> None:
    """Adapts a valid request; one that breaks the schema on purpose is left as it is."""
    if case.meta is not None and case.meta.generation.mode.is_negative:
        return
    _choose_names(case)
    _choose_time(case)
    _choose_places(case)
    _choose_preferences(case)
    _leave_out_idempotency_keys(case)
    _write_message(case)
    _write_entity_tags(case)
    _remove_contradictions(case)


def _choose_names(case: Case[Any]) -> None:
    """Mostly of what is there: a random key is that of no document."""
    names = case.path_parameters
    if not names or _chance(names, of=4) == 0:
        return
    if "catalog" in names:
        names["catalog"] = CATALOG
    if "key" in names:
        names["key"] = _one_of(tuple(DOCUMENTS), names["key"])
    if "revision" in names:
        names["revision"] = 1 + _chance(names["revision"], of=8)
    if "idempotency_key" in names:
        made = tuple(f"made-{len(key)}" for key in DOCUMENTS)
        names["idempotency_key"] = _one_of(made, names["idempotency_key"])


def _choose_time(case: Case[Any]) -> None:
    if _chance((case.path_parameters, case.query), of=2):
        case.query.pop("revision", None)
        case.query.pop("at", None)
    if "revision" in case.query:
        case.query["revision"] = _chance(case.query["revision"], of=16)
    if "at" in case.query:
        case.query["at"] = _one_of(_PAST_AND_FUTURE, case.query["at"])


def _choose_places(case: Case[Any]) -> None:
    """For patches: mostly of what is in one of the documents, and none that RFC 6902 forbids."""
    patch: Any = case.body
    if case.method != "PATCH" or not isinstance(patch, list):
        return
    for operation in patch:
        for member in ("path", "from"):
            if member in operation and _chance(operation[member], of=4):
                operation[member] = _one_of(_PLACES, (member, operation[member], patch))
        if operation["op"] == "move" and operation["path"].startswith(operation["from"]):
            operation["op"] = "copy"  # nothing can be moved into itself: 400


def _choose_preferences(case: Case[Any]) -> None:
    if "Prefer" in case.headers:
        seed = (case.headers["Prefer"], case.path_parameters, case.body)
        case.headers["Prefer"] = _one_of(_PREFERENCES, seed)


def _leave_out_idempotency_keys(case: Case[Any]) -> None:
    """Of most requests: many are generated with the same key, which is refused the second time."""
    if _chance((case.path_parameters, case.body), of=4):
        case.headers.pop("Idempotency-Key", None)


def _write_message(case: Case[Any]) -> None:
    """A pattern says what an escape is, but not that the escaped bytes are UTF-8."""
    message = case.headers.get("Commit-Message", "")
    try:
        unquote(message, errors="strict")
    except UnicodeDecodeError:
        case.headers["Commit-Message"] = "gr%C3%B6%C3%9Fe"


def _write_entity_tags(case: Case[Any]) -> None:
    """Some generated values lack the quotes that the pattern demands; all are of no document."""
    for name in _ENTITY_TAGS:
        text = case.headers.get(name)
        if text is not None and ('"' not in text or _chance(text, of=2)):
            seed = (name, text, case.path_parameters, case.query)
            case.headers[name] = _one_of(("*", '"7-5b1f0c7e"', 'W/"1-0"'), seed)


def _remove_contradictions(case: Case[Any]) -> None:
    """OpenAPI can't say that a parameter excludes another."""
    if "If-Match" in case.headers and "If-None-Match" in case.headers:
        seed = (dict(case.headers), case.path_parameters, case.query)
        del case.headers[_one_of(_ENTITY_TAGS, seed)]
    if "revision" in case.query and "at" in case.query:
        del case.query[_one_of(("revision", "at"), case.query["at"])]


def _one_of(choices: tuple[str, ...], seed: object) -> str:
    return choices[_chance(seed, of=len(choices))]


def _chance(seed: object, of: int) -> int:
    return zlib.crc32(repr(seed).encode("utf-8", "surrogatepass")) % of
