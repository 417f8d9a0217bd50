"""Commits as the wire tells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .errors import UnexpectedAnswer


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit did to one document; ``key`` None: to the catalog's settings.

    ``patch`` is the effective RFC 6902 patch of the content, removal at "" where it was deleted.
    ``attributes`` are those afterwards, None where they are unchanged. All values are shared:
    treat them as immutable.
    """

    key: str | None
    action: str
    create_revision: int
    patch: list[dict[str, Any]]
    attributes: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic change of a catalog; without changes it was a touch."""

    revision: int
    time: datetime
    commit_id: str
    author: str
    message: str | None
    idempotency_key: str | None
    attempts: int
    changes: tuple[Change, ...]
    succeeded: bool = True
    rebased_from: str | None = None
    deletes_catalog: bool = False

    def touches(self, prefix: str) -> bool:
        """Whether it changes a document whose key begins with ``prefix``."""
        return any(
            change.key is not None and change.key.startswith(prefix) for change in self.changes
        )


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """A commit as a refusal tells of it. ``changes`` are (key, action); where it is about one
    document, ``action`` is what was done to that and there are none."""

    revision: int
    time: datetime
    commit_id: str
    author: str
    message: str | None
    action: str | None
    changes: tuple[tuple[str | None, str], ...]


def parse_summary(shape: Mapping[str, Any]) -> CommitSummary:
    """UnexpectedAnswer where ``shape`` is none."""
    with expecting("summary of a commit"):
        return CommitSummary(
            revision=whole(shape["revision"]),
            time=parse_time(shape["time"]),
            commit_id=shape["commit_id"],
            author=shape["author"],
            message=shape["message"],
            action=shape.get("action"),
            changes=tuple((each["key"], each["action"]) for each in shape.get("changes", ())),
        )


def parse_commit(shape: Mapping[str, Any]) -> Commit:
    """The commit in ``shape``; members that are not known here are left out of it.

    KeyError, TypeError and ValueError where it has another shape: see ``expecting``.
    """
    return Commit(
        revision=whole(shape["revision"]),
        time=parse_time(shape["time"]),
        commit_id=shape["commit_id"],
        author=shape["author"],
        message=shape["message"],
        idempotency_key=shape["idempotency_key"],
        attempts=shape["attempts"],
        changes=tuple(parse_change(change) for change in shape["changes"]),
        succeeded=shape.get("succeeded", True),
        rebased_from=shape.get("rebased_from"),
        deletes_catalog=shape.get("deletes_catalog", False),
    )


def parse_change(shape: Mapping[str, Any]) -> Change:
    return Change(
        key=shape["key"],
        action=shape["action"],
        create_revision=shape["create_revision"],
        patch=shape["patch"] or [],
        attributes=shape.get("attributes"),
    )


def parse_time(text: str) -> datetime:
    """An RFC 3339 time, aware."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without an offset from UTC: {text!r}")
    return moment


def whole(value: object) -> int:
    """``value`` if it is an integer; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"a whole number is needed, not {value!r}")
    return value


@contextmanager
def expecting(what: str) -> Iterator[None]:
    """Turns the errors of reading an answer of another shape into UnexpectedAnswer."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnexpectedAnswer(
            f"this is no {what}: {type(error).__name__} {error}", status=200, applied="unknown"
        ) from error
