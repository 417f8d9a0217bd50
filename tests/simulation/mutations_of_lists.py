"""The rules of lists and of forced reverts, each broken on purpose: see ``mutations``."""

from __future__ import annotations

from collections.abc import Mapping

import patching
import patching.footprints
from gateway.decide import performing
from gateway.decide.decide import BatchState

from . import breakages_of_lists as breakages
from .mutation import Mutation, mutation
from .plans import declaring, listing_at_a_distance, reverting, reverting_lists

LISTS: Mapping[str, Mutation] = {
    "items-by-key": mutation(
        "a decision that is made again looks for the items of a list by key again",
        "untrue-commit",
        (patching, "apply_extended", breakages.as_first_lowered),
        adjust=listing_at_a_distance,
    ),
    "indexes-tell": mutation(
        "an index goes to an item of a list only where the patch has tested which one it is",
        "untrue-commit",
        (performing, "is_pinned", breakages.always_pinned),
        adjust=listing_at_a_distance,
    ),
    "items-in-place": mutation(
        "a patch that goes by index is rebased only where the items are in their places",
        "untrue-commit untrue-no-op",
        (patching.footprints, "displaced", breakages.nothing_displaced),
        adjust=listing_at_a_distance,
    ),
    "declared-of-all": mutation(
        "settings that declare lists meet what was written since the documents were looked at",
        "untrue-commit",
        (BatchState, "written_since", breakages.nothing_written),
        adjust=declaring,
    ),
    "owners-of-items": mutation(
        "items of lists are owned one by one",
        "owners untrue-commit",
        (performing, "owning", breakages.owning_whole_arrays),
        adjust=listing_at_a_distance,
    ),
    "reverts-by-key": mutation(
        "a revert tells the items of lists apart by their keys",
        "untrue-commit untrue-no-op",
        (performing, "reverted", breakages.reverted_by_index),
        adjust=reverting_lists,
    ),
    "forced-where-named": mutation(
        "a revert forces the places that it names and none beside them",
        "untrue-commit untrue-no-op",
        (performing, "reverted", breakages.force_what_is_beside),
        adjust=reverting,
    ),
}
