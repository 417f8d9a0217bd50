"""The patch language: RFC 6901, 6902, 7396 and more over decoded JSON, with limits, without I/O.

    before = {"owner": "a", "tags": ["x"]}
    after = apply(before, [{"op": "add", "path": "/tags/-", "value": "y"}])
    diff(before, after)  # [{"op": "add", "path": "/tags/1", "value": "y"}]

An extended patch (`parse_extended`, `apply_extended`) adds predicates, set operations and arrays
whose items are addressed by key; applying it also gives the RFC 6902 patch that it came to.

`Lists` say which arrays of a document have items that are told apart by key or by value.

`apply_wanted` gives a document what a *manager* wants of it, who then owns that: `Owners` say who
owns which leaf, `taken_over` what a plain write does to them. `part_digest` of what a manager wants
is the `owned_digest` of what it owns where applying this again would change nothing.

`three_way` does to a document what led from one state of it to another.

`digest` names a document's value: `digest(a) == digest(b)` exactly where `equal(a, b)`.

A patch may also be a `jsonpatch.JsonPatch`, and `JsonPatch(diff(before, after))` makes one; that
package is not needed otherwise.

Documents and patches are treated as immutable: what a patch leaves alone is shared between the
document before and the document after. `ABSENT` stands for "there is no document". Every error is
a `PatchError`, whose docstring draws the tree.
"""

from patching._apply import apply, apply_within
from patching._apply_extended import Extended, apply_extended
from patching._declared import (
    NO_DECLARATIONS,
    ListDeclarations,
    key_pattern,
    parse_declarations,
    parse_lists,
)
from patching._diff import diff
from patching._digest import canonical, digest
from patching._errors import (
    DEFAULT_LIMITS,
    DocumentAbsent,
    IndexNeedsTest,
    InvalidPatch,
    LimitExceeded,
    Limits,
    ListViolation,
    PatchConflict,
    PatchError,
    PathMissing,
    TestFailed,
)
from patching._extended import (
    EXTENDED_OPERATIONS,
    ExtendedPatch,
    is_conditional,
    is_extended,
    parse_extended,
    parse_tests,
)
from patching._footprint import Footprint, displaced, footprint, overlap
from patching._json import (
    ABSENT,
    Absent,
    Document,
    Json,
    decoded,
    equal,
    has_many_exponents,
    repeated_member,
)
from patching._lists import NO_LISTS, ArrayKeys, ArraySet, ListRule, Lists
from patching._merge import merge
from patching._operations import Patch, as_operations, parse
from patching._owners import Owners, OwnersChange, Ownership, change_between, changed_owners
from patching._ownership import (
    CONFLICTS,
    ApplyResult,
    Conflict,
    Contested,
    OwnedByOthers,
    apply_wanted,
    let_go,
    require_fit,
    taken_over,
)
from patching._parts import owned_digest, owned_digests, part_digest, part_text
from patching._pointer import is_within, join_pointer, split_pointer
from patching._three_way import Dispute, Merged, three_way

__all__ = [
    "ABSENT",
    "CONFLICTS",
    "DEFAULT_LIMITS",
    "EXTENDED_OPERATIONS",
    "NO_DECLARATIONS",
    "NO_LISTS",
    "Absent",
    "ApplyResult",
    "ArrayKeys",
    "ArraySet",
    "Conflict",
    "Contested",
    "Dispute",
    "Document",
    "DocumentAbsent",
    "Extended",
    "ExtendedPatch",
    "Footprint",
    "IndexNeedsTest",
    "InvalidPatch",
    "Json",
    "LimitExceeded",
    "Limits",
    "ListDeclarations",
    "ListRule",
    "ListViolation",
    "Lists",
    "Merged",
    "OwnedByOthers",
    "Owners",
    "OwnersChange",
    "Ownership",
    "Patch",
    "PatchConflict",
    "PatchError",
    "PathMissing",
    "TestFailed",
    "apply",
    "apply_extended",
    "apply_wanted",
    "apply_within",
    "as_operations",
    "canonical",
    "change_between",
    "changed_owners",
    "decoded",
    "diff",
    "digest",
    "displaced",
    "equal",
    "footprint",
    "has_many_exponents",
    "is_conditional",
    "is_extended",
    "is_within",
    "join_pointer",
    "key_pattern",
    "let_go",
    "merge",
    "overlap",
    "owned_digest",
    "owned_digests",
    "parse",
    "parse_declarations",
    "parse_extended",
    "parse_lists",
    "parse_tests",
    "part_digest",
    "part_text",
    "repeated_member",
    "require_fit",
    "split_pointer",
    "taken_over",
    "three_way",
]
