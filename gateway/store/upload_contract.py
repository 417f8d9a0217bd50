"""What open uploads need of a store: see ``gateway.store.contract``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Upload:
    """``terms`` are the conditions of its opening, as plain JSON. ``is_open`` False: it was
    committed, and is kept for its result.
    """

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
    """The number of uploads and the bytes of their parts, counting the room that was made."""

    uploads: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class UploadPart:
    number: int
    size_bytes: int
    sha256: str


class UploadStore(Protocol):
    """Staged parts of two-phase uploads. No part of a catalog: an upload becomes visible only by a
    write through the commit loop.

    An expired upload may disappear at any time after ``expires_us``, parts first.
    """

    def create_upload(self, upload: Upload) -> None: ...

    def upload(self, catalog: str, upload_id: str) -> Upload | None: ...

    def held(self, principal: str, now_us: int) -> tuple[Held, Held]:
        """Open uploads that expire after ``now_us``: of all principals, and of ``principal``."""

    def make_room(self, upload: Upload, number: int, size_bytes: int, bytes_max: int) -> bool:
        """Make room for a part. False, without a change, where the upload would take more than
        ``bytes_max``, or where it is gone or no longer open.

        Atomic. A part counts as the largest one that room was made for under its number.
        """

    def put_part(self, upload: Upload, number: int, content: bytes) -> UploadPart:
        """Stage a part, replacing the one with its number."""

    def parts(self, upload: Upload) -> Sequence[UploadPart]:
        """The parts without their contents, ascending by number."""

    def part_content(self, upload: Upload, number: int) -> bytes | None: ...

    def count_uploads(self, now_us: int) -> int:
        """The number of uploads that expire after ``now_us``, committed ones included."""

    def drop_parts(self, upload: Upload) -> None:
        """Delete the upload's parts and keep the upload."""

    def drop_upload(self, upload: Upload) -> None:
        """Delete the upload with its parts; nothing to do where that was done."""
