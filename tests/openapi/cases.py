"""Generated requests made into ones that reach documents, and kept from what a schema can't say.

The values are chosen by what was generated, not at random: a run repeats itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

from schemathesis import Case
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import CaseMetadata

from gateway.http.wire.headers import is_author
from tests.openapi.bodies import fit
from tests.openapi.checks import APPLY
from tests.openapi.choices import DOCUMENTS, chance, one_of
from tests.patience import WAIT_S

CATALOG = "conformance"
# What would spoil the catalog for the others is done to one of its own.
_CATALOGS = {
    "put_catalog": "conformance settings",
    "delete_catalog": "conformance settings",
    "touch_catalog": "conformance touched",
    "compact_catalog": "conformance compacted",
    "create_pin": "conformance pinned",
    "revert": "conformance reverted",
}
# It is there all the time: no other operation is given it.
_DESCRIBED = "described"
_SUBSCRIPTION = "search"
_DROPPED = tuple(f"dropped{number}" for number in range(8))
_RECEIVER = "https://receiver.invalid/in"
_TOUCHES = 40
_UPLOADS = 8
_PINS = 8
# What follows from these is known; text that is no known preference is ignored, and says little.
_PREFERENCES = (
    "return=minimal",
    "return=representation",
    "return=representation, wait=5",
    'respond-async, wait="7"; x=1',
    "",
)
# Most are true: what else a request asks for is looked at, too.
_RANGES = (
    '"no/such/";revision=1',
    '%"m%c3%a4rkte/";revision=1, "no";revision=0',
    '"";revision=999999999',
)
_ENTITY_TAGS = ("If-Match", "If-None-Match")
_TOKENS = ("*", '"7-5b1f0c7e"', 'W/"1-0"')
_TAGS = ("*", '"@1"', '"@1f", "7-5b1f0c7e"', '"plain=absent;absent=absent"')
_SEVERAL = ('"@1"', '"@ffffffff"', '"absent=absent"', '"plain=7-5b1f0c7e;null=absent"')
# Their answers are of more than one document, and so are the tags that they take.
_OF_SEVERAL = ("list_documents", "export_catalog", "read_catalog")
_OF_APPLIES = ("manager", "conflict", "force")
_WANTED = ({"name": "ours"}, {"owner": {"team": "sales"}}, {"fields": [], "rows": 1}, {})
_PLACES = ("", "/name", "/fields/0", "/fields/-", "/owner", "/1", "/2/a~1b", "/new")
_PAST_AND_FUTURE = ("2000-01-01T00:00:00Z", "2999-12-31T23:59:59.999999+01:00")


@dataclass(frozen=True, slots=True)
class Given:
    """Names that the service gave at the beginning; uploads by the operation that they are for.

    ``made`` is the time at which all documents were there.
    """

    made: str
    pins: tuple[str, ...]
    tokens: tuple[str, ...]
    uploads: dict[str, tuple[str, ...]]


def prepare(url: str) -> Given:
    """Make what the generated requests are about: documents, settings, history, pins, uploads."""
    for key, value in DOCUMENTS.items():
        name = {"Idempotency-Key": f"made-{len(key)}"}
        _send(f"{url}/v1/catalogs/{CATALOG}/documents/{quote(key, safe='')}", "PUT", value, **name)
    _send(f"{url}/v1/catalogs/{CATALOG}/documents/{_DESCRIBED}", "PUT", {"name": "described"})
    touches = [{"catalog": each, "op": "touch"} for each in sorted(set(_CATALOGS.values()))]
    lines = b"\n".join(json.dumps(each).encode() for each in touches * _TOUCHES)
    kind = {"Content-Type": "application/x-ndjson"}
    urlopen(Request(f"{url}/v1/bulk", lines, kind), timeout=WAIT_S).read()
    for name in (_SUBSCRIPTION, *_DROPPED):
        subscription = f"{url}/v1/catalogs/{CATALOG}/subscriptions/{name}"
        _send(subscription, "PUT", {"to": _RECEIVER})
    pins = f"{url}/v1/catalogs/{CATALOG}/pins"
    return Given(
        datetime.now(UTC).isoformat(),
        tuple(_send(pins, "POST", {"seconds": 600})["pin"] for _ in range(_PINS)),
        tuple(
            _send(f"{url}/v1/tokens", "POST", {"name": "x", "grants": ["read:x"]})["id"]
            for _ in range(_PINS)
        ),
        {
            operation: tuple(_upload(url, f"{operation} {index}") for index in range(_UPLOADS))
            for operation in ("read_upload", "drop_upload", "put_part", "commit_upload")
        },
    )


def _upload(url: str, key: str) -> str:
    uploads = f"{url}/v1/catalogs/{CATALOG}/uploads"
    upload: str = _send(uploads, "POST", {"key": key})["upload"]
    part = f"{uploads}/{upload}/parts/1"
    _send(part, "PUT", {"uploaded": key}, **{"Content-Type": "application/octet-stream"})
    return upload


def _send(url: str, method: str, body: Any = None, **headers: str) -> Any:
    headers = {"Content-Type": "application/json", **headers}
    with urlopen(
        Request(url, json.dumps(body).encode(), headers, method=method), timeout=WAIT_S
    ) as it:
        return json.load(it)


def adjust(case: Case[Any], given: Given) -> None:
    """Adapts a valid request, most with names of what is there; of one that breaks the schema on
    purpose only what isn't broken.

    None waits: a poll that does takes as long as all others together.
    """
    if case.operation.definition.raw["operationId"] == "watch_changes":
        case.query.setdefault("timeout", 0)
    operation: str = case.operation.definition.raw["operationId"]
    if case.meta is not None and case.meta.generation.mode.is_negative:
        _single_out(case, case.meta, operation, given)
        return
    if chance(case.path_parameters, of=4):
        _choose_names(case, operation, given)
    _choose_time(case, given)
    _choose_documents(case)
    _choose_places(case)
    if operation == "patch_document":
        _apply_or_patch(case)
    fit(case, operation)
    _choose_structured_headers(case)
    _leave_out_idempotency_keys(case)
    _leave_out_conditions(case)
    _write_texts(case)
    _write_entity_tags(case, operation)
    _choose_receiver(case, operation)
    _remove_contradictions(case)


def _single_out(case: Case[Any], meta: CaseMetadata, operation: str, given: Given) -> None:
    """Leave nothing but the fault to be refused: neither names of what isn't there, nor parameters
    of another kind that contradict each other, or are right for the schema alone."""
    path = meta.components.get(ParameterLocation.PATH)
    if path is None or path.mode.is_positive:
        _choose_names(case, operation, given)
    at = meta.phase.data.parameter_location
    for kind, sent, known in (
        (ParameterLocation.QUERY, case.query, case.operation.query),
        (ParameterLocation.HEADER, case.headers, case.operation.headers),
    ):
        for each in known if at not in (None, kind) else ():
            if not each.is_required:
                sent.pop(each.name, None)


def _choose_names(case: Case[Any], operation: str, given: Given) -> None:
    """Of what is there: a random key is that of no document."""
    names = case.path_parameters
    if "pin" in names:
        names["pin"] = one_of(given.pins, names)
    if "subscription" in names:
        dropped = one_of(_DROPPED, names)
        names["subscription"] = dropped if operation.startswith("delete") else _SUBSCRIPTION
    if "token_id" in names:
        names["token_id"] = one_of(given.tokens, names)
    if "upload" in names:
        names["upload"] = one_of(given.uploads[operation], names)
    if "catalog" in names:
        names["catalog"] = _CATALOGS.get(operation, CATALOG)
    if "key" in names:
        stays = operation.endswith("_attributes") or operation == "read_owners"
        keys = (_DESCRIBED,) if stays else tuple(DOCUMENTS)
        names["key"] = one_of(keys, names["key"])
    if "revision" in names:
        names["revision"] = 1 + chance(names["revision"], of=8)
    if "idempotency_key" in names:
        made = tuple(f"made-{len(key)}" for key in DOCUMENTS)
        names["idempotency_key"] = one_of(made, names["idempotency_key"])


def _choose_time(case: Case[Any], given: Given) -> None:
    if chance((case.path_parameters, case.query), of=2):
        case.query.pop("revision", None)
        case.query.pop("at", None)
    if "revision" in case.query:
        case.query["revision"] = chance(case.query["revision"], of=16)
    for name in ("from", "to"):
        if name in case.query:
            case.query[name] = chance(case.query[name], of=16)
    if "at" in case.query:
        case.query["at"] = one_of((given.made, *_PAST_AND_FUTURE), case.query["at"])


def _choose_documents(case: Case[Any]) -> None:
    """Of the lists of keys, and how long to wait for a change of one of them."""
    if isinstance(case.query.get("key"), list):
        case.query["key"] = [one_of(tuple(DOCUMENTS), each) for each in case.query["key"]]
    if "timeout" in case.query:
        case.query["timeout"] = 0
    if "after" in case.query and isinstance(case.query["after"], int):
        case.query["after"] = chance(case.query["after"], of=16)


def _choose_places(case: Case[Any]) -> None:
    """For patches: mostly of what is in one of the documents, and none that RFC 6902 forbids."""
    patch: Any = case.body
    if case.method != "PATCH" or not isinstance(patch, list):
        return
    for operation in patch:
        for member in ("path", "from"):
            if member in operation and chance(operation[member], of=4):
                operation[member] = one_of(_PLACES, (member, operation[member], patch))
        if operation["op"] == "move" and operation["path"].startswith(operation["from"]):
            operation["op"] = "copy"  # nothing can be moved into itself: 400


def _apply_or_patch(case: Case[Any]) -> None:
    """Only an apply has an apply's parameters; mostly it wants what is in one of the documents."""
    if case.media_type != APPLY:
        for name in _OF_APPLIES:
            case.query.pop(name, None)
    elif chance((case.query, case.body), of=4):
        case.body = one_of(_WANTED, (case.query, case.body))


