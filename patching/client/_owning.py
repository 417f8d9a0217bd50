"""Applying what a manager wants of a document, and who owns what of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Unpack

import msgspec

from patching import ABSENT, Conflict
from patching.client._calls import Calls
from patching.client._documents import time_query
from patching.client._errors import Problem
from patching.client._parsing import expecting, parse_written
from patching.client._results import ContestedLeaf, LeafOwners, Owner, Written
from patching.client._terms import Tokens, WriteTerms, encoded
from patching.client._transport import segment

_APPLY: Final = "application/vnd.metadata.apply+json"


class Owning:
    """A part of `Catalog`."""

    _calls: Calls
    _catalog_path: str

    def apply(
        self,
        key: str,
        wanted: Mapping[str, Any],
        *,
        manager: str | None = None,
        conflict: Conflict = "refuse",
        force: Sequence[str] = (),
        if_match: Tokens | None = None,
        if_absent: bool = False,
        rebase: bool = False,
        **terms: Unpack[WriteTerms],
    ) -> Written:
        """Send what ``manager`` (the principal, unless given) wants of the document: it owns these
        leaves then, and what it owned and wants no longer goes, unless others own it. An absent
        document is made.

        ``conflict``: what becomes of leaves that others own and that are wanted otherwise: a
        Conflict is raised, whose leaves `contested` tells; or they are skipped, and listed in the
        result; or forced. ``force``: pointers at and below which they are forced in any case.
        """
        if rebase and if_match is None:
            raise ValueError("a rebase needs if_match: the state that the apply was made for")
        query: list[tuple[str, str | int]] = [("conflict", conflict)]
        query += [("force", pointer) for pointer in force]
        answer = self._calls.write(
            "PATCH",
            self._catalog_path,
            f"/documents/{segment(key)}",
            terms,
            body=encoded(dict(wanted)),
            media_type=_APPLY,
            if_match=if_match,
            if_absent=if_absent,
            rebase=rebase,
            query=[*_named(manager), *query],
        )
        return parse_written(key, answer)

    def owners(
        self, key: str, *, revision: int | None = None, at: datetime | str | None = None
    ) -> tuple[LeafOwners, ...]:
        """The document's leaves that have owners, by pointer; as it is, or as it was. NotFound."""
        path = f"{self._catalog_path}/owners/{segment(key)}"
        content = self._calls.get(path, time_query(revision, at)).json()
        with expecting("list of owners"):
            return msgspec.convert(content["owners"], tuple[LeafOwners, ...])

    def let_go(
        self,
        key: str,
        *,
        manager: str | None = None,
        prune: bool = False,
        if_match: Tokens | None = None,
        **terms: Unpack[WriteTerms],
    ) -> Written:
        """``manager`` owns nothing of the document any more, and what nobody else owns is removed.
        ``prune``: a document of which nothing is left because of that is deleted."""
        query = [*_named(manager), *([("prune", "true")] if prune else [])]
        answer = self._calls.write(
            "DELETE",
            self._catalog_path,
            f"/owners/{segment(key)}",
            terms,
            if_match=if_match,
            query=query,
        )
        return parse_written(key, answer)


def contested(error: Problem) -> tuple[ContestedLeaf, ...]:
    """The leaves that an apply, or the places that a revert was refused for, the first 100; () for
    another refusal."""
    shapes = error.problem.get("contested")
    if not isinstance(shapes, list):
        return ()
    try:
        return tuple(
            ContestedLeaf(
                shape["pointer"],
                msgspec.convert(shape.get("owners", ()), tuple[Owner, ...]),
                shape.get("value", ABSENT),
                shape.get("wanted", ABSENT),
                shape.get("key"),
                shape.get("part"),
                shape.get("revision"),
            )
            for shape in shapes
        )
    except (KeyError, TypeError, msgspec.ValidationError):
        return ()


def _named(manager: str | None) -> list[tuple[str, str | int]]:
    return [] if manager is None else [("manager", manager)]
