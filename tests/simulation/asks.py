"""What a simulated client asks for, in terms that neither the gateway nor the model owns."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "write",
    "delete-catalog",
    "read",
    "read-at",
    "read-then",
    "page",
    "reply",
    "list",
    "several",
    "export",
    "revision-at",
    "pin",
    "renew",
    "unpin",
    "compact",
]
Deed = Literal[
    "put",
    "patch",
    "edit",
    "merge",
    "delete",
    "move",
    "touch",
    "get",
    "attributes-put",
    "attributes-patch",
    "attributes-delete",
    "delete-range",
    "replace-range",
    "apply",
    "let-go",
    "give-back",
    "revert",
    "undo",
]

Conflict = Literal["refuse", "skip", "force"]


class Name(str):
    """A catalog's or document's name whose hash is the same in every run.

    The order of a set, and with it the order in which the gateway treats the catalogs of a batch,
    follows from the hashes.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __new__(cls, text: str) -> Name:
        name = super().__new__(cls, text)
        name._hash = zlib.crc32(text.encode())
        return name

    def __hash__(self) -> int:
        return self._hash


# The document that holds a catalog's settings.
SETTINGS = Name("")

# A version token, "*", a catalog's revision, or the tokens (None: absent) of several documents.
Tag = str | int | tuple[tuple[Name, str | None], ...]


@dataclass(frozen=True)
class Compare:
    """``value``: a token, a content, test operations, or a revision (of the catalog); since which
    revision a document or range is unchanged; "less", "equal" or "greater" and a number.

    ``key`` of a compare of a range: what its documents' keys begin with.
    """

    what: Literal[
        "token",
        "absent",
        "unchanged",
        "equals",
        "tests",
        "revision",
        "range-unchanged",
        "range-absent",
        "range-count",
    ]
    key: Name
    value: Any = None


@dataclass(frozen=True)
class Wanted:
    """What a manager applies: the part of the document that it wants."""

    manager: str
    content: dict[str, Any]
    conflict: Conflict = "refuse"
    force: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spot:
    """A place that a revert is to force, with all below it."""

    key: Name
    pointer: str
    of_attributes: bool = False


@dataclass(frozen=True)
class Undone:
    """What a revert takes back: these revisions, or else all from ``to`` up to ``since`` (None: the
    head), of the keys that begin with ``prefix``."""

    revisions: tuple[int, ...] = ()
    to: int = 0
    since: int | None = None
    prefix: str = ""
    conflict: Conflict = "refuse"
    forced: tuple[Spot, ...] = ()


@dataclass(frozen=True)
class Action:
    """``value`` is the content of a put, the operations of a patch, or of an edit, which names the
    items of lists by key, the patch of a merge, the new key of a move, and so on for attributes.
    ``attributes`` go with a put; None keeps them. It is a Wanted, the manager that lets go and
    whether it prunes, the tokens of where something is given back, or what is Undone; a revert is
    alone.

    Of a range it is the prefix, or the prefix and the documents by key. ``when``: the action is
    done only where these are true of what those before it have left."""

    deed: Deed
    key: Name
    value: Any = None
    attributes: dict[str, Any] | None = None
    when: tuple[Compare, ...] = ()


@dataclass(frozen=True)
class Ask:
    """``actions`` are what a write does. ``create_only`` is If-None-Match: *.

    ``key`` is what is read, or the first document written. ``label`` names the request: it goes
    with the commit as its message. ``fingerprint`` belongs to the idempotency key. ``revision`` is
    for reads of the past (None: of the present), and where a page of commits begins; ``time_us``
    is for reads by time. ``after``, ``limit``, ``keys`` and ``pause_s`` (between two documents of
    an export) are for reads of many documents. ``pin`` (an id) and ``seconds`` are for pins.
    """

    kind: Kind
    catalog: Name
    key: Name
    label: str
    actions: tuple[Action, ...] = ()
    compare: tuple[Compare, ...] = ()
    otherwise: tuple[Action, ...] | None = None
    if_match: tuple[Tag, ...] | None = None
    create_only: bool = False
    resource_version: int | None = None
    rebase: bool = False
    dry_run: bool = False
    idempotency_key: str | None = None
    fingerprint: str = ""
    wait_s: float | None = None
    revision: int | None = 0
    time_us: int = 0
    after: str = ""
    limit: int = 0
    keys: tuple[Name, ...] = ()
    pause_s: float = 0.0
    pin: str = ""
    seconds: int = 0

    @property
    def writes(self) -> bool:
        return self.kind in ("write", "delete-catalog")

    @property
    def deletes_catalog(self) -> bool:
        return self.kind == "delete-catalog"

    @property
    def sets_up(self) -> bool:
        """Whether it puts the catalog's settings, and nothing else."""
        return [(each.key, each.deed) for each in self.actions] == [(SETTINGS, "put")]

    @property
    def undone(self) -> Undone | None:
        """Of a revert."""
        reverts = self.kind == "write" and self.actions[0].deed == "revert"
        return self.actions[0].value if reverts else None


def write(label: str, catalog: Name, *actions: Action, **asked: Any) -> Ask:
    return Ask("write", catalog, actions[0].key, label, actions=actions, **asked)


def digest(ask: Ask) -> str:
    """What an idempotency key is bound to."""
    return f"{ask.kind} {ask.actions} {ask.compare} {ask.otherwise}"