def _choose_structured_headers(case: Case[Any]) -> None:
    if "Prefer" in case.headers:
        seed = (case.headers["Prefer"], case.path_parameters, case.body)
        case.headers["Prefer"] = one_of(_PREFERENCES, seed)
    if "If-Unchanged-Under" in case.headers:
        seed = (case.headers["If-Unchanged-Under"], case.path_parameters, case.body)
        case.headers["If-Unchanged-Under"] = one_of(_RANGES, seed)


def _leave_out_idempotency_keys(case: Case[Any]) -> None:
    """Of most requests: many are generated with the same key, which is refused the second time."""
    if chance((case.path_parameters, case.body), of=4):
        case.headers.pop("Idempotency-Key", None)


def _leave_out_conditions(case: Case[Any]) -> None:
    """Of half of the requests: with so many, hardly one has conditions that are all true."""
    if chance((case.path_parameters, case.query, case.body), of=2):
        for name in (*_ENTITY_TAGS, "If-Unmodified-Since", "If-Unchanged-Under"):
            case.headers.pop(name, None)
        case.query.pop("resource_version", None)


def _write_texts(case: Case[Any]) -> None:
    """A pattern says what an escape is, but not that the escaped bytes are UTF-8, nor that the
    text of an author is printable."""
    for name in ("Commit-Message", "Commit-Author"):
        if name not in case.headers:
            continue
        try:
            text = unquote(case.headers[name], errors="strict")
            fits = name == "Commit-Message" or is_author(text)
        except UnicodeDecodeError:
            fits = False
        if not fits:
            case.headers[name] = "gr%C3%B6%C3%9Fe"


