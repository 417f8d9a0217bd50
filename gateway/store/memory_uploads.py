"""Uploads and issued tokens in memory: see ``gateway.store.contract``.

Expired uploads stay until they are dropped.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from gateway.store.contract import Held, StoredToken, Upload, UploadPart


class MemoryUploads:
    """See ``gateway.store.contract.UploadStore``. Every call is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads: dict[tuple[str, str], Upload] = {}
        self._parts: dict[tuple[str, str], dict[int, tuple[UploadPart, bytes]]] = {}
        self._rooms: dict[tuple[str, str], dict[int, int]] = {}

    def create_upload(self, upload: Upload) -> None:
        with self._lock:
            self._uploads[_name(upload)] = upload
            self._rooms[_name(upload)] = {}

    def upload(self, catalog: str, upload_id: str) -> Upload | None:
        with self._lock:
            return self._uploads.get((catalog, upload_id))

    def held(self, principal: str, now_us: int) -> tuple[Held, Held]:
        with self._lock:
            found = [
                (upload.principal, sum(self._rooms[name].values()))
                for name, upload in self._uploads.items()
                if upload.is_open and upload.expires_us > now_us
            ]
        own = [size for whose, size in found if whose == principal]
        return Held(len(found), sum(size for _, size in found)), Held(len(own), sum(own))

    def make_room(self, upload: Upload, number: int, size_bytes: int, bytes_max: int) -> bool:
        with self._lock:
            known = self._uploads.get(_name(upload))
            if known is None or not known.is_open:
                return False
            rooms = self._rooms[_name(upload)]
            room = max(size_bytes, rooms.get(number, 0))
            if sum(rooms.values()) - rooms.get(number, 0) + room > bytes_max:
                return False
            rooms[number] = room
            return True

    def put_part(self, upload: Upload, number: int, content: bytes) -> UploadPart:
        part = UploadPart(number, len(content), hashlib.sha256(content).hexdigest())
        with self._lock:
            self._parts.setdefault(_name(upload), {})[number] = (part, content)
        return part

    def parts(self, upload: Upload) -> Sequence[UploadPart]:
        with self._lock:
            return [part for _, (part, _) in sorted(self._parts.get(_name(upload), {}).items())]

    def part_content(self, upload: Upload, number: int) -> bytes | None:
        with self._lock:
            staged = self._parts.get(_name(upload), {}).get(number)
        return None if staged is None else staged[1]

    def count_uploads(self, now_us: int) -> int:
        with self._lock:
            return sum(upload.expires_us > now_us for upload in self._uploads.values())

    def drop_parts(self, upload: Upload) -> None:
        with self._lock:
            self._parts.pop(_name(upload), None)

    def drop_upload(self, upload: Upload) -> None:
        with self._lock:
            self._uploads.pop(_name(upload), None)
            self._rooms.pop(_name(upload), None)
            self._parts.pop(_name(upload), None)


def _name(upload: Upload) -> tuple[str, str]:
    return upload.catalog, upload.id


class MemoryTokens:
    """See ``gateway.store.contract.TokenStore``. Every call is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[str, StoredToken] = {}

    def create_token(self, token: StoredToken) -> None:
        with self._lock:
            if self._tokens.setdefault(token.id, token) is not token:
                raise ValueError("there is a token with this id")

    def token(self, token_id: str) -> StoredToken | None:
        with self._lock:
            return self._tokens.get(token_id)

    def tokens_of(self, ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        with self._lock:
            return {each: self._tokens[each] for each in ids if each in self._tokens}

    def tokens(self) -> Sequence[StoredToken]:
        with self._lock:
            return sorted(self._tokens.values(), key=lambda each: (each.created_us, each.id))

    def revoke_token(self, token_id: str, revoked_us: int) -> StoredToken | None:
        with self._lock:
            token = self._tokens.get(token_id)
            if token is not None and token.revoked_us is None:
                token = self._tokens[token_id] = replace(token, revoked_us=revoked_us)
            return token
