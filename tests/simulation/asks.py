"""What a simulated client asks for, in terms that neither the gateway nor the model owns."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["put", "patch", "merge", "delete", "read", "read_at", "page", "reply"]


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


@dataclass(frozen=True)
class Ask:
    """``value`` is the content of a put, the operations of a patch, the patch of a merge.

    ``if_match`` are tokens, or ("*",); ``create_only`` is If-None-Match: *. ``label`` names the
    request: it goes with the commit as its message. ``fingerprint`` belongs to the idempotency
    key. ``revision`` is for reads of the past, and where a page of commits begins.
    """

    kind: Kind
    catalog: Name
    key: Name
    label: str
    value: Any = None
    if_match: tuple[str, ...] | None = None
    create_only: bool = False
    dry_run: bool = False
    idempotency_key: str | None = None
    fingerprint: str = ""
    wait_s: float | None = None
    revision: int = 0

    @property
    def writes(self) -> bool:
        return self.kind in ("put", "patch", "merge", "delete")
