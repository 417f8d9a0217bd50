"""The work of a request's patches, counted in bytes of documents before any of it is done."""

from __future__ import annotations

from typing import Final

from gateway.errors import OverLimit
from patching import Patch

# Bytes of documents that one request's patches may work through; each patch counts its document.
_PATCHED_BYTES_MAX: Final = 128 * 1024 * 1024
# An RFC 6902 patch copies only the containers on its paths; a merge visits all, several times.
PATH_SHARE: Final = 8
MERGE_TIMES: Final = 4
# Inserting or removing an array item shifts the items behind it.
_SHIFT_SHARE: Final = 80
UNCOUNTED_BYTES_MAX: Final = 64 * 1024
_IN_PLACE: Final = ("replace", "test")


def require_room(patched_bytes: int) -> None:
    """Raise OverLimit if the patches so far are more than one request may make."""
    if patched_bytes > _PATCHED_BYTES_MAX:
        raise OverLimit(
            f"the patches would work through {patched_bytes} bytes of documents, more"
            f" than the {_PATCHED_BYTES_MAX} that one transaction may",
            limit="patched_bytes_max",
            maximum=_PATCHED_BYTES_MAX,
            actual=patched_bytes,
        )


def shifts(patch: Patch, size_bytes: int) -> int:
    """The bytes of work that operations on items cost if one array has all ``size_bytes``."""
    operations = patch.to_json()
    places = [str(each["path"]) for each in operations if each["op"] not in _IN_PLACE]
    places += [str(each["from"]) for each in operations if each["op"] == "move"]
    shifting = sum(place.rpartition("/")[2].isdigit() for place in places)
    return size_bytes * shifting // _SHIFT_SHARE
