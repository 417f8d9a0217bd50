"""What a function looks at of a snapshot, and the compares that say that this is still so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from patching import Json
from patching.client._versions import Snapshot

# More documents, or ranges, than these count as the whole copy.
_KEYS_MAX: Final = 1000
_RANGES_MAX: Final = 32


class Looks:
    """``snapshot`` is of a copy of the documents whose keys begin with ``copied``."""

    def __init__(self, snapshot: Snapshot, copied: str) -> None:
        self._revision = snapshot.revision
        self._copied = copied
        self._keys: dict[str, bool] = {}
        self._prefixes: set[str] = set()
        self._at_all = False

    def key(self, key: str, *, exists: bool) -> None:
        if key.startswith(self._copied):
            self._keys[key] = exists
        else:  # nobody knows whether it is there
            self.everything()

    def range(self, prefix: str) -> None:
        if prefix.startswith(self._copied):
            self._prefixes.add(prefix)
        else:
            self.everything()

    def copy(self) -> None:
        """At all documents of the copy."""
        self._prefixes.add(self._copied)

    def everything(self) -> None:
        """At what every commit changes."""
        self._at_all = True

    @property
    def compares(self) -> list[dict[str, Any]]:
        """True as long as nothing that was looked at has changed; none where nothing was."""
        if self._at_all:
            return [{"resource_version": self._revision}]
        # A document that isn't there is the range of its key. By "absent", two who make the same
        # of it would both succeed: to the gateway, the second one was sent again.
        prefixes = self._prefixes | {key for key, exists in self._keys.items() if not exists}
        if len(self._keys) > _KEYS_MAX or len(prefixes) > _RANGES_MAX:
            prefixes = {self._copied}
        since = {"unchanged_since": self._revision}
        there = (key for key, exists in self._keys.items() if exists)
        return [
            *({"prefix": prefix, **since} for prefix in sorted(prefixes)),
            *({"key": key, **since} for key in there if not key.startswith(tuple(prefixes))),
        ]


class LookedAt(Snapshot):
    """A snapshot that notes what is looked at."""

    __slots__ = ("_looks", "_snapshot")
    _looks: Looks
    _snapshot: Snapshot

    def __init__(self, snapshot: Snapshot, looks: Looks) -> None:
        object.__setattr__(self, "_snapshot", snapshot)
        object.__setattr__(self, "_looks", looks)

    @property
    def revision(self) -> int:
        self._looks.everything()
        return self._snapshot.revision

    @property
    def time(self) -> datetime | None:
        self._looks.everything()
        return self._snapshot.time

    @property
    def settings(self) -> Json:
        self._looks.everything()
        return self._snapshot.settings

    @property
    def documents(self) -> Mapping[str, Json]:
        return _Documents(self._snapshot.documents, self._looks)

    def under(self, prefix: str) -> dict[str, Json]:
        self._looks.range(prefix)
        return self._snapshot.under(prefix)


class _Documents(Mapping[str, Json]):
    def __init__(self, documents: Mapping[str, Json], looks: Looks) -> None:
        self._documents = documents
        self._looks = looks

    def __getitem__(self, key: str) -> Json:
        exists = key in self._documents
        if isinstance(key, str):
            self._looks.key(key, exists=exists)
        return self._documents[key]

    def __iter__(self) -> Iterator[str]:
        self._looks.copy()
        return iter(self._documents)

    def __len__(self) -> int:
        self._looks.copy()
        return len(self._documents)
