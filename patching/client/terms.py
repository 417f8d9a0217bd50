"""The terms of a write (conditions, message, key, …), and their headers."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypedDict
from urllib.parse import quote

from patching.operations import as_operations

if TYPE_CHECKING:
    from jsonpatch import JsonPatch

# Visible ASCII except "%": the characters that a percent-encoded header has as they are.
_LITERAL: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
_TOKEN: Final = re.compile(r"[!#-~]+").fullmatch
_KEY: Final = re.compile(r"[!-~]{1,255}").fullmatch


class Tagged(Protocol):
    """A value with a version token: a Document, the result of a write, Several."""

    @property
    def etag(self) -> str | None: ...


Token: TypeAlias = "str | Tagged"
"""A version token, or what has one: ``if_match=document`` means ``if_match=document.etag``.

``"*"``: there is a document. Composites (``"a=t1;b=absent"``) and a catalog's tag (``"@1f"``) are
tokens, too."""

Tokens: TypeAlias = "Token | Sequence[Token]"
"""A token, or several of which one must match."""


Operations: TypeAlias = "Sequence[Mapping[str, Any]] | JsonPatch"
"""A patch."""


class WriteTerms(TypedDict, total=False):
    """The keywords that every write takes.

    ``message``: the commit's. ``author``: the commit's, if not the principal; needs the role admin.
    ``idempotency_key``: the request's name; sent again under it, in this process or another, the
    write is decided once. If none is given, one is made (see `Retry`).
    ``resource_version``: the catalog must be at this revision.
    ``if_unchanged_under``: by prefix of keys, the revision since which none of these documents may
    have been created, changed or deleted: ``{"tables/": 12}``.
    ``dry_run``: decide and answer, but write nothing.
    ``show_refused``: a refusal shows the document that the write met, as ``current_value``.
    ``wait_s``: for how many whole seconds the gateway tries at most.
    ``timeout_s``: for how many seconds the call tries, instead of the gateway's ``timeout_s``.
    """

    message: str | None
    author: str | None
    idempotency_key: str | None
    resource_version: int | None
    if_unchanged_under: Mapping[str, int] | None
    dry_run: bool
    show_refused: bool
    wait_s: int | None
    timeout_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTerms:
    """`WriteTerms` as one value, with their defaults. ValueError for an invalid key."""

    message: str | None = None
    author: str | None = None
    idempotency_key: str | None = None
    resource_version: int | None = None
    if_unchanged_under: Mapping[str, int] | None = None
    dry_run: bool = False
    show_refused: bool = False
    wait_s: int | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.idempotency_key is not None and not _KEY(self.idempotency_key):
            raise ValueError("an idempotency key must be 1 to 255 visible ASCII characters")
        if self.wait_s is not None and self.wait_s < 0:
            raise ValueError("wait_s can't be negative")

    @property
    def query(self) -> list[tuple[str, str | int]]:
        query: list[tuple[str, str | int]] = []
        if self.dry_run:
            query.append(("dry_run", "true"))
        if self.resource_version is not None:
            query.append(("resource_version", self.resource_version))
        return query

    @property
    def prefer(self) -> tuple[str, ...]:
        return ("refusal=representation",) if self.show_refused else ()

    @property
    def headers(self) -> dict[str, str]:
        """All but the idempotency key."""
        headers = {}
        if self.message is not None:
            headers["Commit-Message"] = quote(self.message, safe=_LITERAL)
        if self.author is not None:
            headers["Commit-Author"] = quote(self.author, safe=_LITERAL)
        if self.if_unchanged_under is not None:
            headers["If-Unchanged-Under"] = range_list(self.if_unchanged_under)
        return headers

    @property
    def members(self) -> dict[str, Any]:
        """The members of a bulk line, without the idempotency key, and without what bulk requests
        answer in another way: ``dry_run``, ``show_refused`` and ``wait_s``."""
        members: dict[str, Any] = {}
        if self.message is not None:
            members["message"] = self.message
        if self.author is not None:
            members["author"] = self.author
        if self.resource_version is not None:
            members["resource_version"] = self.resource_version
        if self.if_unchanged_under is not None:
            ranges = self.if_unchanged_under.items()
            members["if_unchanged_under"] = [{"prefix": p, "revision": r} for p, r in ranges]
        return members


def new_idempotency_key() -> str:
    """A random key that no other write has."""
    return uuid.uuid4().hex


def token_texts(tokens: Tokens) -> list[str]:
    """``tokens`` without quotes. ValueError if there is none, because a condition is never dropped;
    TypeError for what can't be one, such as a revision."""
    listed: Sequence[Token]
    listed = tokens if isinstance(tokens, Sequence) and not isinstance(tokens, str) else [tokens]
    if not listed:
        raise ValueError("the list of version tokens is empty: give at least one")
    texts = [_token_text(each) for each in listed]
    if "*" in texts and len(texts) > 1:
        raise ValueError("'*' can't be combined with other version tokens")
    return texts


def _token_text(token: Token) -> str:
    text = token if isinstance(token, str) else getattr(token, "etag", token)
    if text is None:
        raise ValueError(f"there is no document, so it has no version token: {token!r}")
    if not isinstance(text, str):
        raise TypeError(f"a version token is a string, or an object with an etag, not {token!r}")
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not _TOKEN(text):
        raise ValueError(f"this is not a version token: {text!r}")
    return text


def condition_headers(if_match: Tokens | None, if_absent: bool) -> dict[str, str]:
    """The headers of a condition. ValueError if the two contradict each other."""
    if if_match is None:
        return {"If-None-Match": "*"} if if_absent else {}
    if if_absent:
        raise ValueError("if_match and if_absent can't be given together")
    return {"If-Match": tag_list(if_match)}


def condition_members(if_match: Tokens | None, if_absent: bool) -> dict[str, Any]:
    """Likewise, as members of a bulk line."""
    if if_match is not None:
        texts = token_texts(if_match)
        return {"if_match": texts[0] if len(texts) == 1 else texts}
    return {"if_none_match": "*"} if if_absent else {}


def tag_list(tokens: Tokens) -> str:
    """``tokens`` as a condition header has them."""
    return ", ".join(text if text == "*" else f'"{text}"' for text in token_texts(tokens))


def range_list(unchanged: Mapping[str, int]) -> str:
    """Prefixes and revisions as the header has them (RFC 9651). ValueError if there are none."""
    if not unchanged:
        raise ValueError("if_unchanged_under is empty: give at least one range")
    # Always as display strings, which are percent-encoded.
    return ", ".join(
        f'%"{_shown(prefix)}";revision={int(revision)}' for prefix, revision in unchanged.items()
    )


def _shown(prefix: str) -> str:
    literal = set(range(0x20, 0x7F)) - set(b'"%')
    return "".join(chr(byte) if byte in literal else f"%{byte:02x}" for byte in prefix.encode())


def operations_of(operations: Operations) -> list[Any]:
    """The operations of a patch. TypeError for a single operation outside a list."""
    if isinstance(operations, Mapping):
        raise TypeError(f"a patch must be a list of operations, such as [{dict(operations)!r}]")
    return list(operations)


def encoded(value: Any) -> bytes:
    """``value`` as JSON; a `jsonpatch.JsonPatch` as its operations. ValueError for NaN, infinities
    and lone surrogates, TypeError for what isn't JSON: nothing is converted silently."""
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_operations
    ).encode()


def _operations(value: object) -> object:
    operations = as_operations(value)
    if operations is value:
        raise TypeError(f"this can't be written as JSON: {value!r}")
    return operations
