"""What a command ends with, so that a script can decide what to do. docs/cli.md has the table."""

from __future__ import annotations

from typing import Final

from patching.client import (
    ClientError,
    NotAuthorized,
    NotFound,
    Problem,
    RequestError,
)

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
CONFLICT: Final = 4
NO_ACCESS: Final = 5
OUT_OF_REACH: Final = 6
UNKNOWN: Final = 7
INTERRUPTED: Final = 130

# 410: it was there, and isn't any more. 428: the catalog wants a condition, and there was none.
_BY_STATUS: Final = {404: NOT_FOUND, 410: NOT_FOUND, 409: CONFLICT, 412: CONFLICT, 428: CONFLICT}


def exit_code(error: ClientError) -> int:
    """Of a command that ``error`` ended. That the outcome is unknown goes before all else."""
    if getattr(error, "applied", "no") == "unknown":
        return UNKNOWN
    if isinstance(error, NotAuthorized):
        return NO_ACCESS
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, Problem) and error.status in _BY_STATUS:
        return _BY_STATUS[error.status]
    if isinstance(error, RequestError) and error.retryable:
        return OUT_OF_REACH
    return FAILED
