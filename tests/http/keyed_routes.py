"""Every request that takes an idempotency key, each in worlds in which it is applied, changes
nothing, or is refused, and in which it would be applied a little later.

``CASES`` is checked against ``openapi.yaml`` for completeness.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
EXTENDED: Final = "application/vnd.metadata.patch+json"
APPLY: Final = "application/vnd.metadata.apply+json"
_ABSENT: Final = object()


@dataclass(frozen=True)
class Ask:
    """A request to a place in a catalog; ``line``: to be sent as a bulk line.

    ``one_later``: it is for the revision that the catalog reaches by the change of its world.
    """

    method: str = ""
    place: str = ""
    body: Any = _ABSENT
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    line: bool = False
    fenced: bool = False
    one_later: bool = False

    @property
    def has_body(self) -> bool:
        return self.body is not _ABSENT

    def under(self, **headers: str) -> Ask:
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return replace(self, headers=(*self.headers, *named))


@dataclass(frozen=True)
class World:
    """Before the request, and between its first time and its second: steps that others take."""

    before: tuple[Ask, ...]
    ask: Ask
    between: tuple[Ask, ...]


@dataclass(frozen=True)
class Case:
    """``operation`` is an operationId of openapi.yaml; ``applied``, ``unchanged`` and ``refused``
    are worlds in which the request has that outcome at first. () where it never has."""

    operation: str
    name: str
    applied: tuple[World, ...]
    unchanged: tuple[World, ...]
    refused: tuple[World, ...]


def put(n: Any, key: str = "k") -> Ask:
    return Ask("PUT", f"/documents/{key}", {"n": n} if isinstance(n, int) else n)


def patch(*operations: Any) -> Ask:
    return Ask("PATCH", "/documents/k", list(operations), JSON_PATCH)


def apply(n: int) -> Ask:
    return Ask("PATCH", "/documents/k?manager=m&conflict=force", {"n": n}, APPLY)


def line(**members: Any) -> Ask:
    return Ask(body=members, line=True)


def later(ask: Ask) -> Ask:
    """The same for the revision that the catalog is at later: refused at first."""
    if ask.line:
        return replace(ask, one_later=True)
    joint = "&" if "?" in ask.place else "?"
    return replace(ask, place=f"{ask.place}{joint}resource_version={{revision}}", one_later=True)


DELETE_K: Final = Ask("DELETE", "/documents/k")
TEST_9: Final = {"op": "test", "path": "/n", "value": 9}
SET_1: Final = {"op": "replace", "path": "/n", "value": 1}
UNIQUE: Final = {"arrays": [{"keys": "*", "pointer": "/n", "item_key": ["id"]}]}
ATTRIBUTES: Final = "/attributes/k"


def of_content(operation: str, name: str, ask: Ask, *refused: World) -> Case:
    """Of a request that makes {"n": 1} of a document k that is there."""
    return Case(
        operation,
        name,
        (World((put(2),), ask, (put(3),)),),
        (World((put(1),), ask, (put(3),)),),
        (World((put(2),), later(ask), (put(3),)), *refused),
    )


def of_attributes(operation: str, ask: Ask) -> Case:
    """Of a request that makes ``a`` of the attributes of k 1, or takes them away."""
    done = () if ask.method == "DELETE" else (Ask("PUT", ATTRIBUTES, {"a": 1}),)
    other = Ask("PUT", ATTRIBUTES, {"a": 2})
    return Case(
        operation,
        operation,
        (World((put(1), other), ask, (other, replace(other, body={"a": 3}))),),
        (World((put(1), *done), ask, (other,)),),
        (World((put(1), other), later(ask), (replace(other, body={"a": 3}),)),),
    )


def fenced(case: Case) -> Case:
    """The same under the fence of an application."""

    def of(worlds: tuple[World, ...]) -> tuple[World, ...]:
        return tuple(replace(each, ask=replace(each.ask, fenced=True)) for each in worlds)

    return Case(
        case.operation,
        f"{case.name}, fenced",
        of(case.applied),
        of(case.unchanged),
        of(case.refused),
    )


PUT_LINE: Final = of_content("run_bulk", "put", line(op="put", value={"n": 1}))

_EXTENDED = Ask("PATCH", "/documents/k", {"patch": [SET_1]}, EXTENDED)
_APPLY_LINE = line(op="apply", value={"n": 1}, manager="m", conflict="force")
_LET_GO = Ask("DELETE", "/owners/k?manager=m")
_LET_GO_LINE = line(op="let_go", manager="m")
_GIVE_BACK_LINE = line(op="give_back", pointers=["/n"])
_DELETE_CATALOG = Ask("DELETE")
_TOUCH = Ask("POST", "/touch")
_REVERT_2 = Ask("POST", "/reverts", {"revisions": [2]})
_SETTINGS = Ask("PUT", "", {"require_precondition": False})
_OTHER_SETTINGS = Ask("PUT", "", {"retention": {"commits": 5}})
_TRANSACTION = Ask("POST", "/transactions", {"then": [{"action": "put", "key": "k", "value": 1}]})
_IF_9 = Ask(
    "POST",
    "/transactions",
    {
        "compare": [{"key": "k", "equals": {"n": 9}}],
        "then": [{"action": "put", "key": "k", "value": {"n": 1}}],
    },
)

CASES: Final = (
    of_content(
        "put_document",
        "put",
        put(1),
        World((put(2),), put(1).under(If_None_Match="*"), (DELETE_K,)),
    ),
    of_content(
        "patch_document",
        JSON_PATCH,
        patch(SET_1),
        World((put(2),), patch(TEST_9, SET_1), (put(9),)),
        World((), patch(SET_1), (put(3),)),
    ),
    of_content("patch_document", MERGE, Ask("PATCH", "/documents/k", {"n": 1}, MERGE)),
    of_content(
        "patch_document", EXTENDED, Ask("PATCH", "/documents/k", {"patch": [SET_1]}, EXTENDED)
    ),
    Case(
        "patch_document",
        APPLY,
        (World((put(2),), apply(1), (put(3),)),),
        (World((apply(1),), apply(1), (put(3),)),),
        (World((put(2),), later(apply(1)), (put(3),)),),
    ),
    Case(
        "delete_document",
        "delete",
        (World((put(1),), DELETE_K, (put(1),)),),
        (World((put(1, "other"),), DELETE_K, (put(1),)),),
        (World((put(1),), later(DELETE_K), (put(2),)),),
    ),
    of_attributes("put_attributes", Ask("PUT", ATTRIBUTES, {"a": 1})),
    of_attributes("patch_attributes", Ask("PATCH", ATTRIBUTES, {"a": 1}, MERGE)),
    of_attributes("delete_attributes", Ask("DELETE", ATTRIBUTES)),
    Case(
        "let_go",
        "let_go",
        (World((apply(1),), _LET_GO, (apply(2),)),),
        (World((put(1),), _LET_GO, (apply(2),)),),
        (World((apply(1),), later(_LET_GO), (apply(2),)),),
    ),
    Case(
        "run_transaction",
        "run_transaction",
        (World((put(2),), _TRANSACTION, (put(3),)),),
        (World((put(1), _TRANSACTION), _TRANSACTION, (put(3),)),),
        (World((put(2),), later(_TRANSACTION), (put(3),)), World((put(2),), _IF_9, (put(9),))),
    ),
    Case(
        "revert",
        "revert",
        (World((put(1), put(2)), _REVERT_2, (put(2),)),),
        (World((put(1), put(2), put(1)), _REVERT_2, (put(2),)),),
        (
            World((put(1), put(2), put(3)), _REVERT_2, (put(2),)),
            World((put(1),), Ask("POST", "/reverts", {"to": 2}), (put(2), put(3))),
            World((put(1), put(2)), later(_REVERT_2), (put(1, "other"),)),
        ),
    ),
    Case(
        "put_catalog",
        "put_catalog",
        (World((), _SETTINGS, (_OTHER_SETTINGS,)),),
        (World((_SETTINGS,), _SETTINGS, (_OTHER_SETTINGS,)),),
        (
            World((_OTHER_SETTINGS,), later(_SETTINGS), (put(1),)),
            World((put({"n": [{"id": 1}, {"id": 1}]}),), Ask("PUT", "", UNIQUE), (put({"n": []}),)),
        ),
    ),
    Case(
        "delete_catalog",
        "delete_catalog",
        (World((put(1),), _DELETE_CATALOG, (put(1),)),),
        (
            World((), _DELETE_CATALOG, (put(1),)),
            World((put(1), _DELETE_CATALOG), _DELETE_CATALOG, (put(2),)),
        ),
        (
            World((put(1),), later(_DELETE_CATALOG), (put(2),)),
            World((), later(_DELETE_CATALOG), (put(2),)),
            World((), _DELETE_CATALOG.under(If_Match="*"), (_SETTINGS,)),
        ),
    ),
    Case(
        "touch_catalog",
        "touch_catalog",
        (World((put(1),), _TOUCH, (put(2),)),),
        (),  # it always makes a commit
        (World((put(1),), later(_TOUCH), (put(2),)),),
    ),
    PUT_LINE,
    fenced(PUT_LINE),
    of_content(
        "run_bulk",
        "patch",
        line(op="patch", patch=[SET_1]),
        World((put(2),), line(op="patch", patch=[TEST_9, SET_1]), (put(9),)),
    ),
    of_content("run_bulk", "merge", line(op="merge", value={"n": 1})),
    Case(
        "run_bulk",
        "apply",
        (
            World(
                (put(2),),
                line(op="apply", value={"n": 1}, manager="m", conflict="force"),
                (put(3),),
            ),
        ),
        (
            World(
                (apply(1),),
                line(op="apply", value={"n": 1}, manager="m", conflict="force"),
                (put(3),),
            ),
        ),
        (World((put(2),), later(line(op="apply", value={"n": 1}, conflict="force")), (put(3),)),),
    ),
    Case(
        "run_bulk",
        "let_go",
        (World((apply(1),), _LET_GO_LINE, (apply(2),)),),
        (World((put(1),), _LET_GO_LINE, (apply(2),)),),
        (World((apply(1),), later(_LET_GO_LINE), (apply(2),)),),
    ),
    Case(
        "run_bulk",
        "give_back",
        (World((apply(1), put(2)), _GIVE_BACK_LINE, (apply(3), put(4))),),
        (World((put(1),), _GIVE_BACK_LINE, (apply(2), put(3))),),
        (World((apply(1), put(2)), later(_GIVE_BACK_LINE), (put(3),)),),
    ),
    Case(
        "run_bulk",
        "delete",
        (World((put(1),), line(op="delete"), (put(1),)),),
        (World((put(1, "other"),), line(op="delete"), (put(1),)),),
        (World((put(1),), later(line(op="delete")), (put(2),)),),
    ),
    Case(
        "run_bulk",
        "touch",
        (World((put(1),), line(op="touch"), (put(2),)),),
        (),
        (World((put(1),), later(line(op="touch")), (put(2),)),),
    ),
)

# Writes that take none, and why a second one does no harm.
WITHOUT_KEY: Final = {
    "open_upload": "refuses one; what is opened twice expires",
    "put_part": "refuses one; the same part replaces itself",
    "drop_upload": "refuses one; there is none left to drop",
    "commit_upload": "refuses one: the upload itself is the key",
    "put_application": "a version says which one it is: what is over isn't begun again",
    "delete_application": "forgets what was; a name that is taken again has other keys",
    "create_pin": "what is pinned twice expires",
    "renew_pin": "sets when it ends",
    "delete_pin": "a pin's id is never taken again",
    "put_subscription": "says what it is to be",
    "delete_subscription": "is over the first time",
    "pause_subscription": "says what it is to be",
    "resume_subscription": "says what it is to be",
    "replay_subscription": "delivers at least once anyway",
    "compact_catalog": "the floor only rises",
    "create_token": "issues another one, which nobody has been told of; it can be revoked",
    "revoke_token": "a revoked one stays so",
}
