"""The work of a request's patches, counted in bytes of documents before any of it is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.errors import AboveLimit
from patching import LimitExceeded, Limits, Patch, PatchError

# Bytes of documents that one request's patches may work through; each patch counts its document.
_PATCHED_BYTES_MAX: Final = 128 * 1024 * 1024
# An RFC 6902 patch copies only the containers on its paths; a merge visits all, several times.
PATH_SHARE: Final = 8
MERGE_TIMES: Final = 4
# Inserting or removing an array item shifts the items behind it.
_SHIFT_SHARE: Final = 80
UNCOUNTED_BYTES_MAX: Final = 64 * 1024
_IN_PLACE: Final = ("replace", "test")


class Items:
    """The array items that one request's patches and tests may examine, together."""

    def __init__(self, limits: Limits) -> None:
        self._maximum = limits.items_examined_max
        self.limits = limits

    def count(self, examined: int) -> None:
        """So many were: the next one may only examine what is left, by its ``limits``."""
        if examined:
            left = max(0, self.limits.items_examined_max - examined)
            self.limits = replace(self.limits, items_examined_max=left)

    def as_of_request(self, error: PatchError) -> PatchError:
        """``error`` of a patch or test under ``limits``, as that of the whole request."""
        if not isinstance(error, LimitExceeded) or error.limit != "items_examined_max":
            return error
        before = self._maximum - self.limits.items_examined_max
        return LimitExceeded(
            error.limit,
            self._maximum,
            before + error.actual,
            operation=error.operation,
            pointer=error.pointer,
        )


def require_room(patched_bytes: int) -> None:
    """Raise AboveLimit if the patches so far are more than one request may make."""
    if patched_bytes > _PATCHED_BYTES_MAX:
        raise AboveLimit(
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
