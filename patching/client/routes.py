"""The routes of one catalog that a follower needs, each as one call. No retries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

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
from patching.client.transport import Query, Transport, segment

# The time that an answer to a long poll may take beyond the requested wait.
_POLL_GRACE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Export:
    """A catalog's documents by key, at one revision."""

    revision: int
    documents: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Commits ascending, and the bookmark: all that there is up to it has been told."""

    commits: tuple[Commit, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class StatePage:
    """Documents as of ``revision``, by key. ``settings`` are told on the first page alone, None
    where nothing was set. The next page is behind ``position``, or, where ``is_last``, there are
    the commits above the revision, which was made at ``time``, if that is known."""

    documents: tuple[Document, ...]
    settings: Any
    revision: int
    position: str
    is_last: bool
    time: datetime | None


@dataclass(frozen=True, slots=True)
class CommitPage:
    """Commits ascending; ``next_after`` continues, None where nothing is left.

    ``head_revision`` is where the catalog was while this was answered: 0 if it was never written.
    """

    commits: tuple[Commit, ...]
    next_after: int | None
    head_revision: int


class CatalogRoutes:
    """Every method raises RequestError; ``transport`` stays the caller's to close."""

    def __init__(self, transport: Transport, catalog: str) -> None:
        self._transport = transport
        self._path = f"/v1/catalogs/{segment(catalog)}"

    def read(self) -> CatalogState:
        """NotFound where it was never written or is deleted."""
        return parse_state(self._get(""))

    def export(self, *, revision: int | None = None, prefix: str = "") -> Export:
        """All documents whose keys begin with ``prefix``, as ``revision`` (None: the head) had
        them. NotFound where the catalog was never written; Gone below the history's floor."""
        query: list[tuple[str, str | int]] = []
        if revision is not None:
            query.append(("revision", revision))
        if prefix:
            query.append(("prefix", prefix))
        content = self._get("/export", query)
        with expecting("export"):
            return value_of(
                Export, {}, revision=content["resource_version"], documents=content["metadata"]
            )

    def state(self, position: str | None, *, prefix: str = "", limit: int = 1000) -> StatePage:
        """A page of the documents that a feed begins with: the first one, of the present (None), or
        what is behind a page's ``position``. Gone where its revision was compacted away."""
        query: list[tuple[str, str | int]] = [("initial", "true"), ("limit", limit)]
        if prefix:
            query.append(("prefix", prefix))
        headers = {} if position is None else {"Last-Event-ID": position}
        answer = self._transport.request(
            "GET", f"{self._path}/changes", query=query, headers=headers
        )
        content = answer.json()
        with expecting("page of documents"):
            revision, synced = content["revision"], content.get("synced")
            told = content["documents"]
            has_settings = bool(told) and told[0]["key"] is None
            listed = [parse_listed(shape, revision) for shape in told[has_settings:]]
            return value_of(
                StatePage,
                {},
                documents=[each for each in listed if each is not None],
                settings=told[0]["value"] if has_settings else None,
                revision=revision,
                position=content["position"],
                is_last=synced is not None,
                time=synced and synced["time"],
            )

    def changes(
        self,
        after: int,
        *,
        timeout_s: float,
        prefix: str = "",
        keys: Sequence[str] = (),
        limit: int | None = None,
        more: Query = (),
    ) -> FeedPage:
        """The commits above ``after``: at once if there are any, else within ``timeout_s``
        (whole seconds; the gateway has a maximum). With a prefix or keys: only commits that change
        such a document, whole. ``more`` are further parameters. Gone where ``after`` is below the
        history's floor."""
        query: list[tuple[str, str | int]] = [("after", after), ("timeout", int(timeout_s)), *more]
        query += [("key", key) for key in keys]
        if prefix:
            query.append(("prefix", prefix))
        if limit is not None:
            query.append(("limit", limit))
        content = self._get("/changes", query, read_timeout_s=timeout_s + _POLL_GRACE_S)
        with expecting("page of changes"):
            commits = tuple(parse_commit(commit) for commit in content["commits"])
            return value_of(FeedPage, content, commits=commits)

    def commits(self, after: int, *, limit: int = 100) -> CommitPage:
        """Commits above ``after``, at most ``limit``. Gone below the history's floor."""
        query = [("after", after), ("limit", limit)]
        answer = self._transport.request("GET", f"{self._path}/commits", query=query)
        content = answer.json()
        with expecting("page of commits"):
            commits = tuple(parse_commit(commit) for commit in content["commits"])
            return CommitPage(commits, content["next"], int(answer.headers["Catalog-Revision"]))

    def transact(
        self,
        compare: Sequence[Mapping[str, Any]],
        then: Sequence[Mapping[str, Any]],
        *,
        message: str | None = None,
        idempotency_key: str | None = None,
        read_timeout_s: float | None = None,
    ) -> TransactionResult:
        """All of ``then`` as one commit if every compare is true; PreconditionFailed otherwise."""
        body: dict[str, Any] = {"compare": list(compare), "then": list(then)}
        if message is not None:
            body["message"] = message
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        answer = self._transport.request(
            "POST",
            f"{self._path}/transactions",
            json=body,
            headers=headers,
            read_timeout_s=read_timeout_s,
        )
        return parse_transaction(answer)

    def _get(self, rest: str, query: Query = (), *, read_timeout_s: float | None = None) -> Any:
        return self._transport.request(
            "GET", self._path + rest, query=query, read_timeout_s=read_timeout_s
        ).json()