def _write_entity_tags(case: Case[Any], operation: str) -> None:
    """Some generated values lack the quotes that the pattern demands; all are of no document.

    What has a ``=`` must be a composite, which the pattern doesn't say.
    """
    known = _TAGS if operation in _OF_SEVERAL else _TOKENS
    known = _SEVERAL if operation in ("run_transaction", "revert") else known
    for name in _ENTITY_TAGS:
        text = case.headers.get(name)
        if text is not None and ('"' not in text or "=" in text or chance(text, of=2)):
            seed = (name, text, case.path_parameters, case.query)
            case.headers[name] = one_of(known, seed)


def _choose_receiver(case: Case[Any], operation: str) -> None:
    """A pattern doesn't say what an address is; and there is one beginning, where there is one."""
    if operation not in ("put_subscription", "replay_subscription"):
        return
    if not isinstance(case.body, dict):
        return
    if operation == "put_subscription":
        case.body["to"] = _RECEIVER
    elif not case.body.get("initial"):
        case.body.setdefault("from", 1)
    if case.body.get("initial"):
        case.body.pop("from", None)
    elif "from" in case.body:
        case.body["from"] = chance(case.body["from"], of=16)


def _remove_contradictions(case: Case[Any]) -> None:
    """OpenAPI can't say that a parameter excludes another."""
    if "If-Match" in case.headers and "If-None-Match" in case.headers:
        seed = (dict(case.headers), case.path_parameters, case.query)
        del case.headers[one_of(_ENTITY_TAGS, seed)]
    if "revision" in case.query and "at" in case.query:
        del case.query[one_of(("revision", "at"), case.query["at"])]
    if "pointer" in case.query:
        case.query.pop("manager", None)
        case.query.pop("prune", None)
    if case.query.get("dry_run") not in (True, "true"):
        case.query.pop("examine", None)
    if "before" not in case.query:
        case.query.pop("after_key", None)
    if isinstance(case.query.get("key"), list) and "timeout" not in case.query:
        case.query.pop("prefix", None)
        case.query.pop("after", None)
    if case.operation.definition.raw["operationId"] == "watch_changes":
        if case.query.get("initial") in (True, "true"):
            for name in ("after", "key", "author", "manager"):
                case.query.pop(name, None)
        elif "/" in (case.headers.get("Last-Event-ID") or ""):
            del case.headers["Last-Event-ID"]  # a position in a list
        if "after" not in case.query:
            case.query.pop("commit_id", None)
    elif case.query.get("select") != "digest":
        case.query.pop("manager", None)
    if "key" in case.query and "timeout" not in case.query:
        case.query.pop("contains", None)
    if "select" not in case.query or "key" in case.query or case.query.get("contains"):
        case.query.pop("delimiter", None)
    for header, member in (("Commit-Message", "message"), ("Commit-Author", "author")):
        if case.headers.get(header) and isinstance(case.body, dict):
            case.body.pop(member, None)  # a transaction's, which would have to be the same
