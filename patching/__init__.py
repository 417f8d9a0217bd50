"""The patch language: RFC 6901, 6902 and 7396 over decoded JSON, with limits and without I/O.

    before = {"owner": "a", "tags": ["x"]}
    after = apply(before, [{"op": "add", "path": "/tags/-", "value": "y"}])
    diff(before, after)  # [{"op": "add", "path": "/tags/1", "value": "y"}]

Documents and patches are treated as immutable: what a patch leaves alone is shared between the
document before and the document after. `ABSENT` stands for "there is no document". Every error is
a `PatchError`, whose docstring draws the tree.
"""

from ._apply import apply, apply_within
from ._diff import diff
from ._equality import equal
from ._errors import (
    DocumentAbsent,
    InvalidPatch,
    LimitExceeded,
    PatchConflict,
    PatchError,
    PathMissing,
    TestFailed,
)
from ._footprint import Footprint, footprint, overlap
from ._json import ABSENT, Absent, Document, Json
from ._limits import DEFAULT_LIMITS, Limits
from ._merge import merge
from ._operations import Patch, parse
from ._pointer import join_pointer, split_pointer

__all__ = [
    "ABSENT",
    "DEFAULT_LIMITS",
    "Absent",
    "Document",
    "DocumentAbsent",
    "Footprint",
    "InvalidPatch",
    "Json",
    "LimitExceeded",
    "Limits",
    "Patch",
    "PatchConflict",
    "PatchError",
    "PathMissing",
    "TestFailed",
    "apply",
    "apply_within",
    "diff",
    "equal",
    "footprint",
    "join_pointer",
    "merge",
    "overlap",
    "parse",
    "split_pointer",
]
