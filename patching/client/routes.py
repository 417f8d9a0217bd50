"""The routes of one catalog that a follower needs, each as one call. No retries."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from patching.client._blocking import Alone
from patching.client._steps import Query, SendOnce, Steps, called
from patching.client._wire import HttpAnswer, segment
from patching.client.results import (
    CatalogState,
    Commit,
    Document,
    TransactionResult,
    expecting,
    parse_commit,
    parse_listed,
    parse_state,
    parse_transaction,
    value_of,
)
from patching.client.terms import encoded
from patching.client.transport import Transport

# The time that an answer to a long poll may take beyond the requested wait.
_POLL_GRACE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Export:
    """A catalog's documents by key, at one revision."""

    revision: int
    documents: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Commits, ascending, and the bookmark: there is nothing else up to it. ``commit_id`` made that
    revision, if known."""

    commits: tuple[Commit, ...]
    revision: int
    commit_id: str | None = None


@dataclass(frozen=True, slots=True)
class StatePage:
    """Documents as of ``revision``, by key. Only the first page has the ``settings``, None if
    nothing was set. The next page is after ``position``; after the one that ``is_last`` come the
    commits above the revision, which the commit ``commit_id`` made at ``time``, if known."""

    documents: tuple[Document, ...]
    settings: Any
    revision: int
    position: str
    is_last: bool
    time: datetime | None
    commit_id: str | None


@dataclass(frozen=True, slots=True)
class CommitPage:
    """Commits, ascending; ``next_after`` continues, None if nothing is left.

    ``head_revision`` is where the catalog was when this was answered: 0 if it was never written.
    """

    commits: tuple[Commit, ...]
    next_after: int | None
    head_revision: int


class CatalogRoutes:
    """Every method raises RequestError; the caller closes ``transport``. Without one, there are
    only plans, for others to carry out."""

    def __init__(self, transport: Transport | None, catalog: str) -> None:
        self._calls = None if transport is None else Alone(transport, time.sleep)
        self._path = f"/v1/catalogs/{segment(catalog)}"

    @called
    def read(self) -> Steps[CatalogState]:
        """The catalog's state. Raises NotFound if it was never written or is deleted."""
        return parse_state((yield from self._get("")))

    @called
    def export(self, *, revision: int | None = None, prefix: str = "") -> Steps[Export]:
        """All documents whose keys begin with ``prefix``, as ``revision`` (None: the head) had
        them. Raises NotFound if the catalog was never written; Gone below the floor."""
        query: list[tuple[str, str | int]] = []
        if revision is not None:
            query.append(("revision", revision))
        if prefix:
            query.append(("prefix", prefix))
        content = yield from self._get("/export", query)
        with expecting("export"):
            return value_of(
                Export, {}, revision=content["resource_version"], documents=content["metadata"]
            )

    @called
    def state(
        self, position: str | None, *, prefix: str = "", limit: int = 1000
    ) -> Steps[StatePage]:
        """A page of the documents that a feed begins with: the first, as of now (None), or the one
        after a page's ``position``. Raises Gone if its revision was compacted."""
        query: list[tuple[str, str | int]] = [("initial", "true"), ("limit", limit)]
        if prefix:
            query.append(("prefix", prefix))
        headers = {} if position is None else {"Last-Event-ID": position}
        content = yield from self._get("/changes", query, headers=headers)
        with expecting("page of documents"):
            revision, synced = content["revision"], content.get("synced")
            shapes = content["documents"]
            has_settings = bool(shapes) and shapes[0]["key"] is None
            listed = [parse_listed(shape, revision) for shape in shapes[has_settings:]]
            return value_of(
                StatePage,
                {},
                documents=[each for each in listed if each is not None],
                settings=shapes[0]["value"] if has_settings else None,
                revision=revision,
                position=content["position"],
                is_last=synced is not None,
                time=synced and synced["time"],
                commit_id=synced and synced.get("commit_id"),
            )

    @called
    def changes(
        self,
        after: int,
        *,
        timeout_s: float,
        prefix: str = "",
        keys: Sequence[str] = (),
        limit: int | None = None,
        more: Query = (),
        commit_id: str | None = None,
    ) -> Steps[FeedPage]:
        """The commits above ``after``, which ``commit_id`` made, if known: at once if there are
        any, else within ``timeout_s`` (whole seconds; the gateway has a maximum). With a prefix or
        keys: only commits that change such a document, whole. ``more`` are further parameters.
        Raises Gone if ``after`` is below the floor; NotFound if it isn't in the history, or another
        commit made it."""
        query: list[tuple[str, str | int]] = [("after", after), ("timeout", int(timeout_s)), *more]
        query += [("key", key) for key in keys]
        if prefix:
            query.append(("prefix", prefix))
        if commit_id is not None:
            query.append(("commit_id", commit_id))
        if limit is not None:
            query.append(("limit", limit))
        content = yield from self._get("/changes", query, timeout_s=timeout_s + _POLL_GRACE_S)
        with expecting("page of changes"):
            commits = tuple(parse_commit(commit) for commit in content["commits"])
            return value_of(FeedPage, content, commits=commits)

    @called
    def commits(self, after: int, *, limit: int = 100) -> Steps[CommitPage]:
        """Commits above ``after``, at most ``limit``. Raises Gone below the floor."""
        query: Query = [("after", after), ("limit", limit)]
        answer: HttpAnswer = yield SendOnce("GET", f"{self._path}/commits", query)
        content = answer.json()
        with expecting("page of commits"):
            commits = tuple(parse_commit(commit) for commit in content["commits"])
            return CommitPage(commits, content["next"], int(answer.headers["Catalog-Revision"]))

    @called
    def transact(
        self,
        compare: Sequence[Mapping[str, Any]],
        then: Sequence[Mapping[str, Any]],
        *,
        message: str | None = None,
        idempotency_key: str | None = None,
        read_timeout_s: float | None = None,
    ) -> Steps[TransactionResult]:
        """Do ``then`` as one commit if every compare is true; otherwise PreconditionFailed."""
        body: dict[str, Any] = {"compare": list(compare), "then": list(then)}
        if message is not None:
            body["message"] = message
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        answer: HttpAnswer = yield SendOnce(
            "POST",
            f"{self._path}/transactions",
            body=encoded(body),
            headers={"Content-Type": "application/json", **headers},
            timeout_s=read_timeout_s,
        )
        return parse_transaction(answer)

    def _get(
        self,
        rest: str,
        query: Query = (),
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Steps[Any]:
        path = self._path + rest
        answer: HttpAnswer = yield SendOnce(
            "GET", path, query, headers=headers or {}, timeout_s=timeout_s
        )
        return answer.json()
