"""What was committed, and whether a request was."""

from __future__ import annotations

from collections.abc import Iterator

from .calls import Calls
from .commits import Commit, expecting, parse_commit
from .problems import NotFound
from .transport import segment


def commits(
    calls: Calls, catalog_path: str, after: int, key: str | None, page_size: int
) -> Iterator[Commit]:
    """See `Catalog.commits`."""
    position: int | None = after
    while position is not None:
        query: list[tuple[str, str | int]] = [("after", position), ("limit", page_size)]
        if key is not None:
            query.append(("key", key))
        content = calls.get(f"{catalog_path}/commits", query).json()
        with expecting("page of commits"):
            page = [parse_commit(shape) for shape in content["commits"]]
            position = content["next"]
        yield from page


def read_commit(calls: Calls, catalog_path: str, revision: int) -> Commit:
    content = calls.get(f"{catalog_path}/commits/{revision}").json()
    with expecting("commit"):
        return parse_commit(content)


def outcome(calls: Calls, catalog_path: str, idempotency_key: str) -> Commit | None:
    """See `Catalog.outcome`."""
    try:
        content = calls.get(f"{catalog_path}/outcomes/{segment(idempotency_key)}").json()
    except NotFound as error:
        if error.code not in ("outcome_not_found", "catalog_not_found"):
            raise
        return None
    with expecting("outcome"):
        return parse_commit(content)
