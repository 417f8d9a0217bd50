"""Undoing commits, and bringing documents back, as a new commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Unpack

import msgspec

from patching.client._calls import CallPolicy
from patching.client._steps import Steps, called
from patching.client._wire import HttpAnswer
from patching.client.results import (
    ContestedLeaf,
    Reverted,
    SkippedPlace,
    changes_of,
    expecting,
    is_replayed,
)
from patching.client.terms import Tokens, WriteTerms, encoded
from patching.ownership import OnConflict


class Reverting:
    """A part of `Catalog`."""

    _calls: CallPolicy
    _catalog_path: str

    @called
    def revert(
        self,
        revisions: int | Collection[int] = (),
        *,
        to: int | None = None,
        since: int | None = None,
        prefix: str = "",
        key: str | None = None,
        conflict: OnConflict = "refuse",
        force: Iterable[SkippedPlace | ContestedLeaf] = (),
        if_match: Tokens | None = None,
        **terms: Unpack[WriteTerms],
    ) -> Steps[Reverted]:
        """Undo the commits that made ``revisions``, or all of them after revision ``to``, as one
        new commit; with a ``prefix`` only what they did to documents whose keys begin so, with a
        ``key`` to that document.

        What others changed since is kept. Where that is what would be undone, Conflict is raised,
        and `contested` tells the places; or they are skipped, and listed in the result; or forced
        to be as they were (``conflict``). Those at and below the places in ``force`` are forced in
        any case. ``since``, with ``to``: the revision that the caller has
        seen, what comes after it being changed since; by default the newest.

        Gone where history was compacted, OverLimit where it is too much for one commit. ValueError
        unless one of ``revisions`` and ``to`` is given.
        """
        listed = [revisions] if isinstance(revisions, int) else sorted(set(revisions))
        if bool(listed) == (to is not None):
            raise ValueError("a revert takes either revisions or 'to'")
        asked: dict[str, Any] = {"revisions": listed} if listed else {"to": to}
        if since is not None:
            asked["from"] = since
        if prefix:
            asked["prefix"] = prefix
        if key is not None:
            asked["key"] = key
        if forced := [_place(each) for each in force]:
            asked["force"] = forced
        body = encoded({**asked, "conflict": conflict})
        answer = yield from self._calls.write(
            "POST", self._catalog_path, "/reverts", terms, body=body, if_match=if_match
        )
        return _reverted(answer)


def _place(each: SkippedPlace | ContestedLeaf) -> dict[str, Any]:
    return {"key": each.key, "part": each.part or "content", "pointer": each.pointer}


def _reverted(answer: HttpAnswer) -> Reverted:
    content = answer.json()
    with expecting("revert's answer"):
        return Reverted(
            revision=content["revision"],
            changed=content["changed"],
            commit_id=content["commit_id"],
            attempts=content["attempts"],
            skipped=msgspec.convert(content["skipped"], tuple[SkippedPlace, ...]),
            changes=changes_of(content.get("changes", ())),
            replayed=is_replayed(answer),
            dry_run=content.get("dry_run", False),
        )
