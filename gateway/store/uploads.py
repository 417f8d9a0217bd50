"""What two-phase uploads need from a database: staged parts that expire. Kept apart from ``Store``.

Nothing here is part of a catalog: an upload becomes visible only by a write through the commit
loop. Errors: ``Unreachable`` from any call, as in ``gateway.store.contract``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Upload:
    """``terms`` is what was asked for when it was opened, as plain JSON. ``is_open`` False: it was
    committed, and is kept for its result."""

    id: str
    catalog: str
    key: str
    principal: str
    terms: Mapping[str, Any]
    created_us: int
    expires_us: int
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """How many uploads, and how many bytes their parts take, as far as room was made for them."""

    uploads: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    number: int
    size_bytes: int
    sha256: str


class UploadStore(Protocol):
    """An upload that expired may be gone at any time after ``expires_us``, parts first."""

    def create_upload(self, upload: Upload) -> None: ...

    def upload(self, catalog: str, upload_id: str) -> Upload | None: ...

    def held(self, principal: str, now_us: int) -> tuple[Held, Held]:
        """By all, and by ``principal``: open uploads that expire after ``now_us``."""

    def make_room(self, upload: Upload, number: int, size_bytes: int, bytes_max: int) -> bool:
        """For a part, beside the upload's others. False, and nothing is changed, where all would
        take more than ``bytes_max``, or there is no such upload any more, or none that is open.

        Atomic. A part counts for the largest that room was made for under its number.
        """

    def put_part(self, upload: Upload, number: int, content: bytes) -> Part:
        """Stage a part, replacing the one with its number."""

    def parts(self, upload: Upload) -> Sequence[Part]:
        """Ascending by number, without their contents."""

    def part_content(self, upload: Upload, number: int) -> bytes | None: ...

    def count_uploads(self, now_us: int) -> int:
        """How many there are that expire after ``now_us``; those that were committed among them."""

    def drop_parts(self, upload: Upload) -> None:
        """Delete its parts and keep the upload."""

    def drop_upload(self, upload: Upload) -> None:
        """Delete it with its parts; nothing to do where that was done."""
