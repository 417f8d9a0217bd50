"""What a request requires of the current state, evaluated the same way on every route.

Order and meaning follow RFC 9110, section 13: token conditions win over dates, comparison is
strong. Dates have whole seconds, so they can miss a second change within one; tokens can't.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.commits.errors import PreconditionFailed
from gateway.model import Document, token_revision

ANY: Final = "*"
ANY_TOKEN: Final = frozenset({ANY})

Tokens = frozenset[str]


@dataclass(frozen=True, slots=True)
class Conditions:
    """The preconditions of one request on one document.

    ``if_match`` and ``if_none_match`` hold the tokens the client named; ``{ANY}`` stands for
    ``*``. Dates are whole seconds since the epoch. None means: no such condition.
    """

    if_match: Tokens | None = None
    if_none_match: Tokens | None = None
    if_modified_since: int | None = None
    if_unmodified_since: int | None = None

    def check(self, key: str, document: Document | None) -> None:
        """Raise PreconditionFailed where a *write* under these conditions must be refused."""
        live = document if document is not None and document.exists else None
        if self.if_match is not None:
            if not _matches(self.if_match, live):
                raise self._failure("If-Match", self.if_match, key, live)
        elif document is not None and self._modified_since(document):
            # A tombstone's time counts: deletion is a modification the client hasn't seen.
            raise self._failure("If-Unmodified-Since", None, key, live)
        if self.if_none_match is not None and _matches(self.if_none_match, live):
            raise self._failure("If-None-Match", self.if_none_match, key, live)

    def not_modified(self, document: Document) -> bool:
        """Whether a *read* of the live ``document`` is answered by "not modified"."""
        if self.if_none_match is not None:
            return _matches(self.if_none_match, document)
        if self.if_modified_since is not None:
            return document.time_us // 1_000_000 <= self.if_modified_since
        return False

    def _modified_since(self, document: Document) -> bool:
        limit = self.if_unmodified_since
        return limit is not None and document.time_us // 1_000_000 > limit

    def _failure(
        self, name: str, tokens: Tokens | None, key: str, live: Document | None
    ) -> PreconditionFailed:
        if tokens is None:
            expected = f"unmodified since {self.if_unmodified_since} s"
        else:
            expected = ", ".join(sorted(tokens))
        if name == "If-None-Match" and tokens == ANY_TOKEN:
            expected = "absent"
        found = f"its token is {live.token}" if live else "there is no such document"
        revisions = [token_revision(token) for token in tokens or ()]
        return PreconditionFailed(
            f"{name} is false for {key!r}: {found}",
            key=key,
            expected=expected,
            current=(live.token, live.revision) if live else None,
            since_revision=max((r for r in revisions if r is not None), default=None),
        )


NO_CONDITIONS: Final = Conditions()


def _matches(tokens: Tokens, live: Document | None) -> bool:
    return live is not None and (ANY in tokens or live.token in tokens)
