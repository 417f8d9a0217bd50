"""The patch language: RFC 6901, 6902, 7396 and more over decoded JSON, with limits, without I/O.

    before = {"owner": "a", "tags": ["x"]}
    after = apply(before, [{"op": "add", "path": "/tags/-", "value": "y"}])
    diff(before, after)  # [{"op": "add", "path": "/tags/1", "value": "y"}]

An extended patch (`parse_extended`, `apply_extended`) adds predicates, set operations and arrays
whose items are addressed by key; applying it also returns the RFC 6902 patch with the same effect.

`Lists` say which arrays of a document have items that are identified by key or by value.

`three_way` applies the change from one state of a document to another to a third.

`digest` hashes a document's value: `digest(a) == digest(b)` if and only if `equal(a, b)`.

A patch may also be a `jsonpatch.JsonPatch`, and `JsonPatch(diff(before, after))` makes one; that
package is optional.

Submodules have what fewer programs need. `ownership` applies the part of a document that a
*manager* wants and then owns; `owners` say who owns which leaf; `restoring` gives leaves back when
a change is undone; `part_digests` tell whether applying again would change anything. `footprints`
are the places that a patch reads and writes. `list_declarations` and `list_rules` are the lists of
a whole catalog. `merging` tells where a three-way merge is disputed. `values`, `pointers`,
`operations`, `extended`, `errors` and `canonical_json` are the parts that all this is built from.

Documents and patches are treated as immutable: the document after a patch shares what didn't change
with the document before it. `ABSENT` stands for "there is no document". Every error is a
`PatchError`, whose docstring draws the tree.
"""

from typing import TYPE_CHECKING

from patching._apply import apply, apply_within
from patching._apply_extended import Extended, apply_extended
from patching._diff import diff
from patching.canonical_json import digest
from patching.errors import (
    DEFAULT_LIMITS,
    DocumentAbsent,
    InvalidPatch,
    LimitExceeded,
    Limits,
    PatchConflict,
    PatchError,
    PathMissing,
    TestFailed,
)
from patching.extended import ExtendedPatch, parse_extended
from patching.former_names import by_module, former_names
from patching.list_declarations import parse_lists
from patching.list_rules import NO_LISTS, Lists
from patching.merging import merge, three_way
from patching.operations import Patch, parse
from patching.pointers import join_pointer, split_pointer
from patching.values import ABSENT, Document, Json, equal

__all__ = [
    "ABSENT",
    "DEFAULT_LIMITS",
    "NO_LISTS",
    "Document",
    "DocumentAbsent",
    "Extended",
    "ExtendedPatch",
    "InvalidPatch",
    "Json",
    "LimitExceeded",
    "Limits",
    "Lists",
    "Patch",
    "PatchConflict",
    "PatchError",
    "PathMissing",
    "TestFailed",
    "apply",
    "apply_extended",
    "apply_within",
    "diff",
    "digest",
    "equal",
    "join_pointer",
    "merge",
    "parse",
    "parse_extended",
    "parse_lists",
    "split_pointer",
    "three_way",
]

if not TYPE_CHECKING:
    # The former names of this package, by the module that has them now.
    _MOVED = {
        **by_module(
            {
                "patching.canonical_json": "canonical",
                "patching.errors": "IndexNeedsTest ListViolation",
                "patching.extended": "EXTENDED_OPERATIONS is_conditional is_extended parse_tests",
                "patching.footprints": "Footprint displaced footprint overlap",
                "patching.list_declarations": (
                    "ListDeclarations NO_DECLARATIONS key_pattern parse_declarations"
                ),
                "patching.list_rules": "ArrayKeys ArraySet ListRule",
                "patching.merging": "Dispute Merged",
                "patching.operations": "as_operations",
                "patching.owners": "OwnersChange Ownership change_between changed_owners",
                "patching.ownership": (
                    "ApplyResult CONFLICTS Contested OwnedByOthers apply_wanted let_go "
                    "require_fit taken_over"
                ),
                "patching.part_digests": "owned_digest owned_digests part_digest part_text",
                "patching.pointers": "is_within",
                "patching.values": "Absent decoded has_many_exponents repeated_member",
            }
        ),
        "Owner": "patching.owners.Ownership",
        "Owners": "patching.owners.OwnerTree",
        "Applied": "patching.ownership.ApplyResult",
        "Conflict": "patching.ownership.OnConflict",
    }

    __getattr__ = former_names(__name__, _MOVED)
